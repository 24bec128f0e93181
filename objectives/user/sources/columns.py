"""Turns rows that a program logs into reports: which column is the metric, which the step."""

from __future__ import annotations

import difflib
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...reports import MAX_NEAR_MISSES, PrintedReport, letters_of, not_a_number, number_of
from ..output import Piece
from .base import STEP_NAMES, Arrived, Source, metrics_of, whole_step
from .rows import Row

POLL_SECONDS = 0.2
MAX_COLUMNS = 20  # that a message lists


@dataclass(frozen=True)
class Columns:
    """How the rows of a source are written, and what messages say of it."""

    value: str  # the column of the metric
    step: str | None = None  # the column of the step; None: the first of `steps` that is there
    steps: Sequence[str] = STEP_NAMES
    counter: str | None = None  # the column in which a library counts rows, in each attempt from 0
    counts_zeros: bool = False  # whether rows without a step have the step 0; they are counted
    rows: str = "rows"
    asks: str = ""  # what the program must do to report
    missing: Callable[[], str] = lambda: ""  # what is there instead, if nothing was written
    environment: Mapping[str, str | None] = field(default_factory=dict)


class RowSource(Source):
    """Reports from rows, which are looked for a few times a second."""

    every = POLL_SECONDS

    def __init__(self, metric: str, place: str, columns: Columns, before: int = 0) -> None:
        """`place`: where the rows are, for messages.

        `before`: the last step of what the checkpoint has in it. No step 0 follows it.
        """
        self._metric, self._place, self._columns = metric, place, columns
        self._step = columns.step
        self._seen: dict[str, None] = {}  # names of columns
        self._unusable: dict[tuple[str, str], _Unusable] = {}  # by their place and fault
        self._last: int | None = None  # step
        self._zero: PrintedReport | None = None  # of step 0, until the next says whether it has a step
        self._has_zeros = before > 0  # whether all reports have the step 0
        self._counts: dict[str, bool] = {}  # whether the library counts the steps, by place
        self._since = time.monotonic()  # when the last report was found
        self.found_any = False
        self._named = ""  # the files that the user has named
        self.asks = columns.asks
        self.environment = columns.environment

    @abstractmethod
    def _reports(self, *, ended: bool) -> Iterator[PrintedReport]:
        """The reports of new rows. `ended`: the program has ended."""

    def take(self, piece: Piece) -> Arrived:
        return self._arrived(ended=False)

    def end(self) -> Arrived:
        return self._arrived(ended=True)

    def _arrived(self, *, ended: bool) -> Arrived:
        found = list(self._with_steps(self._reports(ended=ended), ended=ended))
        waited = time.monotonic() - self._since
        if found:
            self.found_any = True
            self._since = time.monotonic()
        return Arrived(found, waited)

    def _with_steps(self, reports: Iterator[PrintedReport], *, ended: bool) -> Iterator[PrintedReport]:
        """Reports without the step 0 if the program gives none, which the second of them shows."""
        for report in reports:
            if report.step == 0 and self._columns.counts_zeros and (self._has_zeros or self._last == 0):
                if not self._has_zeros and self._zero is None:
                    self._zero = report
                    continue
                self._has_zeros = True
                report = replace(report, step=None)
            if self._zero is not None:
                yield replace(self._zero, step=None) if self._has_zeros else self._zero
                self._zero = None
            yield report
        if ended and self._zero is not None:
            yield self._zero
            self._zero = None

    @property
    def unusable(self) -> list[str]:
        return [rows.told(self._columns.value) for rows in self._unusable.values()]

    @property
    def near_misses(self) -> list[str]:
        if self._unusable:
            return self.unusable
        if self._seen:
            return [self._not_among()]
        return [self._columns.missing() or f"{self._place or self._named} has no row"]

    def _not_among(self) -> str:
        """The columns that are there in place of the metric's."""
        value = self._columns.value
        names = [f'"{name}"' for name in list(self._seen)[:MAX_COLUMNS]]
        more = f" and {len(self._seen) - MAX_COLUMNS} more" if len(self._seen) > MAX_COLUMNS else ""
        near = [name for name in self._seen if name != value and letters_of(name) == letters_of(value)]
        near = near or difflib.get_close_matches(value, self._seen, 1)
        meant = f'; did you mean "{near[0]}"?' if near and near[0] != value else ""
        lacks = "has no value in any of them" if value in self._seen else "is not among them"
        rows = f"{self._columns.rows} in {self._place or self._named}"
        return f'there are {rows} with {", ".join(names)}{more}: "{value}" {lacks}{meant}'

    def _value_in(self, row: Row) -> Any:
        """What a row says of the metric; None for nothing."""
        if len(self._seen) < 10 * MAX_COLUMNS:
            self._seen |= dict.fromkeys(map(str, row))
        value = row.get(self._columns.value)
        return None if value == "" else value

    def _report(
        self,
        row: Row,
        *,
        place: str,
        number: int,
        repeats: Callable[[int | None, bool], bool],
    ) -> PrintedReport | None:
        """The report in a row; None if it has none.

        The row is a flat one; `number` is its own in its place, from 1, or 0 where that is unknown.
        `repeats` says whether it was read before, from its step and whether that does not rise.
        """
        if (value := self._value_in(row)) is None:
            return None
        found = number_of(value)
        if found is None:
            self._refuse(place, number, "value", not_a_number(value))
            return None
        if self._step is None:
            self._step = _step_column(row, self._columns.steps)
        step = None
        if self._step and row.get(self._step) not in (None, ""):
            step = whole_step(row[self._step])
            if step is None:
                why = f'its "{self._step}" is {row[self._step]!r:.40}, not a whole number'
                self._refuse(place, number, "step", why)
                return None
        is_zero = step == 0 and self._last == 0 and self._columns.counts_zeros
        is_old = step is not None and self._last is not None and step <= self._last
        if repeats(None if is_zero else step, is_old and not is_zero):
            return None
        self._last = self._last if step is None else step
        if self.origin is None:
            steps = step or (step == 0 and not self._columns.counts_zeros)
            by = f', with the step "{self._step}"' if steps else ""
            self.origin = f'{self._metric} from "{self._columns.value}" in {self._origin(place)}{by}'
        counted = self._counts.setdefault(
            place, self._step == self._columns.counter is not None and step == number - 1
        )
        return PrintedReport(found, step, metrics_of(row, self._columns.value, self._step or ""), counted)

    def _origin(self, place: str) -> str:
        """Where the reports are taken from, in words."""
        return self._place or place

    def _refuse(self, place: str, number: int, fault: str, why: str) -> None:
        """Remember a row that names the metric but cannot be used."""
        if (known := self._unusable.get((place, fault))) is not None:
            known.add(number)
        elif len(self._unusable) < MAX_NEAR_MISSES:
            self._unusable[place, fault] = _Unusable(place, why, number)


class _Unusable:
    """Rows that cannot be used, in one place and for one fault."""

    def __init__(self, place: str, why: str, number: int) -> None:
        """`why` is the fault of the first row, `number` that row's."""
        self._place, self._why, self._first = place, why, number
        self._count, self._last = 1, number

    def add(self, number: int) -> None:
        """Count one more. A number that does not rise is of a file that is written anew."""
        self._count = 1 if 0 < number <= self._last else self._count + 1
        self._last = number

    def told(self, column: str) -> str:
        row = f"row {self._first:,}" if self._first else "a row"
        if self._count == 1:
            return f'{row} of {self._place} names "{column}", but {self._why}'
        first = f"in {row}, the first" if self._first else "in the first"
        return (
            f'{self._count:,} rows of {self._place} name "{column}", but cannot be used: {first}, {self._why}'
        )


def _step_column(row: Row, names: Sequence[str]) -> str:
    """The column of the step, if a row has one; else an empty text."""
    lower = {str(name).lower(): str(name) for name in reversed(row)}
    found = (lower[name] for name in names if name in lower and whole_step(row[lower[name]]) is not None)
    return next(found, "")
