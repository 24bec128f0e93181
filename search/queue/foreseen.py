"""When studies begin and end: from their budgets, from their pace, and from those before them in the queue.

A budget of time is a promise that a search keeps within a few percent. Else the pace of the study so far
tells how long the rest takes: that of the trials to come, by what those so far have come to, and of those
that train. A study without either ends at no foreseen time, nor does one begin that needs its slots.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from ...spaces import SpaceError, Spec
from ..engine.confirmation_size import ConfirmationSize
from ..scheduling.rungs import expected_cost, most_trials
from .decide import Entry, Preempt, Start, decide
from .slots import Machine

START_SECONDS = 6.0  # for a driver and its first worker to start, which the time of a search includes
LEAVE_SECONDS = 3.0  # for a driver to leave once its search is over, or its trials have reported
LATEST = 3.0  # times as long take starting and leaving at most, on a busy machine
OVERRUN = 0.05  # of a budget of time, at most
FEWEST = 2  # trials that have ended, before the pace of a study tells anything
SPREAD = 1.0  # of the rest by the pace of one training; it falls with the root of their number
DEVIATIONS = 2.0  # by which the share of trials that train to their end may be off
FARTHEST = 10 * 365.25 * 86400.0  # seconds ahead; nobody knows what is later
EVENTS_PER_STUDY = 6  # of a queue that is foreseen: starts, stops and ends


@dataclass(frozen=True)
class Rest:
    """The seconds that a search still takes, by expectation, at least and at most."""

    seconds: float
    low: float
    high: float

    def plus(self, seconds: float) -> Rest:
        """The same, and so many seconds more."""
        return Rest(self.seconds + seconds, self.low, self.high + LATEST * seconds)

    def or_less(self, seconds: float) -> Rest:
        """The same, or up to so many seconds less."""
        return Rest(self.seconds, max(0.0, self.low - seconds), self.high)


@dataclass(frozen=True)
class Progress:
    """How far a study is."""

    elapsed: float = 0.0  # seconds searched so far
    ended: int = 0  # trials
    trained: int = 0  # units of all trials together
    begun: int = 0  # trials that have reported
    running: int = 0  # trials that a worker has

    @property
    def reached(self) -> int:
        """What grows with each report and each end of a trial."""
        return self.trained + self.ended


@dataclass(frozen=True)
class Foreseen:
    """When a study begins and ends, as an interval; None: unknown. Moments are seconds since 1970."""

    begins: float | None = None
    begins_low: float | None = None
    begins_high: float | None = None
    ends: float | None = None
    ends_low: float | None = None
    ends_high: float | None = None


@dataclass(frozen=True)
class Work:
    """What a search is to do, in whole trainings."""

    planned: float  # if one trial in eta passes each rung; with the confirmation
    most: float  # by its budget of samples; infinite without one
    trials: int | None  # at most, without the confirmation
    confirming: int


def moment_ahead(at: float, now: float) -> datetime | None:
    """A foreseen moment, in UTC; None where it is too far ahead to be known. Takes seconds since 1970."""
    return datetime.fromtimestamp(at, UTC) if at - now <= FARTHEST else None


def rest_of(spec: dict[str, Any], progress: Progress, slots: float = 1.0) -> Rest | None:
    """What a study's search still takes; None where nothing is known of that, or it is too long to be known.

    `slots`: how many times as many trials train at a time from now on.
    """
    text = json.dumps(spec, sort_keys=True)
    parsed = _parsed(text)
    if parsed is None:
        return None
    rest, budget = _by_pace(text, parsed, progress, slots), parsed.budget
    if budget.time is not None:
        promised = max(0.0, budget.time - progress.elapsed)
        most = promised + OVERRUN * budget.time + LEAVE_SECONDS
        ends_by_time = budget.trials is budget.samples is budget.target is None
        if rest is None or ends_by_time:  # the time of a confirmation may not be used up
            rest = Rest(promised, 0.9 * promised if ends_by_time else 0.0, most)
        else:
            rest = Rest(min(rest.seconds, promised), min(rest.low, promised), min(rest.high, most))
    return None if rest is None or rest.seconds > FARTHEST else rest


def _by_pace(text: str, spec: Spec, progress: Progress, slots: float) -> Rest | None:
    work = _work_of(text)
    if work is None or progress.ended < FEWEST or progress.elapsed <= 0:
        return None
    last = spec.early_stopping.max
    done = progress.trained / last if last and progress.trained else progress.ended + progress.running / 2
    if done <= 0:
        return None
    left, low, high = _left_to_do(work, done, progress)
    trained = max(progress.elapsed - START_SECONDS, progress.elapsed / 2)  # without the start, which was once
    each, slowest = (spent / done / slots for spent in (trained, progress.elapsed))
    spread = SPREAD / math.sqrt(progress.ended) + 0.1
    tail = slowest + LEAVE_SECONDS  # the last training may have to run to its end
    return Rest(each * left, each * low / (1 + spread), slowest * high * (1 + spread) + tail)


def _left_to_do(work: Work, done: float, progress: Progress) -> tuple[float, float, float]:
    """The whole trainings that are left of a search, by expectation, at least and at most.

    More trials may pass the rungs than one in eta, as few are compared, and later ones are better. So what a
    trial comes to is also told by those that have begun, where one that trains is taken to be half-way.
    """
    planned, most = max(0.0, work.planned - done), max(0.0, work.most - done)
    if work.trials is None:
        return planned, planned, planned
    begun = max(progress.begun, progress.ended + progress.running)
    coming = max(0, work.trials - begun)
    confirming = max(0, work.confirming - max(0, begun - work.trials))
    share = min(1.0, (done + progress.running / 2) / begun)  # of a training, that a trial comes to
    unsure = DEVIATIONS * math.sqrt(share * (1 - share) * coming * (1 + coming / begun))
    low = min(coming * share, max(0.0, coming * share - unsure)) + confirming
    high = min(coming, coming * share + unsure) + progress.running + confirming
    left = max(planned, coming * share + progress.running / 2 + confirming)
    return min(left, most), min(low, left, most), min(max(high, left), most)


@lru_cache(maxsize=512)
def _parsed(text: str) -> Spec | None:
    """The space of a study; None where it is none, as a later version may have written it."""
    try:
        return Spec.from_json(json.loads(text))
    except (SpaceError, ValueError):
        return None


@lru_cache(maxsize=512)
def _work_of(text: str) -> Work | None:
    """What a search is to do; None where that is unknown."""
    parsed = _parsed(text)
    cost = None if parsed is None else expected_cost(parsed)
    if parsed is None or cost is None:
        return None
    samples, last = parsed.budget.samples, parsed.early_stopping.max
    if samples is not None and last is not None:
        return Work(cost, samples / last, most_trials(parsed), 0)  # the confirmation is a part of them
    confirming = ConfirmationSize.of(parsed, cost).trainings(parsed)
    return Work(cost + confirming, math.inf, most_trials(parsed), confirming)


def foresee(
    studies: Sequence[tuple[Entry, Rest | None]], machine: Machine, now: float
) -> dict[str, Foreseen]:
    """When each study begins and ends, if the queue goes on as it is."""
    scenarios = []
    for field, slowness in (("seconds", 1.0), ("low", 0.0), ("high", LATEST)):
        entries = [
            replace(
                entry,
                seconds=None if rest is None else getattr(rest, field),
                leaving=None if entry.leaving is None else min(entry.leaving, _left(entry, now, slowness)),
            )
            for entry, rest in studies
        ]
        scenarios.append(_played(entries, machine, now, slowness))
    found = {}
    for entry, _ in studies:
        begins, ends = ([scenario[which].get(entry.name) for scenario in scenarios] for which in (0, 1))
        found[entry.name] = Foreseen(*_interval(begins), *_interval(ends))
    return found


def _interval(moments: Sequence[float | None]) -> tuple[float | None, float | None, float | None]:
    """The expected moment, and the earliest and latest; all unknown where one is."""
    known = [each for each in moments if each is not None]
    if len(known) < len(moments):
        return None, None, None
    return known[0], min(known), max(known)


def _left(entry: Entry, now: float, slowness: float) -> float:
    """When a study has left that is told to do so now."""
    return now + slowness * (entry.between_reports + LEAVE_SECONDS)


def _played(
    entries: Iterable[Entry], machine: Machine, now: float, slowness: float
) -> tuple[dict[str, float], dict[str, float]]:
    """When studies begin and end if the queue is played to its end, by their names.

    `slowness`: how long starting and leaving take, in what they usually take.
    """
    state = {entry.name: entry for entry in entries}
    begins = {name: entry.begun for name, entry in state.items() if entry.holds is not None}
    ends: dict[str, float] = {}
    for _ in range(EVENTS_PER_STUDY * len(state) + 10):
        for action in decide(state.values(), machine, now).actions:
            entry = state[action.study]
            if isinstance(action, Start):
                state[entry.name] = replace(entry, holds=action.slice, begun=now)
                begins.setdefault(entry.name, now)
            elif isinstance(action, Preempt):
                state[entry.name] = replace(entry, leaving=_left(entry, now, slowness))
        running = [entry for entry in state.values() if entry.holds is not None]
        moments = [entry.ends(now) for entry in running]
        if any(entry.holds is None for entry in state.values()):  # who waits may stop others then
            moments += [at for e in running if (at := e.begun + machine.settle) > now]
        until = min(moments, default=math.inf)
        if until == math.inf:
            break
        for entry in running:
            left = None if entry.seconds is None else max(0.0, entry.seconds - (until - now))
            if entry.ends(now) > until:
                state[entry.name] = replace(entry, seconds=left)
            elif entry.leaving is None or (left is not None and left < 1e-6):
                ends[entry.name] = until
                del state[entry.name]
            else:  # it leaves for another
                more = None if left is None else left + slowness * START_SECONDS
                state[entry.name] = replace(entry, seconds=more, holds=None, leaving=None)
        now = until
    return begins, ends
