"""What happened to a trial, in words. Its events are stored as data; those of older studies are sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna.trial import FrozenTrial

from ...storage.trial_attrs import EVENTS
from ..formatting import position


def events_of(trial: FrozenTrial, unit: str) -> list[str]:
    """The events of a trial in words; `unit` is that of its steps."""
    return [event_in_words(event, unit) for event in trial.user_attrs.get(EVENTS, ())]


def event_in_words(event: Mapping[str, Any] | str, unit: str) -> str:
    """An event in words."""
    if isinstance(event, str):
        return event
    match event:
        case {"kind": "paused" | "promoted" | "resumed" as kind, "step": step, "rank": rank, "of": reached}:
            return f"{kind} at {position(step, unit)}, {rank_in_words(rank, reached, event.get('alike', {}))}"
        case {"kind": "audited", "reason": reason}:
            return f"drawn for the audit, so it runs to its end instead of being stopped: {reason}"
        case {"kind": "started_over", "error": error}:
            return f"could not go on from its checkpoint ({error}); it starts over"
        case {"kind": "retried", "reason": reason}:
            return f"retried on request; it had failed: {reason}"
        case {"kind": "requeued", "reason": reason}:
            return f"requeued: {reason}"
        case {"kind": "remark", "text": text}:
            return str(text)
    return str(event)


def rank_in_words(rank: int, reached: int, alike: Mapping[str, str]) -> str:
    """A trial's rank at a rung, among those with the same values of some parameters."""
    values = ", ".join(f"{name} {value}" for name, value in alike.items())
    return f"ranked {rank} of {reached}" + (f" with {values}" if values else "")
