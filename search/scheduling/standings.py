"""Why a trial was pruned: its bracket, its rung and its rank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.pruners import HyperbandPruner
from optuna.trial import FrozenTrial

from ...spaces import Spec
from ...spaces.stopping import Rungs
from ...storage.trial_attrs import RUNG_PREFIX, unusable
from ..formatting import position
from ..trials.stops import Stop
from .observed import as_decided
from .rungs import bracket_of_trial, brackets_of, kind_choices, promotes


def stopping_in_words(spec: Spec) -> str:
    """`asha`, or `asha, promotion`."""
    return spec.early_stopping.method + (", promotion" if promotes(spec) else "")


@dataclass(frozen=True)
class RungResult:
    """A trial's value and rank at one rung that it has reached."""

    step: int
    value: float
    rank: int  # among the trials of its kind that have reached this rung of this bracket, from 1
    reached: int  # how many trials that is


def bracket_of(study: optuna.Study, spec: Spec, trial: FrozenTrial) -> int:
    """The number of the trial's bracket; 0 if the study has one or none."""
    if promotes(spec):
        return bracket_of_trial(brackets_of(spec), spec.name, trial.number)
    return hyperband_bracket(study, trial)


def hyperband_bracket(study: optuna.Study, trial: FrozenTrial) -> int:
    """The trial's bracket in Optuna's Hyperband."""
    pruner = study.pruner
    if not isinstance(pruner, HyperbandPruner):
        return 0
    if not pruner._pruners:
        pruner._try_initialization(study)
    return pruner._get_bracket_id(study, trial)


def trial_kind(spec: Spec, trial: FrozenTrial) -> tuple[tuple[str, Any], ...]:
    """The kind of a trial: its values of `kind_choices`. Only trials of one kind are compared."""
    return tuple((name, trial.params[name]) for name in kind_choices(spec) if name in trial.params)


def rung_results(study: optuna.Study, spec: Spec, trial: FrozenTrial) -> list[RungResult]:
    """The rungs that a trial has reached, in order, with its rank at each."""
    brackets = brackets_of(spec)
    if not brackets:
        return []
    bracket, kind = bracket_of(study, spec, trial), trial_kind(spec, trial)
    mates = [
        t
        for t in study.get_trials(deepcopy=False)
        if bracket_of(study, spec, t) == bracket and trial_kind(spec, t) == kind
    ]
    # Only promotion ranks a trial last at earlier rungs because of what happened later.
    last = {t.number for t in mates if promotes(spec) and unusable(as_decided(t))} - {trial.number}
    results = []
    for index, step in enumerate(brackets[bracket].rungs):
        key = f"{RUNG_PREFIX}{index}"
        if key not in trial.system_attrs:
            break
        value = trial.system_attrs[key]
        there = [t for t in mates if key in t.system_attrs]
        losses = [math.inf if t.number in last else spec.loss(t.system_attrs[key]) for t in there]
        own = spec.loss(value), trial.number
        rank = 1 + sum((loss, t.number) < own for loss, t in zip(losses, there, strict=True))
        results.append(RungResult(step, value, rank, len(there)))
    return results


def pruning_stop(study: optuna.Study, spec: Spec, number: int, step: int) -> Stop:
    """The end of trial `number`, which the pruner stops at `step`."""
    trial = study.get_trials(deepcopy=False)[number]
    at = f"at {position(step, spec.resource)}"
    results = rung_results(study, spec, trial)
    if not results or not isinstance(spec.early_stopping, Rungs):
        by = f"pruned by {spec.early_stopping.method}"
        return Stop("pruned", f"{by} {at}", by)
    last, bracket = results[-1], bracket_of(study, spec, trial)
    rungs_there = brackets_of(spec)[bracket].rungs
    reason = (
        f"pruned {at}: rung {len(results)} of {len(rungs_there)} in bracket {bracket}, "
        f"ranked {last.rank} of {last.reached}; one in {spec.early_stopping.eta} continues"
    )
    return Stop("pruned", reason, f"pruned {at}")
