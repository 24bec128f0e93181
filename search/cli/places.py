"""Where a command does its work: here, or at a server. Commands call operations by their place."""

from __future__ import annotations

import os
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import UsageError
from ..service.place import Here, Place, There

if TYPE_CHECKING:
    from ..service.client.server import Server

HERE_ONLY = {  # commands that have no meaning at a server, and what does
    "backup": "copies a database file of this machine",
    "copy": "copies between databases of this machine",
    "dashboard": "shows a database of this machine",
    "doctor": "looks at this machine",
    "generate": "reads a model on this machine",
    "init": "writes a file here",
    "login": "names its server itself",
    "lr-find": "trains on this machine",
    "serve": "starts a server on this machine",
    "train": "trains on this machine",
    "work": "names its server itself",
}


class Named(NamedTuple):
    """The server that a command was given."""

    server: str
    typed: bool  # rather than found in the environment


OPEN: list[Server] = []  # those that a command has connections to
NAMED: ContextVar[Named | None] = ContextVar("NAMED", default=None)


def name(server: str | None, *, typed: bool, command: str | None) -> None:
    """Remember the server that a command was given. Raises `UsageError` where it means nothing there."""
    if server and typed and command in HERE_ONLY:
        raise UsageError(f"hpsearch {command} {HERE_ONLY[command]}; leave --server out", code="here-only")
    NAMED.set(Named(server, typed) if server else None)


def server() -> Server | None:
    """The server that the command was given; None where it works here."""
    if (named := NAMED.get()) is None:
        return None
    from ..service.client.server import Server

    made = Server(named.server)
    OPEN.append(made)
    return made


def close() -> None:
    """Close the connections to servers, as a command ends."""
    while OPEN:
        OPEN.pop().close()


def place(storage: str | None, runs: Path | None = None) -> Place:
    """Where studies are: at the server that was named, else in the workspace of these options.

    A database that was typed goes before a server of the environment.
    """
    from ...storage.workspace import Workspace

    named, typed = NAMED.get(), storage is not None and storage != os.environ.get("HPSEARCH_STORAGE")
    if named is not None and named.typed and (typed or runs is not None):
        option = "--storage" if typed else "--runs"
        raise UsageError(f"a server has its own database and files: --server or {option}, not both")
    there = None if typed or runs is not None else server()
    return Here(Workspace.at(storage, runs)) if there is None else There(there)


def anywhere() -> Place:
    """Where what needs no studies is done: at the server that was named, else here."""
    there = server()
    return Here() if there is None else There(there)
