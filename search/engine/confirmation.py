"""The confirmation of a study: which trials are trained again, and how often.

Confirmation runs are trials of the study with an attribute that names the trial whose configuration they
have. They run to their end, and neither samplers nor schedulers learn from them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...storage.trial_attrs import CONFIRMS_SEED, confirms, is_baseline
from ..trials.selection import best_of, confirming_values, cut_short, search_trials
from .confirmation_size import ConfirmationSize


def confirmation_candidates(
    spec: Spec, size: ConfirmationSize, trials: Sequence[FrozenTrial]
) -> list[FrozenTrial]:
    """The trials to confirm, as of now: the best ones, those confirmed before, and the baseline.

    A search that was extended may confirm with more seeds than before: all candidates get the same. Once
    their confirmation has begun, no other trial replaces them, even if an audited one turns out better
    meanwhile.
    """
    if not size.top:
        return []
    complete = [t for t in search_trials(trials) if t.state == TrialState.COMPLETE]
    own = [t for t in complete if not is_baseline(t)]
    under_way = _unfinished(size, trials)
    best = best_of(spec, [t for t in own if not under_way or t.number in under_way], size.top)
    there = {trial.number for trial in best}
    before = {n for n, row in confirming_values(trials).items() if all(map(math.isfinite, row))} - there
    baseline = [t for t in complete if best and is_baseline(t)]
    return [*best, *(t for t in own if t.number in before), *baseline]


def _unfinished(size: ConfirmationSize, trials: Sequence[FrozenTrial]) -> set[int]:
    """The candidates of a confirmation since the search ended, if some of them lack seeds; else empty."""
    last = max((trial.number for trial in search_trials(trials)), default=-1)
    runs = [(number, t) for t in trials if (number := confirms(t)) is not None]
    seeds = Counter(number for number, run in runs if not cut_short(run))
    candidates = {number for number, run in runs if run.number > last}
    return candidates if any(seeds[number] < size.seeds for number in candidates) else set()


def outstanding_confirmations(
    candidates: Sequence[FrozenTrial], size: ConfirmationSize, trials: Sequence[FrozenTrial]
) -> list[tuple[FrozenTrial, int]]:
    """The confirmation runs still to enqueue: trials and numbers of seeds, ordered by seed."""
    runs = [t for t in trials if confirms(t) is not None and not cut_short(t)]
    there = {(confirms(t), t.user_attrs[CONFIRMS_SEED]) for t in runs}
    return [(t, k) for k in range(size.seeds) for t in candidates if (t.number, k) not in there]
