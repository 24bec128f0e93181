"""Trials as rungs and samplers see them: at one step, and without what an audit added."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...storage.trial_attrs import audited_at, unusable
from ..trials.selection import search_trials
from .rungs import places_of


def comparable_trials(
    spec: Spec, trials: list[FrozenTrial], enough: int
) -> tuple[int | None, list[FrozenTrial]]:
    """The trials of a search whose values compare: the complete ones, or those at the highest rung with
    enough.

    Returns the rung's step, or None, and the trials; those at a rung count as complete there.
    """
    own = [trial for trial in search_trials(trials) if trial.params and not unusable(trial)]
    step, alike = None, [trial for trial in own if trial.state == TrialState.COMPLETE]
    for place in reversed(places_of(spec)):
        if len(alike) >= enough:
            break
        step = place
        alike = [completed_at(trial, place) for trial in own if value_at(trial, place) is not None]
    return step, alike


def without_audit(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    """The trials of the search itself, as the search sees them."""
    return [as_decided(trial) for trial in search_trials(trials)]


def as_decided(trial: FrozenTrial) -> FrozenTrial:
    """A trial as the search sees it: an audited one ended where it would have been stopped."""
    step = audited_at(trial)
    if step is None:
        return trial
    seen = copy.copy(trial)
    seen.intermediate_values = {s: value for s, value in trial.intermediate_values.items() if s <= step}
    seen.state, seen.value = TrialState.PRUNED, seen.intermediate_values[step]
    attrs = trial.system_attrs.items()
    seen.system_attrs = {k: v for k, v in attrs if not k.startswith("constraints")}  # set by later steps
    return seen


def value_at(trial: FrozenTrial, place: int) -> float | None:
    """The first value that a trial reported at or after a step; None if it has not reached the step."""
    step = min((step for step in trial.intermediate_values if step >= place), default=None)
    return None if step is None else trial.intermediate_values[step]


def completed_at(trial: FrozenTrial, place: int) -> FrozenTrial:
    """The trial as if it had completed at a step."""
    seen = copy.copy(trial)
    seen.state, seen.value = TrialState.COMPLETE, value_at(trial, place)
    return seen
