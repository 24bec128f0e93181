"""Tables that programs print for people: a header that names the metric, and a row for each report.

| epoch | val_loss |          epoch  train_loss  val_loss          epoch,train_loss,val_loss
|   1   |  0.4123  |              1      0.5123    0.4123          1,0.5123,0.4123
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...reports import number_of
from .base import STEP_NAMES, whole_step

_BARS = re.compile(r"[|│┃]")
_RULE = re.compile(r"[\s|│┃+\-=:─━═┼╇╪├┤┡┩╞╡┌┐└┘┏┓┗┛╭╮╯╰┬┴┳┻╋]+")
_NAME = re.compile(r"[^\W\d][\w ./@%()-]*")
_NO_NUMBER = re.compile(r"|-+|nan|none|null|n/?a|#na#", re.IGNORECASE)  # in a column of numbers
_SEPARATORS = "\t,;"  # else white space


@dataclass(frozen=True)
class Table:
    """The header of a table.

    With a column of steps, a table goes on wherever a row has a step there, whatever is printed between;
    without one, it ends at the first line that is not a row. A table without bars needs one.
    """

    header: tuple[str, ...]
    separator: str | None  # "|" for a table with bars; None for white space
    step: str | None  # the name of the column of steps

    @classmethod
    def of(cls, text: str, metric: str) -> Table | None:
        """The table that begins with a line; None if this is not the header of one with the metric."""
        separator = "|" if _BARS.search(text) else next((each for each in _SEPARATORS if each in text), None)
        cells = _cells(text, separator)
        named = [cell for cell in cells if cell]
        steps = [cell for cell in named if cell.lower() in STEP_NAMES]
        if metric not in cells or len(named) < 2:
            return None
        if separator != "|" and not (steps and all(map(_NAME.fullmatch, cells))):
            return None
        return cls(tuple(cells), separator, steps[0] if steps else None)

    def is_over(self, text: str) -> bool:
        """Whether a line ends the table."""
        is_rule = _RULE.fullmatch(text) is not None
        return self.step is None and not is_rule and len(_cells(text, self.separator)) != len(self.header)

    def row(self, text: str) -> Mapping[str, str] | None:
        """The cells of a row, by the names of their columns; None for a line that is none."""
        cells = _cells(text, self.separator)
        if len(cells) != len(self.header) or _RULE.fullmatch(text):
            return None
        row = dict(zip(self.header, cells, strict=True))
        if self.step is not None and whole_step(row[self.step]) is None:
            return None
        return row if self.separator == "|" or all(map(_is_of_numbers, cells)) else None


def _cells(text: str, separator: str | None) -> list[str]:
    parts = _BARS.split(text) if separator == "|" else text.strip("\r\n").split(separator)
    return [part.strip() for part in parts]


def _is_of_numbers(cell: str) -> bool:
    """Whether a cell is a number, a time such as `00:03`, or says that there is none."""
    return number_of(cell) is not None or cell[:1].isdigit() or _NO_NUMBER.fullmatch(cell) is not None
