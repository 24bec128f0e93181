"""The methods that stop a trial before its end, as `early_stopping:` names them.

Options that are not given stay None and mean the default of the library that runs them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, Tag, model_validator

from .model import Model, NotNegative, Positive, Share, Text, members, named, refuse

Unit = Literal["samples", "steps", "epochs"]
# Parameters that tell it, where a training ends at one of them.
LENGTHS: dict[str, Unit] = {"max_steps": "steps", "max_samples": "samples", "num_train_epochs": "epochs"}
_MOST = "(max|total|num|n|train|training|num_train|num_training|max_train)"
# What users' own programs call it, the parts of a name in lower case with _ between them.
USUAL: dict[Unit, re.Pattern[str]] = {
    "steps": re.compile(f"{_MOST}_(steps|iters|iterations)"),
    "samples": re.compile("max_samples"),
    "epochs": re.compile(r"(?!.*(warm|start|every|per|patience)).*epochs?"),
}


def unit_of(lengths: Mapping[str, Any], last: int | None, *, built_in: bool) -> Unit:
    """What a step of a trial counts; where nothing tells it, steps, which may be anything.

    `lengths` has parameters' values, the largest of those searched. A built-in objective that has one
    of `LENGTHS` counts in its unit. Any other program may have several of the `USUAL`, or count something
    else: it counts what comes to the same end as early stopping, `last`.
    """
    told = {unit for name, unit in LENGTHS.items() if built_in and is_length(lengths.get(name))}
    if not told:
        ending = [snake(name) for name, length in lengths.items() if is_length(length) and length == last]
        told = {unit for unit, names in USUAL.items() if any(map(names.fullmatch, ending))}
    return told.pop() if len(told) == 1 else "steps"


def snake(name: str) -> str:
    """The last part of a dotted name as most write it: `manual_seed` for `manualSeed`."""
    last = name.rpartition(".")[2]
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last).lower()


def is_length(value: Any) -> bool:
    """Whether a run can have this length; null, and -1 in Hugging Face's Trainer, stand for none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 1 and value % 1 == 0


class EarlyStopping(Model):
    """What every method takes."""

    max: Positive | None = None
    """Resource of a trial that runs to its end."""
    resource: Unit | None = None
    """What a step counts; left out, what the objective counts where that is known, else steps."""


class NoStopping(EarlyStopping):
    """Every trial runs to its end."""

    method: Literal["none"]


class Rungs(EarlyStopping):
    """What the methods with rungs take."""

    min: Positive
    """Resource at which the first trials may stop."""
    max: Positive
    """Resource of a trial that runs to its end."""
    eta: Annotated[int, Field(ge=2)] = 3
    """One in this many trials goes on at each rung."""
    type: Literal["stopping", "promotion"] = "stopping"
    """The others end (stopping), or wait to go on when they are among the best (promotion)."""
    alike: list[Text] = Field(default=[])
    """Choices in which trials agree that are compared, such as lr_scheduler (type promotion)."""

    @model_validator(mode="after")
    def _check(self) -> Rungs:
        if self.min >= self.max:
            raise refuse(("min", f"min {self.min} must be below max {self.max}"))
        if self.alike and self.type != "promotion":
            raise refuse(("alike", "is for type: promotion; the type stopping compares all trials"))
        return self


class Hyperband(Rungs):
    """Successive halving in several brackets, some of which stop later."""

    method: Literal["hyperband"]


class SuccessiveHalving(Rungs):
    """Asynchronous successive halving: at each rung, one in eta goes on."""

    method: Literal["asha"]
    min_early_stopping_rate: Annotated[int, Field(ge=0, le=100)] | None = None
    """Skip this many of the first rungs."""


class Compared(EarlyStopping):
    """What the methods take that compare a trial with the trials before it."""

    n_startup_trials: NotNegative | None = None
    """Trials that run to their end first."""
    n_warmup_steps: NotNegative | None = None
    """Steps of a trial before it may stop."""
    interval_steps: Positive | None = None
    """Steps between two looks."""
    n_min_trials: Positive | None = None
    """Trials that must have reached a step before any stops there."""


class Percentile(Compared):
    """Stop what is worse than a percentile of earlier trials at the same step."""

    method: Literal["percentile"]
    percentile: Annotated[float, Field(ge=0, le=100)]
    """The share of trials to keep, in percent."""


class Median(Compared):
    """Stop what is worse than the median of earlier trials at the same step."""

    method: Literal["median"]


class Threshold(EarlyStopping):
    """Stop what leaves fixed bounds."""

    method: Literal["threshold"]
    lower: float | None = None
    """Stop below this value."""
    upper: float | None = None
    """Stop above this value."""
    n_warmup_steps: NotNegative | None = None
    """Steps of a trial before it may stop."""
    interval_steps: Positive | None = None
    """Steps between two looks."""

    @model_validator(mode="after")
    def _check(self) -> Threshold:
        if self.lower is None and self.upper is None:
            raise refuse(("", "needs lower or upper"))
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            raise refuse(("lower", f"lower {self.lower:g} must be below upper {self.upper:g}"))
        return self


class Patient(EarlyStopping):
    """Stop what has not improved for a while."""

    method: Literal["patient"]
    patience: NotNegative
    """Reports without improvement that are waited for."""
    min_delta: Annotated[float, Field(ge=0)] | None = None
    """The least change that counts as improvement."""


class Wilcoxon(EarlyStopping):
    """Stop what a signed-rank test finds worse than the best trial, step by step."""

    method: Literal["wilcoxon"]
    p_threshold: Share | None = None
    """Stop below this p-value."""
    n_startup_steps: NotNegative | None = None
    """Steps of a trial before it may stop."""


Stopping = Annotated[
    Annotated[Hyperband, Tag("hyperband")]
    | Annotated[SuccessiveHalving, Tag("asha")]
    | Annotated[Median, Tag("median")]
    | Annotated[Percentile, Tag("percentile")]
    | Annotated[Threshold, Tag("threshold")]
    | Annotated[Patient, Tag("patient")]
    | Annotated[Wilcoxon, Tag("wilcoxon")]
    | Annotated[NoStopping, Tag("none")],
    named("method"),
]

METHODS = members(Stopping)
