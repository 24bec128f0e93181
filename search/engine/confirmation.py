"""The confirmation of a study: which trials are trained again, and what came of it.

Trainings that confirm are trials of the study, with an attribute that names the trial whose configuration
they have. They run to their end, and neither samplers nor schedulers learn from them.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Sequence

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...storage.states import CONFIRMS, CONFIRMS_SEED, confirms
from ..results.confirmation import Confirmed, confirmed
from ..trials.configuration import has_config
from .confirmation_size import Wish


def searched(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    """The trials of the search itself."""
    return [trial for trial in trials if confirms(trial) is None]


def best_of(spec: Spec, trials: Iterable[FrozenTrial], count: int) -> list[FrozenTrial]:
    """So many of the best complete trials of the search, the best first.

    One that another program wrote, and that lacks what the space searches, can be none of them.
    """
    sign = 1 if spec.goal == "minimize" else -1
    complete = {
        t.number: t for t in searched(trials) if t.state == TrialState.COMPLETE and t.value is not None
    }
    while True:
        best = heapq.nsmallest(count, complete.values(), key=lambda t: (sign * (t.value or 0.0), t.number))
        foreign = [trial.number for trial in best if not has_config(spec, trial)]
        if not foreign:
            return best
        for number in foreign:
            del complete[number]


def at_target(spec: Spec, trials: Iterable[FrozenTrial]) -> FrozenTrial | None:
    """The best trial of the search, where it is as good as the budget's target."""
    target = spec.budget.target
    best = None if target is None else next(iter(best_of(spec, trials, 1)), None)
    if target is None or best is None or best.value is None:
        return None
    reached = best.value <= target if spec.goal == "minimize" else best.value >= target
    return best if reached else None


def chosen(spec: Spec, wish: Wish, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Who is to be confirmed, by what is known now: the best, those that were confirmed before, the baseline.

    A search that was extended may confirm with more seeds than before: all that compare have the same. Once
    they train again nobody else takes the place of one: in the audit a better trial may end meanwhile.
    """
    if not wish.top:
        return []
    complete = [t for t in searched(trials) if t.state == TrialState.COMPLETE]
    own = [t for t in complete if "baseline" not in t.user_attrs]
    under_way = _under_way(wish, trials)
    best = best_of(spec, [t for t in own if not under_way or t.number in under_way], wish.top)
    there = {trial.number for trial in best}
    before = {n for n, row in _confirming_values(trials).items() if all(map(math.isfinite, row))} - there
    baseline = [t for t in complete if best and "baseline" in t.user_attrs]
    return [*best, *(t for t in own if t.number in before), *baseline]


def _under_way(wish: Wish, trials: Sequence[FrozenTrial]) -> set[int]:
    """Who trains again since the search ended, where some of them have not all their seeds yet."""
    last = max((trial.number for trial in searched(trials)), default=-1)
    again = [(number, t) for t in trials if (number := confirms(t)) is not None]
    seeds = Counter(number for number, trial in again if not cut_short(trial))
    found = {number for number, trial in again if trial.number > last}
    return found if any(seeds[number] < wish.seeds for number in found) else set()


def missing(
    few: Sequence[FrozenTrial], wish: Wish, trials: Sequence[FrozenTrial]
) -> list[tuple[FrozenTrial, int]]:
    """What is still to be put up of the few that are chosen: a trial and the number of the seed.

    One seed of all after the other.
    """
    again = [t for t in trials if confirms(t) is not None and not cut_short(t)]
    there = {(confirms(t), t.user_attrs[CONFIRMS_SEED]) for t in again}
    return [(t, k) for k in range(wish.seeds) for t in few if (t.number, k) not in there]


def cut_short(trial: FrozenTrial) -> bool:
    """Whether a training that confirms was ended for want of time: it says nothing, and may be done again."""
    return trial.state == TrialState.PRUNED and not any(trial.constraints.values())


def outcome(spec: Spec, trials: Sequence[FrozenTrial]) -> Confirmed | None:
    """What the trainings that confirm say; None where there are too few yet."""
    values = _confirming_values(trials)
    baseline = next((n for n in values if "baseline" in trials[n].user_attrs), None)
    if not values.keys() - {baseline} or not any(all(map(math.isfinite, row)) for row in values.values()):
        return None
    before = {number: trials[number].value or 0.0 for number in values}
    return confirmed(values, before, baseline=baseline, minimize=spec.goal == "minimize")


def overlooked(spec: Spec, trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """The best trial of the search, where it is not among those that were compared; None where it is."""
    compared = _confirming_values(trials)
    best = best_of(spec, trials, 1)
    return best[0] if compared and best and best[0].number not in compared else None


def unusable(trials: Sequence[FrozenTrial]) -> dict[int, FrozenTrial]:
    """The trials that could not be trained again with every seed, each with a training that tells why."""
    return {
        number: trial
        for trial in trials
        if (number := confirms(trial)) is not None and any(trial.constraints.values())
    }


def _confirming_values(trials: Sequence[FrozenTrial]) -> dict[int, list[float]]:
    """What each trial that was trained again came to, with the seeds that all had: two at least."""
    rows: dict[int, dict[int, float]] = {}
    failed: set[int] = set()
    for trial in trials:
        number = confirms(trial)
        if number is None:
            continue
        row, seed = rows.setdefault(number, {}), trial.user_attrs[CONFIRMS_SEED]
        if trial.state == TrialState.COMPLETE and trial.value is not None:
            row[seed] = trial.value
        elif any(trial.constraints.values()):
            row[seed] = math.inf  # it cannot be trained with every seed
        elif trial.state.is_finished() and not cut_short(trial):
            failed.add(number)
    # One that the time left fewer than two seeds cannot be judged, and keeps none from it.
    rows = {number: row for number, row in rows.items() if number not in failed and len(row) >= 2}
    seeds = set.intersection(*(set(row) for row in rows.values())) if rows else set()
    if len(seeds) < 2:
        return {}
    return {number: [row[seed] for seed in sorted(seeds)] for number, row in rows.items()}


def attrs_of(trial: FrozenTrial, seed: int) -> dict[str, int]:
    """The attributes of a training that confirms a trial."""
    return {CONFIRMS: trial.number, CONFIRMS_SEED: seed}
