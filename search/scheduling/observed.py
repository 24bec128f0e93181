"""Trials as rungs, pruners and samplers see them: by the values that judge them, at one step, and without
what an audit added.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...storage.trial_attrs import audited_at, search_trials, unusable
from ..trials.judging import Judge
from .rungs import rung_steps


def comparable_trials(
    spec: Spec, trials: list[FrozenTrial], enough: int
) -> tuple[int | None, list[FrozenTrial]]:
    """The trials of a search whose values compare: the complete ones, or those at the highest rung with
    enough.

    Returns the rung's step, or None, and the trials; those at a rung count as complete there.
    """
    own = [as_judged(spec, t) for t in search_trials(trials) if t.params and not unusable(t)]
    complete, steps = [trial for trial in own if trial.state == TrialState.COMPLETE], rung_steps(spec)
    return (None, complete) if len(complete) >= enough or not steps else at_highest(steps, own, enough)


def at_highest(
    steps: Sequence[int], trials: Sequence[FrozenTrial], enough: int
) -> tuple[int, list[FrozenTrial]]:
    """The trials at the highest of the rising `steps` that enough of them have reached; else at the lowest.

    Returns the step, and the trials that have reached it, as if they had completed there.
    """
    for step in reversed(steps):
        reached = [(trial, value) for trial in trials if (value := value_at(trial, step)) is not None]
        if len(reached) >= enough:
            break
    return step, [completed(trial, value) for trial, value in reached]


def without_audit(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    """The trials of the search itself, as the search sees them."""
    return [as_decided(trial) for trial in search_trials(trials)]


def as_judged(spec: Spec, trial: FrozenTrial) -> FrozenTrial:
    """A trial with the values by which it is judged in place of its reports."""
    judge = Judge.of(spec)
    if not judge.best:
        return trial
    seen = copy.copy(trial)
    seen.intermediate_values = judge.curve(trial.intermediate_values)
    return seen


def as_searched(spec: Spec, trial: FrozenTrial) -> FrozenTrial:
    """A trial as the search sees it."""
    return as_decided(as_judged(spec, trial))


def as_decided(trial: FrozenTrial) -> FrozenTrial:
    """A trial without its audit: an audited one ended where it would have been stopped."""
    step = audited_at(trial)
    if step is None:
        return trial
    seen = copy.copy(trial)
    seen.intermediate_values = {s: value for s, value in trial.intermediate_values.items() if s <= step}
    seen.state, seen.value = TrialState.PRUNED, seen.intermediate_values[step]
    attrs = trial.system_attrs.items()
    seen.system_attrs = {k: v for k, v in attrs if not k.startswith("constraints")}  # set by later steps
    return seen


def value_at(trial: FrozenTrial, step: int) -> float | None:
    """The first value that a trial reported at or after a step; None if it has not reached the step."""
    first = min((reported for reported in trial.intermediate_values if reported >= step), default=None)
    return None if first is None else trial.intermediate_values[first]


def completed(trial: FrozenTrial, value: float) -> FrozenTrial:
    """The trial as if it had completed with this value."""
    seen = copy.copy(trial)
    seen.state, seen.value = TrialState.COMPLETE, value
    return seen
