"""What a trial's report leads to: it continues, pauses at its rung, is requeued, or stops."""

from __future__ import annotations

from dataclasses import dataclass

from ..trials.stops import Stop


@dataclass(frozen=True)
class Continue:
    """It trains on; at a rung that means that it is promoted."""

    audited: Stop | None = None  # what would have ended it, if it is audited from now on


@dataclass(frozen=True)
class Pause:
    """It waits at its rung with its checkpoint."""


@dataclass(frozen=True)
class Requeue:
    """It waits with its checkpoint until the search continues."""

    reason: str
    audited: Stop | None = None


Decision = Continue | Pause | Requeue | Stop


@dataclass(frozen=True)
class Situation:
    """What a decision depends on. None of it is changed by a decision."""

    over: Stop | None = None  # the search is over, and ends this trial
    stop: Stop | None = None  # early stopping ends it
    in_audit: bool = False  # it belongs to the audit's sample
    waits: bool = False  # others at its rung are promoted first
    requeues: str | None = None  # why running trials are requeued, if they are


def decide(at: Situation) -> Decision:
    """The decision about a trial at its report. The first rule that applies decides."""
    if at.over is not None:
        return at.over
    if at.stop is not None and not at.in_audit:
        return at.stop
    if at.waits:
        return Pause()
    if at.requeues is not None:
        return Requeue(at.requeues, audited=at.stop)
    return Continue(audited=at.stop)
