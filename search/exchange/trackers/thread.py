"""Keeps trackers up to date in a thread of their own, so that a search never waits for them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from ....storage.wanted import is_servers_driver
from .base import TrackedRun, Tracker
from .factory import make_tracker

STALL_SECONDS = 60.0  # for a tracker to write anything at all, after the search has ended
NOTICE_SECONDS = 2.0  # of waiting at the end, before the user is told
REST_FACTOR = 4.0  # rest per write, in times its duration: trackers take at most a fifth of a core


class TrackerThread:
    """Shows runs to trackers.

    A tracker that raises anything is dropped, which is reported once. `close` waits until all is written.
    """

    def __init__(self, names: Sequence[str], root: Path, group: str, say: Callable[[str], None]) -> None:
        self._say = say  # called in the caller's thread
        self._news: deque[str] = deque()
        self._pending: dict[str, Callable[[], TrackedRun]] = {}
        self._changed = threading.Condition()
        self._closing = self._leaving = False
        self._written = 0
        self._views: list[str] = []
        self._thread = threading.Thread(target=self._work, args=(names, root, group), daemon=True)
        self._thread.start()

    def show(self, name: str, look: Callable[[], TrackedRun]) -> None:
        """Note that a run has changed; `look` returns it as it stands, and is called when there is time."""
        with self._changed:
            self._pending[name] = look
            self._changed.notify()

    def report(self) -> None:
        """Report pending news through `say`; to be called now and then."""
        while self._news:
            self._say(self._news.popleft())

    def close(self) -> None:
        """Wait until all is written, and say how to see it. Ctrl-C stops with what is written by then."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        try:
            self._wait()
        except KeyboardInterrupt:
            self._leaving = True
            self._say("stopped before the trackers had everything; the same command writes the rest")
        self.report()
        for view in self._views:
            self._say(f"to see it: {view}")

    def _wait(self) -> None:
        self._thread.join(NOTICE_SECONDS)
        if self._thread.is_alive():
            self._say("writing the rest to the trackers" + ("" if is_servers_driver() else "; Ctrl-C stops"))
        before = -1
        while self._thread.is_alive() and self._written != before:
            before = self._written
            self._thread.join(STALL_SECONDS)
        if self._thread.is_alive():
            self._leaving = True
            self._say(f"a tracker has written nothing for {STALL_SECONDS:.0f} s and is dropped")

    # In the thread. An error of a library, its database or the disk must not end a search.

    def _work(self, names: Sequence[str], root: Path, group: str) -> None:
        trackers: dict[str, Tracker] = {}
        for name in names:
            try:
                trackers[name] = make_tracker(name, root, group)
            except Exception as error:
                self._drop(name, error)
        while (look := self._next()) is not None:
            began, run = time.monotonic(), None
            for name, tracker in list(trackers.items()):
                try:
                    run = run or look()
                    tracker.write(run)
                except Exception as error:
                    del trackers[name]
                    self._drop(name, error)
            self._written += 1
            self._rest(REST_FACTOR * (time.monotonic() - began))
        for name, tracker in trackers.items():
            try:
                tracker.close()
                self._views.append(tracker.view)
            except Exception as error:
                self._drop(name, error)

    def _rest(self, seconds: float) -> None:
        """Leave the interpreter to the search for a while, unless it has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing, seconds)

    def _next(self) -> Callable[[], TrackedRun] | None:
        """The run that has waited longest; None at the end."""
        with self._changed:
            while not (self._pending or self._closing):
                self._changed.wait()
            if self._leaving or not self._pending:
                return None
            return self._pending.pop(next(iter(self._pending)))

    def _drop(self, name: str, error: Exception) -> None:
        first = (str(error) or "no message").splitlines()[0][:300]
        self._news.append(
            f"report_to: {name} failed and is dropped ({type(error).__name__}: {first}); the rest continues"
        )
