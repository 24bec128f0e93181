"""Rungs and brackets: where early stopping compares trials.

Hyperband (Li et al., 2018, Algorithm 1) runs successive halving from several first rungs at once, because
nobody knows how early a curve tells its end. Bracket `b` has rungs at `min * eta**(b + k)`, below `max`:
a trial that reaches `max` is never pruned there, its cost is already spent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..spaces import Spec
from ..spaces.stopping import Hyperband, SuccessiveHalving


@dataclass(frozen=True)
class Bracket:
    """One run of successive halving."""

    rungs: tuple[int, ...]  # in the study's resource unit, rising, all below the maximum
    share: float  # of all trials, 0 to 1

    def expected_complete(self, trials: int, eta: int) -> float:
        """How many of `trials` asked in all reach the end here, if one in `eta` passes each rung."""
        return trials * self.share / float(eta ** len(self.rungs))


def brackets_of(spec: Spec) -> list[Bracket]:
    """The brackets of a study's early stopping; empty where it has no rungs."""
    stopping = spec.early_stopping
    if isinstance(stopping, Hyperband):
        return hyperband_brackets(stopping.min, stopping.max, stopping.eta)
    if isinstance(stopping, SuccessiveHalving):
        first = stopping.min * stopping.eta ** (stopping.min_early_stopping_rate or 0)
        return [Bracket(rungs(first, stopping.max, stopping.eta), 1.0)]
    return []


def hyperband_brackets(minimum: int, maximum: int, eta: int) -> list[Bracket]:
    """The brackets of Hyperband, the most aggressive first.

    Counted with integers: `floor(log_eta(max / min))` loses a bracket where the quotient is a power of eta
    (243 / 1 with eta 3 gives 4.999... in floating point).
    """
    count = 1
    while minimum * eta**count <= maximum:
        count += 1
    weights = [math.ceil(count * eta ** (count - 1 - b) / (count - b)) for b in range(count)]
    return [Bracket(rungs(minimum * eta**b, maximum, eta), weights[b] / sum(weights)) for b in range(count)]


def rungs(first: int, maximum: int, eta: int) -> tuple[int, ...]:
    """`first`, `first * eta`, ... below `maximum`."""
    found = []
    while first < maximum:
        found.append(first)
        first *= eta
    return tuple(found)
