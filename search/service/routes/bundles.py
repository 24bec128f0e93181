"""Bundles of a user's code: asked for by hash, and sent where the server lacks them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from anyio import from_thread
from fastapi import APIRouter, Path, Request, Response

from ....storage.database import open_tables
from ....storage.wanted import all_wanted
from ...values import Value
from ..access import Coder, TheService, names

router = APIRouter(prefix="/v1/bundles", tags=["bundles"])
Sha256 = Annotated[str, Path(description="SHA-256 of the zip, in hexadecimal.", pattern="^[0-9a-f]{64}$")]
BINARY = {"schema": {"type": "string", "format": "binary"}}
ZIP = {"requestBody": {"required": True, "content": {"application/zip": BINARY}}}


@dataclass(frozen=True)
class KeptBundle(Value):
    """A bundle that the server has."""

    sha256: str
    new: bool  # whether it came just now


@router.head("/{sha256}", response_class=Response, responses={404: {}}, **names("has-bundle"))
def has_bundle(caller: Coder, service: TheService, sha256: Sha256) -> Response:
    """Whether the server has a bundle: 200 or 404. One that it has stays for a day at least."""
    there = service.bundles.has(sha256)
    return Response(status_code=200 if there else 404, media_type="application/zip")


@router.put("/{sha256}", status_code=201, responses={200: {}}, openapi_extra=ZIP, **names("put-bundle"))
def put_bundle(
    caller: Coder, service: TheService, sha256: Sha256, request: Request, response: Response
) -> Annotated[Any, KeptBundle]:
    """Send a bundle: a zip of plain files, at most 64 MiB. 201 where it is new, 200 where it was there."""
    new = service.bundles.put(sha256, _content(request))
    if new:
        wanted = all_wanted(open_tables(service.workspace.url))
        service.bundles.sweep({each.bundle for each in wanted.values() if each.bundle is not None})
    response.status_code = 201 if new else 200
    return KeptBundle(sha256, new).to_json()


def _content(request: Request) -> Iterator[bytes]:
    """The parts of a request's body, as they come; this is not the thread of the server's loop."""
    parts = request.stream()
    while True:
        try:
            yield from_thread.run(parts.__anext__)
        except StopAsyncIteration:
            return
