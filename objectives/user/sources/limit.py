"""A time limit for a search in a line: `re` has none, but lets handlers of signals run as it searches."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SEARCH_SECONDS = 1.0  # of CPU time, at least; at most twice as long


class SearchLimit:
    """Raises `TimeoutError` in a search that takes too long.

    A timer for all lines that have come at once costs nothing per line, as a limit of each search would.
    Handlers run in the main thread, where a worker runs its trials; elsewhere there is no limit.
    """

    def __init__(self) -> None:
        self.line: bytes | None = None  # in which is searched now
        self._seen: bytes | None = None  # in which was searched at the last tick

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Limit the searches within."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handler = signal.signal(signal.SIGPROF, self._tick)
        timer = signal.setitimer(signal.ITIMER_PROF, SEARCH_SECONDS, SEARCH_SECONDS)
        try:
            yield
        finally:
            self.line = None
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, signal.SIG_DFL if handler is None else handler)
            signal.setitimer(signal.ITIMER_PROF, *timer)

    def _tick(self, number: int, frame: FrameType | None) -> None:
        if self.line is not None and self.line is self._seen:
            raise TimeoutError
        self._seen = self.line
