"""The rows of a study's trials, and why they ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from optuna.trial import FrozenTrial

from ...spaces import Spec
from ...storage.trial_attrs import seconds_of, trained_to
from ..engine.running import RESERVED_ATTRS
from ..trials.records import TrialRecord
from ..trials.stops import Kind
from ..values import Value


@dataclass(frozen=True)
class TrialRow(Value):
    """A trial in a list."""

    number: int
    state: str
    value: float | None
    baseline: bool
    confirms: int | None  # the trial whose configuration it trains again
    last_step: int | None  # that it reported
    trained: int | None  # the step that it had come to by then: reports may come late
    seconds: float | None  # that it trained, in all its attempts
    gpu_hours: float | None  # that it had, of GPUs; None: unknown
    watt_hours: float | None  # that were measured; None: nothing was
    started: str | None
    ended: str | None
    why: str | None  # it ended early, in few words
    reason: str | None  # the same as a whole sentence
    params: dict[str, Any]  # searched, constant and derived by name; empty while it only waits
    metrics: dict[str, float]


@dataclass(frozen=True)
class Ending:
    """Trials that ended early for the same reason."""

    kind: Kind
    why: str
    state: str
    trials: list[int]
    example: str  # the whole reason of the last one


def endings(trials: Iterable[TrialRecord]) -> list[Ending]:
    """The trials that ended early, by why they did: failures first, then the most frequent."""
    groups: dict[tuple[str, Kind, str], list[tuple[int, str]]] = {}
    for trial in trials:
        if (stop := trial.stop) is not None:
            group = groups.setdefault((trial.state, stop.kind, stop.why), [])
            group.append((trial.number, stop.reason))
    ended = [
        Ending(kind, why, state, [number for number, _ in group], group[-1][1])
        for (state, kind, why), group in groups.items()
    ]
    return sorted(ended, key=lambda ending: (ending.state != "fail", -len(ending.trials)))


def trial_row(record: TrialRecord) -> TrialRow:
    """A trial as a line of a list."""
    trial, attrs, stop = record.trial, record.trial.user_attrs, record.stop
    used = record.used
    return TrialRow(
        number=trial.number,
        state=record.state,
        value=trial.value,
        baseline=record.is_baseline,
        confirms=record.confirms,
        last_step=trial.last_step,
        trained=None if trial.last_step is None else trained_to(trial),
        seconds=seconds_of(trial),
        gpu_hours=None if used is None or used.gpu_seconds is None else round(used.gpu_seconds / 3600, 6),
        watt_hours=None if used is None or used.watt_hours is None else round(used.watt_hours, 6),
        started=_moment(trial.datetime_start),
        ended=_moment(trial.datetime_complete),
        why=None if stop is None else stop.why,
        reason=attrs.get("reason"),
        params=record.config or {},
        metrics={
            name: value
            for name, value in attrs.items()
            if name not in RESERVED_ATTRS
            and name not in record.spec.parameters
            and isinstance(value, int | float)
        },
    )


def attributes_of(spec: Spec, trial: FrozenTrial) -> dict[str, Any]:
    """What an objective has stored of its trial beside numbers, which are `metrics` of its row."""
    return {
        name: value
        for name, value in trial.user_attrs.items()
        if name not in RESERVED_ATTRS and name not in spec.parameters and not isinstance(value, int | float)
    }


def _moment(moment: datetime | None) -> str | None:
    """A moment with its time zone; Optuna's are local and naive."""
    return None if moment is None else moment.astimezone().isoformat(timespec="seconds")
