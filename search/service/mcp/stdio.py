"""Tools over standard input and output, for an agent on the same machine. Nothing else is written there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from mcp.server.stdio import stdio_server

from ....storage.workspace import Workspace
from ...operations import OPERATIONS
from ..place import Here, Place
from ..tokens import SCOPES
from .protocol import make_server
from .tools import Tools

if TYPE_CHECKING:
    from ..queue.reconciler import Reconciler

T = TypeVar("T")
CHANGING = {each.path.partition(":")[2] for each in OPERATIONS.values() if each.scope == "write"} - {"plan"}


def serve(place: Place) -> None:
    """Answer an agent's requests until it closes standard input."""
    tools = Tools(place, files=True)
    server = make_server(lambda: tools, lambda: SCOPES)

    async def run() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(run)


class Local:
    """This process. Once it changes something, it keeps the queue of its database, unless a server does.

    Searches are processes of their own, which go on when this one ends; what waits then waits for a server.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._here = Here(workspace)
        self._queue: Reconciler | None = None
        self._lock = threading.Lock()  # tools work in threads

    @property
    def name(self) -> str:
        """The database."""
        return self._here.name

    def __call__(self, operation: Callable[..., T], /, **arguments: Any) -> T:
        done = self._here(operation, **arguments)
        if operation.__name__ in CHANGING:
            self._keep_queue()
        return done

    def close(self) -> None:
        """Keep the queue no more."""
        if self._queue is not None:
            self._queue.stop()

    def _keep_queue(self) -> None:
        from ...queue.slots import Machine
        from ..home import Home
        from ..queue.reconciler import Reconciler

        workspace = self._here.workspace
        assert workspace is not None
        with self._lock:
            if self._queue is None:
                home = Home.at()
                settings = home.settings()
                machine = Machine.here(settings.lanes, settings.settle, settings.ray_studies)
                self._queue = Reconciler(workspace, home.folder, machine, bundles=home.bundles)
                self._queue.start()
            self._queue.poke()


def serve_here(workspace: Workspace) -> None:
    """Answer an agent's requests about a workspace of this machine."""
    if workspace.file is not None:  # drivers start in other folders
        workspace = Workspace.at(str(workspace.file.absolute()), workspace.runs.absolute())
    with closing(Local(workspace)) as place:
        serve(place)
