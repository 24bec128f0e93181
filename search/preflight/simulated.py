"""What a simulated search costs, and what becomes of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TrainingCost:
    """What a training of a configuration takes, in seconds: to begin, for each unit; and its units."""

    setup: float
    per_unit: float
    units: int
    every: float = math.inf  # from one report to the next
    grid: int = 1  # units from one report to the next

    @property
    def seconds(self) -> float:
        """To its end."""
        return self.setup + self.per_unit * self.units


@dataclass(frozen=True)
class SearchCosts:
    """What a search costs here."""

    trainings: Sequence[TrainingCost]  # of random configurations
    baseline: TrainingCost | None
    slots: int  # trials at a time
    startup: float  # seconds until the first worker trains
    leaving: float = 0.0  # seconds from the last training to the end of the command
    keeps: bool = True  # whether trials leave checkpoints, from which those that paused go on
    ranked: bool = False  # whether the best trainings come first, for what they cost has to do with it
    ask: Callable[[int], float] = lambda number: 0.0  # seconds that the proposal of a trial takes


@dataclass
class Reached:
    """Trials that came to a step."""

    step: int
    trials: int = 0
    first: float | None = None  # seconds after the start
    last: float | None = None

    def add(self, now: float, trials: int = 1) -> None:
        """One more, or several, which come there now."""
        self.trials += trials
        self.first = now if self.first is None else min(self.first, now)
        self.last = now if self.last is None else max(self.last, now)


@dataclass(frozen=True)
class SimulatedSearch:
    """What becomes of a search, in seconds after its start."""

    trials: int  # that begin
    reached: list[Reached]  # the rungs, and the end of a training
    search: float  # its end
    by: str  # what ends it: trials, time or samples
    audited: int  # trials that go on to their end though they would have stopped
    auditing: float  # seconds of that after the search; 0 where they go on during it
    confirms: int  # trainings that confirm the best
    seeds: int  # with which each of them trains
    confirmation: float  # seconds of it
    end: float  # of all
    ends: tuple[float, float]  # the earliest and the latest of the searches that were simulated

    @property
    def complete(self) -> int:
        """Trials that come to their end."""
        return self.reached[-1].trials


def reported_at(training: TrainingCost, step: int) -> int:
    """When a training tells that it has come to a step: at its next report, or at its end."""
    return min(math.ceil(step / training.grid) * training.grid, training.units)


@dataclass(order=True)
class Move:
    """A trial on its way from one step to another, where it is at a time."""

    at: float
    number: int
    begun: int = field(compare=False)
    step: int = field(compare=False)
    training: TrainingCost = field(compare=False)

    def done(self, now: float) -> float:
        """The units that it has done by then."""
        whole = self.step - self.begun
        return min(max(0.0, whole - (self.at - now) / self.training.per_unit), whole)
