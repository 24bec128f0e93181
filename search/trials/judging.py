"""What a trial is judged by: its last value or its best one, and what a report that is not finite means.

A study keeps the reports as they were made. Whatever compares trials reads them through a `Judge`: rungs,
pruners, samplers, the audit, confirmations, `train`. Reports of step 0 are made before any training, and are
no value of a trial.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from ...spaces import Spec  # not for a worker, which starts without them


@dataclass(frozen=True)
class Judge:
    """The rules of a space: its `value`, `nan` and `goal`."""

    best: bool = False  # a trial's value is its best one so far, else its last one
    maximize: bool = False
    ignores: bool = False  # a report that is not finite is left out, else it ends the trial

    @classmethod
    def of(cls, spec: Spec) -> Self:
        return cls(spec.value == "best", spec.goal == "maximize", spec.nan == "ignore")

    def ends(self, value: float) -> bool:
        """Whether a trial diverges with this report."""
        return not (self.ignores or math.isfinite(value))

    def curve(self, reports: Mapping[int, float]) -> dict[int, float]:
        """The values by which a trial is judged at its steps, from its reports by step."""
        curve: dict[int, float] = {}
        seen = None
        for step, value in sorted(reports.items()):
            if not self.best or step == 0:
                curve[step] = value
            elif math.isfinite(value):
                seen = curve[step] = value if seen is None else self._better(seen, value)
        return curve

    def at_end(self, reports: Mapping[int, float], returned: float) -> float:
        """The value of a trial whose objective has returned a value; not finite where it has none."""
        if self.ends(returned):
            return returned
        values = [reports[step] for step in sorted(reports) if step > 0] if self.best or self.ignores else []
        finite = [value for value in (*values, returned) if math.isfinite(value)]
        if not finite:
            return math.nan
        value = finite[-1]
        for earlier in reversed(finite if self.best else ()):  # of equal ones the first
            value = self._better(earlier, value)
        return value

    def _better(self, first: float, second: float) -> float:
        """The better one of two values; the first one of equals."""
        return second if (second > first if self.maximize else second < first) else first


def how_without_value(metric: str, returned: float, judge: Judge) -> str:
    """How a trial diverged that returned without a finite value."""
    return f"{metric} was never finite" if judge.ignores else f"the objective returned {returned}"
