"""Tells training from validation where a program gives one metric for both, and takes one of them.

training: epoch 1 loss 0.16          {"split": "train", "epoch": 1, "loss": 0.16}
validation: epoch 1 loss 1.67        {"split": "val", "epoch": 1, "loss": 1.67}
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from enum import Enum
from typing import Generic, TypeVar

_TRAINING = "train|training|trn"
PHASES = rf"{_TRAINING}|val|valid|validation|eval|evaluation|test|testing|dev"
MAX_WAITING = 100  # values of training, for those of validation
_WORD = re.compile(rf"(?<![\w/.@-])({PHASES})(?![\w/-]|\.\w)", re.IGNORECASE)
_KEY = re.compile(
    rf"""(?<![A-Za-z])(?:split|phase|mode|stage)['"]?\s*[:=]\s*['"]?({PHASES})(?!\w)""", re.IGNORECASE
)
T = TypeVar("T")


class Phase(Enum):
    """What a line says that its values are of."""

    TRAINING = "training"
    VALIDATION = "validation"


def phase_in(text: str, metric: str) -> Phase | None:
    """The phase that a line says before the metric, or under a key; None if it says none, or both."""
    before = text.partition(metric)[0].partition("{")[0]
    words = [*_WORD.findall(before), *_KEY.findall(text)]
    phases = {Phase.TRAINING if word.lower() in _TRAINING.split("|") else Phase.VALIDATION for word in words}
    return phases.pop() if len(phases) == 1 else None


class Phases(Generic[T]):
    """The values of a program, of which those of training count only if there are none of validation.

    The first values of training wait: for one of validation, or for one of training in another epoch, which
    shows that there is none, or until they are many.
    """

    def __init__(self) -> None:
        self.chosen: Phase | None = None  # which counts, once that is known
        self.left_out = False  # whether values of training are
        self._waiting: list[tuple[Hashable, T]] = []  # of training, with their epochs
        self._without = False  # whether values count of which no phase is said

    @property
    def waits(self) -> bool:
        """Whether values do not count yet."""
        return bool(self._waiting)

    def leaves_out(self, phase: Phase | None) -> bool:
        """Whether a value does not count."""
        is_left = phase is Phase.TRAINING and self.chosen is Phase.VALIDATION
        self.left_out = self.left_out or is_left
        return is_left

    def prefer_validation(self) -> bool:
        """Choose validation. Returns whether it was not chosen before."""
        is_new = self.chosen is None
        self.chosen = Phase.VALIDATION
        self.left_out = self.left_out or bool(self._waiting)
        self._waiting.clear()
        return is_new

    def take(self, phase: Phase | None, epoch: Hashable, value: T) -> list[T]:
        """The values that count now. `epoch`: that of the value, or its step; None without either."""
        if self.leaves_out(phase):
            return []
        if phase is Phase.TRAINING and self.chosen is None:
            is_same = epoch is not None and epoch == self._waiting[0][0] if self._waiting else True
            if is_same and len(self._waiting) < MAX_WAITING:
                self._waiting.append((epoch, value))
                return []
            self.chosen = phase
        self._without = self._without or phase is None
        return [*self.end(), value]

    def end(self) -> list[T]:
        """The values that wait, which count: there are none of validation."""
        waiting, self._waiting = [value for _, value in self._waiting], []
        return waiting

    def told(self, metric: str) -> str | None:
        """What the user should know."""
        if self.left_out:
            return f"its lines that give {metric} of training are left out: others give it of validation"
        if self.chosen is not None and self._without:
            of = self.chosen.value
            return f"some of its lines give {metric} of {of}, others do not say of what: both count"
        return None
