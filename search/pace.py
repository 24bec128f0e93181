"""How long a training takes, as far as a search has seen."""

from __future__ import annotations

import math
import statistics
from collections import deque

REMEMBERED = 100  # reports


class Pace:
    """Seconds per unit of the resource, and trials at a time."""

    def __init__(self, whole: int | None) -> None:
        """`whole`: the resource of a training to its end, where that is known."""
        self._whole = whole
        self._per_unit: deque[float] = deque(maxlen=REMEMBERED)
        self._wholes: deque[float] = deque(maxlen=REMEMBERED)
        self._width = 1

    def reported(self, units: int, seconds: float, together: int) -> None:
        """An attempt has come so far in so long, with so many trials at the same time."""
        self._per_unit.append(seconds / units)
        self._width = max(self._width, together)

    def completed(self, seconds: float) -> None:
        """A trial was trained from its beginning to its end."""
        self._wholes.append(seconds)

    @property
    def whole(self) -> float | None:
        """Seconds of a whole training; None where nothing tells."""
        if self._wholes:
            return statistics.median(self._wholes)
        if self._whole is None or not self._per_unit:
            return None
        return self._whole * statistics.median(self._per_unit)

    def seconds_for(self, trainings: int) -> float:
        """How long so many whole trainings take; 0 where nothing tells."""
        return math.ceil(trainings / self._width) * (self.whole or 0.0)

    def trainings_in(self, seconds: float) -> float | None:
        """How many whole trainings fit into so long; None where nothing tells."""
        return None if self.whole is None else self._width * seconds / self.whole
