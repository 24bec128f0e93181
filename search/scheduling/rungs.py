"""Rungs and brackets: where early stopping compares trials.

Hyperband (Li et al., 2018, Algorithm 1) runs successive halving from several first rungs at once, because it
is unknown how early a curve predicts its end. Bracket `b` has rungs at `min * eta**(b + k)`, below `max`: a
trial that reaches `max` is never pruned there, since its cost is already spent.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

from ...spaces import Spec
from ...spaces.stopping import Hyperband, Rungs, SuccessiveHalving

MIN_AUDITED = 5  # trials, for a fraction or a correlation
MAX_BRACKETS = 5


@dataclass(frozen=True)
class Bracket:
    """One run of successive halving."""

    rungs: tuple[int, ...]  # in the study's resource unit, rising, all below the maximum
    share: float  # of all trials, 0 to 1

    def expected_complete(self, trials: int, eta: int) -> float:
        """How many of a search's `trials` reach the end in this bracket, if one in `eta` passes each rung."""
        return trials * self.share / float(eta ** len(self.rungs))

    def expected_steps(self, maximum: int, eta: int) -> float:
        """The resource of a trial on average, if one in `eta` passes each rung."""
        stops = [*self.rungs, maximum]
        reached = [float(eta) ** -k for k in range(len(stops))]
        parts = zip(reached, stops, [0, *stops], strict=False)
        return sum(share * (stop - before) for share, stop, before in parts)


def brackets_of(spec: Spec) -> list[Bracket]:
    """The brackets of a study's early stopping; empty if it has no rungs."""
    stopping = spec.early_stopping
    if isinstance(stopping, Hyperband):
        return hyperband_brackets(stopping.min, stopping.max, stopping.eta)
    if isinstance(stopping, SuccessiveHalving):
        first = stopping.min * stopping.eta ** (stopping.min_early_stopping_rate or 0)
        return [Bracket(rungs(first, stopping.max, stopping.eta), 1.0)]
    return []


def rung_steps(spec: Spec) -> list[int]:
    """The steps of the rungs of all brackets, rising."""
    return sorted({rung for bracket in brackets_of(spec) for rung in bracket.rungs})


def most_trials(spec: Spec) -> int | None:
    """How many trials a search begins at most; None if unknown. A small space runs out of configurations."""
    points = spec.space.grid_size if spec.search.sampler == "grid" else spec.space.few()
    return min((most for most in (spec.budget.trials, points) if most is not None), default=None)


def expected_cost(spec: Spec) -> float | None:
    """The cost of a search in whole trainings, if one trial in eta passes each rung; None if unknown."""
    stopping, trials, costs = spec.early_stopping, most_trials(spec), []
    if trials is not None:
        costs.append(trials * (1.0 - (expected_saving(spec) or 0.0)))
    if spec.budget.samples is not None and stopping.max is not None:
        costs.append(spec.budget.samples / stopping.max)
    return min(costs, default=None)


def expected_saving(spec: Spec) -> float | None:
    """The fraction of the resource that rungs save, 0 to 1; None without rungs."""
    stopping = spec.early_stopping
    if not isinstance(stopping, Rungs):
        return None
    spent = sum(b.share * b.expected_steps(stopping.max, stopping.eta) for b in brackets_of(spec))
    return 1 - spent / stopping.max


def audited_one_in(spec: Spec, share: float) -> int | None:
    """One in how many trials is audited, for a share of a search's cost; None if no trial is stopped early.

    On average, an audited trial costs extra what stopping saves of a training; any other trial costs the
    rest.
    """
    saving = expected_saving(spec)
    return max(1, math.ceil(saving / (1 - saving) / share)) if saving and share else None


def promotes(spec: Spec) -> bool:
    """Whether trials pause at rungs, and may be promoted later."""
    return isinstance(spec.early_stopping, Rungs) and spec.early_stopping.type == "promotion"


def kind_choices(spec: Spec) -> list[str]:
    """The choices that divide trials into kinds, which are compared separately; empty if no trial pauses."""
    stopping = spec.early_stopping
    return stopping.alike if isinstance(stopping, Rungs) else []


def bracket_of_trial(brackets: list[Bracket], study: str, number: int) -> int:
    """The bracket of a trial, drawn by the brackets' shares from the study's name and the trial's number."""
    drawn = zlib.crc32(f"{study}_{number}".encode()) / 2**32
    for index, bracket in enumerate(brackets):
        drawn -= bracket.share
        if drawn < 0:
            return index
    return len(brackets) - 1


def hyperband_brackets(minimum: int, maximum: int, eta: int) -> list[Bracket]:
    """The brackets of Hyperband, the most aggressive first.

    Counted in integers: in floating point, `floor(log_eta(max / min))` loses a bracket if the quotient is a
    power of eta (243 / 1 with eta 3 gives 4.999...).
    """
    count = 1
    while minimum * eta**count <= maximum:
        count += 1
    weights = [math.ceil(count * eta ** (count - 1 - b) / (count - b)) for b in range(count)]
    return [Bracket(rungs(minimum * eta**b, maximum, eta), weights[b] / sum(weights)) for b in range(count)]


def rungs(first: int, maximum: int, eta: int) -> tuple[int, ...]:
    """`first`, `first * eta`, ... below `maximum`."""
    steps = []
    while first < maximum:
        steps.append(first)
        first *= eta
    return tuple(steps)


@dataclass(frozen=True)
class Plan:
    """The early stopping of a study, and the trials that it is expected to complete."""

    brackets: list[Bracket]
    trials: int | None
    complete: float | None  # trials expected to reach the end
    saving: float | None  # share of the resource that early stopping is expected to save, 0 to 1


def plan_of(spec: Spec) -> Plan:
    """The plan of a study, assuming that one trial in eta passes each rung."""
    brackets, trials, stopping = brackets_of(spec), spec.budget.trials, spec.early_stopping
    if not isinstance(stopping, Rungs) or trials is None:
        return Plan(brackets, trials, None, None)
    complete = sum(b.expected_complete(trials, stopping.eta) for b in brackets)
    return Plan(brackets, trials, max(1.0, complete), expected_saving(spec))
