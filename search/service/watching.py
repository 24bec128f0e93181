"""One watcher for all clients: it looks at the database, and tells who waits what has changed there."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ...storage import StorageError
from ...storage.changes import ChangeDetector, Changes
from ...storage.database import open_tables
from ...storage.workspace import Workspace
from .events import AT_ONCE, BEAT_SECONDS, RETRY_MILLISECONDS, Event, Ring, Wish, encoded
from .rows import ChangedRows

LOOK_SECONDS = 0.1  # between two looks at a file, while anybody watches
SERVER_SECONDS = 1.0  # between two looks at a server's database
VALID_SECONDS = 1.0  # between two looks at whether a token still may watch
SLOWLY_SECONDS = 1.0  # between two looks at what the database does not say: drivers and their logs
LINGER_SECONDS = 60.0  # that changes are still told after the last watcher left: it may come back
LONGEST_WAIT = 60.0  # of a long-poll
UNKNOWN = "no event has had this id since the server was started: read again"
log = logging.getLogger("hpsearch.service")


class Watch:
    """What changes in the studies of a workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self.boot = secrets.token_hex(4)
        self.ring = Ring(self.boot)
        self.watchers = 0  # streams and long-polls that are open
        self._workspace = workspace
        self._lock = threading.Lock()  # of a look
        self._counting = threading.Lock()  # of the counters
        self._detector: ChangeDetector | None = None
        self._rows = ChangedRows(workspace)
        self._counters: dict[str, int] = defaultdict(int)  # by study, how often it has changed
        self._everything = 0  # how often any has
        self._is_file = workspace.file is not None
        self._looked = self._slowly = self._watched = float("-inf")  # when last
        self._primed = False  # whether rows are known, from which changes are told
        self._trouble: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Event | None = None  # replaced each time it is set
        self._wanted: asyncio.Event | None = None  # somebody watches
        self.leaving = False

    # Its life

    def start(self) -> None:
        """Begin to look, whenever somebody watches."""
        self._loop, self.leaving = asyncio.get_running_loop(), False
        self._wake, self._wanted = asyncio.Event(), asyncio.Event()
        self._task = asyncio.ensure_future(self._run())

    def leave(self) -> None:
        """End all streams and long-polls: the server ends."""
        self.leaving = True
        self._notify()

    def stop(self) -> None:
        """End."""
        self.leave()
        if self._task is not None:
            self._task.cancel()
        with self._lock:
            if self._detector is not None:
                self._detector.close()

    def ready(self) -> bool:
        """Whether the last look worked."""
        return self._trouble is None

    async def _run(self) -> None:
        assert self._wanted is not None
        while not self.leaving:
            if not self._is_watched:
                self._wanted.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wanted.wait(), LINGER_SECONDS)
                continue
            began = time.monotonic()
            await asyncio.to_thread(self._look_safely)
            pace = LOOK_SECONDS if self._is_file else SERVER_SECONDS
            await asyncio.sleep(max(0.0, pace - (time.monotonic() - began)))

    @property
    def _is_watched(self) -> bool:
        if self.watchers:
            self._watched = time.monotonic()
        return time.monotonic() - self._watched < LINGER_SECONDS

    # Looking

    def _look_safely(self) -> None:
        try:
            self.look()
        except StorageError as error:
            if str(error) != self._trouble:
                log.error("the database cannot be watched: %s", error)
            self._trouble = str(error)
        except Exception as error:  # a look must not end all that follow
            log.error("the database cannot be watched: %r", error)
            self._trouble = repr(error)

    def look(self) -> None:
        """Look for changes, count them, and tell them to those who watch. For any thread."""
        with self._lock:
            if not self._is_file and time.monotonic() - self._looked < SERVER_SECONDS:
                return
            self._looked = time.monotonic()
            if self._detector is None:
                self._detector = ChangeDetector(open_tables(self._workspace.url).engine)
            changes = self._detector.look()
            self._trouble = None
            watched = self._is_watched
            slowly = watched and time.monotonic() - self._slowly >= SLOWLY_SECONDS
            if slowly and self._primed:
                self._slowly = time.monotonic()
                moved = self._rows.moved()
                changes.studies |= moved
                changes.states |= moved
            self._count(changes)
            found: list[Event] = []
            if watched and self._primed:
                found += self._rows.events(changes) if changes else ()
                found += self._rows.said() if slowly else ()
            elif watched:
                self._rows.prime()
                self._primed = True
                self.ring.skip()
            elif changes:
                self._primed = False
                self.ring.skip()
            for event in found:
                self.ring.add(event)
        if changes or found:
            self._notify()

    def _count(self, changes: Changes) -> None:
        with self._counting:
            for name in changes.studies | changes.gone:
                self._counters[name] += 1
        for name in changes.gone:  # a study that is made again under the name goes on counting
            self._rows.forget(name)
        self._everything += bool(changes)

    def publish(self, kind: str, data: Any, study: str | None = None) -> None:
        """Tell an event that the database does not say; no tag changes by it. For any thread."""
        self.ring.add(Event(kind, data, study))
        self._notify()

    def _notify(self) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with suppress(RuntimeError):  # it closed at this moment
                loop.call_soon_threadsafe(self._awake)

    def _awake(self) -> None:
        if self._wake is not None:
            before, self._wake = self._wake, asyncio.Event()
            before.set()

    # Waiting

    def tag(self, study: str | None = None) -> str:
        """The weak ETag of a study, or of all; take it before what it is the tag of is read."""
        self.look()
        counter = self._everything if study is None else self._counters[study]
        return f'W/"{self.boot}-{counter}"'

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count as one that watches."""
        self.watchers += 1
        if self._wanted is not None:
            self._wanted.set()
        try:
            yield
        finally:
            self.watchers -= 1
            self._watched = time.monotonic()

    async def changed(self, tag: Callable[[], str], before: str, wait: float) -> str:
        """A tag once it differs from what it was, or after so many seconds, or as the server ends."""
        deadline = time.monotonic() + min(wait, LONGEST_WAIT)
        with self.watching():
            while True:
                wake = self._wake
                now = await asyncio.to_thread(tag)
                left = deadline - time.monotonic()
                if now != before or left <= 0 or self.leaving or wake is None:
                    return now
                with suppress(TimeoutError):
                    await asyncio.wait_for(wake.wait(), left)

    async def stream(
        self,
        wish: Wish,
        last_id: str | None,
        still_valid: Callable[[], bool] = lambda: True,
        beat: float = BEAT_SECONDS,
    ) -> AsyncIterator[bytes]:
        """What a client is told, from where it was on; anew where that is unknown, or too long ago."""
        with self.watching():
            await asyncio.to_thread(self._look_safely)  # what was before is not told
            at = self.ring.place(last_id)
            yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
            if last_id is None:
                at = self.ring.seq
                yield encoded("hello", {"boot": self.boot}, self.ring.name(at))
            checked = time.monotonic()
            while not self.leaving:
                if time.monotonic() - checked >= VALID_SECONDS:
                    if not still_valid():
                        return
                    checked = time.monotonic()
                wake = self._wake
                found = None if at is None else self.ring.since(at, AT_ONCE)
                if found is None:
                    why = UNKNOWN if at is None else "too much has happened: read again"
                    at = self.ring.seq
                    yield encoded("reset", {"why": why}, self.ring.name(at))
                    continue
                if found:
                    at = found[-1].seq
                    parts = [
                        encoded(each.kind, each.data, self.ring.name(each.seq))
                        for each in found
                        if wish.wants(each)
                    ]
                    if parts:
                        yield b"".join(parts)
                    continue
                assert wake is not None
                try:
                    await asyncio.wait_for(wake.wait(), beat)
                except TimeoutError:
                    yield f": {self.ring.name(at or 0)}\n\n".encode()
            yield encoded("bye", {"reconnect": RETRY_MILLISECONDS / 1000})
