"""The files of trials, and what trials and drivers print."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from ...operations import watch
from ...operations.watch import LogFile
from ..access import Reader, Study, TheService, names
from ..events import RETRY_MILLISECONDS, EventStream, encoded
from ..problems import problem
from ..sending import send_file
from ..service import Service
from .trials import Number

router = APIRouter(prefix="/v1/studies/{study}", tags=["files"])
Follow = Annotated[
    bool, Query(description="Go on as server-sent events, until the trial or the driver has ended.")
]
LastEventId = Annotated[str | None, Header(description="Where to go on: bytes from the start of the log.")]


@router.get("/trials/{trial}/files", **names("files"))
def files(
    caller: Reader, study: Study, service: TheService, trial: Number
) -> Annotated[Any, watch.TrialFiles]:
    """The files of a trial: its configuration, reports, output and checkpoint."""
    return watch.files(workspace=service.workspace, study=study, trial=trial).to_json()


@router.get("/trials/{trial}/files/{path:path}", **names("file"), response_class=Response)
def file(
    caller: Reader, study: Study, service: TheService, request: Request, trial: Number, path: str
) -> Response:
    """A file of a trial, as an attachment; with Range, a part of it."""
    opened = watch.open_file(workspace=service.workspace, study=study, trial=trial, path=path)
    return send_file(request, opened.descriptor, path.rpartition("/")[2])


@router.get("/trials/{trial}/log", **names("log --trial"), response_class=Response)
async def trial_log(
    caller: Reader,
    study: Study,
    service: TheService,
    request: Request,
    trial: Number,
    follow: Follow = False,
    last_event_id: LastEventId = None,
) -> Response:
    """What a trial has printed: text, with Range a part of it, or as it comes."""
    return await _log(service, request, study, trial, follow, last_event_id)


@router.get("/log", **names("log"), response_class=Response)
async def driver_log(
    caller: Reader,
    study: Study,
    service: TheService,
    request: Request,
    follow: Follow = False,
    last_event_id: LastEventId = None,
) -> Response:
    """What the driver says that this server has started for a study: text, a part of it, or as it comes."""
    return await _log(service, request, study, None, follow, last_event_id)


async def _log(
    service: Service, request: Request, study: str, trial: int | None, follow: bool, last: str | None
) -> Response:
    found = await asyncio.to_thread(LogFile.of, service.workspace, study, trial)
    if follow or "text/event-stream" in request.headers.get("accept", ""):
        if last is not None and not (last.isascii() and last.isdecimal() and len(last) < 19):
            raise problem("request-invalid", "Last-Event-ID is no number of bytes")
        begin = None if last is None else int(last)
        return EventStream(_followed(found, begin, lambda: service.watch.leaving))
    opened = await asyncio.to_thread(found.open)
    name = f"{study}-{'driver' if trial is None else trial}.log"
    return send_file(request, opened.descriptor, name, "text/plain; charset=utf-8")


async def _followed(found: LogFile, begin: int | None, leaving: Any) -> AsyncIterator[bytes]:
    """The parts of a log as events, with the place in it as their id."""
    gone = threading.Event()
    parts = found.follow(begin, sleep=gone.wait, ends=lambda: gone.is_set() or leaving())
    yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
    try:
        while (part := await asyncio.to_thread(next, parts, None)) is not None:
            yield encoded("log", part.to_json(), str(part.end))
        yield encoded("bye" if leaving() else "end", {})
    except Exception:  # the study is gone, or the database: the client comes back and is told so
        yield encoded("bye", {})
    finally:
        gone.set()
