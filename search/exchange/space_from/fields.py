"""What can be set from outside: a number of a configuration file, or an option of a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....spaces.expressions import CONSTANTS
from ....spaces.relations import NAME
from .shown import Shown
from .syntax import Bounds

LARGEST = 2**63
OF_A_PROCESS = ("local_rank", "node_rank", "world_size")  # `rank` may be that of adapters


@dataclass(frozen=True)
class Setting:
    """One value that a script can be given."""

    name: str  # as the script or the file calls it: `--learning-rate`, `optimizer.lr`
    parameter: str  # as a space does
    value: Any = None  # what it is now; None where nobody says
    number: bool = False
    whole: bool = False  # takes whole numbers alone
    choices: tuple[Any, ...] = ()
    required: bool = False
    bounds: Bounds = (None, None)  # that the script takes
    variable: str = ""  # as the script's own code does, where that is another name: `dest=` of argparse

    @property
    def own_name(self) -> str:
        """What the script's code calls it: `out` for `args.out`."""
        return self.variable or self.parameter

    def holds(self, numbers: Mapping[str, Any]) -> bool:
        """Whether the script takes all numbers of a range."""
        low, high = self.bounds
        return (low is None or low <= numbers["min"]) and (high is None or numbers["max"] <= high)

    @property
    def unfit(self) -> str | None:
        """Why no space can have it; None where one can."""
        if not NAME.fullmatch(self.parameter) or self.parameter in CONSTANTS or len(self.parameter) > 200:
            return "a space has names of letters, digits and _ alone"
        values = self.choices or (self.value,)
        if not all(isinstance(value, str | int | float | bool | None) for value in values):
            return "it is no single value"
        numbers = [value for value in values if isinstance(value, int | float)]
        if not all(
            abs(number) < (LARGEST if isinstance(number, int) else float("inf")) for number in numbers
        ):
            return "a space has finite numbers of 64 bits"
        texts = [value for value in values if isinstance(value, str)]
        if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
            return "no file can hold this text"
        if self.parameter in OF_A_PROCESS and not self.required:
            return "whoever starts its processes says it"
        if self.value is None and not self.choices and not self.required:
            return "it has no default value that can be read"
        return None


@dataclass(frozen=True)
class Settings:
    """All that is found in one file."""

    source: Path
    found: Sequence[Setting]
    command: Sequence[str]  # that runs the script, with what stands for its settings
    how: str  # the settings reach the script, in a sentence
    left_out: Mapping[str, str]  # settings that the space does not have, and why
    to_fill: Sequence[str] = ()  # words of the command that the user has to write
    own: Mapping[str, str] = field(default_factory=dict)  # settings that are each trial's own, as `$seed`
    shown: Shown = field(default_factory=Shown)
