"""The confirmation of a study: which trials are trained again, and what came of it.

Trainings that confirm are trials of the study, with an attribute that names the trial whose configuration
they have. They run to their end, and neither samplers nor schedulers learn from them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...storage.states import CONFIRMS, CONFIRMS_SEED, confirms
from ..trials.selection import best_of, confirming_values, cut_short, search_trials
from .confirmation_size import ConfirmationSize


def confirmation_candidates(
    spec: Spec, size: ConfirmationSize, trials: Sequence[FrozenTrial]
) -> list[FrozenTrial]:
    """Who is to be confirmed, by what is known now: the best, those that were confirmed before, the baseline.

    A search that was extended may confirm with more seeds than before: all that compare have the same. Once
    they train again nobody else takes the place of one: in the audit a better trial may end meanwhile.
    """
    if not size.top:
        return []
    complete = [t for t in search_trials(trials) if t.state == TrialState.COMPLETE]
    own = [t for t in complete if "baseline" not in t.user_attrs]
    under_way = _under_way(size, trials)
    best = best_of(spec, [t for t in own if not under_way or t.number in under_way], size.top)
    there = {trial.number for trial in best}
    before = {n for n, row in confirming_values(trials).items() if all(map(math.isfinite, row))} - there
    baseline = [t for t in complete if best and "baseline" in t.user_attrs]
    return [*best, *(t for t in own if t.number in before), *baseline]


def _under_way(size: ConfirmationSize, trials: Sequence[FrozenTrial]) -> set[int]:
    """Who trains again since the search ended, where some of them have not all their seeds yet."""
    last = max((trial.number for trial in search_trials(trials)), default=-1)
    again = [(number, t) for t in trials if (number := confirms(t)) is not None]
    seeds = Counter(number for number, trial in again if not cut_short(trial))
    found = {number for number, trial in again if trial.number > last}
    return found if any(seeds[number] < size.seeds for number in found) else set()


def outstanding_confirmations(
    few: Sequence[FrozenTrial], size: ConfirmationSize, trials: Sequence[FrozenTrial]
) -> list[tuple[FrozenTrial, int]]:
    """What is still to be put up of the few that are chosen: a trial and the number of the seed.

    One seed of all after the other.
    """
    again = [t for t in trials if confirms(t) is not None and not cut_short(t)]
    there = {(confirms(t), t.user_attrs[CONFIRMS_SEED]) for t in again}
    return [(t, k) for k in range(size.seeds) for t in few if (t.number, k) not in there]


def confirmation_attrs(trial: FrozenTrial, seed: int) -> dict[str, int]:
    """The attributes of a training that confirms a trial."""
    return {CONFIRMS: trial.number, CONFIRMS_SEED: seed}
