"""Which studies start and which make room for others: a pure function of what runs and what waits.

Studies of a higher priority come first, then those that have waited longest. The first that finds no room has
a slice reserved from the moment at which the foreseen ends of others make room for it; a later one may start
before it only where that moment stays the same (EASY backfilling: Lifka, 1995).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

from .slots import Machine, Need, Slice

EXHAUSTIVE = 2  # up to so many studies are stopped, the fewest are found by trying all


@dataclass(frozen=True)
class Entry:
    """A study as the queue sees it. Moments are seconds since 1970."""

    name: str
    priority: int  # 0 goes first
    since: float
    need: Need
    key: int = 0  # in which order studies were made, where all else is equal
    seconds: float | None = None  # that its search still takes; None: unknown
    holds: Slice | None = None  # what its driver has; None: it waits
    begun: float = 0.0  # when its driver was started
    preemptible: bool = True
    leaving: float | None = None  # when it leaves at the latest; it was told to
    between_reports: float = 0.0  # seconds

    @property
    def order(self) -> tuple[int, float, int]:
        """Its place in the queue."""
        return self.priority, self.since, self.key

    def ends(self, now: float) -> float:
        """When it has left its slice, as far as that is foreseen; else never."""
        ends = math.inf if self.seconds is None else now + max(0.0, self.seconds)
        return ends if self.leaving is None else min(ends, max(now, self.leaving))


@dataclass(frozen=True)
class Start:
    """Start the driver of a study in a slice."""

    study: str
    slice: Slice


@dataclass(frozen=True)
class Preempt:
    """Stop a study in favour of another; it keeps its place in the queue."""

    study: str
    by: str


@dataclass(frozen=True)
class Reservation:
    """The slice that the first study without room gets, and when."""

    study: str
    at: float  # infinite: unknown
    slice: Slice
    beside: tuple[Slice, ...]  # what others have then


@dataclass(frozen=True)
class Wait:
    """Why a study waits."""

    why: Literal["never", "room", "behind", "reserved"]
    other: str | None = None  # for which study, if for one


@dataclass(frozen=True)
class Decision:
    """What to do now, and what to tell those that wait."""

    actions: tuple[Start | Preempt, ...]
    reservation: Reservation | None
    waits: dict[str, Wait]


def decide(studies: Iterable[Entry], machine: Machine, now: float) -> Decision:
    """What to start and to stop now."""
    every = sorted(studies, key=lambda entry: entry.order)
    running = [entry for entry in every if entry.holds is not None]
    taken = [entry.holds for entry in running if entry.holds is not None]
    starts: list[Start] = []
    begun: list[Entry] = []  # those that start now, with the slices they get
    stops: list[Preempt] = []
    waits: dict[str, Wait] = {}
    reserved: Reservation | None = None
    for entry in every:
        if entry.holds is not None:
            continue
        if machine.pick(entry.need, ()) is None:
            waits[entry.name] = Wait("never")
            continue
        place = machine.pick(entry.need, taken)
        if place is not None and reserved is not None:
            place = _beside(reserved, entry, place, taken, machine, now)
        if place is not None:
            if reserved is not None and not entry.ends(now) <= reserved.at < math.inf:
                reserved = replace(reserved, beside=(*reserved.beside, place))
            starts.append(Start(entry.name, place))
            begun.append(replace(entry, holds=place, begun=now))
            taken.append(place)
        elif reserved is None:
            reserved = _reserve(entry, [*running, *begun], machine, now)
            stops = _preempt(entry, running, taken, machine, now)
            holder = next((e.name for e in running if e.leaving is not None), None)
            waits[entry.name] = Wait("room", stops[0].study if stops else holder)
        else:
            fits = machine.pick(entry.need, taken) is not None
            waits[entry.name] = Wait("reserved" if fits else "behind", reserved.study)
    return Decision((*starts, *stops), reserved, waits)


def _beside(
    reserved: Reservation, entry: Entry, place: Slice, taken: Sequence[Slice], machine: Machine, now: float
) -> Slice | None:
    """Where a study may start without delaying the reserved one; None where it may not."""
    if entry.ends(now) <= reserved.at < math.inf or place.is_empty:
        return place
    if machine.has_room(place, [*reserved.beside, reserved.slice]):
        return place
    return machine.pick(entry.need, [*taken, reserved.slice])  # elsewhere in what is free


def _reserve(entry: Entry, running: Sequence[Entry], machine: Machine, now: float) -> Reservation:
    """The earliest slice for a study, given when those that run have left."""
    left = sorted(running, key=lambda each: (each.ends(now), each.order))
    for count in range(len(left) + 1):
        stay = [each.holds for each in left[count:] if each.holds is not None]
        place = machine.pick(entry.need, stay)
        if place is not None:
            at = left[count - 1].ends(now) if count else now
            return Reservation(entry.name, at, place, tuple(stay))
    raise AssertionError("it fits an empty machine")


def _preempt(
    entry: Entry, running: Sequence[Entry], taken: Sequence[Slice], machine: Machine, now: float
) -> list[Preempt]:
    """The fewest studies of lower priority that make room when they stop, those begun last first."""
    leaving = [each for each in running if each.leaving is not None]
    stay = list(taken)
    for each in leaving:
        if each.holds in stay:
            stay.remove(each.holds)
    if machine.pick(entry.need, stay) is not None:
        return []  # those that are leaving make room already
    may = [
        each
        for each in running
        if each.priority > entry.priority
        and each.preemptible
        and each.leaving is None
        and now - each.begun >= machine.settle
        and each.ends(now) - now >= each.between_reports
        and each.holds is not None
        and not each.holds.is_empty
    ]
    may.sort(key=lambda each: (-each.priority, -each.begun, -each.key))

    def enough(chosen: Sequence[Entry]) -> bool:
        rest = list(stay)
        for each in chosen:
            if each.holds in rest:
                rest.remove(each.holds)
        return machine.pick(entry.need, rest) is not None

    for count in range(1, EXHAUSTIVE + 1):
        for chosen in combinations(may, count):
            if enough(chosen):
                return [Preempt(each.name, entry.name) for each in chosen]
    if not enough(may):
        return []
    needed = list(may)
    for each in may[::-1]:  # the highest and earliest may stay first
        rest = [other for other in needed if other is not each]
        if enough(rest):
            needed = rest
    return [Preempt(each.name, entry.name) for each in needed]
