"""Tells training from validation where a program gives one metric for both, and takes one of them.

training: epoch 1 loss 0.16          {"split": "train", "epoch": 1, "loss": 0.16}
validation: epoch 1 loss 1.67        {"split": "val", "epoch": 1, "loss": 1.67}

Values of which a program does not say what they are of are a third kind: None. No two kinds count together.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from enum import Enum
from typing import Generic, TypeVar

_TRAINING = "train|training|trn|train_inner"  # the last of fairseq
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


_OF = {
    Phase.TRAINING: "of training",
    Phase.VALIDATION: "of validation",
    None: "without saying of what",
}


class Phases(Generic[T]):
    """The values of a program, of which those of training count only if there are no others.

    The first values of training wait: for another, or for one of training in another epoch, which shows that
    there is none, or until they are many.
    """

    def __init__(self) -> None:
        self.chosen: Phase | None = None  # which counts, once that is known
        self._is_known = False
        self._left_out: set[Phase | None] = set()
        self._waiting: list[tuple[Hashable, T]] = []  # of training, with their epochs

    @property
    def waits(self) -> bool:
        """Whether values do not count yet."""
        return bool(self._waiting)

    def leaves_out(self, phase: Phase | None) -> bool:
        """Whether a value does not count. One of validation after those of training is a fault, and does."""
        is_fault = self.chosen is Phase.TRAINING and phase is Phase.VALIDATION
        is_left = self._is_known and phase is not self.chosen and not is_fault
        if is_left:
            self._left_out.add(phase)
        return is_left

    def prefer_validation(self) -> bool:
        """Choose validation, if nothing is chosen. Returns whether nothing was."""
        return self._choose(Phase.VALIDATION)

    def take(self, phase: Phase | None, epoch: Hashable, value: T) -> list[T]:
        """The values that count now. `epoch`: that of the value, or its step; None without either."""
        if self.leaves_out(phase):
            return []
        if phase is Phase.TRAINING and not self._is_known:
            is_same = epoch is not None and epoch == self._waiting[0][0] if self._waiting else True
            if is_same and len(self._waiting) < MAX_WAITING:
                self._waiting.append((epoch, value))
                return []
        self._choose(phase)
        return [*self.end(), value]

    def end(self) -> list[T]:
        """The values that wait, which count: there are no others."""
        waiting, self._waiting = [value for _, value in self._waiting], []
        return waiting

    def told(self, metric: str) -> str | None:
        """What the user should know."""
        if not self._left_out:
            return None
        left = " and ".join(_OF[phase] for phase in _OF if phase in self._left_out)
        others = f"its lines that give {metric} {left} are left out: others give it {_OF[self.chosen]}"
        is_sure = self.chosen is Phase.VALIDATION
        return others if is_sure else f"{others}; a pattern in report.stdout can name those that count"

    def _choose(self, phase: Phase | None) -> bool:
        if self._is_known:
            return False
        self.chosen, self._is_known = phase, True
        if self._waiting and phase is not Phase.TRAINING:
            self._left_out.add(Phase.TRAINING)
            self._waiting.clear()
        return True
