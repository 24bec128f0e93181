"""When studies begin and end: from their budgets, from their pace, and from those before them in the queue.

A budget of time is a promise that a search keeps within a few percent. Else the pace of the study so far
tells how long the rest takes. A study without either ends at no foreseen time, nor does one begin that needs
its slots.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ...spaces import SpaceError, Spec
from ..engine.confirmation_size import ConfirmationSize
from ..scheduling.rungs import expected_cost
from .decide import Entry, Preempt, Start, decide
from .slots import Machine

START_SECONDS = 6.0  # for a driver and its first worker to start, which the time of a search includes
LEAVE_SECONDS = 3.0  # for a driver to leave once its search is over, or its trials have reported
LATEST = 3.0  # times as long take starting and leaving at most, on a busy machine
OVERRUN = 0.05  # of a budget of time, at most
FEWEST = 2  # trials that have ended, before the pace of a study tells anything
SPREAD = 1.0  # of the rest by the pace of one training; it falls with the root of their number
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


def rest_of(spec: dict[str, Any], progress: Progress) -> Rest | None:
    """What a study's search still takes; None where nothing is known of that."""
    time = (spec.get("budget") or {}).get("time")
    promised = None if time is None else max(0.0, time - progress.elapsed)
    rest = _by_pace(spec, progress)
    if promised is None or time is None:
        return rest
    most = promised + OVERRUN * time + LEAVE_SECONDS
    budget = spec["budget"]
    ends_by_time = budget.get("trials") is budget.get("samples") is budget.get("target") is None
    low = 0.9 * promised if ends_by_time else 0.0  # the time of a confirmation may not be used up
    if rest is None or ends_by_time:
        return Rest(promised, low, most)
    return Rest(min(rest.seconds, promised), min(rest.low, promised), min(rest.high, most))


def _by_pace(spec: dict[str, Any], progress: Progress) -> Rest | None:
    trainings = total_trainings(json.dumps(spec, sort_keys=True))
    if trainings is None or progress.ended < FEWEST or progress.elapsed <= 0:
        return None
    last = (spec.get("early_stopping") or {}).get("max")
    done = progress.trained / last if last and progress.trained else float(progress.ended)
    done = min(done, trainings)
    if done <= 0:
        return None
    trained = max(progress.elapsed - START_SECONDS, progress.elapsed / 2)  # without the start, which was once
    seconds, most = (spent * (trainings - done) / done for spent in (trained, progress.elapsed))
    spread = SPREAD / math.sqrt(progress.ended) + 0.1
    each = progress.elapsed / done  # the last training may have to run to its end
    return Rest(seconds, seconds / (1 + spread), most * (1 + spread) + each + LEAVE_SECONDS)


@lru_cache(maxsize=512)
def total_trainings(spec: str) -> float | None:
    """How many whole trainings a search takes, with its confirmation; None where that is unknown."""
    try:
        parsed = Spec.from_json(json.loads(spec))
    except (SpaceError, ValueError):
        return None
    cost = expected_cost(parsed)
    if cost is None:
        return None
    if parsed.budget.samples is not None:
        return cost  # the confirmation is a part of them
    return cost + ConfirmationSize.of(parsed, cost).trainings(parsed)


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
