"""How long trainings take, as far as is known, and how long several of them take together."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Self

from optuna.trial import FrozenTrial, TrialState

COST_ATTR = "hpsearch:cost"  # the system attribute with a trial's `Cost`
RECENT_TRIALS = 100  # from which the cost of a new one is estimated
RECENT_WAITS = 20  # of trials, from which the wait of a new one is estimated


@dataclass(frozen=True)
class Cost:
    """What a training takes on a ready worker: `setup` seconds, and `per_unit` seconds for each unit."""

    setup: float
    per_unit: float
    seen: int | None = None  # units, if known from a single report, which cannot separate setup from training

    def seconds(self, units: float) -> float:
        """The seconds of a training of so many units in one attempt."""
        return self.setup + self.per_unit * units

    def split(self, setup: float) -> Cost:
        """A cost known from a single report, split by the `setup` of other trials; else itself."""
        if self.seen is None:
            return self
        total = self.seconds(self.seen)
        return Cost(min(setup, total), max(0.0, total - setup) / self.seen)

    def to_json(self) -> list[float | None]:
        return [round(self.setup, 4), self.per_unit, self.seen]

    @classmethod
    def of(cls, trial: FrozenTrial) -> Self | None:
        """The cost that the study holds for a trial; None if there is none."""
        stored = trial.system_attrs.get(COST_ATTR)
        return None if stored is None else cls(*stored)


@dataclass
class Attempt:
    """An attempt at a trial, by its worker's clock: seconds since the objective was called."""

    begun_at: int = 0  # the step from which it resumes
    reports: list[tuple[int, float]] = field(default_factory=list)  # the first and the last
    report_count: int = 0
    ended: float | None = None  # when the objective returned

    def report(self, step: int, seconds: float) -> None:
        """Note a report of a step."""
        self.reports = [*self.reports[:1], (step, seconds)]
        self.report_count += 1

    @property
    def seconds(self) -> float | None:
        """Its length so far; None before its first report."""
        return self.ended if self.ended is not None or not self.reports else self.reports[-1][1]

    @property
    def seconds_per_report(self) -> float | None:
        """The mean seconds between reports; None before the first."""
        if not self.reports:
            return None
        seconds = [0.0, *(at for _, at in self.reports)]
        return (seconds[-1] - seconds[-2]) / max(1, self.report_count - 1)

    @property
    def grid(self) -> int:
        """The mean units between reports; 1 before the first."""
        if not self.reports:
            return 1
        steps = [self.begun_at, *(step for step, _ in self.reports)]
        return max(1, round((steps[-1] - steps[-2]) / max(1, self.report_count - 1)))

    @property
    def cost(self) -> Cost | None:
        """The cost that its reports show; None without reports."""
        if not self.reports:
            return None if self.ended is None else Cost(self.ended, 0.0)
        (step, at), (last, until) = self.reports[0], self.reports[-1]
        rest = 0.0 if self.ended is None else max(0.0, self.ended - until)
        if last == step:
            units = max(1, step - self.begun_at)
            return Cost(rest, at / units, seen=units)
        per_unit = (until - at) / (last - step)
        return Cost(max(0.0, at - (step - self.begun_at) * per_unit) + rest, per_unit)


@dataclass(frozen=True)
class _Typical:
    """The expected cost of a trial that has not reported."""

    setup: float  # seconds, from the trials whose setup is known
    cost: Cost
    whole: float | None  # seconds of a whole training on a worker; None if unknown


class TrialCosts:
    """The costs of a search's trials, beginning with those in the study."""

    def __init__(self, units: int | None, trials: Iterable[FrozenTrial], slots: int = 1) -> None:
        """`units`: the resource of a whole training, if known. `slots`: trials at a time."""
        self._units = units
        self._ends: dict[int, int] = {}  # the resource of trials that have run to their end
        self._costs: dict[int, Cost] = {}  # by trial, the latest last
        self._waits: dict[int, float] = {}  # by trial, the latest last
        self._first: set[int] = set()  # trials that waited for a new worker
        self._summary: _Typical | None = None
        self.queue_seconds = 0.0  # that a trial takes besides its training: on Ray one or two
        self.slots = slots
        self.busy_slots: int | None = None  # most trials seen training at a time, if the backend says so
        for trial in trials:
            if (cost := Cost.of(trial)) is not None:
                self.learn(trial.number, cost, _units_of(trial))

    def learn(self, number: int, cost: Cost, units: int | None = None) -> None:
        """Note the cost of a trial, and the units of its whole training if it has run to its end."""
        known = self._costs.pop(number, None)
        says_less = known is not None and known.seen is None and cost.seen is not None
        self._costs[number] = known if known is not None and says_less else cost
        if units is not None:
            self._ends[number] = units
        self._summary = None

    def waited(self, number: int, seconds: float) -> None:
        """Note how many seconds after its ask a trial was without a worker.

        The first trial of each slot waits for a new worker, which says nothing about later ones.
        """
        if len(self._first) < self.slots and number not in self._waits:
            self._first.add(number)
        if number not in self._first:
            self._waits.pop(number, None)
            self._waits[number] = seconds
            # Two zeros are added, so that a single trial that waited for a new worker does not end a search.
            last = islice(reversed(self._waits.values()), RECENT_WAITS)
            self.queue_seconds = statistics.median_low([0.0, 0.0, *last])

    def set_busy_slots(self, trials: int) -> None:
        """So many trials train now, so at least as many slots have a ready worker."""
        self.busy_slots = max(self.busy_slots or 0, trials)

    def makespan(self, trainings: Iterable[float], busy: Sequence[float] = ()) -> float:
        """Seconds until trainings of these lengths have ended in the slots that have a worker.

        `busy`: seconds until some of them are free.
        """
        slots = self.slots if self.busy_slots is None else min(self.slots, self.busy_slots)
        return makespan(trainings, slots, busy)

    @property
    def full_training_seconds(self) -> float | None:
        """Seconds of a whole training; None if unknown."""
        whole = self._typical.whole
        return None if whole is None else whole + self.queue_seconds

    def seconds_of(self, number: int) -> float:
        """Seconds of a whole training with a trial's configuration; 0 if unknown."""
        units = self._ends.get(number, self._units)
        if units is None or number not in self._costs:
            return self.full_training_seconds or 0.0
        return self._cost_of(number).seconds(units) + self.queue_seconds

    def seconds_until(
        self, number: int | None, step: int, until: int | None, *, begins: bool = True
    ) -> float:
        """Seconds of a trial, or a new one, from a step to another or to its end; 0 if unknown.

        `begins`: whether a worker has yet to begin it.
        """
        if self._units is None or not self._costs:
            return (self.full_training_seconds or 0.0) if number is None else self.seconds_of(number)
        cost = self._cost_of(number) if number in self._costs else self._typical.cost
        units = (self._units if until is None else until) - step
        return self.queue_seconds + cost.seconds(units) if begins else cost.per_unit * units

    def _cost_of(self, number: int) -> Cost:
        return self._costs[number].split(self._typical.setup)

    @property
    def _typical(self) -> _Typical:
        """What recent trials predict for a new one; cached until a cost changes."""
        if self._summary is None:
            last = list(islice(reversed(self._costs.items()), RECENT_TRIALS))
            setup = statistics.median([cost.setup for _, cost in last if cost.seen is None] or [0.0])
            costs = [(number, cost.split(setup)) for number, cost in last]
            wholes = [
                cost.seconds(units)
                for number, cost in costs
                if (units := self._ends.get(number, self._units)) is not None
            ]
            self._summary = _Typical(
                setup,
                Cost(
                    statistics.median([cost.setup for _, cost in costs] or [0.0]),
                    statistics.median([cost.per_unit for _, cost in costs] or [0.0]),
                ),
                statistics.median(wholes) if wholes else None,
            )
        return self._summary

    def trainings_in(self, seconds: float) -> float | None:
        """How many whole trainings fit into so many seconds; None if unknown."""
        return None if not self.full_training_seconds else self.slots * seconds / self.full_training_seconds


def makespan(trainings: Iterable[float], slots: int, busy: Sequence[float] = ()) -> float:
    """Seconds until trainings of these lengths, begun in this order, have ended in so many slots.

    `busy`: seconds until some of the slots are free.
    """
    free = sorted(busy)[-slots:]
    free += [0.0] * (slots - len(free))
    heapq.heapify(free)
    for seconds in trainings:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def _units_of(trial: FrozenTrial) -> int | None:
    return trial.last_step or 0 if trial.state == TrialState.COMPLETE else None
