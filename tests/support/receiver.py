"""A receiver of webhooks that takes them, refuses, leads elsewhere, or does not answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    """A request that came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """What came to a port; the path says what is answered: /200, /503, /302, /hang."""

    port: int
    received: list[Received] = field(default_factory=list)
    answers: dict[str, int] = field(default_factory=dict)  # other ones than the paths say
    ended: threading.Event = field(default_factory=threading.Event)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    @property
    def types(self) -> list[str]:
        """The kinds of what was taken."""
        return [each.json["type"] for each in self.received]


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/hang":
                receiver.ended.wait(30)
                return
            status = receiver.answers.get(self.path) or int(self.path.strip("/"))
            if status == 200:
                receiver.received.append(Received(self.path, dict(self.headers), body))
            self.send_response(status)
            if status == 302:
                self.send_header("location", "/200")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        receiver = Receiver(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.ended.set()
            server.shutdown()
            thread.join()
