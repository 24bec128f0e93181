"""Selections of a study's trials: those of the search, the best, the confirmation runs."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...storage.trial_attrs import CONFIRMS_SEED, confirms, untrainable
from .configuration import has_config


def search_trials(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    """The trials of the search itself, without confirmation runs."""
    return [trial for trial in trials if confirms(trial) is None]


def best_of(spec: Spec, trials: Iterable[FrozenTrial], count: int) -> list[FrozenTrial]:
    """The `count` best complete trials of the search, the best first.

    A trial that another program wrote, and that lacks parameters of the space, is left out.
    """
    complete = {
        t.number: t for t in search_trials(trials) if t.state == TrialState.COMPLETE and t.value is not None
    }
    while True:
        best = heapq.nsmallest(
            count, complete.values(), key=lambda t: (spec.sign * (t.value or 0.0), t.number)
        )
        foreign = [trial.number for trial in best if not has_config(spec, trial)]
        if not foreign:
            return best
        for number in foreign:
            del complete[number]


def at_target(spec: Spec, trials: Iterable[FrozenTrial]) -> FrozenTrial | None:
    """The best trial of the search if it reaches the budget's target; else None."""
    target = spec.budget.target
    best = None if target is None else next(iter(best_of(spec, trials, 1)), None)
    if target is None or best is None or best.value is None:
        return None
    return best if spec.sign * best.value <= spec.sign * target else None


def cut_short(trial: FrozenTrial) -> bool:
    """Whether a confirmation run was stopped for lack of time. It shows nothing, and may be repeated."""
    return trial.state == TrialState.PRUNED and not untrainable(trial)


def failed_confirmations(trials: Sequence[FrozenTrial]) -> dict[int, FrozenTrial]:
    """The trials that could not be trained with every seed, each with a confirmation run that shows why."""
    return {
        number: trial for trial in trials if (number := confirms(trial)) is not None and untrainable(trial)
    }


def confirming_values(trials: Sequence[FrozenTrial]) -> dict[int, list[float]]:
    """The values of each confirmed trial, for the seeds that all of them have: at least two, or nothing."""
    rows: dict[int, dict[int, float]] = {}
    failed: set[int] = set()
    for trial in trials:
        number = confirms(trial)
        if number is None:
            continue
        row, seed = rows.setdefault(number, {}), trial.user_attrs[CONFIRMS_SEED]
        if trial.state == TrialState.COMPLETE and trial.value is not None:
            row[seed] = trial.value
        elif untrainable(trial):
            row[seed] = math.inf  # it cannot be trained with every seed
        elif trial.state.is_finished() and not cut_short(trial):
            failed.add(number)
    # A trial with time for fewer than two seeds cannot be judged, and must not reduce the common seeds.
    rows = {number: row for number, row in rows.items() if number not in failed and len(row) >= 2}
    seeds = set.intersection(*(set(row) for row in rows.values())) if rows else set()
    if len(seeds) < 2:
        return {}
    return {number: [row[seed] for seed in sorted(seeds)] for number, row in rows.items()}
