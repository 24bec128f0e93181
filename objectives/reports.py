"""Reports in what a script prints, and lines that look like one and are none.

A report is an object of JSON that names the study's metric, or that `report` printed, which marks it:

    {"step": 100, "val_loss": 1.84, "train_loss": 1.79}

Other text may stand before and after it on its line. Whatever else is printed is no report, numbers or not.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .base import MARK, as_step

LONGEST_LINE = 1 << 20  # bytes; no report is as long
MOST_OBJECTS = 64  # beginnings of an object in a line that are tried
QUOTED = 160  # letters of a line that a message quotes
NEAR_MISSES = 3  # lines that a message quotes
TAKEN = ("self", "step", "value")  # the names of `report`'s own parameters, and of a method's first
_NAMED_NUMBER = re.compile(r"([A-Za-z][\w./@()-]*)['\"]?\s*[:=]?\s*[-+]?\.?\d")


@dataclass(frozen=True)
class Printed:
    """A report as it was printed."""

    value: float
    step: int | None
    metrics: dict[str, float]


class Lines:
    """Cuts what comes in pieces into lines; a carriage return ends one too, as progress bars have it."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that a piece brings to their end."""
        first, *others = re.split(rb"[\r\n]", piece)
        self._keep(first)
        if not others:
            return []
        *whole, rest = others
        lines = [*self.end(), *(line for line in whole if line)]
        self._keep(rest)
        return lines

    def end(self) -> list[bytes]:
        """The line that has no end of its own."""
        line = b"".join(self._rest)
        is_whole = self._size == len(line)
        self._rest, self._size = [], 0
        return [line] if line and is_whole else []

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= LONGEST_LINE:
            self._rest.append(part)
        else:
            self._rest.clear()


class Reports:
    """Finds the reports of a script in its lines, and remembers what was nearly one."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._unusable: deque[str] = deque(maxlen=NEAR_MISSES)  # names the metric, with what is no number
        self._named: deque[str] = deque(maxlen=NEAR_MISSES)  # names it, in another form
        self._numbers: deque[str] = deque(maxlen=NEAR_MISSES)  # something like it has a number

    @property
    def unusable(self) -> list[str]:
        """The last lines that name the metric as a report does, and cannot be used."""
        return list(self._unusable)

    @property
    def near_misses(self) -> list[str]:
        """The last lines that looked most like a report and were none."""
        return list(self._unusable or self._named or self._numbers)

    def read(self, line: bytes) -> list[Printed]:
        """The reports in a line; nearly always none or one."""
        text = line.decode("utf-8", "replace")
        found = []
        for record in _objects(text):
            report = _report_in(record, self._metric)
            if isinstance(report, Printed):
                found.append(report)
            elif report is not None:
                self._unusable.append(f"{quoted(text)} ({report})")
                return found
        if not found:
            self._note(text)
        return found

    def _note(self, text: str) -> None:
        """Remember a line that is no report, where it looks like one."""
        names = [match[1] for match in _NAMED_NUMBER.finditer(text[: LONGEST_LINE // 64])]
        has_number = any(character.isdigit() for character in text)
        if has_number and "{" in text and self._metric.lower() in text.lower():
            self._unusable.append(f"{quoted(text)} (no object of JSON that names it)")
        elif has_number and self._metric in text:
            self._named.append(quoted(text))
        elif any(_is_like(name, self._metric) for name in names):
            self._numbers.append(quoted(text))


def quoted(text: str) -> str:
    """A line as a message shows it, shortened where it is long."""
    text = " ".join(text.split())
    return f'"{text if len(text) <= QUOTED else text[:QUOTED] + "…"}"'


def _is_like(name: str, metric: str) -> bool:
    """Whether somebody may have meant the metric by that name: `eval/loss`, `ValLoss` for `val_loss`."""
    words, wanted = (set(re.findall(r"[a-z]+|\d+", each.lower())) for each in (name, metric))
    return bool(words & wanted) or difflib.SequenceMatcher(None, name.lower(), metric.lower()).ratio() > 0.6


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The objects of JSON in a line, outermost only."""
    decoder, at = json.JSONDecoder(), 0
    for _ in range(MOST_OBJECTS):
        at = text.find("{", at)
        if at < 0:
            return
        try:
            record, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1  # some other text that has a brace
        else:
            yield record


def _report_in(record: dict[str, Any], metric: str) -> Printed | str | None:
    """The report that an object is; what is wrong with it where it is meant as one; else None."""
    key = "value" if record.get(MARK) == "report" else metric
    if key not in record:
        return None
    value, step = _number(record[key]), record.get("step")
    if value is None:
        return f'"{key}" is {json.dumps(record[key])}, no number'
    try:
        at = None if step is None else as_step(step)
    except (TypeError, ValueError) as error:
        return str(error)
    numbers = {
        name: number
        for name, each in record.items()
        if name and name not in (key, MARK, *TAKEN) and (number := _number(each)) is not None
    }
    return Printed(value, at, numbers)


def _number(value: Any) -> float | None:
    """A number of JSON as a float; None for anything else, and what no float holds."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
