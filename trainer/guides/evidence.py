"""What is known about a finished run, and which values its parameters could still take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..config.models import PASS_TOKENS
from ..config.rules import defaults_of
from ..config.training import TrainingConfig

MAX_NUMBER = 2**63  # parameters are below
LENGTH_NAMES = ("max_samples", "max_steps", "epochs", "num_epochs", "num_train_epochs")

RunEnd = Literal["diverged", "out_of_memory", "complete"]


class Validation(Protocol):
    """A validation of a run; `metrics` may hold train_loss and grad_norm."""

    @property
    def step(self) -> int: ...
    @property
    def value(self) -> float: ...
    @property
    def metrics(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class EndedRun:
    """A finished run: its parameters, its end, its validations, and the search that it belongs to."""

    params: Mapping[str, Any]
    ended: RunEnd
    reports: Sequence[Validation] = ()
    metric: str = "val_loss"
    unit: str = "samples"
    maximize: bool = False
    best: tuple[int, Mapping[str, Any]] | None = None  # number and params of the study's best trial
    searched: Mapping[str, tuple[float, float] | None] = field(default_factory=dict)  # ranges; None: choices


class RunEvidence:
    """Answers questions about a finished run."""

    def __init__(self, config: type[TrainingConfig] | None, seen: EndedRun) -> None:
        self.seen = seen
        self.needs = config.needs if config else {}
        self.values = (defaults_of(config) if config else {}) | dict(seen.params)
        self.sign = -1.0 if seen.maximize else 1.0
        self.validations = [report for report in seen.reports if math.isfinite(report.value)]

    @property
    def on_cuda(self) -> bool:
        """Whether the run was on a CUDA device, by its parameters or its reports."""
        reported = any("device_memory_mb" in report.metrics for report in self.seen.reports)
        return reported or self.values.get("device") == "cuda"

    @property
    def cuts_batches(self) -> bool:
        """Whether `PASS_TOKENS` limits a forward pass, so that half a batch would need as much memory."""
        if self.values.get("finetuning_type") != "lora":
            return False
        names = ("batch_size", "gradient_accumulation_steps", "max_length")
        factors = (self.number(name) or 1 for name in names)
        return not self.on_cuda or math.prod(factors) >= 2 * PASS_TOKENS["cuda"]

    @property
    def shortest(self) -> int:
        """The shortest row length that is worth halving."""
        return PASS_TOKENS["cuda" if self.on_cuda else "cpu"] + 1 if self.cuts_batches else 32

    def number(self, name: str) -> float | None:
        """The parameter's value, if it is a finite number and has an effect in this run."""
        if name in self.needs and not self.needs[name].met(self.values):
            return None
        return _number(self.values.get(name))

    def first(self, names: Sequence[str]) -> tuple[str, float] | None:
        """The first of these parameters that the run has, and its value."""
        values = ((name, self.number(name)) for name in names)
        return next(((name, value) for name, value in values if value is not None), None)

    def length(self) -> tuple[str, float] | None:
        """The parameter that sets the run's length, and the length in the unit of the reports."""
        return self.first([name for name in LENGTH_NAMES if name.endswith(self.seen.unit)])

    def open(self, name: str, to: float) -> float | None:
        """The value to advise where a guide says `to`; None if the search has already answered the question.

        A run that diverged or ran out of memory needs another value, whatever the search found.
        """
        value = self.number(name)
        if name not in self.seen.searched or value is None or self.seen.ended != "complete":
            return to
        best = None if self.seen.best is None else _number(self.seen.best[1].get(name))
        if best is not None and best != value:
            return None if (best > value) != (to > value) else min(best, to) if to > value else max(best, to)
        span = self.seen.searched[name]
        if span is None:
            return None if best is not None else to
        end = span[1] if to > value else span[0]
        if value >= end if to > value else value <= end:
            return to  # outside the range that was searched
        if best is not None:
            return None
        return min(to, end) if to > value else max(to, end)

    def is_open(self, name: str, to: Sequence[Any]) -> bool:
        """Whether to advise a change of a choice to one of these: not if the best trial has another one."""
        if name not in self.seen.searched or self.seen.best is None or self.seen.ended != "complete":
            return True
        return self.seen.best[1].get(name) in to

    def best_rate(self, name: str) -> tuple[int, float] | None:
        """The best trial's number and learning rate."""
        if self.seen.best is None:
            return None
        trial, params = self.seen.best
        value = _number(params.get(name))
        return None if value is None or value <= 0 else (trial, value)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    fine = abs(value) < MAX_NUMBER if isinstance(value, int) else math.isfinite(value)
    return value if fine else None
