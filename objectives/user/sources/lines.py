"""Reads the metric's value from a line as programs print it for people.

epoch 3 val_loss 0.4123          {'eval_loss': '0.5123', 'epoch': '1'}          | 3 | 0.52 | 0.4123 |

Only a value that the metric's own name stands before is read, or one below it in a table.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...reports import not_a_number, number_of
from .base import STEP_NAMES, metrics_of, whole_step
from .phases import PHASES, Phase, phase_in
from .tables import Table

NUMBER = r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[edf][-+]?\d+)?|nan|inf(?:inity)?)"
# What may not follow it: a unit, a part of a longer number, date or ratio, a newer value, or what it counts.
_COUNTED = (
    r"(?:epochs?|steps?|iterations?|iters?|batch(?:es)?|times|ms|s|secs?|seconds?|mins?|minutes?|h|hours?)"
)
_END = (
    r"(?!\w|[.,'\u2019:-]\d|\.[#A-Za-z]|#|\s*(?:->|=>|→|/\s*\d|[*\u00d7x]\s*10)"
    rf"|\s+{_COUNTED}\b(?!\s*[:=#]?\s*[\[(#]?\s*\d)"
    r"|(?:(?<=[^\d.]\d)|(?<=[^\d.]\d\d)|(?<=[^\d.]\d\d\d))[ \u00a0]\d{3}(?!\d))"
)
_MEAN = re.compile(r"\s*\(\s*[-+]?\d*\.\d+(?:e[-+]?\d+)?\s*\)", re.IGNORECASE)  # after a value
_WRAPPED = r"(?:(?:torch\.)?tensor\(|(?:np|numpy)\.float\d+\(|(?:jnp\.)?[Aa]rray\()?"
_GAP = rf"""['"]?\s*(?:[:=|│┃]\s*)?['"]?{_WRAPPED}"""  # between a name and its number
_STEP = re.compile(
    r"(?<![\w./@-])(global_steps?|current_steps?|steps?|iterations?|iters?|epochs?)(?![A-Za-z_])['\"]?\s*[:=#]?\s*"
    r"[\[(#]?\s*['\"]?(\d{1,3}(?:,\d{3})+|\d{1,3}(?:\.\d{3})+|\d+)(\.0*)?(?!\w|[.,]\d|\s*%)(\s*/\s*\d)?",
    re.IGNORECASE,
)
_OTHER_STEP = re.compile(
    r"(?<!\w)(?:best|remaining|total|max(?:imum)?|min(?:imum)?|num(?:ber)?|last|previous|next|per|every|at)[\s_-]*(?:of\s)?$",
    re.IGNORECASE,
)
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+")
_EPOCHS = re.compile(r"(?<![A-Za-z])epochs?(?![A-Za-z])", re.IGNORECASE)
_PROGRESS = re.compile(r"\d%\||\d(?:it|s|steps?|batch)/(?:s|it)\b")
_BRACES = re.compile(r"\{[^{}]*\}")
_BRACE = re.compile(r"([{}])")
_NOT_LITERAL = re.compile(rf"{_WRAPPED[:-1]}({NUMBER})(?:,[^()]*)?\)", re.IGNORECASE)
_NOT_FINITE = re.compile(r"""(?<![\w'"])([-+]?(?:nan|inf(?:inity)?))(?![\w'"])""", re.IGNORECASE)
# Words before the metric's name that make it another quantity: directly before it, and anywhere before it.
_OTHERS = (
    "best|min|minimum|max|maximum|lowest|highest|final|average|avg|mean|median|std|ema|smoothed|running|moving|total|"
    "sum|cumulative|overall|previous|prev|last|old|initial|starting|target|goal|expected|baseline|delta|threshold|"
    r"worst|top-?\d+|patience|early[ _-]stopping(?: on)?|weight of|monitor(?:ing)?(?: of)?|--[\w-]+"
)
_ANYWHERE = (
    r"best|lowest|highest|final|load(?:ed|ing)|restored|restoring|resumed|resuming|previous|Namespace\(|config\w*\("
    r"|config(?:uration)?:|args:|arguments:|python[\d.]* \S+"
)
_TO_NAME = r"""[\s:=(\[{,'"|)\]-]*$"""  # between such a word and the name
_BEFORE = [
    re.compile(rf"(?<!\w)({_ANYWHERE})(?!\w|\s*[:=]?\s*{NUMBER})", re.IGNORECASE),
    re.compile(rf"(?<!\w)({_OTHERS}){_TO_NAME}", re.IGNORECASE),
]
_PHASE = re.compile(rf"(?<![A-Za-z])({PHASES})(?![A-Za-z])", re.IGNORECASE)
_PHASE_BEFORE = re.compile(rf"(?<!\w)({PHASES}){_TO_NAME}", re.IGNORECASE)
_INSIDE = "stands inside another dictionary"
LONGEST_DICTIONARY = 1 << 13  # letters


@dataclass(frozen=True)
class Reading:
    """A value that a line gives to the metric."""

    value: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)  # by the names of steps
    fractions: Mapping[str, str] = field(default_factory=dict)  # by the same names: steps that are not whole
    phase: Phase | None = None  # of which the line says that it is, if the metric's name says none
    progress: bool = False  # whether the line is a progress bar, which shows an older value again


class LineReader:
    """Reads lines, and remembers the header of a table."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        longer = r"|:\.?\d" if metric[-1:].isdigit() else ""  # mAP@0.5 in mAP@0.5:0.95
        name = rf"(?<![\w./@-]){re.escape(metric)}(?![\w/@.(-]{longer})"
        self._pair = re.compile(rf"{name}{_GAP}({NUMBER}){_END}", re.IGNORECASE)
        self._says_phase = _PHASE.search(metric) is not None
        self._others = [*_BEFORE, *([] if self._says_phase else [_PHASE_BEFORE])]
        self._table: Table | None = None
        self._last: dict[
            str, int
        ] = {}  # by their names: steps that were written without a dot, or in thousands

    @property
    def in_table(self) -> bool:
        """Whether this line may be a row of a table with the metric."""
        return self._table is not None

    def read(self, text: str) -> Reading | str | None:
        """What a line says of the metric; a text says why its value cannot be used."""
        found = self._reading_in(text)
        return replace(found, phase=self.phase_in(text)) if isinstance(found, Reading) else found

    def phase_in(self, text: str) -> Phase | None:
        """Whether a line with the metric says that it is of training, or of validation."""
        return None if self._says_phase else phase_in(text, self._metric)

    def _reading_in(self, text: str) -> Reading | str | None:
        if self._table is not None and (in_row := self._in_row(text, self._table)) is not None:
            return in_row
        if self._metric not in text:
            return None
        if len(text) >= LONGEST_DICTIONARY and _open_braces(text) < 0:
            return f"its object is longer than {LONGEST_DICTIONARY:,} letters"
        if "{" in text and (found := self._in_dictionary(text)) is not None:
            return found
        if (found := self.pair_in(text)) is not None:
            return found
        self._table = Table.of(text, self._metric) or self._table
        return None

    def pair_in(self, text: str) -> Reading | str | None:
        """The value directly after the metric's name."""
        readings = []
        outer = _without_inner(text) if text.count("{") > 1 else text
        for pair in self._pair.finditer(outer):
            if self._metric not in pair[0]:
                continue  # in other letters, large or small
            if (other := self._other_quantity(outer[: pair.start()])) is not None:
                return other
            if (mean := _MEAN.match(outer, pair.end(1))) is not None:
                return f'"{pair[1]}{mean[0]}" has two values, such as that of a batch and the mean so far'
            if (value := number_of(pair[1])) is not None:
                readings.append(value)
        if not readings:
            return _INSIDE if outer != text and self._pair.search(text) else None
        if any(value != readings[0] for value in readings[1:]) and readings[0] == readings[0]:
            return "it has several values"
        steps, fractions = steps_in(outer, self._last)
        return Reading(readings[0], {}, steps, fractions, progress=_PROGRESS.search(text) is not None)

    def _other_quantity(self, before: str) -> str | None:
        """Which word before the metric makes it another quantity; None if none does."""
        other = next((found for words in self._others if (found := words.search(before))), None)
        return None if other is None else f'"{other[1]}" makes it another quantity'

    def _in_dictionary(self, text: str) -> Reading | str | None:
        """The value in the dictionaries of a line; None if none of them can be read, or has the metric."""
        for record in _dictionaries(text[-LONGEST_DICTIONARY:]):
            if self._metric in record:
                if (other := self._other_quantity(text[: text.find("{")])) is not None:
                    return other
                value = number_of(record[self._metric])
                if value is None:
                    return not_a_number(record[self._metric])
                numbers = metrics_of(record, self._metric)
                return Reading(value, numbers, _steps_of(record))
            if any(isinstance(inner, dict) and self._metric in inner for inner in record.values()):
                return _INSIDE
        return None

    def _in_row(self, text: str, table: Table) -> Reading | str | None:
        """The value in the metric's column of a table's row; None if this line is none."""
        if table.is_over(text):
            self._table = None
        if (row := table.row(text)) is None:
            return None
        text = row[self._metric]
        value = number_of(text)
        if value is None:
            return f"its value is {text!r}, not a number" if text and text != self._metric else None
        return Reading(value, metrics_of(row, self._metric), _steps_of(row))


def steps_in(text: str, last: dict[str, int]) -> tuple[dict[str, int], dict[str, str]]:
    """The steps that a line names, and those of them that are not whole.

    Those of a progress within an epoch come under `name/`. After the step 500, 1.000 is a thousand: `last`
    has the last steps, and is kept up to date.
    """
    steps: dict[str, int] = {}
    fractions: dict[str, str] = {}
    for name, digits, _ in _steps_with_ends(text):
        if name in steps:
            continue
        step, is_float = _step_of(digits, last.get(name, 0))
        if step is None:
            fractions.setdefault(name, digits)
        else:
            steps[name] = step
            last[name] = 0 if is_float else step
    return steps, fractions


def end_of_steps(text: str, names: Sequence[str]) -> int:
    """Where the steps of these names end in a line; 0 if it has none."""
    return max((end for name, _, end in _steps_with_ends(text) if name in names), default=0)


def counts_epochs(text: str) -> bool:
    """Whether a line speaks of epochs."""
    return _EPOCHS.search(text) is not None


def _steps_with_ends(text: str) -> Iterator[tuple[str, str, int]]:
    """The names of the steps in a line, their digits, and where they end."""
    for match in _STEP.finditer(text):
        is_total = match[1].lower() == "epochs" and match[4] is None  # "epochs 10", unlike "epochs 3/10"
        if is_total or _OTHER_STEP.search(text[: match.start()]):
            continue
        name = match[1].lower().removesuffix("s")
        name = "current_steps" if name == "current_step" else name
        within = match[4] is not None and name != "epoch"
        yield f"{name}/" if within else name, match[2] + (match[3] or ""), match.end()


def _step_of(digits: str, last: int) -> tuple[int | None, bool]:
    """The step that digits are after the step `last`, if it is whole, and whether they are a float's.

    1.500 is 1500 if that follows `last`.
    """
    first, *groups = digits.replace(",", "").split(".")
    if not groups:
        return whole_step(first), False
    thousands = whole_step("".join([first, *groups])) if _THOUSANDS.fullmatch(digits) else None
    if thousands is not None and (len(groups) > 1 or last <= thousands <= 100 * last):
        return thousands, False
    return (None if groups[0].strip("0") else whole_step(first)), True


def _steps_of(record: Mapping[Any, Any]) -> dict[str, int]:
    """The steps in a dictionary."""
    lower = {name.lower(): value for name, value in record.items() if isinstance(name, str)}
    steps = {name: whole_step(lower.get(name)) for name in STEP_NAMES}
    return {name: step for name, step in steps.items() if step is not None}


def _open_braces(text: str) -> int:
    return text.count("{") - text.count("}")


def _without_inner(text: str) -> str:
    """A text without what stands in braces within braces, and without its keys."""
    depth = 0
    kept: list[str] = []
    for part in _BRACE.split(text):
        depth = max(depth - (part == "}"), 0)
        if part == "{" and depth:
            kept[-1] = kept[-1].rpartition(",")[0]
        kept.append(part if depth <= 1 else "")
        depth += part == "{"
    return "".join(kept)


def _dictionaries(text: str) -> Iterator[dict[Any, Any]]:
    """The dictionaries in a line, as Python prints them."""
    whole = text[text.find("{") : text.rfind("}") + 1]
    parts = [part[0] for part in _BRACES.finditer(text) if _open_braces(text[: part.start()]) == 0]
    for part in dict.fromkeys([whole, *parts]):
        if (record := as_dictionary(part)) is not None:
            yield record


def as_dictionary(text: str) -> dict[Any, Any] | None:
    """The dictionary that a text is, as JSON or as Python prints it; None if it is none."""
    plain = _NOT_FINITE.sub(r"'\1'", _NOT_LITERAL.sub(r"\1", text))
    for read, literal in ((json.loads, text), (ast.literal_eval, text), (ast.literal_eval, plain)):
        try:
            record = read(literal)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        return record if isinstance(record, dict) else None
    return None
