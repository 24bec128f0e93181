"""What moves in the queue from one look to the next: events, how long studies wait, which ends came true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...queue.foreseen import Rest
from ...queue.view import Situation
from ..metrics import FORECAST_ERROR, QUEUE_WAIT

LEAST_SECONDS = 10.0  # to a foreseen end that is compared with the real one


class Moves:
    """The queue as it was at the last look. For one thread."""

    def __init__(self, tell: Callable[[str, Any, str], None]) -> None:
        """`tell` is given the kind of an event, what it carries, and its study."""
        self._tell = tell
        self._known: dict[str, dict[str, Any]] | None = None  # as they were told last
        self._queued: dict[str, float] = {}  # since when studies wait, as far as this server has seen it
        self._foreseen: dict[str, tuple[float, float]] = {}  # when an end was foreseen, and for when

    def look(self, situation: Situation) -> None:
        """Tell of each study whose state, place or part of the machine has changed since the last look."""
        found = situation.entries()
        entries = [entry for entry, _ in found]
        rests = {entry.name: rest for entry, rest in found}
        waiting = sorted((entry for entry in entries if entry.holds is None), key=lambda each: each.order)
        places = {entry.name: place for place, entry in enumerate(waiting, 1)}
        has = {entry.name: entry.holds for entry in entries}
        now = {}
        for study in situation.studies:
            name, state = study.name, situation.state(study).state
            now[name] = {"study": name, "state": state, "place": places.get(name), "has": has.get(name)}
            self._measure(name, state, situation.now, rests.get(name))
        for name, row in now.items():
            if self._known is not None and row != self._known.get(name):
                self._tell("queue", row, name)
        self._known = now

    def _measure(self, name: str, state: str, now: float, rest: Rest | None = None) -> None:
        if state == "queued":
            self._queued.setdefault(name, now)
        elif (since := self._queued.pop(name, None)) is not None and state in ("starting", "running"):
            QUEUE_WAIT.observe(max(0.0, now - since))
        if state == "running":
            if rest is not None and rest.seconds >= LEAST_SECONDS:
                self._foreseen.setdefault(name, (now, now + rest.seconds))
        elif (told := self._foreseen.pop(name, None)) is not None and state == "finished":
            FORECAST_ERROR.observe(abs(now - told[1]) / (told[1] - told[0]))
