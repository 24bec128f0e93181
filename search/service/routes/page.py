"""The page: the document and its files. They hold no data, so they need no token; the page asks for one."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from ...page import files as drawn
from .. import guard
from ..access import names
from ..problems import problem

router = APIRouter(tags=["page"])
FOR_EVER = "public, max-age=31536000, immutable"


@router.get("/", **names("page"), response_class=HTMLResponse)
async def page() -> HTMLResponse:
    """The page: what runs, what was found, and how to steer it."""
    document = drawn.document()
    policy = guard.PAGE.format(hashes=f" {document.script_hash}")
    return HTMLResponse(document.html, headers={"Content-Security-Policy": policy})


@router.get("/static/{version}/{path:path}", **names("page --file"), response_class=Response)
async def file(version: str, path: str) -> Response:
    """A file of the page; another version of hpsearch has others."""
    found = drawn.files().get(path)
    if found is None or version != drawn.version():
        raise problem("not-found", "the page has no such file; load it again")
    return Response(found.content, media_type=found.media_type, headers={"Cache-Control": FOR_EVER})
