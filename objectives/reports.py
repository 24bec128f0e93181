"""Finds reports in a script's output, and lines that look like reports but are not.

A report is a JSON object with the study's metric as a key, or one that `report` printed, which has a mark:

    {"step": 100, "val_loss": 1.84, "train_loss": 1.79}

The line may have other text before and after it. Nothing else counts as a report.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .base import REPORT_MARK, as_step

MAX_LINE_BYTES = 1 << 20  # bytes at the end of a line that are searched; no report is longer
MAX_STRAY_BRACES = 64  # in a line, that do not begin an object
MAX_QUOTED_LETTERS = 160  # letters of a line that a message quotes
MAX_NEAR_MISSES = 3  # lines that a message quotes
RESERVED_NAMES = ("self", "step", "value")  # names of `report`'s parameters, which no metric can have
MAX_SEARCHED_LETTERS = 1 << 12  # letters of a line without a report that are searched for something like one
_NAME = r"[\w./@()-]"  # a letter of a metric's name
_IS_NUMBER = r"['\"]?\s*+[:=]?\s*+[-+]?\.?\d"
_NAMED_NUMBER = re.compile(rf"(?<!{_NAME})([A-Za-z]{_NAME}{{0,63}}+){_IS_NUMBER}")


@dataclass(frozen=True)
class PrintedReport:
    """A report that a script printed."""

    value: float
    step: int | None
    metrics: dict[str, float]


class LineSplitter:
    """Splits output that comes in pieces into lines. Carriage returns, as in progress bars, end lines too."""

    def __init__(self) -> None:
        self._rest: deque[bytes] = deque()
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that end in this piece."""
        first, *others = re.split(rb"[\r\n]", piece)
        self._keep(first)
        if not others:
            return []
        *whole, rest = others
        lines = [*self.end(), *(line for line in whole if line)]
        self._keep(rest)
        return lines

    def end(self) -> list[bytes]:
        """The last, unended line; only its end if it is too long."""
        line = b"".join(self._rest)[-MAX_LINE_BYTES:]
        self._rest.clear()
        self._size = 0
        return [line] if line else []

    def _keep(self, part: bytes) -> None:
        self._rest.append(part)
        self._size += len(part)
        while self._size - len(self._rest[0]) >= MAX_LINE_BYTES:
            self._size -= len(self._rest.popleft())


class ReportFinder:
    """Finds the reports in a script's lines, and remembers lines that were nearly one."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        name = rf"(?<!{_NAME}){re.escape(metric)}(?!{_NAME})"
        self._named = re.compile(name, re.IGNORECASE)
        self._assigned = re.compile(rf"{name}['\"]?\s*+[:=]", re.IGNORECASE)
        self._numbered = re.compile(name + _IS_NUMBER, re.IGNORECASE)
        self._unusable: deque[str] = deque(maxlen=MAX_NEAR_MISSES)
        # The last lines with a number after the metric's name, after a similar name, and with the name only.
        self._seen = [deque[str](maxlen=MAX_NEAR_MISSES) for _ in range(3)]

    @property
    def unusable(self) -> list[str]:
        """The last lines that name the metric like a report but cannot be used."""
        return list(self._unusable)

    @property
    def near_misses(self) -> list[str]:
        """The last lines that looked most like a report but were not."""
        return next((list(lines) for lines in (self._unusable, *self._seen) if lines), [])

    def read(self, line: bytes) -> list[PrintedReport]:
        """The reports in a line; nearly always none or one."""
        text = line.decode("utf-8", "replace")
        reports = []
        may_be_one = self._metric in text or REPORT_MARK in text or "\\u" in text  # JSON may escape letters
        for record in _objects(text) if may_be_one else ():
            report = _report_in(record, self._metric)
            if isinstance(report, PrintedReport):
                reports.append(report)
            elif report is not None:
                self._unusable.append(f"{quoted(text)} ({report})")
                return reports
        if not reports:
            self._note(text)
        return reports

    def _note(self, text: str) -> None:
        """Remember a line that is not a report if it looks like one."""
        text = text[:MAX_SEARCHED_LETTERS]
        numbered, similar, named = self._seen
        if "{" in text and self._assigned.search(text):
            self._unusable.append(f"{quoted(text)} (not a JSON object with that key)")
        elif self._numbered.search(text):
            numbered.append(quoted(text))
        elif any(_is_like(match[1], self._metric) for match in _NAMED_NUMBER.finditer(text)):
            similar.append(quoted(text))
        elif self._named.search(text):
            named.append(quoted(text))


def quoted(text: str) -> str:
    """A line in quotes for a message, shortened if it is long."""
    text = " ".join(text.split())
    return f'"{text if len(text) <= MAX_QUOTED_LETTERS else text[:MAX_QUOTED_LETTERS] + "…"}"'


@lru_cache(maxsize=1024)
def _is_like(name: str, metric: str) -> bool:
    """Whether a name may mean the metric: `eval/loss` or `ValLoss` for `val_loss`."""
    words, wanted = (set(re.findall(r"[a-z]+|\d+", each.lower())) for each in (name, metric))
    return bool(words & wanted) or difflib.SequenceMatcher(None, name.lower(), metric.lower()).ratio() > 0.6


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The outermost JSON objects in a line."""
    decoder, at, others = json.JSONDecoder(), 0, 0
    while others < MAX_STRAY_BRACES and (at := text.find("{", at)) >= 0:
        try:
            record, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at, others = at + 1, others + 1  # other text with a brace
        else:
            yield record


def _report_in(record: dict[str, Any], metric: str) -> PrintedReport | str | None:
    """The report in an object; the problem of an unusable report; None if it is no report."""
    key = "value" if record.get(REPORT_MARK) == "report" else metric
    if key not in record:
        return None
    value, step = _number(record[key]), record.get("step")
    if value is None:
        return f'"{key}" is {json.dumps(record[key])}, not a number'
    try:
        at = None if step is None else as_step(step)
    except (TypeError, ValueError) as error:
        return str(error)
    numbers = {
        name: number
        for name, each in record.items()
        if name and name not in (key, REPORT_MARK, *RESERVED_NAMES) and (number := _number(each)) is not None
    }
    return PrintedReport(value, at, numbers)


def _number(value: Any) -> float | None:
    """A JSON number as a float; None for anything else, or if it is too large."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
