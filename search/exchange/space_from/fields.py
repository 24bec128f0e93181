"""Settings: numbers in a configuration file, or options of a script."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....spaces.expressions import CONSTANTS
from ....spaces.relations import NAME
from .metric import Metric
from .syntax import Bounds

INTEGER_BOUND = 2**63
UNREADABLE = "its default value cannot be read"
PROCESS_SETTINGS = ("local_rank", "node_rank", "world_size")  # `rank` may be that of adapters


@dataclass(frozen=True)
class Setting:
    """A value that can be passed to a script."""

    name: str  # in the script or the file: `--learning-rate`, `optimizer.lr`
    parameter: str  # its name in a space
    value: Any = None  # the present value; None where it is unknown
    number: bool = False
    whole: bool = False  # accepts only whole numbers
    choices: tuple[Any, ...] = ()
    required: bool = False
    unread: bool = False  # whether the source has a value by default, but does not show which
    bounds: Bounds = (None, None)  # that the script accepts
    variable: str = ""  # its name in the script's code where that differs: argparse's `dest=`
    form: str = ""  # of `passing`; empty: one value
    words: tuple[str, ...] = ()  # that pass it in this form

    @property
    def name_in_code(self) -> str:
        """Its name in the script's code: `out` for `args.out`."""
        return self.variable or self.parameter

    def holds(self, numbers: Mapping[str, Any]) -> bool:
        """Whether the script accepts all numbers of a range."""
        if self.whole and any(isinstance(number, float) for number in numbers.values()):
            return False
        low, high = self.bounds
        return (low is None or low <= numbers["min"]) and (high is None or numbers["max"] <= high)

    @property
    def unfit(self) -> str | None:
        """Why a space cannot hold it; None where it can."""
        if not NAME.fullmatch(self.parameter) or self.parameter in CONSTANTS or len(self.parameter) > 200:
            return "names in a space have only letters, digits and _"
        values = self.choices or (self.value,)
        if self.form and isinstance(self.value, list):
            values = tuple(self.value)
        if not all(isinstance(value, str | int | float | bool | None) for value in values):
            return "it is not a single value"
        whole = (value for value in values if isinstance(value, int))
        real = (value for value in values if isinstance(value, float))
        if not (all(abs(value) < INTEGER_BOUND for value in whole) and all(map(math.isfinite, real))):
            return "numbers in a space are finite and have 64 bits"
        texts = (value for value in values if isinstance(value, str))
        if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
            return "this text cannot be stored in a file"
        if self.parameter in PROCESS_SETTINGS and not self.required:
            return "it is set where the processes are started"
        if self.value is None and not self.choices and not self.required:
            return UNREADABLE if self.unread else "it has no value by default"
        return None


@dataclass(frozen=True)
class Settings:
    """The settings found in one file."""

    source: Path
    parameters: Sequence[Setting]  # of the space
    command: Sequence[str]  # runs the script, with macros for its settings
    how: str  # the settings reach the script, in a sentence
    left_out: Mapping[str, str]  # settings that the space leaves out, and why
    to_fill: Sequence[str] = ()  # words of the command that the user has to write
    per_trial: Mapping[str, str] = field(default_factory=dict)  # different in each trial, such as `$seed`
    metric: Metric = field(default_factory=Metric)
