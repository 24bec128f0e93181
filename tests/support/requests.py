"""Requests to a service without a socket, and what its streams send over one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import sqlalchemy

from hpsearch.search.operations import Scope
from hpsearch.search.service.app import make_app
from hpsearch.search.service.home import Home, Settings
from hpsearch.search.service.service import Service
from hpsearch.storage.workspace import Workspace


@dataclass(frozen=True)
class Told:
    """An event of a stream."""

    kind: str
    data: Any
    id: str | None


def events_of(lines: Iterator[str]) -> Iterator[Told]:
    """The events of a stream, as its lines come; comments are passed over."""
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "event" in fields:
            yield Told(fields["event"], json.loads(fields["data"]), fields.get("id"))
            fields = {}
        else:
            fields = {}


class Queries:
    """Counts the statements that any engine executes inside the block."""

    def __enter__(self) -> Queries:
        self.count = 0
        sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", self._counted)
        return self

    def __exit__(self, *error: object) -> None:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", self._counted)

    def _counted(self, *args: Any) -> None:
        self.count += 1


def make_service(workspace: Workspace, folder: Path) -> Service:
    """A service of a workspace with a home of its own."""
    return Service.at(workspace, Home.at(folder / "home"), Settings())


def client_of(service: Service, scope: Scope = "admin", **token: Any) -> Any:
    """A client of a service without a socket."""
    from starlette.testclient import TestClient

    text = service.tokens.create("tester", scope, **token).token
    client = TestClient(make_app(service), base_url="http://localhost", raise_server_exceptions=False)
    client.headers["Authorization"] = f"Bearer {text}"
    return client


__all__ = ["Queries", "Told", "client_of", "events_of", "httpx", "make_service"]
