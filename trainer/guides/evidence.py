"""What is known of a run that has ended, and what its parameters may become."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

from ..config.models import PASS_TOKENS
from ..config.training import TrainingConfig

LARGEST = 2**63  # whole number that a parameter may be


LENGTHS = ("max_samples", "max_steps", "epochs", "num_epochs", "num_train_epochs")


Ending = Literal["diverged", "out_of_memory", "complete"]


class Validation(Protocol):
    """A validation of a run; `metrics` may hold train_loss and grad_norm."""

    @property
    def step(self) -> int: ...
    @property
    def value(self) -> float: ...
    @property
    def metrics(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class Seen:
    """What is known of a run that has ended."""

    params: Mapping[str, Any]
    ended: Ending
    reports: Sequence[Validation] = ()
    metric: str = "val_loss"
    unit: str = "samples"
    maximize: bool = False
    best: tuple[int, Mapping[str, Any]] | None = None  # the study's best trial, maybe this: number, params
    searched: Mapping[str, tuple[float, float] | None] = field(default_factory=dict)  # ranges, where numbers


class RunEvidence:
    """A run's values and validations, ready to be asked."""

    def __init__(self, config: type[TrainingConfig] | None, seen: Seen) -> None:
        defaults = {entry.name: entry.default for entry in fields(config)} if config else {}
        self.seen = seen
        self.needs = config.needs if config else {}
        self.values = defaults | dict(seen.params)
        self.sign = -1.0 if seen.maximize else 1.0
        self.validations = [report for report in seen.reports if math.isfinite(report.value)]

    @property
    def on_cuda(self) -> bool:
        """Whether the run says that it was on such a device, or its reports do."""
        told = any("device_memory_mb" in report.metrics for report in self.seen.reports)
        return told or self.values.get("device") == "cuda"

    @property
    def cuts_batches(self) -> bool:
        """Whether a forward pass takes `PASS_TOKENS` at most, and half of the batch would take as many."""
        if self.values.get("finetuning_type") != "lora":
            return False
        each = (
            self.number(name) or 1 for name in ("batch_size", "gradient_accumulation_steps", "max_length")
        )
        return not self.on_cuda or math.prod(each) >= 2 * PASS_TOKENS["cuda"]

    @property
    def shortest(self) -> int:
        """The least length of a row that is worth halving."""
        return PASS_TOKENS["cuda" if self.on_cuda else "cpu"] + 1 if self.cuts_batches else 32

    def number(self, name: str) -> float | None:
        """The parameter's value where the run has it, it changes something, and it is a finite number."""
        if name in self.needs and not self.needs[name].met(self.values):
            return None
        return _number(self.values.get(name))

    def first(self, names: Sequence[str]) -> tuple[str, float] | None:
        """The first of several names that the run knows, and its value."""
        found = ((name, self.number(name)) for name in names)
        return next(((name, value) for name, value in found if value is not None), None)

    def length(self) -> tuple[str, float] | None:
        """What the run's length is called, and the length in the unit of its reports."""
        for name in LENGTHS:
            value = self.number(name)
            if value is not None and (name == f"max_{self.seen.unit}" or self._epochs(name)):
                return name, value
        return None

    def _epochs(self, name: str) -> bool:
        return self.seen.unit == "epochs" and "epochs" in name

    def open(self, name: str, to: float | None = None) -> float | None:
        """What is left to advise of a number that a guide would change to `to`; None where the search knows.

        A run that diverged or had no memory needs another value, whatever the search says.
        """
        value = self.number(name)
        if name not in self.seen.searched or value is None or to is None or self.seen.ended != "complete":
            return to
        best = None if self.seen.best is None else _number(self.seen.best[1].get(name))
        if best is not None and best != value:
            return None if (best > value) != (to > value) else min(best, to) if to > value else max(best, to)
        span = self.seen.searched[name]
        if span is None:
            return None if best is not None else to
        end = span[1] if to > value else span[0]
        if value >= end if to > value else value <= end:
            return to  # where the search has not been
        if best is not None:
            return None
        return min(to, end) if to > value else max(to, end)

    def is_open(self, name: str, to: Sequence[Any]) -> bool:
        """The same of a choice that would become one of these: the best trial's, where that is known."""
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
    fine = abs(value) < LARGEST if isinstance(value, int) else math.isfinite(value)
    return value if fine else None
