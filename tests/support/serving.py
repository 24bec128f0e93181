"""A workspace that is served in this process, and its callers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from hpsearch.search.operations import Scope, run
from hpsearch.search.service.app import make_app
from hpsearch.search.service.home import Home, Settings
from hpsearch.search.service.service import Service
from hpsearch.search.service.tokens import SCOPES
from hpsearch.storage.workspace import Workspace

from . import online
from .in_process import InProcessBackend
from .spaces import small
from .watchers import Recorder

CURVE = """\
def curve(trial):
    if trial.number == 2:
        raise ValueError("broken")
    for step in (1, 2):
        trial.report((trial.params["x"] - 0.3) ** 2 + 1 / step, step)
    return (trial.params["x"] - 0.3) ** 2
"""


def searched(folder: Path) -> Workspace:
    """A workspace with the study `curve`: four trials that ended, of which the third failed."""
    (folder / "curve.py").write_text(CURVE)
    workspace = Workspace.at(str(folder / "studies.db"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "hpsearch.search.operations.run.make_backend", lambda name, *of: InProcessBackend(*of[:2])
        )
        space = small(name="curve", objective="curve.py:curve", early_stopping={"method": "none", "max": 2})
        run.run(workspace=workspace, space=space.in_folder(folder), watcher=Recorder())
    return workspace


class Callers:
    """A served workspace, and a token of each scope."""

    def __init__(self, workspace: Workspace, home: Path, settings: Settings | None = None) -> None:
        self.service = Service.at(workspace, Home.at(home), settings or Settings())
        studies = {"work": ("curve",)}
        self.tokens: dict[Scope, str] = {
            scope: self.service.tokens.create(scope, scope, studies=studies.get(scope, ())).token
            for scope in SCOPES
        }
        self.client = TestClient(
            make_app(self.service),
            base_url="http://localhost",
            raise_server_exceptions=False,
            client=("127.0.0.1", 50000),
        )

    def __call__(
        self, method: str, path: str, scope: Scope | None = "admin", token: str | None = None, **options: Any
    ) -> Any:
        """The answer to a request of who has the scope, or this token; without both, of nobody."""
        text = token or (self.tokens[scope] if scope is not None else None)
        headers = ({} if text is None else {"Authorization": f"Bearer {text}"}) | options.pop("headers", {})
        return self.client.request(method, path, headers=headers, **options)


@contextmanager
def callers(workspace: Workspace, home: Path, settings: Settings | None = None) -> Iterator[Callers]:
    """Callers of a workspace, while it is served."""
    found = Callers(workspace, home, settings)
    with found.client:
        yield found
    online.await_drivers(found.service)


@contextmanager
def listening(service: Service) -> Iterator[str]:
    """The address of a service that listens, on a thread of this process."""
    with online.listening(make_app(service)) as url:
        try:
            yield url
        finally:
            service.leave()
