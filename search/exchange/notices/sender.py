"""Sends the notices of one target, one after another, in a thread of its own: none waits for another."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ....storage.told import Notice
from .base import NotSent, Target

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 300.0  # seconds between two attempts; each pause is twice the one before


@dataclass(frozen=True)
class Waiting:
    """A notice of a study that waits to be sent."""

    study: str
    notice: Notice


class Sender:
    """Sends notices until their target takes them, with growing pauses."""

    def __init__(
        self,
        target: Target,
        sent: Callable[[Waiting], None],
        refused: Callable[[str], None] = lambda why: None,
    ) -> None:
        """`sent` is called after each notice, and `refused` with a reason once for each trouble."""
        self.target = target
        self.trouble: str | None = None  # why the last attempt has failed
        self._sent = sent
        self._refused = refused
        self._waiting: deque[Waiting] = deque()
        self._known: set[str] = set()  # notices that it has had
        self._changed = threading.Condition()
        self._until: float | None = None  # by the monotonic clock; None: it goes on
        self._thread = threading.Thread(target=self._run, name=f"notices to {target.label}", daemon=True)
        self._thread.start()

    def add(self, waiting: Waiting) -> None:
        """Send a notice, if it is a new one."""
        with self._changed:
            if waiting.notice.id not in self._known:
                self._known.add(waiting.notice.id)
                self._waiting.append(waiting)
                self._changed.notify()

    def leave(self, seconds: float = 0.0) -> None:
        """Try what waits at once, then again and again for so many seconds, and end."""
        with self._changed:
            self._until = time.monotonic() + seconds
            self._changed.notify()

    def left(self, seconds: float) -> list[Waiting]:
        """What it could not send, after so many seconds at most."""
        self._thread.join(max(0.0, seconds))
        with self._changed:
            return list(self._waiting)

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while (waiting := self._next()) is not None:
            try:
                self.target.send(waiting.notice)
            except NotSent as error:
                if self.trouble is None:
                    self._refused(str(error))
                self.trouble = str(error)
                if not self._rest(pause):
                    return
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            self.trouble, pause = None, FIRST_PAUSE
            self._sent(waiting)
            with self._changed:
                self._waiting.popleft()

    def _next(self) -> Waiting | None:
        """The notice that has waited longest; None at the end."""
        with self._changed:
            while not self._waiting and self._until is None:
                self._changed.wait()
            return self._waiting[0] if self._waiting else None

    def _rest(self, pause: float) -> bool:
        """Rest after a failure; whether there is time for another attempt. What is to end rests briefly."""
        spread = random.uniform(0.8, 1.2)  # so that not all come back at once
        with self._changed:
            if self._until is None:
                self._changed.wait_for(lambda: self._until is not None, spread * pause)
                return True
            until = self._until
        if time.monotonic() + spread * FIRST_PAUSE >= until:
            return False
        time.sleep(spread * FIRST_PAUSE)
        return True
