"""The confirmation of a study: which trials are trained again, and how often.

Confirmation runs are trials of the study with an attribute that names the trial whose configuration they
have. They run to their end, and neither samplers nor schedulers learn from them.
"""

from __future__ import annotations

import math
from collections import Counter

from ...spaces import Spec
from ..trials.records import StudyRecords, TrialRecord
from .confirmation_size import ConfirmationSize
from .tally import Tally

ConfirmationRuns = list[tuple[TrialRecord, int]]  # trials to train again, and the indices of their new seeds


class ConfirmationPlan:
    """The confirmation of a search, as of now; cached, since every report asks several times."""

    def __init__(self, spec: Spec, tally: Tally) -> None:
        self._spec = spec
        self._tally = tally
        self._at = -1  # turns of the trials, for which the cache holds
        self._candidates: dict[ConfirmationSize, list[TrialRecord]] = {}

    def candidates(self, size: ConfirmationSize) -> list[TrialRecord]:
        """The trials to confirm."""
        if self._at != self._tally.turns:
            self._at, self._candidates = self._tally.turns, {}
        if size not in self._candidates:
            pool = StudyRecords(self._spec, self._tally.confirmation_pool(size.top))
            self._candidates[size] = confirmation_candidates(size, pool)
        return self._candidates[size]

    @property
    def runs(self) -> list[TrialRecord]:
        """The confirmation runs so far."""
        return StudyRecords(self._spec, self._tally.confirming).confirmations

    def outstanding(self, size: ConfirmationSize) -> ConfirmationRuns:
        """The confirmation runs still to enqueue."""
        return outstanding_confirmations(self.candidates(size), size, self.runs)


def confirmation_candidates(size: ConfirmationSize, records: StudyRecords) -> list[TrialRecord]:
    """The trials to confirm, as of now: the best ones, those confirmed before, and the baseline.

    A search that was extended may confirm with more seeds than before: all candidates get the same. Once
    their confirmation has begun, no other trial replaces them, even if an audited one turns out better
    meanwhile.
    """
    if not size.top:
        return []
    under_way = _unfinished(size, records)
    best = records.best(size.top, lambda t: not t.is_baseline and (not under_way or t.number in under_way))
    there = {trial.number for trial in best}
    rows = records.confirming_losses
    before = {number for number, row in rows.items() if all(map(math.isfinite, row))} - there
    complete = records.complete
    again = [t for t in complete if t.number in before and not t.is_baseline]
    return [*best, *again, *(t for t in complete if best and t.is_baseline)]


def _unfinished(size: ConfirmationSize, records: StudyRecords) -> set[int | None]:
    """The candidates of a confirmation since the search ended, if some of them lack seeds; else empty."""
    last = max((trial.number for trial in records.search), default=-1)
    seeds = Counter(run.confirms for run in records.confirmations if not run.was_cut_short)
    candidates = {run.confirms for run in records.confirmations if run.number > last}
    return candidates if any(seeds[number] < size.seeds for number in candidates) else set()


def outstanding_confirmations(
    candidates: list[TrialRecord], size: ConfirmationSize, runs: list[TrialRecord]
) -> ConfirmationRuns:
    """The confirmation runs still to enqueue, ordered by seed."""
    there = {(run.confirms, run.seed) for run in runs if not run.was_cut_short}
    return [(t, k) for k in range(size.seeds) for t in candidates if (t.number, k) not in there]
