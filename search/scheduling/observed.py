"""Trials as rungs and samplers know them: without what the audit let go on, and at one step."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...storage.states import audited_at, unusable
from ..trials.selection import search_trials
from . import places_of


def compared(spec: Spec, trials: list[FrozenTrial], enough: int) -> tuple[int | None, list[FrozenTrial]]:
    """Trials of a search whose values compare: complete ones, or those at the highest rung with enough.

    Those at a rung count as complete there, and its step comes with them.
    """
    own = [trial for trial in search_trials(trials) if trial.params and not unusable(trial)]
    step, found = None, [trial for trial in own if trial.state == TrialState.COMPLETE]
    for place in reversed(places_of(spec)):
        if len(found) >= enough:
            break
        step, found = (
            place,
            [completed_at(trial, place) for trial in own if value_at(trial, place) is not None],
        )
    return step, found


def without_audit(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    """The trials of the search itself, as the search knows them."""
    return [as_decided(trial) for trial in search_trials(trials)]


def as_decided(trial: FrozenTrial) -> FrozenTrial:
    """A trial as the search knows it: one that was to stop ended there."""
    step = audited_at(trial)
    if step is None:
        return trial
    seen = copy.copy(trial)
    seen.intermediate_values = {s: value for s, value in trial.intermediate_values.items() if s <= step}
    seen.state, seen.value = TrialState.PRUNED, seen.intermediate_values[step]
    attrs = trial.system_attrs.items()
    seen.system_attrs = {k: v for k, v in attrs if not k.startswith("constraints")}  # of what came later
    return seen


def value_at(trial: FrozenTrial, place: int) -> float | None:
    """The first value that a trial reported from a step on; None where it has not come so far."""
    step = min((step for step in trial.intermediate_values if step >= place), default=None)
    return None if step is None else trial.intermediate_values[step]


def completed_at(trial: FrozenTrial, place: int) -> FrozenTrial:
    seen = copy.copy(trial)
    seen.state, seen.value = TrialState.COMPLETE, value_at(trial, place)
    return seen
