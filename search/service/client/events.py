"""The events of a server as they come, over as many connections as it takes."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx2

from .connection import Connection
from .problems import ServerUnavailable

GIVE_UP_SECONDS = 600.0  # without the server, after which nobody waits for it any more
LONGEST_PAUSE = 15.0  # between two tries to reach it
LARGEST_EVENT = 4 * 2**20  # bytes


@dataclass(frozen=True)
class Event:
    """What has changed: the whole of the row that has. `lost` and `back` are of the connection itself."""

    kind: str  # study, trial, best, queue, machine, said, log, reset, lost, back and others
    data: dict[str, Any]
    id: str | None = None


def events(
    connection: Connection, query: Mapping[str, Any], *, give_up: float = GIVE_UP_SECONDS
) -> Iterator[Event]:
    """The events of a stream. Where the connection breaks, it goes on after the last one that came.

    A `reset` says that some were missed, so that all has to be read anew; the first connection is one, too.
    Raises `ServerUnavailable` where the server is away for `give_up` seconds.
    """
    last: str | None = None
    lost: float | None = None  # since when
    pause = 0.25
    yield Event("reset", {})
    while True:
        try:
            headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
            with connection.stream("/v1/events", query=query, headers=headers) as answer:
                if lost is not None:
                    yield Event("back", {})
                lost, pause = None, 0.25
                for sent in httpx2.EventSource(answer, LARGEST_EVENT):
                    last = sent.id or last
                    event = _event(sent)
                    if event.kind == "bye":
                        with suppress(ValueError, TypeError):
                            pause = float(event.data.get("retry", event.data.get("seconds", pause)))
                        break
                    yield event
        except (ServerUnavailable, httpx2.RequestError) as error:
            lost = time.monotonic() if lost is None else lost
            if time.monotonic() - lost > give_up:
                raise
            yield Event("lost", {"why": str(error)})
        time.sleep(min(pause, LONGEST_PAUSE) * random.uniform(1.0, 1.5))
        pause = min(LONGEST_PAUSE, 2 * pause)


def _event(sent: Any) -> Event:
    data: Any = None
    with suppress(ValueError, RecursionError):
        data = json.loads(sent.data or "{}")
    return Event(str(sent.event), data if isinstance(data, dict) else {"data": data}, sent.id or None)
