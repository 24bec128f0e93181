"""The contract of a source: where the reports of a command come from, and what they are taken from."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ...base import as_step, metric_name
from ...reports import RESERVED_NAMES, PrintedReport, number_of
from ..output import Piece

MAX_LINE_LETTERS = 1 << 13  # letters at the end of a line that are searched
STEP_NAMES = ("global_step", "step", "current_steps", "iteration", "iter", "epoch")  # the first that is there
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[()][A-Z0-9])")


class Arrived(NamedTuple):
    """The reports that have arrived at once."""

    found: Sequence[PrintedReport] = ()
    waited: float = 0.0  # seconds of silence before them
    from_first: bool = False  # whether they are those of all attempts


class Source(ABC):
    """Finds the reports of one attempt of a trial.

    `take` is called with what the program prints, at least every `every` seconds, and `end` once the program
    has ended.
    """

    every: float | None = None  # None: as the output comes
    environment: Mapping[str, str | None] = MappingProxyType({})  # that the program needs; None: unset
    origin: str | None = None  # what the reports are taken from, in words, once one was; None: our own lines
    unusual: str | None = None  # what the user should know about them
    asks: str  # what the program must do to report, to be read after "it must"

    @abstractmethod
    def take(self, piece: Piece) -> Arrived:
        """The reports that have arrived since the last call; `piece` is what was printed meanwhile."""

    @abstractmethod
    def end(self) -> Arrived:
        """The last reports, after the program has ended."""

    def close(self) -> None:  # noqa: B027 - few have anything to close
        """Let go of open files."""

    @property
    def waiting(self) -> PrintedReport | None:
        """The first report, while something that follows may still replace it."""
        return None

    @property
    @abstractmethod
    def near_misses(self) -> list[str]:
        """What looked most like reports but was not, or is there instead: a clause for each."""

    def remarks(self) -> list[tuple[str, str]]:
        """What the user should know about the reports: a kind, and a text."""
        return [
            *([("source", f"reports: {self.origin}")] if self.origin is not None else []),
            *([("forms", self.unusual)] if self.unusual is not None else []),
        ]

    @property
    def unusable(self) -> list[str]:
        """What names the metric like a report but cannot be used."""
        return []


def plain_text(line: bytes) -> str:
    """The end of a line as text, without colours."""
    text = line[-4 * MAX_LINE_LETTERS :].decode("utf-8", "replace")
    return _ESCAPE.sub("", text) if "\x1b" in text else text


def whole_step(value: Any) -> int | None:
    """A step, also one that is written as a text; None for anything else."""
    number = number_of(value)
    try:
        return None if number is None else as_step(int(value) if _is_integer(value) else number)
    except (TypeError, ValueError):
        return None


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and value.strip().isdecimal())


def metrics_of(record: Mapping[str, Any], *without: str) -> dict[str, float]:
    """The numbers of a record under their names, without some of them."""
    return {
        name: number
        for name, value in record.items()
        if isinstance(name, str) and name not in (*RESERVED_NAMES, *without) and _can_be_stored(name)
        if (number := number_of(value)) is not None
    }


def _can_be_stored(name: str) -> bool:
    try:
        return bool(metric_name(name))
    except ValueError:
        return False
