"""What happens, as it happens: one stream for all studies of a client."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request

from ....spaces.errors import hint
from ..access import Reader, TheService, names
from ..events import KINDS, EventStream, Wish
from ..problems import problem
from ..tokens import InvalidToken

router = APIRouter(prefix="/v1", tags=["events"])
STREAM: dict[int | str, Any] = {
    200: {"content": {"text/event-stream": {}}, "description": "Server-sent events."}
}
LastEventId = Annotated[
    str | None, Header(description="The id of the last event that was read: the next ones follow.")
]


@router.get("/events", status_code=200, **names("events"), response_class=EventStream, responses=STREAM)
async def events(
    caller: Reader,
    service: TheService,
    request: Request,
    study: Annotated[list[str], Query(description="Only of this study; may be repeated.")] = [],  # noqa: B006
    kinds: Annotated[str, Query(description=f"Some of {', '.join(KINDS)}, with commas between.")] = "",
    last_event_id: LastEventId = None,
) -> EventStream:
    """What changes in the studies that the caller may see, as server-sent events.

    Each event carries the whole row that has changed. `reset` says that some are gone: read anew.
    `bye` says that the server ends: come back.
    """
    asked = [kind.strip() for kind in kinds.split(",") if kind.strip()]
    for kind in asked:
        if kind not in KINDS:
            raise problem("request-invalid", f'there are no events of the kind "{kind}"; {hint(kind, KINDS)}')
    given = request.headers.get("authorization", "").partition(" ")[2].strip()

    def still_valid() -> bool:
        try:
            service.tokens.verify(given)
            return True
        except (InvalidToken, OSError):
            return False

    wish = Wish(caller.may_see, not caller.studies, tuple(study), tuple(asked))
    return EventStream(service.watch.stream(wish, last_event_id, still_valid))
