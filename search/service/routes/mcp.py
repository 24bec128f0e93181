"""`/mcp`: the operations as tools of agents. The protocol's library is loaded when somebody first asks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.types import Receive, Scope, Send

from ..problems import problem

if TYPE_CHECKING:
    from ..mcp.http import Mcp


class Endpoint:
    """Answers `POST /mcp`."""

    def __init__(self) -> None:
        self._mcp: Mcp | None = None
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._lock:
            if self._mcp is None:
                made = await asyncio.to_thread(_load)
                self._mcp = made(scope["app"], scope["app"].state.service)
        await self._mcp.answer(scope, receive, send)

    async def close(self) -> None:
        """End, with the server."""
        if self._mcp is not None:
            await self._mcp.close()
            self._mcp = None


def _load() -> type[Mcp]:
    """What speaks the protocol. Raises `Problem` where its library is missing."""
    try:
        from ..mcp.http import Mcp
    except ModuleNotFoundError as error:
        told = f"this needs {error.name}, which the server lacks: pip install 'hpsearch[mcp]'"
        raise problem("extra-missing", told) from error
    return Mcp
