"""Where operations are done: in this process, or at a server. Commands and tools call them by their place."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from ...storage.workspace import Workspace
    from .client.server import Server

T = TypeVar("T")


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
        if "workspace" in inspect.signature(operation).parameters:
            arguments["workspace"] = self.workspace
        return operation(**arguments)


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
