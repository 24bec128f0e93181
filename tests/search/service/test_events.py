"""The ring of events: who reconnects misses nothing, or is told to begin anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastapi")

from hpsearch.search.service.events import Event, EventStream, Ring, Wish, encoded

KEPT = 5
# What happens: an event, one that is not told, a client that reads some, one that reconnects, a new server.
STEPS = st.lists(st.sampled_from(["event", "skip", "read one", "read", "reconnect", "restart"]), max_size=60)


@given(STEPS)
def test_a_client_has_all_events_since_it_began_anew(steps: list[str]) -> None:
    boots = iter(range(1000))
    ring = Ring(f"b{next(boots)}", KEPT)
    told = 0  # what the newest event says
    state = ring.seq  # the client's place; None: it has to begin anew
    seen: list[int] = []
    place: int | None = state
    complete = 0  # events before this number were read anew by the client
    last_id = ring.name(state)
    for step in steps:
        if step == "event":
            told += 1
            ring.add(Event("trial", told))
        elif step == "skip":
            told += 1
            ring.skip()
        elif step == "restart":
            ring = Ring(f"b{next(boots)}", KEPT)
            place = ring.place(last_id)
        elif step == "reconnect":
            place = ring.place(last_id)
        else:
            found = None if place is None else ring.since(place, 1 if step == "read one" else None)
            if found is None:  # reset: it reads all that there is
                complete, seen, place = told, [], ring.seq
            else:
                seen += [event.data for event in found]
                place = found[-1].seq if found else place
            last_id = ring.name(place or 0)
    found = None if place is None else ring.since(place)
    if found is not None:
        seen += [event.data for event in found]
        assert seen == list(range(complete + 1, told + 1))


@pytest.mark.parametrize("id", ["", "b-", "-1", "other-1", "b-x", "b-99999999999999999999", "b--1", "b-7"])
def test_an_id_that_means_nothing_here_begins_anew(id: str) -> None:
    ring = Ring("b", KEPT)
    ring.add(Event("trial", 1))
    assert ring.place(id) is None
    assert ring.place(None) == 1 and ring.since(1) == []


def test_a_wish_is_heard_and_what_a_token_may_not_see_is_not_told() -> None:
    mine = Wish(lambda study: study.startswith("a"), sees_all=False, kinds=("trial",))
    one = Wish(lambda study: True, studies=["b"])
    events = [Event("trial", 1, "a1"), Event("study", 1, "a1"), Event("trial", 1, "b"), Event("queue", 1)]
    assert [mine.wants(event) for event in events] == [True, False, False, False]
    assert [one.wants(event) for event in events] == [False, False, True, True]
    assert mine.wants(Event("reset", {}))


def test_an_event_is_one_block_whatever_is_in_it() -> None:
    block = encoded("said", {"text": "a\n\nevent: bye\r\x00\ud800", "value": float("nan")}, "b-1").decode()
    assert block.count("\n\n") == 1 and block.startswith("event: said\nid: b-1\ndata: ")
    assert block.count("\n") == 4 and "\r" not in block


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"x"


def test_a_client_that_takes_nothing_is_dropped() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) > 3:
            await asyncio.Event().wait()

    async def receive() -> Any:
        await asyncio.Event().wait()

    stream = EventStream(endless(), slow=0.01)
    asyncio.run(asyncio.wait_for(stream({"method": "GET", "type": "http"}, receive, send), 5))
    assert len(sent) == 4 and all(message.get("more_body", True) for message in sent)
