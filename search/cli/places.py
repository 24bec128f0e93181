"""Where a command does its work: here, or at a server. Commands call operations by their place."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ..errors import UsageError

if TYPE_CHECKING:
    from ...storage.workspace import Workspace
    from ..service.client.server import Server

T = TypeVar("T")
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


class Place(Protocol):
    """Does operations."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

    def __call__(self, operation: Callable[..., T], /, **arguments: Any) -> T:
        """Do an operation with all its arguments but the workspace."""


@dataclass(frozen=True)
class Here:
    """This process."""

    workspace: Workspace | None = None

    @property
    def name(self) -> str:
        from ...storage.passwords import hidden

        return "" if self.workspace is None else hidden(self.workspace.url)

    def __call__(self, operation: Callable[..., T], /, **arguments: Any) -> T:
        where = {} if self.workspace is None else {"workspace": self.workspace}
        return operation(**where, **arguments)


@dataclass(frozen=True)
class There:
    """A server, whose methods are named as the operations are."""

    server: Server

    @property
    def name(self) -> str:
        return self.server.url

    def __call__(self, operation: Callable[..., T], /, **arguments: Any) -> T:
        done: T = getattr(self.server, operation.__name__)(**arguments)
        return done


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
