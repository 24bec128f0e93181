"""What moves in the queue from one look to the next: events, and how long studies wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...queue.view import Situation
from ..metrics import QUEUE_WAIT


class Moves:
    """The queue as it was at the last look. For one thread."""

    def __init__(self, tell: Callable[[str, Any, str], None]) -> None:
        """`tell` is given the kind of an event, what it carries, and its study."""
        self._tell = tell
        self._known: dict[str, dict[str, Any]] | None = None  # as they were told last
        self._queued: dict[str, float] = {}  # since when studies wait, as far as this server has seen it

    def look(self, situation: Situation) -> None:
        """Tell of each study whose state, place or part of the machine has changed since the last look."""
        entries = [entry for entry, _ in situation.entries()]
        waiting = sorted((entry for entry in entries if entry.holds is None), key=lambda each: each.order)
        places = {entry.name: place for place, entry in enumerate(waiting, 1)}
        has = {entry.name: entry.holds for entry in entries}
        now = {}
        for study in situation.studies:
            name, state = study.name, situation.state(study).state
            now[name] = {"study": name, "state": state, "place": places.get(name), "has": has.get(name)}
            self._measure(name, state, situation.now)
        for name, row in now.items():
            if self._known is not None and row != self._known.get(name):
                self._tell("queue", row, name)
        self._known = now

    def _measure(self, name: str, state: str, now: float) -> None:
        if state == "queued":
            self._queued.setdefault(name, now)
        elif (since := self._queued.pop(name, None)) is not None and state in ("starting", "running"):
            QUEUE_WAIT.observe(max(0.0, now - since))
