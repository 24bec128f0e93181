"""The plan of a search: its rungs, its brackets, and how many trials its budget allows."""

from __future__ import annotations

from dataclasses import dataclass

from ...spaces import Spec
from ...spaces.stopping import Rungs
from .rungs import Bracket, brackets_of, expected_saving

MAX_BRACKETS = 5


@dataclass(frozen=True)
class Plan:
    """The early stopping of a study, and the trials that it is expected to complete."""

    brackets: list[Bracket]
    trials: int | None
    complete: float | None  # trials expected to reach the end
    saving: float | None  # share of the resource that early stopping is expected to save, 0 to 1


def plan_of(spec: Spec) -> Plan:
    """The plan of a study, assuming that one trial in eta passes each rung."""
    brackets, trials, stopping = brackets_of(spec), spec.budget.trials, spec.early_stopping
    if not isinstance(stopping, Rungs) or trials is None:
        return Plan(brackets, trials, None, None)
    complete = sum(b.expected_complete(trials, stopping.eta) for b in brackets)
    return Plan(brackets, trials, max(1.0, complete), expected_saving(spec))
