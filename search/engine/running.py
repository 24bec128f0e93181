"""A running trial: what its worker is told, what the search knows of it, and why it failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.trial import FrozenTrial

from ...storage.trial_attrs import AT_RUNG, AUDITED, CONFIRMS, CONFIRMS_SEED, EVENTS, has_reported
from ..trials.stops import Stop, ended_by_objective, out_of_memory
from ..trials.usage import Usage
from .costs import Attempt

FailureKind = Literal[
    "error",
    "mismatch",  # the objective and its space do not fit together
    "silent",  # a script ended without a report
    "ended",  # by the objective itself, which is no failure
    "memory",
    "lost",
    "timeout",
    "disk",
    "checkpoint",
]
RESERVED_ATTRS = frozenset(
    {"baseline", "error", "reason", "retries", "traceback", AT_RUNG, AUDITED, EVENTS, CONFIRMS, CONFIRMS_SEED}
)  # not for metrics, parameters or what an objective sets


@dataclass(frozen=True)
class Assignment:
    """What a worker needs to run a trial."""

    number: int
    params: dict[str, Any]  # nested if names are dotted
    seed: int
    folder: Path
    reported: int  # its last step in the study


@dataclass(frozen=True)
class Failure:
    """Why a trial's attempt ended without a value."""

    kind: FailureKind
    message: str  # "ValueError: no such file", "the worker was killed (SIGKILL)"
    traceback: str = ""  # its tail
    detail: str = ""  # a script's last output; failures with the same message are alike whatever this is

    @property
    def as_stop(self) -> Stop | None:
        """The early end that it is; None for a failure."""
        if self.kind == "memory":
            return out_of_memory(self.message)
        return ended_by_objective(self.message) if self.kind == "ended" else None

    def recurs(self, trials: Iterable[FrozenTrial]) -> bool:
        """Whether all other trials of the study would fail in the same way."""
        return self.kind == "mismatch" or (self.kind == "silent" and not any(map(has_reported, trials)))

    def whole_reason(self, output: Path) -> str:
        """Why a trial has failed, with a script's last output, and where the rest of that is."""
        parts = [self.message, self.detail, f"its output is in {output}" if output.exists() else ""]
        printed = self.detail or self.kind == "silent"
        return "; ".join(filter(None, parts)) if printed else self.message


@dataclass
class RunningTrial:
    """A trial that runs."""

    trial: optuna.Trial
    config: dict[str, Any]
    reported: int = 0  # the last step in the study; a new attempt may report earlier ones again
    trained: int = 0  # the last trained step, as far as known: reports may come late
    attempt: Attempt = field(default_factory=Attempt)
    attempts: int = 1
    metrics: dict[str, float] = field(default_factory=dict)
    used_before: Usage = field(default_factory=Usage)  # of machines, in earlier attempts
    used: Usage | None = None  # in this one, as its worker said last; None: it has said nothing
    is_assigned: bool = False  # whether a worker has it
    has_left_out: bool = False  # whether one of its reports was left out, as it was not finite
    now: Callable[[], float] = time.monotonic  # the search's clock
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.now()

    @property
    def number(self) -> int:
        """The trial's number."""
        return self.trial.number

    def set_attribute(self, name: str, value: Any) -> None:
        """Store an attribute that the objective has set; where its name is taken, after `user_`."""
        taken = name in RESERVED_ATTRS or name in self.config
        self.trial.set_user_attr(f"user_{name}" if taken else name, value)

    @cached_property
    def confirms(self) -> int | None:
        """The number of the trial that it confirms; None if it belongs to the search itself."""
        number: int | None = self.trial.user_attrs.get(CONFIRMS)
        return number

    @property
    def seconds(self) -> float:
        """Seconds since it was asked."""
        return self.now() - self.started
