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
from enum import Enum, auto
from functools import lru_cache
from typing import Any

from .base import REPORT_MARK, as_step

MAX_LINE_BYTES = 1 << 20  # bytes at the end of a line that are searched; no report is longer
MAX_STRAY_BRACES = 64  # in a line, that do not begin an object
MAX_QUOTED_LETTERS = 160  # letters of a line that a message quotes
MAX_NEAR_MISSES = 3  # lines that a message quotes
RESERVED_NAMES = ("self", "step", "value")  # names of `report`'s parameters, which no metric can have
MAX_LOOKED_AT = 50_000  # lines without the metric's name that are searched for names like it
MAX_COMPARED = 1000  # of those lines, which are searched for any name like it; a later one needs a part of it
LEAST_ALIKE = 0.6  # of two names without a common word
MAX_SIMILAR_NAMES = 20  # that are counted
MAX_SEARCHED_LETTERS = 1 << 12  # letters of a line without a report that are searched for something like one
_NAME = r"[\w./@()-]"  # a letter of a metric's name
_IS_NUMBER = r"['\"]?\s*+[:=]?\s*+[-+]?\.?\d"
_EXPONENT = re.compile(r"(?<=[\d.])[dDf](?=[-+]?\d)")  # 0.5D-01 of Fortran, 0.5f0 of Julia
_WORD_BEFORE = re.compile(rf"(?<!{_NAME})([A-Za-z]+) $")
_NAMED_NUMBER = re.compile(rf"(?<!{_NAME})([A-Za-z]{_NAME}{{0,63}}+){_IS_NUMBER}")


@dataclass(frozen=True)
class PrintedReport:
    """A report that a script printed."""

    value: float
    step: int | None
    metrics: dict[str, float]
    counted: bool = False  # whether a library has counted the step, in each attempt from 0


class Writing(Enum):
    """How a line of output ends. A carriage return lets the program write it anew, as progress bars do."""

    WHOLE = auto()  # it was written once
    REWRITTEN = auto()  # it is written anew
    LAST = auto()  # it was written anew, and stays; empty if nothing follows its last carriage return


Line = tuple[bytes, int, Writing]  # with its number


class LineSplitter:
    """Splits output that comes in pieces into lines. Each writing of a line that is written anew is one."""

    def __init__(self) -> None:
        self._rest: deque[bytes] = deque()
        self._size = 0
        self._anew = False  # whether the line that has not ended is written anew

    def numbered(self, piece: bytes, number: int) -> list[Line]:
        """The lines that end in this piece, with their numbers; it begins in line `number`."""
        lines: list[Line] = []
        first, *others = piece.split(b"\n")
        self._cut(first, number, lines)
        if others:
            lines += self.end(number)
            *whole, rest = others
            for place, line in enumerate(whole, number + 1):
                if b"\r" in line:
                    self._cut(line, place, lines)
                    lines += self.end(place)
                elif line:
                    lines.append((line, place, Writing.WHOLE))
            self._cut(rest, number + len(others), lines)
        return lines

    def first_of(self, piece: bytes, number: int) -> tuple[list[Line], bytes]:
        """The first line, or writing of it, that ends in a piece; and what of the piece follows."""
        ends = [place for end in (b"\n", b"\r") if (place := piece.find(end)) >= 0]
        if not ends:
            self._keep(piece)
            return [], b""
        first, lines = min(ends), list[Line]()
        self._cut(piece[: first + 1].removesuffix(b"\n"), number, lines)
        if piece[first : first + 1] == b"\n":
            lines += self.end(number)
        return lines, piece[first + 1 :]

    def pass_over(self, piece: bytes, number: int) -> list[Line]:
        """Leave out lines that do not matter, after `first_of`; but that a line written anew ends does.

        A blank stands for all its writings in between.
        """
        lines: list[Line] = []
        line, newline, after = piece.partition(b"\n")
        if self._anew:
            before, _, last = line.rpartition(b"\r")
            if before.strip(b"\r"):
                lines.append((b" ", number, Writing.REWRITTEN))
            self._keep(last)
            if not newline:
                return lines
            lines += self.end(number)
        rest = after[after.rfind(b"\n") + 1 :] if newline else line
        end = rest.rfind(b"\r")
        self._anew = end >= 0
        self._keep(rest[end + 1 :])
        return lines

    def _cut(self, part: bytes, number: int, lines: list[Line]) -> None:
        """Keep the part of a line; the writings that carriage returns end in it are lines."""
        if b"\r" in part:
            first, *whole, part = part.split(b"\r")
            self._keep(first)
            written = [b"".join(self._rest)[-MAX_LINE_BYTES:], *whole]
            lines += [(line, number, Writing.REWRITTEN) for line in written if line]
            self._rest.clear()
            self._size = 0
            self._anew = True
        self._keep(part)

    def end(self, number: int = 0) -> list[Line]:
        """The last, unended line, if there is any; only its end if it is too long."""
        line = b"".join(self._rest)[-MAX_LINE_BYTES:]
        writing = Writing.LAST if self._anew else Writing.WHOLE
        self._rest.clear()
        self._size, self._anew = 0, False
        return [(line, number, writing)] if line or writing is Writing.LAST else []

    def _keep(self, part: bytes) -> None:
        self._rest.append(part)
        self._size += len(part)
        while self._size - len(self._rest[0]) >= MAX_LINE_BYTES:
            self._size -= len(self._rest.popleft())


class ReportFinder:
    """Finds the reports in a script's lines, and remembers lines that were nearly one."""

    def __init__(self, metric: str, output: str = "its output") -> None:
        """`output`: what messages call the place of the lines."""
        self._metric = metric
        self._output = output
        name = rf"(?<!{_NAME}){re.escape(metric)}(?!{_NAME})"
        words = re.findall(r"[^\W_]+", metric)
        spelled = r"[\s_/.-]?".join(map(re.escape, words)) or re.escape(metric)
        self._named = re.compile(name, re.IGNORECASE)
        self._assigned = re.compile(rf"{name}['\"]?\s*+[:=]", re.IGNORECASE)
        self._numbered = re.compile(f"({name}){_IS_NUMBER}", re.IGNORECASE)
        self._spelled = re.compile(rf"(?<![\w/.-])({spelled})(?!{_NAME}){_IS_NUMBER}", re.IGNORECASE)
        self._words = re.findall(r"[a-z]+|\d+", metric.lower())
        self._parts = {*self._words}  # of lines with a similar name: a word of the metric, or a name seen
        self._looked = 0  # lines that were searched for similar names
        self._unusable: deque[str] = deque(maxlen=MAX_NEAR_MISSES)
        self._similar: dict[
            str, tuple[int, str]
        ] = {}  # names: how many lines look like reports of it, the first
        # The last lines with a number after the metric's name, and with the name only.
        self._seen = [deque[str](maxlen=MAX_NEAR_MISSES) for _ in range(2)]

    @property
    def unusable(self) -> list[str]:
        """The last lines that name the metric like a report but cannot be used."""
        return list(self._unusable)

    @property
    def near_misses(self) -> list[str]:
        """What looked most like reports but was not: the last lines, or names like the metric's."""
        numbered, named = self._seen
        of = "" if self.looks else f" of the first {self._looked:,}"
        similar = [
            f"{'a line looks like a report' if count == 1 else f'{count:,} lines{of} look like reports'} of "
            f"{json.dumps(name)[1:-1]}; the space says {self._metric} ({first})"
            for name, (count, first) in sorted(self._similar.items(), key=self._farther)
        ]
        return next(
            (list(told)[:MAX_NEAR_MISSES] for told in (self._unusable, numbered, similar, named) if told), []
        )

    def read(self, line: bytes, number: int = 0) -> list[PrintedReport]:
        """The reports in a line; nearly always none or one. Remembers the line if it is nearly one."""
        text = line.decode("utf-8", "replace")
        reports = self.find(text, number)
        if reports == []:
            self.note(text, number)
        return reports or []

    def find(self, text: str, number: int = 0) -> list[PrintedReport] | None:
        """The reports in a line; None for a report that cannot be used, which is remembered."""
        reports = []
        may_be_one = self._metric in text or REPORT_MARK in text or "\\u" in text  # JSON may escape letters
        for record in _objects(text) if may_be_one else ():
            report = _report_in(record, self._metric)
            if isinstance(report, PrintedReport):
                reports.append(report)
            elif report is not None:
                self.add_unusable(text, report, number)
                return reports or None
        return reports

    def add_unusable(self, text: str, why: str, number: int) -> None:
        """Remember a line that names the metric like a report but cannot be used."""
        place = f"line {number:,} of {self._output} names" if number else "it names"
        self._unusable.append(f"{place} {self._metric}, but {why}: {quoted(text)}")

    def note(self, text: str, number: int = 0) -> None:
        """Remember a line that is not a report if it looks like one."""
        text = text[:MAX_SEARCHED_LETTERS]
        lower = text.lower()
        is_named = self._metric.lower() in lower
        if is_named and "{" in text and self._assigned.search(text):
            self.add_unusable(text, "is not a JSON object with that key", number)
        elif is_named and (numbered := self._numbered.search(text)) and numbered[1] == self._metric:
            self._seen[0].append(f"{self._printed(number)} {quoted(text)}, which is no report")
        elif is_named and numbered:
            self._add_similar(numbered[1], text, number)
        elif (name := self._similar_in(text)) is not None:
            self._add_similar(name, text, number)
        elif is_named and self._named.search(text):
            self._seen[1].append(f"{self._printed(number)} {quoted(text)}, which is no report")

    @property
    def looks(self) -> bool:
        """Whether lines without the metric's name are still searched for names like it."""
        return self._looked < MAX_LOOKED_AT

    def _similar_in(self, text: str) -> str | None:
        """A name like the metric's with a number after it, in one of the first lines."""
        if not self.looks:
            return None
        self._looked += 1
        if self._looked > MAX_COMPARED and not any(part in text.lower() for part in self._parts):
            return None
        if (spelled := self._spelled.search(text)) is not None:
            return spelled[1]
        names = [self._with_phase(text[: match.start()], match[1]) for match in _NAMED_NUMBER.finditer(text)]
        alike = [(likeness, name) for name in names if (likeness := _likeness(name, self._metric))]
        return max(alike, key=lambda each: each[0])[1] if alike else None

    def _with_phase(self, before: str, name: str) -> str:
        """A name with the word before it, as in `validation loss: 0.5`, where the metric has more words."""
        word = _WORD_BEFORE.search(before)
        more = len(self._words) > len(re.findall(r"[a-z]+|\d+", name.lower()))
        return f"{word[1]} {name}" if more and word is not None else name

    def _add_similar(self, name: str, text: str, number: int) -> None:
        """Count a line that looks like a report of another name."""
        count, first = self._similar.get(name, (0, ""))
        if count or len(self._similar) < MAX_SIMILAR_NAMES:
            place = f"line {number:,} of {self._output}, " if number else ""
            self._parts.add(name.lower())
            self._similar[name] = (count + 1, first or f"{place}{quoted(text)}")

    def _farther(self, similar: tuple[str, tuple[int, str]]) -> tuple[bool, int]:
        """Sorts other spellings of the metric before other names, and frequent ones first."""
        name, (count, _) = similar
        return letters_of(name) != letters_of(self._metric), -count

    def _printed(self, number: int) -> str:
        return f"line {number:,} of {self._output} is" if number else "it printed"


def quoted(text: str) -> str:
    """A line in quotes for a message, shortened if it is long."""
    text = " ".join(text.split())
    return f'"{text if len(text) <= MAX_QUOTED_LETTERS else text[:MAX_QUOTED_LETTERS] + "…"}"'


def letters_of(name: str) -> str:
    """The letters and digits of a name: the same for `val_loss`, `Val-Loss` and `val/loss`."""
    return "".join(filter(str.isalnum, name)).casefold()


@lru_cache(maxsize=1024)
def _likeness(name: str, metric: str) -> float:
    """How alike a name and the metric's are, as `eval/loss` or `ValLoss` and `val_loss`; 0: not at all."""
    words, wanted = (set(re.findall(r"[a-z]+|\d+", each.lower())) for each in (name, metric))
    ratio = difflib.SequenceMatcher(None, name.lower(), metric.lower()).ratio()
    return ratio if words & wanted or ratio > LEAST_ALIKE else 0.0


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
    value, step = number_of(record[key]), record.get("step")
    if value is None:
        return not_a_number(record[key])
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


def not_a_number(value: Any) -> str:
    """Why a value cannot be used, for a message."""
    if isinstance(value, str):
        return "its value is a text"
    if isinstance(value, list | dict):
        return f"its value is {'a list' if isinstance(value, list) else 'an object'}, not a number"
    is_json = value is None or isinstance(value, bool | int | float)
    return f"its value is {json.dumps(value) if is_json else repr(value):.40}, not a number"


def number_of(value: Any) -> float | None:
    """A number, also one that is written as a text, as Fortran and Julia do too; None for anything else."""
    if not isinstance(value, str):
        return _number(value)
    if "_" in value:  # a number to Python alone
        return None
    for text in (value, _EXPONENT.sub("e", value)):
        try:
            return float(text)
        except ValueError:
            continue
    return None


def _number(value: Any) -> float | None:
    """A JSON number as a float; None for anything else, or if it is too large."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
