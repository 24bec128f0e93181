"""The costs of a simulated search, and its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TrainingCost:
    """The cost of training a configuration: seconds to start, seconds for each unit, and its units."""

    setup: float
    per_unit: float
    units: int
    every: float = math.inf  # seconds from one report to the next
    grid: int = 1  # units from one report to the next

    @property
    def seconds(self) -> float:
        """Seconds of the whole training."""
        return self.setup + self.per_unit * self.units


@dataclass(frozen=True)
class SearchCosts:
    """The costs of a search on this machine."""

    trainings: Sequence[TrainingCost]  # of random configurations
    baseline: TrainingCost | None
    slots: int  # trials that train at the same time
    startup: float  # seconds until the first worker trains
    leaving: float = 0.0  # seconds from the last training to the end of the command
    keeps: bool = True  # whether trials leave checkpoints, so that paused trials can resume
    ranked: bool = False  # whether `trainings` are sorted by loss, best first, because cost depends on it
    ask: Callable[[int], float] = lambda number: 0.0  # seconds to propose a trial


@dataclass
class Reached:
    """The trials that reach a step."""

    step: int
    trials: int = 0
    first: float | None = None  # seconds after the start
    last: float | None = None

    def add(self, now: float, trials: int = 1) -> None:
        """Count trials that reach the step now."""
        self.trials += trials
        self.first = now if self.first is None else min(self.first, now)
        self.last = now if self.last is None else max(self.last, now)


@dataclass(frozen=True)
class SimulatedSearch:
    """The predicted course of a search, in seconds after its start."""

    trials: int  # that start
    reached: list[Reached]  # at each rung, and at the end of a training
    search: float  # the end of the search itself
    by: str  # what ends it: trials, time or samples
    audited: int  # trials that continue to their end although early stopping would have ended them
    auditing: float  # seconds of the audit after the search; 0 where it takes place during the search
    confirms: int  # trainings that confirm the best trials
    seeds: int  # of each confirmed trial
    confirmation: float  # seconds
    end: float  # of everything
    ends: tuple[float, float]  # the earliest and the latest of the searches that were simulated

    @property
    def complete(self) -> int:
        """Trials that finish."""
        return self.reached[-1].trials


def reported_at(training: TrainingCost, step: int) -> int:
    """The step of the report that shows a training has reached `step`: its next report, or its end."""
    return min(math.ceil(step / training.grid) * training.grid, training.units)


@dataclass(order=True)
class Move:
    """A trial on its way to the step at which it arrives, at a time."""

    at: float
    number: int
    begun: int = field(compare=False)
    step: int = field(compare=False)
    training: TrainingCost = field(compare=False)

    def done(self, now: float) -> float:
        """The units that it has trained by then."""
        whole = self.step - self.begun
        return min(max(0.0, whole - (self.at - now) / self.training.per_unit), whole)
