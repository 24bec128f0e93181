"""Predicts a search by simulating its rules with what trials cost.

The clock is simulated; the brackets, rungs, promotions and decisions are those of the search, and so are the
trials of its audit and the time reserved for its end. Losses are unknown, so each trial draws one and keeps
it at all rungs; where better configurations cost more or less than others, they do so here. Models propose
better trials as they learn, which pass more rungs: a proposal of a model is the better of two random ones.
Of `MOST_RUNS` simulated searches the median is shown, ordered from few trials to many and then from late ends
to early ones, together with the earliest and the latest end, for the spread is luck.
"""

from __future__ import annotations

import heapq
import math
import random
import statistics
import time
from bisect import insort
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from ...spaces import Choice, Spec
from ...spaces.stopping import Median, Percentile, Rungs
from ..engine.confirmation_size import ConfirmationSize
from ..engine.costs import makespan
from ..engine.deadline import (
    MAX_OVERRUN,
    SECONDS_TO_END_PAUSED,
    room_to_confirm,
    time_is_short,
    units_are_short,
)
from ..scheduling.audit import AuditSample
from ..scheduling.decision import Continue, Pause, Situation, decide
from ..scheduling.promotion import PromotionRule
from ..scheduling.rungs import (
    bracket_of_trial,
    brackets_of,
    expected_cost,
    kind_choices,
    most_trials,
    promotes,
)
from ..trials.stops import Stop
from .simulated import Move, Reached, SearchCosts, SimulatedSearch, TrainingCost, reported_at

MOST_RUNS = 15  # simulated searches
RUN_SECONDS = 3.0  # for all of them, after which no further one begins
MOST_TRIALS = 1000  # that are simulated; the rest of a longer search is extrapolated


def simulate(spec: Spec, costs: SearchCosts, seed: int = 0) -> SimulatedSearch:
    """The median of several simulated searches."""
    began, searches = time.monotonic(), []
    for run in range(MOST_RUNS):
        searches.append(_Simulation(spec, costs, random.Random(f"{seed}:{run}")).run())
        if time.monotonic() - began > RUN_SECONDS:
            break
    middle = sorted(searches, key=lambda each: (each.trials, -each.end))[len(searches) // 2]
    longer = max(1.0, middle.trials / MOST_TRIALS)  # in a longer search luck evens out
    ends = [middle.end + (each.end - middle.end) / math.sqrt(longer) for each in searches]
    return replace(middle, ends=(min(ends), max(ends)))


class _Simulation:
    """One search as it may go."""

    def __init__(self, spec: Spec, costs: SearchCosts, rng: random.Random) -> None:
        self._spec = spec
        self._costs = costs
        self._rng = rng
        self._brackets = brackets_of(spec)
        stopping = spec.early_stopping
        self._eta = stopping.eta if isinstance(stopping, Rungs) else 1
        self._promotion = (
            PromotionRule(self._brackets, self._eta, spec.budget.trials) if promotes(spec) else None
        )
        self._ranked: dict[tuple[int, int], list[float]] = defaultdict(list)
        self._startup_trials = spec.search.startup_trials
        self._mean = statistics.fmean(each.seconds for each in costs.trainings)
        self._units = max(each.units for each in costs.trainings)
        rungs = {rung for bracket in self._brackets for rung in bracket.rungs}
        steps = sorted(rung for rung in rungs if rung < self._units)
        first = min([*steps, self._units])
        to_first = (each.setup + each.per_unit * reported_at(each, first) for each in costs.trainings)
        self._to_first_rung = statistics.fmean(to_first)  # seconds from the start of a new trial
        self._reached = {step: Reached(step) for step in (*steps, self._units)}
        self._trainings: dict[int, TrainingCost] = {}
        self._steps: dict[int, int] = {}  # the step at which a trial was last compared
        self._losses: dict[int, float] = {}
        self._audit = AuditSample.of(spec).within(self._trainings_in_time)
        self._audited: set[int] = set()  # trials that continued although early stopping would have ended them
        self._paused: set[int] = set()  # trials of the audit that wait for the end of the search
        alike = (spec.parameters[name] for name in kind_choices(spec))
        self._choices = [each.choices for each in alike if isinstance(each, Choice)]
        self._alike_values: dict[int, tuple[Any, ...]] = {}
        self._complete: list[tuple[float, int]] = []  # loss and number, best first
        self._consumed = 0
        self._heap: list[Move] = []
        self._now = 0.0
        self._times = 1.0  # how many times as many trials as were simulated
        most = most_trials(spec)
        self._asked = math.inf if most is None else most
        self._most = min(self._asked, MOST_TRIALS)
        self._samples = spec.budget.samples
        self._largest_size = ConfirmationSize.of(spec, expected_cost(spec), self._trainings_in_time)
        self._limit = math.inf if spec.budget.time is None else spec.budget.time
        if self._samples is not None:
            self._samples -= self._largest_size.trainings(spec) * self._units

    def run(self) -> SimulatedSearch:
        """Simulate it from its start to its end."""
        now, by = self._costs.startup, "trials"
        while True:
            self._now = now
            while len(self._heap) < self._costs.slots and self._begin(self._now):
                pass
            spent = self._samples_end_at(self._now)
            if spent < (self._heap[0].at if self._heap else math.inf):
                now, by = max(now, spent), "samples"
                break
            if not self._heap:
                by = "time" if self._limit < math.inf and len(self._trainings) < self._most else by
                break
            over = self._end(self._now)
            while over < self._heap[0].at and (later := self._end(over)) > over:
                over = later  # less fits by then, so less is reserved
            if self._heap[0].at > over:
                now, by = max(now, over), "time"
                break
            move = heapq.heappop(self._heap)
            now = max(self._now, move.at)
            self._arrive(move, now)
        now = self._end_with_a_winner(now)
        if len(self._trainings) == self._most < self._asked:
            now, by, self._times = self._extrapolated(now)
        else:
            self._paused = self._audited_in_time(now)
        auditing = self._auditing() * self._times
        for number in self._paused:
            for step, reached in self._reached.items():
                if self._steps[number] < step <= self._trainings[number].units:
                    reached.add(now + auditing, round(self._times))
            insort(self._complete, (self._losses[number], number))
        return self._result(now, by, auditing)

    def _end_with_a_winner(self, now: float) -> float:
        """When the baseline has finished: it always does where no other trial has."""
        while not self._complete and (left := [m for m in self._heap if self._is_baseline(m.number)]):
            self._heap.remove(left[0])
            now = max(now, left[0].at)
            self._arrive(left[0], now)
        return now

    def _end(self, now: float) -> float:
        """When the trials of the search must have ended, to leave time for audit and confirmation."""
        return self._limit - self._reserved(now) - self._auditing() - self._closing

    def _reserved(self, now: float) -> float:
        """Seconds reserved for the confirmation, as much of it as fits."""
        if self._limit == math.inf:
            return 0.0
        left = self._limit - self._auditing() - self._closing - now
        room = room_to_confirm(left, self._seconds_until_confirming(now), self._limit)
        return self._largest_size.fitting(room, self._confirmation_seconds)[1]

    def _confirmation_seconds(self, size: ConfirmationSize) -> float:
        """Seconds that a confirmation of this size takes."""
        return makespan(self._confirmed_seconds(size) * size.seeds, self._costs.slots)

    def _confirmed_seconds(self, size: ConfirmationSize) -> list[float]:
        """Seconds of one training of each confirmed trial, the longest first.

        Where no trial has finished yet, one of average cost is assumed.
        """
        if not size.top:
            return []
        seconds = [self._trainings[number].seconds for number in self._best(size.top)] or [self._mean]
        baseline = [self._trainings[0].seconds if 0 in self._trainings else self._mean]
        return sorted([*seconds, *(baseline if self._spec.baseline is not None else [])], reverse=True)

    def _best(self, count: int) -> list[int]:
        """The best trials that have finished, without the baseline."""
        return list(islice((n for _, n in self._complete if not self._is_baseline(n)), count))

    def _seconds_until_confirming(self, now: float) -> float:
        """Seconds until there is a trial to confirm, and the baseline to compare it with."""
        ends = [
            move.at + move.training.per_unit * (move.training.units - move.step) - now
            for move in self._heap
            if self._is_baseline(move.number)
        ]
        return max([*ends, 0.0 if self._best(1) else self._mean])

    def _extrapolated(self, now: float) -> tuple[float, str, float]:
        """Extrapolate the search: its end, what ends it, and how many times longer it is."""
        limits = {"trials": self._asked / self._most}
        took, ending = now - self._costs.startup, self._auditing() + self._closing  # both grow with it
        if self._limit < math.inf:
            limits["time"] = (self._limit - self._reserved(now) - self._costs.startup) / (took + ending)
        if self._samples is not None:
            limits["samples"] = self._samples / self._consumed
        by = min(limits, key=lambda limit: limits[limit])
        times = max(1.0, limits[by])
        for each in self._reached.values():
            each.trials = round(each.trials * times)
            if each.last is not None:
                each.last *= times
        return self._costs.startup + took * times, by, times

    def _begin(self, now: float) -> bool:
        """Let a free slot train a trial; whether there was one."""
        if self._samples is not None and self._consumed >= self._samples:
            return False
        promoted = self._next_promotion(now)
        if promoted is not None and self._promotion is not None:
            self._promotion.promote(promoted)
            self._paused.discard(promoted)
            self._train(promoted, self._steps[promoted], now + self._trainings[promoted].setup)
            return True
        number = len(self._trainings)
        if number >= self._most or (number and now + self._to_first_rung > self._end(now)):
            return False
        own = self._costs.baseline if self._is_baseline(number) else None
        loss, training = self._draw()
        self._alike_values[number] = tuple(self._rng.choice(choices) for choices in self._choices)
        if self._startup_trials is not None and number >= self._startup_trials:
            loss, training = min((loss, training), self._draw(), key=lambda drawn: drawn[0])
        self._losses[number], self._trainings[number] = loss, own or training
        if number in self._audit:
            self._consumed += self._trainings[number].units  # which are reserved for it
        self._delay(self._costs.ask(number))
        self._train(number, 0, self._now + self._trainings[number].setup)
        return True

    def _draw(self) -> tuple[float, TrainingCost]:
        """A random loss, from 0 to 1, and the training of such a configuration."""
        trainings, loss = self._costs.trainings, self._rng.random()
        index = int(loss * len(trainings)) if self._costs.ranked else self._rng.randrange(len(trainings))
        return loss, trainings[index]

    def _samples_end_at(self, now: float) -> float:
        """When all samples are used up, if the running trials continue."""
        if self._samples is None:
            return math.inf
        spending = [move for move in self._heap if move.number not in self._audit]
        moving = [move for move in spending if move.training.per_unit > 0]
        left = self._samples - self._consumed - sum(move.done(now) for move in moving)
        if left < 1e-6:
            return now
        rate = sum(1 / move.training.per_unit for move in moving)
        return now + left / rate if rate else math.inf

    def _next_promotion(self, now: float) -> int | None:
        """The paused trial to promote now, as the driver decides."""
        if self._promotion is None:
            return None
        chosen = self._promotion.choose(
            all_asked=len(self._trainings) >= self._asked,
            idle=not self._heap,
            is_last_chance=partial(self._is_last_chance, now=now),
        )
        if chosen is None:
            return None
        comes = now + self._seconds_until(chosen, self._next_stop(chosen, self._steps[chosen]))
        return chosen if comes <= self._end(now) else None

    def _is_last_chance(self, number: int, other: int | None, now: float) -> bool:
        """Whether a paused trial can finish, but could not if another, or a new one, went first."""
        if self._has_no_time_to_wait(number, other, now, begins=True):
            return True
        if self._samples is None:
            return False
        at = 0 if other is None else self._steps[other]
        others = self._next_stop(number if other is None else other, at) - at
        rest = self._trainings[number].units - self._steps[number]
        return units_are_short(self._samples - self._consumed, rest, others, self._costs.slots)

    def _has_no_time_to_wait(
        self, number: int, other: int | None, now: float, *, begins: bool = False
    ) -> bool:
        """Whether there is time for a trial to finish now, but not after another has reached its next rung.

        `begins`: whether it is paused; a running trial that pauses would have to start up again.
        """
        resumed, others = self._seconds_until(number, self._trainings[number].units), self._to_first_rung
        if other is not None:
            others = self._seconds_until(other, self._next_stop(other, self._steps[other]))
        rest = resumed if begins else resumed - self._trainings[number].setup
        return time_is_short(self._end(now) - now, rest, resumed, others)

    def _seconds_until(self, number: int, step: int) -> float:
        """Seconds for a trial to start up and train to a later step."""
        training = self._trainings[number]
        return training.setup + training.per_unit * (step - self._steps[number])

    def _delay(self, seconds: float) -> None:
        """Let the driver propose for so long; trials that report meanwhile wait for it."""
        self._now += seconds
        for move in self._heap:
            every = move.training.every
            waits = seconds - every / 2 if every < seconds else seconds * seconds / (2 * every)
            move.at += waits
        heapq.heapify(self._heap)

    def _is_baseline(self, number: int) -> bool:
        return number == 0 and self._spec.baseline is not None

    def _bracket(self, number: int) -> int:
        return bracket_of_trial(self._brackets, self._spec.name, number)

    def _stops(self, number: int) -> Sequence[int]:
        """The steps at which a trial is compared."""
        stopping, end = self._spec.early_stopping, self._trainings[number].units
        if self._brackets:
            return self._brackets[self._bracket(number)].rungs
        if isinstance(stopping, Median | Percentile):
            first = stopping.n_warmup_steps or 0
            return [min(max(1, first, end // 10), end)]
        return []

    def _next_stop(self, number: int, at: int) -> int:
        """The next step at which a trial is compared, or its end."""
        training = self._trainings[number]
        return next(
            (reported_at(training, stop) for stop in self._stops(number) if at < stop), training.units
        )

    def _train(self, number: int, at: int, now: float) -> None:
        """Let a trial train to the next step at which it is compared, or to its end."""
        training = self._trainings[number]
        step = self._next_stop(number, at)
        heapq.heappush(self._heap, Move(now + training.per_unit * (step - at), number, at, step, training))

    def _arrive(self, move: Move, now: float) -> None:
        ended = move.step >= move.training.units
        self._steps[move.number] = move.step
        if move.number not in self._audit:
            self._consumed += move.step - move.begun
        for step, reached in self._reached.items():
            if move.begun < step <= move.step and step < self._units:
                reached.add(now - move.training.per_unit * (move.step - step))
        if ended:
            self._reached[self._units].add(now)
            insort(self._complete, (self._losses[move.number], move.number))
        elif self._continues(move, now):
            self._train(move.number, move.step, now)

    def _continues(self, move: Move, now: float) -> bool:
        """Whether a trial continues where it is compared; in a search by promotion others may go first."""
        number, in_audit = move.number, move.number in self._audit
        if number in self._audited or self._goes_first(move, now) or self._is_baseline(number):
            return True
        can_wait = self._promotion is not None and self._costs.keeps
        stop = None if can_wait else Stop("pruned", "")
        decision = decide(Situation(stop=stop, in_audit=in_audit, waits=can_wait))
        if self._promotion is not None and not can_wait:
            self._promotion.end(number)
        if isinstance(decision, Continue):
            self._audited.add(number)
        elif isinstance(decision, Pause) and in_audit:
            self._paused.add(number)
        return isinstance(decision, Continue)

    def _goes_first(self, move: Move, now: float) -> bool:
        """Whether a trial passes, or is promoted at once from its rung; if not, it waits there."""
        number, promotion = move.number, self._promotion
        if promotion is None:
            return self._passes(move)
        if self._is_baseline(number):
            return True
        loss, alike = self._losses[number], self._alike_values[number]
        promotion.report(number, self._bracket(number), move.step, loss, alike)
        entry = promotion.enter(number, can_wait=self._costs.keeps)
        goes = entry.goes_first or (entry.leads and self._has_no_time_to_wait(number, entry.first, now))
        if goes:
            promotion.promote(number)
        return goes

    def _passes(self, move: Move) -> bool:
        """Whether a trial is good enough among those compared at the same step."""
        loss = self._losses[move.number]
        ranked = self._ranked[self._bracket(move.number) if self._brackets else 0, move.step]
        insort(ranked, loss)
        if self._brackets:  # like Optuna: each of the first few must be the best so far
            return loss <= ranked[max(0, len(ranked) // self._eta - 1)]
        stopping = self._spec.early_stopping
        assert isinstance(stopping, Median | Percentile)
        kept = 0.5 if isinstance(stopping, Median) else stopping.percentile / 100
        startup = 5 if stopping.n_startup_trials is None else stopping.n_startup_trials
        return len(self._complete) < startup or loss <= ranked[max(0, int(len(ranked) * kept) - 1)]

    def _audited_in_time(self, now: float) -> set[int]:
        """The paused trials of the audit that can finish in time, should the audit begin now."""
        left = self._limit - self._reserved(now) - self._closing - now
        free = [0.0] * self._costs.slots
        in_time = set()
        for number in sorted(self._paused):
            ends = free[0] + self._seconds_until(number, self._trainings[number].units)
            if ends <= left:
                heapq.heapreplace(free, ends)
                in_time.add(number)
        return in_time

    def _auditing(self) -> float:
        """Seconds until all paused trials of the audit have finished."""
        rests = [self._seconds_until(number, self._trainings[number].units) for number in self._paused]
        return makespan(rests, self._costs.slots)

    @property
    def _closing(self) -> float:
        """Seconds that it takes to end the trials that are paused at rungs."""
        return 0.0 if self._promotion is None else SECONDS_TO_END_PAUSED * self._promotion.paused_count

    @property
    def _trainings_in_time(self) -> float | None:
        """How many whole trainings there is time for; None for a search without a time limit."""
        seconds = self._spec.budget.time
        return None if seconds is None else self._costs.slots * seconds / self._mean

    def _size_after(self, ended: float, *, more: bool) -> ConfirmationSize:
        """The size of the confirmation after the search; `more`: whether it may use all the time left."""
        room = MAX_OVERRUN * self._limit - self._closing * self._times - ended
        size, _ = self._largest_size.fitting(room, self._confirmation_seconds)
        if not self._best(1):
            return ConfirmationSize(0, 0)
        if size.top and more and self._spec.confirm.seeds is None:
            limit = self._limit - self._closing * self._times
            while ended + self._confirmation_seconds(further := replace(size, seeds=size.seeds + 1)) <= limit:
                size = further
        return size

    def _result(self, now: float, by: str, auditing: float) -> SimulatedSearch:
        ended = now + auditing
        size = self._size_after(ended, more=by == "time")
        again, confirmation = self._confirmed_seconds(size), self._confirmation_seconds(size)
        reached = [self._reached[step] for step in sorted(self._reached)]
        trials, audited = (
            round(count * self._times) for count in (len(self._trainings), len(self._audited | self._paused))
        )
        end = ended + confirmation + self._closing * self._times + self._costs.leaving
        confirms, seeds = len(again) * size.seeds, size.seeds if again else 0
        return SimulatedSearch(
            trials, reached, now, by, audited, auditing, confirms, seeds, confirmation, end, (end, end)
        )
