"""The stream of events: what was told last is kept for a while, so that who comes back misses nothing."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastapi import Response

from ..values import plain

KEPT = 4096  # events for those who reconnect
KINDS = ("study", "trial", "best", "queue", "plan.done", "said")  # that can be asked for
BEAT_SECONDS = 15.0  # between two signs of life
SLOW_SECONDS = 30.0  # for a client to take what was sent, before it is dropped
RETRY_MILLISECONDS = 2000  # for clients to come back
AT_ONCE = 256  # events in one part

Message = MutableMapping[str, Any]


@dataclass(frozen=True)
class Event:
    """Something that happened; `data` is the whole row that changed, so that the last one wins."""

    kind: str
    data: Any
    study: str | None = None  # that it is about
    seq: int = 0


class Ring:
    """The last events, by consecutive numbers. For any number of threads."""

    def __init__(self, boot: str, kept: int = KEPT) -> None:
        """`boot` names this life of the server: numbers of another one mean nothing here."""
        self.boot = boot
        self.seq = 0  # of the last event
        self._events: deque[Event] = deque(maxlen=kept)
        self._lock = threading.Lock()

    def add(self, event: Event) -> Event:
        """Keep an event, with its number."""
        with self._lock:
            self.seq += 1
            event = Event(event.kind, event.data, event.study, self.seq)
            self._events.append(event)
            return event

    def skip(self) -> None:
        """Forget all: something was not told, and who comes back has to begin anew."""
        with self._lock:
            self.seq += 1
            self._events.clear()

    def since(self, seq: int, most: int | None = None) -> list[Event] | None:
        """The events after a number, the first `most`; None where some of them are gone."""
        with self._lock:
            missing = self.seq - seq
            if missing < 0 or missing > len(self._events):
                return None
            begin = len(self._events) - missing
            end = len(self._events) if most is None else min(len(self._events), begin + most)
            return [self._events[index] for index in range(begin, end)]

    def name(self, seq: int) -> str:
        """The id of an event, which clients send back as Last-Event-ID."""
        return f"{self.boot}-{seq}"

    def place(self, last_id: str | None) -> int | None:
        """The number that a Last-Event-ID means, the present one without; None for one not given out here."""
        if last_id is None:
            return self.seq
        boot, _, number = last_id.rpartition("-")
        if boot != self.boot or not number.isdecimal() or len(number) > 18:
            return None
        return int(number) if int(number) <= self.seq else None


@dataclass
class Wish:
    """What a client wants to be told, and may be."""

    may_see: Callable[[str], bool]
    sees_all: bool = True  # whether events about no study in particular are for it
    studies: Collection[str] = ()  # none: all
    kinds: Collection[str] = ()  # none: all

    def wants(self, event: Event) -> bool:
        """Whether an event is for this client."""
        if event.kind == "reset":
            return True
        if self.kinds and event.kind not in self.kinds:
            return False
        if event.study is None:
            return self.sees_all
        return self.may_see(event.study) and (not self.studies or event.study in self.studies)


def encoded(kind: str, data: Any, id: str | None = None) -> bytes:
    """An event as the stream has it."""
    named = f"id: {id}\n" if id is not None else ""
    text = json.dumps(plain(data), ensure_ascii=False, separators=(",", ":"))
    return f"event: {kind}\n{named}data: {text}\n\n".encode(errors="backslashreplace")


class EventStream(Response):
    """An answer that goes on until its source or its client ends.

    A client that takes nothing for `SLOW_SECONDS` is dropped: nothing is kept for it but the ring.
    """

    media_type = "text/event-stream"

    def __init__(self, source: AsyncIterator[bytes], slow: float = SLOW_SECONDS) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._source, self._slow = source, slow

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        tasks = {asyncio.ensure_future(self._send(send)), asyncio.ensure_future(_left(receive))}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            close = getattr(self._source, "aclose", None)
            if close is not None:
                with suppress(RuntimeError):
                    await close()

    async def _send(self, send: Callable[[Message], Awaitable[None]]) -> None:
        async for part in self._source:
            message = {"type": "http.response.body", "body": part, "more_body": True}
            try:
                await asyncio.wait_for(send(message), self._slow)
            except TimeoutError:  # the connection is closed, as the answer has no end
                return
        with suppress(TimeoutError):
            last = {"type": "http.response.body", "body": b"", "more_body": False}
            await asyncio.wait_for(send(last), self._slow)


async def _left(receive: Callable[[], Awaitable[Message]]) -> None:
    """Return once the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
