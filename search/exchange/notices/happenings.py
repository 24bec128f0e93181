"""What has happened to a study that its targets were not told yet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ....storage.told import Told
from ...queue.foreseen import Rest

Kind = Literal["finished", "failed", "better", "end_moved", "disk_low", "test"]
MOVED = 0.25  # of what was left of a search, by which its foreseen end has moved much
LEAST_MOVE = 300.0  # seconds, below which nobody needs to know
DISK_LOW, DISK_FINE = 0.05, 0.1  # free parts of a disk
SEARCHED = 0.05  # seconds, within which a search has not gone on


@dataclass(frozen=True)
class Seen:
    """A study as it stands, as far as it is worth telling."""

    searching: bool  # now, and not paused
    over: float | None = None  # seconds searched, where nothing is left to do
    failure: str | None = None  # why its search has failed
    better: bool = False  # whether a trial is better than the baseline
    rest: Rest | None = None  # the seconds that its search still takes; None: unknown
    free: float | None = None  # part of the disk that its files are on; None: not looked at


def first_sight(seen: Seen) -> Told:
    """What a new target knows: it hears of what happens from now on, and of a disk that is full already."""
    return replace(news(Told(), replace(seen, rest=None, free=None), 0.0)[0], end=None)


def news(told: Told, seen: Seen, now: float) -> tuple[Told, list[Kind]]:
    """What a target knows once it is told what has happened, and the kinds of that. `now`: since 1970."""
    kinds: list[Kind] = []
    if seen.searching and seen.failure is None and told.failure is not None:
        told = replace(told, failure=None)  # the next failure is another one
    if seen.failure is not None and seen.failure != told.failure:
        told = replace(told, failure=seen.failure)
        kinds.append("failed")
    if seen.better and not told.better:
        told = replace(told, better=True)
        kinds.append("better")
    if seen.over is not None and (told.over is None or seen.over > told.over + SEARCHED):
        told = replace(told, over=seen.over)
        kinds.append("finished")
    if not seen.searching:
        told = replace(told, end=None)  # a pause moves it, which is no news
    elif seen.rest is not None and told.end is None:
        told = replace(told, end=(now, now + seen.rest.seconds))
    elif seen.rest is not None and told.end is not None and _has_moved(*told.end, seen.rest, now):
        told = replace(told, end=(now, now + seen.rest.seconds))
        kinds.append("end_moved")
    if seen.free is not None and seen.free < DISK_LOW and not told.disk:
        told = replace(told, disk=True)
        kinds.append("disk_low")
    elif seen.free is not None and seen.free > DISK_FINE and told.disk:
        told = replace(told, disk=False)
    return told, kinds


def _has_moved(foreseen: float, end: float, rest: Rest, now: float) -> bool:
    """Whether a foreseen end has moved much, and beyond what is uncertain about it."""
    moved = abs(now + rest.seconds - end)
    is_possible = now + rest.low <= end <= now + rest.high
    return moved > max(MOVED * (end - foreseen), LEAST_MOVE) and not is_possible
