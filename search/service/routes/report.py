"""A report on studies, as one file."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Response

from ...operations.report import Form, report
from ..access import Reader, TheService, names
from ..problems import problem

router = APIRouter(prefix="/v1", tags=["studies"])
MEDIA = {"html": "text/html", "md": "text/markdown"}


@router.get(
    "/report",
    **names("report"),
    response_class=Response,
    responses={200: {"content": {media: {} for media in MEDIA.values()}}},
)
def write(
    caller: Reader,
    service: TheService,
    study: Annotated[list[str], Query(description="A study; of several, a comparison.")],
    form: Annotated[
        Form, Query(description="Of the answer: a page that needs no server, or Markdown.")
    ] = "html",
) -> Any:
    """A report to send: the winner, how sure that is, and how it was found."""
    for name in study:
        if not caller.may_see(name):
            raise problem("no-such-study", "there is no such study among those of this token")
    written = report(workspace=service.workspace, study=study, form=form)
    name = f"{study[0] if len(study) == 1 else 'studies'}.{form}"
    saved = f"attachment; filename*=UTF-8''{quote(name, safe='')}"  # shown here, it could act as the page
    return Response(written.text, media_type=MEDIA[form], headers={"Content-Disposition": saved})
