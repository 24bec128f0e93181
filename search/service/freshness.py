"""Whether an answer is news to its client: weak ETags, and waiting until it is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request, Response

from .access import Reader, Study, TheService
from .service import Service
from .watching import LONGEST_WAIT, Watch

Wait = Annotated[
    float,
    Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for a change since If-None-Match."),
]
IfNoneMatch = Annotated[str | None, Header()]


class Unchanged(Exception):
    """The client has it already."""

    def __init__(self, tag: str) -> None:
        super().__init__(tag)
        self.tag = tag


async def unchanged(request: Request, error: Exception) -> Response:
    """The answer to `Unchanged`."""
    assert isinstance(error, Unchanged)
    return Response(status_code=304, headers={"ETag": error.tag})


def fresh_by(tag: Callable[[Service, str], str]) -> Callable[..., Coroutine[Any, Any, None]]:
    """A dependency that gives an answer about a study its ETag.

    It raises `Unchanged` where the client has that already.
    """

    async def fresh(
        caller: Reader,
        study: Study,
        service: TheService,
        response: Response,
        wait: Wait = 0,
        if_none_match: IfNoneMatch = None,
    ) -> None:
        await _fresh(service.watch, partial(tag, service, study), response, wait, if_none_match)

    return fresh


async def fresh_studies(
    caller: Reader,
    service: TheService,
    response: Response,
    wait: Wait = 0,
    if_none_match: IfNoneMatch = None,
) -> None:
    """Give an answer about all studies its ETag. Raises `Unchanged` where the client has that already."""
    await _fresh(service.watch, service.watch.tag, response, wait, if_none_match)


async def _fresh(
    watch: Watch, tag: Callable[[], str], response: Response, wait: float, given: str | None
) -> None:
    tags = [] if given is None else [each.strip() for each in given.split(",")]
    now = await asyncio.to_thread(tag)
    if _has(tags, now) and wait > 0:
        now = await watch.changed(tag, now, wait)
    if _has(tags, now):
        raise Unchanged(now)
    response.headers["ETag"] = now


def _tag(service: Service, study: str) -> str:
    return service.watch.tag(study)


def _queued_tag(service: Service, study: str) -> str:
    """The tag of a study, its state and its place: what is foreseen moves without being news."""
    tag = service.watch.tag(study)
    queued = service.queue.view().of(study)
    return tag if queued is None else f'{tag[:-1]}-{queued.state.state}-{queued.place or 0}"'


def is_of(tags: str, tag: str) -> bool:
    """Whether one of some tags is of a study that still has this tag, wherever it is queued."""
    return re.search(rf'"{re.escape(tag[3:-1])}(-[a-z0-9-]*)?"', tags) is not None


def _has(tags: list[str], tag: str) -> bool:
    """Whether a tag is among some; weak ones are compared as RFC 9110 says."""
    return "*" in tags or tag.removeprefix("W/") in [each.removeprefix("W/") for each in tags]


FreshStudy = Depends(fresh_by(_tag))
FreshStudies = Depends(fresh_studies)
FreshQueued = Depends(fresh_by(_queued_tag))
