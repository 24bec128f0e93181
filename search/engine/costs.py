"""How long trainings take, as far as they were seen, and how long several of them take together."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Self

from optuna.trial import FrozenTrial, TrialState

COST_ATTR = "hpsearch:cost"  # the system attribute of a trial that has its `Cost`
RECENT_TRIALS = 100  # trials, the last ones, by which a further one is judged
RECENT_WAITS = 20  # of trials, the last ones, by which the wait of a further one is judged


@dataclass(frozen=True)
class Cost:
    """What a training takes on a worker that is ready: `setup` seconds, and so many for each unit."""

    setup: float
    per_unit: float
    seen: int | None = None  # units, where one report told: nobody can tell the two from each other

    def seconds(self, units: float) -> float:
        """Of a training of so many units, in one attempt."""
        return self.setup + self.per_unit * units

    def split(self, setup: float) -> Cost:
        """What one report told, where others take so many seconds to begin; else as it is."""
        if self.seen is None:
            return self
        told = self.seconds(self.seen)
        return Cost(min(setup, told), max(0.0, told - setup) / self.seen)

    def to_json(self) -> list[float | None]:
        return [round(self.setup, 4), self.per_unit, self.seen]

    @classmethod
    def of(cls, trial: FrozenTrial) -> Self | None:
        """What the study knows of a trial."""
        found = trial.system_attrs.get(COST_ATTR)
        return None if found is None else cls(*found)


@dataclass
class Attempt:
    """An attempt at a trial, by its worker's clock: seconds since the objective was called."""

    begun_at: int = 0  # the step that it goes on from
    reports: list[tuple[int, float]] = field(default_factory=list)  # the first and the last
    report_count: int = 0  # reports in all
    ended: float | None = None  # when the objective returned

    def report(self, step: int, seconds: float) -> None:
        """It has come to a step."""
        self.reports = [*self.reports[:1], (step, seconds)]
        self.report_count += 1

    @property
    def seconds(self) -> float | None:
        """As far as it has told; None before its first report."""
        return self.ended if self.ended is not None or not self.reports else self.reports[-1][1]

    @property
    def seconds_per_report(self) -> float | None:
        """Seconds from one report to the next; None before the first."""
        if not self.reports:
            return None
        seconds = [0.0, *(at for _, at in self.reports)]
        return (seconds[-1] - seconds[-2]) / max(1, self.report_count - 1)

    @property
    def grid(self) -> int:
        """Units from one report to the next; 1 before the first."""
        if not self.reports:
            return 1
        steps = [self.begun_at, *(step for step, _ in self.reports)]
        return max(1, round((steps[-1] - steps[-2]) / max(1, self.report_count - 1)))

    @property
    def cost(self) -> Cost | None:
        """What it tells; None where it has not reported."""
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
    """What is to be expected of a trial of which nothing is known."""

    setup: float  # seconds to begin, of those of which this is known
    cost: Cost
    whole: float | None  # seconds of a whole training in the hands of a worker; None where nothing tells


class TrialCosts:
    """What the trials of a search cost. Begins with what the study knows."""

    def __init__(self, units: int | None, trials: Iterable[FrozenTrial], slots: int = 1) -> None:
        """`units`: the resource of a training to its end, where that is known. `slots`: trials at a time."""
        self._units = units
        self._ends: dict[int, int] = {}  # the resource of trials that have run to their end
        self._costs: dict[int, Cost] = {}  # of trials that told, the one that told last is the last
        self._waits: dict[int, float] = {}  # of trials, the one that told last is the last
        self._first: set[int] = set()  # which waited for a new worker
        self._summary: _Typical | None = None
        self.slots = slots
        self.busy_slots: int | None = None  # trials that were seen to train at a time, where a backend tells
        for trial in trials:
            if (cost := Cost.of(trial)) is not None:
                self.learn(trial.number, cost, _units_of(trial))

    def learn(self, number: int, cost: Cost, units: int | None = None) -> None:
        """A trial costs this; a whole training of it has so many units, where it has run to its end."""
        known = self._costs.pop(number, None)
        says_less = known is not None and known.seen is None and cost.seen is not None
        self._costs[number] = known if known is not None and says_less else cost
        if units is not None:
            self._ends[number] = units
        self._summary = None

    def waited(self, number: int, seconds: float) -> None:
        """Since a trial was asked, so long was it not in the hands of its worker.

        The first of each slot waits for a new worker, and says nothing of those that follow.
        """
        if len(self._first) < self.slots and number not in self._waits:
            self._first.add(number)
        if number not in self._first:
            self._waits.pop(number, None)
            self._waits[number] = seconds

    def set_busy_slots(self, trials: int) -> None:
        """So many train now: of the slots as many have a worker that is ready."""
        self.busy_slots = max(self.busy_slots or 0, trials)

    def makespan(self, trainings: Iterable[float], busy: Sequence[float] = ()) -> float:
        """Seconds until trainings that take so long have ended in the slots that have a worker.

        `busy`: seconds until some of them are free.
        """
        return makespan(
            trainings, self.slots if self.busy_slots is None else min(self.slots, self.busy_slots), busy
        )

    @property
    def queue_seconds(self) -> float:
        """Seconds that a trial takes besides its training: on Ray one or two.

        As if two had taken none: one that waited for a new worker is not to end a search.
        """
        last = islice(reversed(self._waits.values()), RECENT_WAITS)
        return statistics.median_low([0.0, 0.0, *last])

    @property
    def full_training_seconds(self) -> float | None:
        """Seconds of a whole training; None where nothing tells."""
        whole = self._typical.whole
        return None if whole is None else whole + self.queue_seconds

    def seconds_of(self, number: int) -> float:
        """Of a whole training of a trial's configuration; 0 where nothing tells."""
        units = self._ends.get(number, self._units)
        if units is None or number not in self._costs:
            return self.full_training_seconds or 0.0
        return self._cost_of(number).seconds(units) + self.queue_seconds

    def seconds_until(
        self, number: int | None, step: int, until: int | None, *, begins: bool = True
    ) -> float:
        """Seconds of a trial, or a new one, from a step to another or to its end; 0 where nothing tells.

        `begins`: whether it is still to be given to a worker.
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
        """What the last trials say of a further one; made once for all who ask before another tells."""
        if self._summary is None:
            last = list(islice(reversed(self._costs), RECENT_TRIALS))
            sure = [cost.setup for number in last if (cost := self._costs[number]).seen is None]
            setup = statistics.median(sure or [0.0])
            costs = {number: self._costs[number].split(setup) for number in last}
            wholes = [
                cost.seconds(units)
                for number, cost in costs.items()
                if (units := self._ends.get(number, self._units)) is not None
            ]
            self._summary = _Typical(
                setup,
                Cost(
                    statistics.median([cost.setup for cost in costs.values()] or [0.0]),
                    statistics.median([cost.per_unit for cost in costs.values()] or [0.0]),
                ),
                statistics.median(wholes) if wholes else None,
            )
        return self._summary

    def trainings_in(self, seconds: float) -> float | None:
        """How many whole trainings fit into so long; None where nothing tells."""
        return None if not self.full_training_seconds else self.slots * seconds / self.full_training_seconds


def makespan(trainings: Iterable[float], slots: int, busy: Sequence[float] = ()) -> float:
    """Seconds until trainings that take so long, begun in this order, have ended in so many slots.

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
