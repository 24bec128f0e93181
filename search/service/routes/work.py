"""The work of a study whose workers come by HTTP: ask for a trial, report, say how it ended."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path as File
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import FileResponse, PlainTextResponse
from starlette.background import BackgroundTask

from ...backends.remote.requests import Ask, Complete, Fail, Nothing, Report
from ..access import Study, TheService, Worker, names
from ..problems import problem
from ..relay import client_source
from ..service import Service
from ..tokens import Caller

router = APIRouter(tags=["work"])
Lease = Annotated[str, Path(description="What ask gave out.", max_length=100)]


@router.get("/v1/studies/{study}/work", **names("work"))
async def about(caller: Worker, study: Study, service: TheService) -> Annotated[Any, dict[str, Any]]:
    """What a worker has to know of a study: its space, and the version of hpsearch that searches it."""
    return await service.relay.about(study)


@router.post("/v1/studies/{study}/ask", **names("ask"))
async def ask(
    caller: Worker, study: Study, service: TheService, body: Ask, request: Request
) -> Annotated[Any, dict[str, Any]]:
    """A trial with its lease; 204 where there is none now, 410 where there is none any more.

    The same worker and request get the same trial while its lease lives.
    """
    asking = asyncio.create_task(service.relay.ask(study, body.model_dump(), body.wait))
    leaving = asyncio.create_task(_left(request))
    try:
        await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():  # nobody waits for the answer, so nobody may get a trial by it
            asking.cancel()
            return Response(status_code=204)
        answer = asking.result()
    finally:
        leaving.cancel()
    if "over" in answer:
        reason = answer["over"]
        raise problem("study-over", f"there is nothing left to train: {reason}", reason=reason)
    if "lease" not in answer:
        return Response(status_code=204, headers={"Retry-After": f"{answer['wait']:g}"})
    return answer


@router.post("/v1/leases/{lease}/report", **names("report a value"))
async def report(
    caller: Worker, service: TheService, lease: Lease, body: Report
) -> Annotated[Any, dict[str, Any]]:
    """Record a report; says whether the trial goes on, or because of what it does not."""
    return await _say(service, caller, lease, "report", body.model_dump())


@router.post("/v1/leases/{lease}/beat", **names("beat"))
async def beat(
    caller: Worker, service: TheService, lease: Lease, body: Nothing | None = None
) -> Annotated[Any, dict[str, Any]]:
    """A sign of life, where reports are far between."""
    return await _say(service, caller, lease, "beat")


@router.post("/v1/leases/{lease}/complete", **names("complete"))
async def complete(
    caller: Worker, service: TheService, lease: Lease, body: Complete
) -> Annotated[Any, dict[str, Any]]:
    """The trial ran to its end with a value."""
    return await _say(service, caller, lease, "complete", body.model_dump())


@router.post("/v1/leases/{lease}/fail", **names("fail"))
async def fail(
    caller: Worker, service: TheService, lease: Lease, body: Fail
) -> Annotated[Any, dict[str, Any]]:
    """The attempt ended without a value."""
    return await _say(service, caller, lease, "fail", body.model_dump())


@router.post("/v1/leases/{lease}/release", **names("release"))
async def release(
    caller: Worker, service: TheService, lease: Lease, body: Nothing | None = None
) -> Annotated[Any, dict[str, Any]]:
    """Give a trial back; that costs no attempt."""
    return await _say(service, caller, lease, "release")


@router.put("/v1/leases/{lease}/checkpoint", **names("put checkpoint"))
async def put_checkpoint(
    caller: Worker, service: TheService, lease: Lease, request: Request
) -> Annotated[Any, dict[str, Any]]:
    """Send a checkpoint as a zip. It becomes the trial's with the next report."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind not in ("application/zip", "application/octet-stream"):
        raise problem(
            "media-type", f"a checkpoint is sent as application/zip, not as {kind[:100] or 'nothing'}"
        )
    return await service.relay.receive(lease, request.stream(), caller.may_see)


@router.get("/v1/leases/{lease}/checkpoint", **names("get checkpoint"), response_class=FileResponse)
async def get_checkpoint(caller: Worker, service: TheService, lease: Lease) -> Any:
    """The checkpoint from which the trial resumes, as a zip; 204 where it has none."""
    descriptor, name = tempfile.mkstemp(prefix="hpsearch-checkpoint-", suffix=".zip")
    os.close(descriptor)
    path = File(name)
    try:
        there = await service.relay.give(lease, path, caller.may_see)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    if not there:
        path.unlink(missing_ok=True)
        return Response(status_code=204)
    done = BackgroundTask(path.unlink, missing_ok=True)
    return FileResponse(path, media_type="application/zip", filename="checkpoint.zip", background=done)


@router.get("/client.py", **names("client"), response_class=PlainTextResponse)
async def client() -> Response:
    """The client in one file of Python's standard library, for machines without hpsearch."""
    return PlainTextResponse(client_source())


async def _say(
    service: Service, caller: Caller, lease: str, verb: str, body: dict[str, Any] | None = None
) -> Any:
    return await service.relay.to_lease(lease, {"do": verb, **(body or {})}, caller.may_see)


async def _left(request: Request) -> None:
    """Return when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
