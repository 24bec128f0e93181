"""Keeps trackers like what they copy, in a thread of its own: a search waits for none of them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from .base import Run, Tracker

PATIENCE = 60.0  # seconds for a tracker to write anything at all, once there is nothing else to do
SAY_AFTER = 2.0
REST = 4.0  # times what a write took: a search gives trackers a fifth of a core at most


def make(name: str, root: Path, group: str) -> Tracker:
    """The tracker of a name. Loads its library, and raises whatever that raises."""
    match name:
        case "tensorboard":
            from .tensorboard import TensorBoard

            return TensorBoard(root, group)
        case "wandb":
            from .wandb import WandB

            return WandB(root, group)
        case "mlflow":
            from .mlflow import MLflow

            return MLflow(root, group)
    raise AssertionError(f"the loader let the tracker {name!r} pass")


class TrackerThread:
    """Shows runs to trackers.

    Whatever a tracker raises, it alone is left, and that is said once. `close` waits until all is written.
    """

    def __init__(self, names: Sequence[str], root: Path, group: str, say: Callable[[str], None]) -> None:
        self._say = say  # in the caller's thread
        self._news: deque[str] = deque()
        self._pending: dict[str, Callable[[], Run]] = {}
        self._changed = threading.Condition()
        self._closing = self._leaving = False
        self._written = 0
        self._views: list[str] = []
        self._thread = threading.Thread(target=self._work, args=(names, root, group), daemon=True)
        self._thread.start()

    def show(self, name: str, look: Callable[[], Run]) -> None:
        """A run of this name has changed; `look` tells how it stands, and is called when there is time."""
        with self._changed:
            self._pending[name] = look
            self._changed.notify()

    def tell(self) -> None:
        """Say what there is to say; to be called now and then."""
        while self._news:
            self._say(self._news.popleft())

    def close(self) -> None:
        """Wait until all is written, and say how to see it. Ctrl-C leaves with what is written by then."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        try:
            self._wait()
        except KeyboardInterrupt:
            self._leaving = True
            self._say("left before the trackers had everything; the same command writes the rest")
        self.tell()
        for view in self._views:
            self._say(f"to see it: {view}")

    def _wait(self) -> None:
        self._thread.join(SAY_AFTER)
        if self._thread.is_alive():
            self._say("writing what is left to the trackers; Ctrl-C leaves")
        before = -1
        while self._thread.is_alive() and self._written != before:
            before = self._written
            self._thread.join(PATIENCE)
        if self._thread.is_alive():
            self._leaving = True
            self._say(f"a tracker has written nothing for {PATIENCE:.0f} s and is left")

    # In the thread. What a library, its database or the disk raises is no reason to end a search.

    def _work(self, names: Sequence[str], root: Path, group: str) -> None:
        trackers: dict[str, Tracker] = {}
        for name in names:
            try:
                trackers[name] = make(name, root, group)
            except Exception as error:
                self._leave(name, error)
        while (look := self._next()) is not None:
            began = time.monotonic()
            run: Run | None = None
            for name, tracker in list(trackers.items()):
                try:
                    run = run or look()
                    tracker.write(run)
                except Exception as error:
                    del trackers[name]
                    self._leave(name, error)
            self._written += 1
            self._rest(REST * (time.monotonic() - began))
        for name, tracker in trackers.items():
            try:
                tracker.close()
                self._views.append(tracker.view)
            except Exception as error:
                self._leave(name, error)

    def _rest(self, seconds: float) -> None:
        """Leave the interpreter to the search for a while, as long as that goes on."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing, seconds)

    def _next(self) -> Callable[[], Run] | None:
        """The run that has waited longest; None at the end."""
        with self._changed:
            while not (self._pending or self._closing):
                self._changed.wait()
            if self._leaving or not self._pending:
                return None
            return self._pending.pop(next(iter(self._pending)))

    def _leave(self, name: str, error: Exception) -> None:
        first = (str(error) or "no message").splitlines()[0][:300]
        self._news.append(
            f"report_to: {name} has failed and is left ({type(error).__name__}: {first}); the rest goes on"
        )
