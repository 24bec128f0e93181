"""A real server on a port of its own, in a thread of the test's process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from hpsearch.search.operations import Scope
from hpsearch.search.service.app import make_app
from hpsearch.search.service.client import Server
from hpsearch.search.service.home import Home, Settings
from hpsearch.search.service.service import Service
from hpsearch.storage.workspace import Workspace


@dataclass(frozen=True)
class Served:
    """A service that listens."""

    service: Service
    url: str

    def token(self, scope: Scope = "admin", **options: Any) -> str:
        """A new token."""
        token: str = self.service.tokens.create("tester", scope, **options).token
        return token

    def client(self, scope: Scope = "admin", **options: Any) -> Server:
        """A client with a new token."""
        return Server(self.url, self.token(scope, **options))


@contextmanager
def serving(workspace: Workspace, folder: Path, settings: Settings | None = None) -> Iterator[Served]:
    """Serve a workspace until the block ends; the server's home is in `folder`."""
    service = Service.at(workspace, Home.at(folder / "home"), settings or Settings())
    with listening(make_app(service)) as url:
        yield Served(service, url)
    await_drivers(service)


def await_drivers(service: Service, seconds: float = 5.0) -> None:
    """Wait for drivers that are about to end; those of a search that goes on outlive their server."""
    deadline = time.monotonic() + seconds
    for child in service.queue._children.values():
        while child.code is None and time.monotonic() < deadline:
            time.sleep(0.05)


@contextmanager
def listening(app: Any, port: int = 0) -> Iterator[str]:
    """Serve an application until the block ends; its address."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    config = uvicorn.Config(app, log_config=None, lifespan="on", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        bound.close()
