"""Tools at `/mcp` of a server, by streamable HTTP without sessions.

The caller's token has passed the guard. A tool calls the routes of the same server with it, so what a token
may do, and whose studies it sees, is decided in one place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any
from urllib.parse import unquote

import httpx2
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from ....spaces import Spec
from ..client.server import Server
from ..place import There
from ..service import Service
from ..tokens import Caller
from .protocol import make_server
from .tools import Planned, Tools

Message = MutableMapping[str, Any]
App = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]
URL = "http://localhost"  # of the server, for itself
_calling: ContextVar[tuple[Server, Caller]] = ContextVar("calling")


class Mcp:
    """The tools of one server, while its loop runs."""

    def __init__(self, app: App, service: Service) -> None:
        self._app, self._service = app, service
        self._planned: dict[str, Planned] = {}  # by the name of a token
        protocol = make_server(self._tools, lambda: _calling.get()[1].scopes)
        self._manager = StreamableHTTPSessionManager(protocol, json_response=True, stateless=True)
        self._ready, self._over = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def answer(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Answer a request whose caller the guard knows."""
        await self._ready.wait()
        caller: Caller = scope["state"]["caller"]
        token = dict(scope["headers"])[b"authorization"].decode("latin-1").partition(" ")[2].strip()
        inside = _Inside(self._app, asyncio.get_running_loop(), scope.get("client"))
        with _Own(URL, token, transport=inside) as server:
            before = _calling.set((server, caller))
            try:
                await self._manager.handle_request(scope, receive, send)
            finally:
                _calling.reset(before)

    async def close(self) -> None:
        """End."""
        self._over.set()
        await self._task

    async def _run(self) -> None:
        async with self._manager.run():
            self._ready.set()
            await self._over.wait()

    def _tools(self) -> Tools:
        server, caller = _calling.get()
        planned = self._planned.setdefault(caller.name, Planned())
        return Tools(There(server), False, planned, lambda: self._service.is_leaving)


class _Own(Server):
    """The server for itself: a space's code does not come from its own disk."""

    def _send_code(self, spec: Spec, cwd: Any, say: Any = None) -> None:
        return None


class _Inside(httpx2.BaseTransport):
    """Requests of threads to the application that runs on a loop of this process."""

    def __init__(self, app: App, loop: asyncio.AbstractEventLoop, client: Any) -> None:
        self._app, self._loop, self._client = app, loop, client

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = self._answer(request, request.read())
        return asyncio.run_coroutine_threadsafe(answer, self._loop).result()

    async def _answer(self, request: httpx2.Request, body: bytes) -> httpx2.Response:
        raw, _, query = request.url.raw_path.partition(b"?")
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": unquote(raw.decode("ascii")),
            "raw_path": raw,
            "query_string": query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": self._client,
            "server": ("localhost", 80),
        }
        messages: list[Mapping[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]
        answered: list[Message] = []

        async def receive() -> Any:
            if messages:
                return messages.pop()
            await asyncio.Event().wait()  # the client stays until it is answered

        async def send(message: Message) -> None:
            answered.append(message)

        await self._app(scope, receive, send)
        start, *parts = answered
        content = b"".join(part.get("body", b"") for part in parts)
        return httpx2.Response(start["status"], headers=start["headers"], content=content)
