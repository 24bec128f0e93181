"""`/optuna/`: optuna-dashboard over the same studies, read-only. It is loaded when somebody asks for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from pydantic import Field
from starlette.types import Receive, Scope, Send

from ....storage.database import open_tables
from ....storage.studies import study_keys
from ..access import Body, Reader, TheService, names, needs
from ..guard import READING
from ..problems import problem
from ..service import Service
from ..visits import HOURS, PATH, Visit, refuse_bound

if TYPE_CHECKING:
    from a2wsgi import WSGIMiddleware

router = APIRouter(prefix="/v1", tags=["page"])


class VisitBody(Body):
    """What is looked at."""

    study: str | None = Field(None, description="The study that is shown first; null: the list of them.")


@router.post("/visits", status_code=201, **names("visit"))
async def visit(
    caller: Reader, service: TheService, body: VisitBody, request: Request, response: Response
) -> Annotated[Any, Visit]:
    """A cookie with which a browser reads optuna-dashboard, and nothing else, for 8 hours."""
    secret = service.visits.begin(caller)
    at = _at(service)
    seen_at = request.headers.get("origin") or str(request.url)  # a proxy may have ended TLS
    response.set_cookie(
        service.visits.cookie,
        secret,
        max_age=3600 * HOURS,
        path=at,
        secure=seen_at.startswith("https:"),
        httponly=True,
        samesite="strict",
    )
    keys = {} if body.study is None else await asyncio.to_thread(_keys, service)
    key = keys.get(body.study or "")
    place = "" if key is None else f"/studies/{key}"
    return Visit(f"{at}/dashboard{place}", 3600.0 * HOURS).to_json()


class Dashboard:
    """Answers what is below `PATH`, on threads of its own: reading a long study takes a while."""

    def __init__(self) -> None:
        self._app: WSGIMiddleware | None = None
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refuse_bound(await needs("read")(Request(scope)))
        if scope["method"] not in READING:
            told = "the studies are only read here; the page and the commands change them"
            allowed = {"Allow": ", ".join(READING)}
            raise problem("method-not-allowed", told, headers=allowed, reason=told)  # which it shows
        async with self._lock:
            if self._app is None:
                self._app = await asyncio.to_thread(_load, scope["app"].state.service)
        path = scope["path"].removeprefix(PATH)
        await self._app({**scope, "path": path, "root_path": ""}, receive, send)  # type: ignore[arg-type]

    def close(self) -> None:
        """End, with the server."""
        if self._app is not None:
            self._app.executor.shutdown(wait=False)
            self._app = None


def _at(service: Service) -> str:
    return quote(f"{service.settings.base_path}{PATH}")


def _keys(service: Service) -> dict[str, int]:
    return study_keys(open_tables(service.workspace.url))


def _load(service: Service) -> WSGIMiddleware:
    """The dashboard, to be called from the loop. Raises `SearchError` where it is another version."""
    from a2wsgi import WSGIMiddleware

    from ..dashboard import application

    workspace = service.workspace
    found = application(workspace.url, runs=workspace.runs, at=_at(service))
    return WSGIMiddleware(found)  # type: ignore[arg-type]  # the library has its own types of WSGI
