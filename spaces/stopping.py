"""The methods that stop a trial early, as `early_stopping:` names them.

An option that is not given stays None and takes the default of the library that runs the method.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, Tag, model_validator

from .fields import MOST_COUNT, Model, NotNegative, Positive, Proportion, Text, members, named, refuse

Unit = Literal["samples", "steps", "epochs"]
# Parameters of built-in objectives where a training ends, and the unit that they count.
LENGTHS: dict[str, Unit] = {"max_steps": "steps", "max_samples": "samples", "num_train_epochs": "epochs"}
_MOST = "(max|total|num|n|train|training|num_train|num_training|max_train)"
# Names of such parameters in users' own programs: the last part of a dotted name, in snake case.
USUAL: dict[Unit, re.Pattern[str]] = {
    "steps": re.compile(f"{_MOST}_(steps|iters|iterations)"),
    "samples": re.compile("max_samples"),
    "epochs": re.compile(r"(?!.*(warm|start|every|per|patience)).*epochs?"),
}


def unit_of(lengths: Mapping[str, Any], last: int | None, *, built_in: bool) -> Unit:
    """The unit that a step of a trial counts; steps, which may be anything, where it is unknown.

    `lengths` has the parameters' values, the largest where they are searched. A built-in objective with one
    of `LENGTHS` counts in its unit. Any other program may have several of the `USUAL`, or count something
    else: it counts the one whose value equals the end of early stopping, `last`.
    """
    units = {unit for name, unit in LENGTHS.items() if built_in and is_length(lengths.get(name))}
    if not units:
        ending = [snake(name) for name, length in lengths.items() if is_length(length) and length == last]
        units = {unit for unit, names in USUAL.items() if any(map(names.fullmatch, ending))}
    return units.pop() if len(units) == 1 else "steps"


def snake(name: str) -> str:
    """The last part of a dotted name in snake case: `manual_seed` for `manualSeed`."""
    last = name.rpartition(".")[2]
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last).lower()


def is_length(value: Any) -> bool:
    """Whether a run can have this length; null, and -1 in Hugging Face's Trainer, mean no limit."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 1 and value % 1 == 0


class EarlyStopping(Model):
    """The fields of every method."""

    max: Positive | None = None
    """Resource of a trial that runs to its end."""
    resource: Unit | None = None
    """What a step counts; by default what the objective counts where that is known, else steps."""


class NoStopping(EarlyStopping):
    """Every trial runs to its end."""

    method: Literal["none"]


class Rungs(EarlyStopping):
    """The fields of the methods with rungs."""

    min: Positive
    """Resource at the first rung, where trials may first stop."""
    max: Positive
    """Resource of a trial that runs to its end."""
    eta: Annotated[int, Field(ge=2, le=MOST_COUNT)] = 3
    """One in this many trials continues at each rung."""
    type: Literal["stopping", "promotion"] = "stopping"
    """The others end (stopping), or pause until they are among the best there (promotion)."""
    alike: list[Text] = Field(default=[])
    """Choices in which compared trials must agree, such as lr_scheduler (type promotion only)."""

    @model_validator(mode="after")
    def _check(self) -> Rungs:
        if self.min >= self.max:
            raise refuse(f"min {self.min} must be below max {self.max}", "min")
        if self.alike and self.type != "promotion":
            raise refuse("needs type: promotion; type: stopping compares all trials", "alike")
        return self


class Hyperband(Rungs):
    """Successive halving in several brackets, some of which stop later."""

    method: Literal["hyperband"]


class SuccessiveHalving(Rungs):
    """Asynchronous successive halving: at each rung, one in eta continues."""

    method: Literal["asha"]
    min_early_stopping_rate: Annotated[int, Field(ge=0, le=100)] | None = None
    """Skip this many of the first rungs."""


class Compared(EarlyStopping):
    """The fields of the methods that compare a trial with earlier ones."""

    n_startup_trials: NotNegative | None = None
    """Trials that run to their end before any is compared."""
    n_warmup_steps: NotNegative | None = None
    """Steps of a trial before it may stop."""
    interval_steps: Positive | None = None
    """Steps between two comparisons."""
    n_min_trials: Positive | None = None
    """Trials that must have reached a step before any stops there."""


class Percentile(Compared):
    """Stop trials that are worse than a percentile of earlier trials at the same step."""

    method: Literal["percentile"]
    percentile: Annotated[float, Field(ge=0, le=100)]
    """The share of trials to keep, in percent."""


class Median(Compared):
    """Stop trials that are worse than the median of earlier trials at the same step."""

    method: Literal["median"]


class Threshold(EarlyStopping):
    """Stop trials whose value leaves fixed bounds."""

    method: Literal["threshold"]
    lower: float | None = None
    """Stop below this value."""
    upper: float | None = None
    """Stop above this value."""
    n_warmup_steps: NotNegative | None = None
    """Steps of a trial before it may stop."""
    interval_steps: Positive | None = None
    """Steps between two checks."""

    @model_validator(mode="after")
    def _check(self) -> Threshold:
        if self.lower is None and self.upper is None:
            raise refuse("needs lower or upper")
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            raise refuse(f"lower {self.lower:g} must be below upper {self.upper:g}", "lower")
        return self


class Patient(EarlyStopping):
    """Stop trials that have not improved for a while."""

    method: Literal["patient"]
    patience: NotNegative
    """Reports without improvement before a trial stops."""
    min_delta: Annotated[float, Field(ge=0)] | None = None
    """The least change that counts as improvement."""


class Wilcoxon(EarlyStopping):
    """Stop trials that a signed-rank test finds worse than the best trial, step by step."""

    method: Literal["wilcoxon"]
    p_threshold: Proportion | None = None
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
