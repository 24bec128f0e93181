"""What early stopping loses, estimated from a sample of the trials that it would have ended.

How a trial that is stopped early would have ended is unknown. So a few trials, drawn before anything is
known of them, train to their end all the same. How many of these are among the best estimates how often a
good one is lost: a share, with the interval of Clopper and Pearson (1934), whose coverage is at least its
level for any number of trials. The rank correlation (Spearman 1904) says how well the ranking at a rung
predicts the final one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...spaces.stopping import Rungs
from ..scheduling.observed import as_judged, value_at
from ..scheduling.rungs import MIN_AUDITED, rung_steps
from ..trials.records import StudyRecords
from .confirmation import LEVEL


@dataclass(frozen=True)
class Share:
    """How many of some trials, and between which shares it lies at `LEVEL` for all such trials."""

    count: int
    of: int
    low: float
    high: float


@dataclass(frozen=True)
class RungCorrelation:
    """How well the values at a rung order the trials as their last values do."""

    step: int  # of the rung
    correlation: float | None  # -1 to 1; None where there are too few trials, or all are equal
    trials: int


@dataclass(frozen=True)
class Audited:
    """What the trials show that ran to their end although early stopping would have ended them."""

    ended: int  # of these trials; the others count nowhere yet
    let_through: int  # trials that early stopping let run to their end
    one_in: int  # the best of those: one in so many
    lost: Share | None  # that came among those best; None where there are too few of either
    better_than_all: int  # that ended better than all that were let through
    rungs: tuple[RungCorrelation, ...]


def audited(
    stopped: Sequence[float],
    let_through: Sequence[float],
    one_in: int,
    rungs: Sequence[tuple[int, Sequence[tuple[float, float]]]],
) -> Audited:
    """What the ends of trials tell about early stopping. Losses: lower is better.

    `stopped` are the ends of the trials that were to stop, infinite where one could not be trained to it, and
    `rungs` the steps of the rungs, each with what trials had there and at their ends.
    """
    ranked = sorted(let_through)
    lost = None
    if len(stopped) >= MIN_AUDITED and len(ranked) >= max(MIN_AUDITED, one_in):
        last_good = ranked[math.ceil(len(ranked) / one_in) - 1]
        lost = share(sum(loss <= last_good for loss in stopped), len(stopped))
    better = sum(loss < ranked[0] for loss in stopped) if ranked else 0
    correlations = (RungCorrelation(step, rank_correlation(pairs), len(pairs)) for step, pairs in rungs)
    return Audited(len(stopped), len(ranked), one_in, lost, better, tuple(correlations))


def share(count: int, of: int) -> Share:
    """A share with its interval."""
    from scipy.special import betaincinv  # half a second, which no command but this pays

    tail = (1 - LEVEL) / 2
    low = float(betaincinv(count, of - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, of - count, 1 - tail)) if count < of else 1.0
    return Share(count, of, low, high)


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's rank correlation; equal values share a rank. None for too few pairs, or constant values."""
    if len(pairs) < MIN_AUDITED:
        return None
    ranks = []
    for side in np.array(pairs, dtype=float).T:
        ordered = np.sort(side)
        below, upto = np.searchsorted(ordered, side), np.searchsorted(ordered, side, "right")
        ranks.append((below + upto) / 2)
    if any(np.ptp(side) == 0 for side in ranks):
        return None
    return float(np.corrcoef(ranks)[0, 1])


def audit_outcome(records: StudyRecords) -> Audited | None:
    """What the audit of a study tells; None where none of its trials was in it."""
    spec, own = records.spec, records.search
    if not isinstance(spec.early_stopping, Rungs) or all(trial.audited_at is None for trial in own):
        return None
    through = [t.loss for t in own if t.audited_at is None and not t.is_baseline and t.loss is not None]
    stopped = [
        math.inf if t.loss is None else t.loss
        for t in own
        if t.audited_at is not None and (t.loss is not None or t.is_untrainable)
    ]
    rungs = []
    for step in rung_steps(spec):
        there = [(value_at(as_judged(spec, t.trial), step), t.loss) for t in own if t.loss is not None]
        rungs.append((step, [(spec.loss(value), end) for value, end in there if value is not None]))
    return audited(stopped, through, spec.early_stopping.eta, rungs)
