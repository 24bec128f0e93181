"""Whether the server works, what it is, and what its problems mean."""

from __future__ import annotations

import html
import logging
import os
from dataclasses import dataclass
from importlib import metadata
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from prometheus_client import CONTENT_TYPE_LATEST

from ....storage.database import open_tables
from ....storage.studies import study_keys
from ...values import Value
from .. import guard
from ..access import Reader, TheService, names
from ..metrics import exposition
from ..problems import KINDS, problem
from ..service import Service
from .queue import seen

log = logging.getLogger("hpsearch.service")
router = APIRouter(tags=["server"])
FEATURES = ("queue", "events", "remote", "bundles", "mcp")  # for clients of other versions
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<h1>{title}</h1>
{text}
"""


@dataclass(frozen=True)
class ServerInfo(Value):
    """What this server is, and who asks."""

    version: str
    caller: str
    scopes: tuple[str, ...]
    studies: tuple[str, ...]  # patterns of the names that the caller may see; none: all
    features: tuple[str, ...]
    limits: dict[str, int]


@router.get("/healthz", status_code=204, **names("healthz"))
async def healthz() -> None:
    """The server's loop turns."""


@router.get("/readyz", status_code=204, **names("readyz"))
def readyz(service: TheService) -> Response:
    """The database can be read and the server's folder written; 503 otherwise."""
    if not is_ready(service):
        raise problem("unavailable")
    return Response(status_code=204)


def is_ready(service: Service) -> bool:
    """Whether the server can do its work now."""
    try:
        study_keys(open_tables(service.workspace.url))
    except Exception as error:  # whatever it is, this is no time to send work
        log.warning("not ready: %s", error)
        return False
    return all(part.ready() for part in service.parts) and os.access(service.home.folder, os.W_OK)


@router.get("/v1", **names("server"))
def server(caller: Reader) -> Annotated[Any, ServerInfo]:
    """The version of the server, its limits, and who the caller is."""
    return ServerInfo(
        version=metadata.version("hpsearch"),
        caller=caller.name,
        scopes=tuple(sorted(caller.scopes)),
        studies=caller.studies,
        features=FEATURES,
        limits={"body": guard.BODY, "streams": guard.STREAMS, "page": 1000},
    ).to_json()


@router.get("/metrics", **names("metrics"), response_class=Response)
def metrics(caller: Reader, service: TheService) -> Response:
    """What Prometheus reads."""
    told = exposition(service.workspace, caller, seen(service.queue.view(), caller))
    return Response(told, media_type=CONTENT_TYPE_LATEST)


@router.get("/openapi.json", **names("openapi"))
def openapi(caller: Reader, request: Request) -> Annotated[Any, dict[str, Any]]:
    """This description of all routes."""
    return request.app.openapi()


@router.get("/problems/{type}", **names("problem"), response_class=HTMLResponse)
async def explain(type: str) -> HTMLResponse:
    """What a type of problem means, for people."""
    kind = KINDS.get(type)
    if kind is None:
        raise problem("not-found", f"there is no problem of the type {type[:100]!r}")
    text = f"<p>Status {kind.status}. {html.escape(kind.advice)}</p>"
    return _page(kind.title, text)


def _page(title: str, text: str) -> HTMLResponse:
    csp = {"Content-Security-Policy": guard.PAGE.format(hashes="")}
    return HTMLResponse(PAGE.format(title=html.escape(title), text=text), headers=csp)
