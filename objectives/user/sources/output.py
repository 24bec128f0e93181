"""Reports in what a program prints, found by their form."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...base import REPORT_MARK, ScriptError
from ...reports import Line, LineSplitter, PrintedReport, ReportFinder, Writing, quoted
from ..output import Piece
from .bars import PLACE, Bar, Stage
from .base import MAX_LINE_LETTERS, STEP_NAMES, Arrived, Source, plain_text
from .lines import LineReader, Reading, counts_epochs, end_of_steps
from .objects import ObjectLines
from .phases import Phase, Phases

HOLD_SECONDS = 0.5  # for a report as JSON to follow the first line of another form
ONE_BAR = (
    "its progress bar names no epoch or step, so only its last value counts; with "
    '"epoch 3" or "step 300" in it, or counted in epochs, it reports as it trains'
)
MAX_FORMS = 1000  # of lines that are written anew, which are remembered
_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_STEPS_WITHIN = tuple(f"{name}/" for name in STEP_NAMES)  # of an epoch, the last choice


class OutputSource(Source):
    """Reads lines, of standard output and standard error."""

    def __init__(self, metric: str, output: str) -> None:
        self._metric = metric
        self._output = output
        self._finder = ReportFinder(metric, output)
        self._lines = {False: LineSplitter(), True: LineSplitter()}

    @property
    def near_misses(self) -> list[str]:
        return self._finder.near_misses

    @property
    def unusable(self) -> list[str]:
        return self._finder.unusable

    def take(self, piece: Piece) -> Arrived:
        found: list[PrintedReport] = []
        waited = 0.0
        for text, is_error, first in piece.chunks:
            for line, number, writing in self._cut(text, first, self._lines[is_error]):
                if reports := self._read(line, number, writing, is_error):
                    waited = max(waited, piece.waited[is_error])
                    found += reports
        return Arrived(found, waited)

    def _cut(self, text: bytes, number: int, lines: LineSplitter) -> Iterator[Line]:
        """The lines of a part of the output; those that cannot matter are passed over."""
        if not self._matters(text):
            first, after = lines.first_of(text, number)
            yield from first
            number += text.count(b"\n", 0, len(text) - len(after))
            text = after
            if not self._matters(text):
                yield from lines.pass_over(text, number)
                return
        yield from lines.numbered(text, number)

    def end(self) -> Arrived:
        found: list[PrintedReport] = []
        for is_error, lines in self._lines.items():
            for line, number, writing in lines.end():
                found += self._read(line, number, writing, is_error)
        return Arrived(found)

    def _matters(self, text: bytes) -> bool:
        """Whether any line in a part of the output can matter."""
        return True

    def _note(self, line: bytes, number: int) -> None:
        """Remember a line without the metric if it looks like a report; binary output never does."""
        try:
            text = line.decode()
        except UnicodeDecodeError:
            text = ""
        self._finder.note(text, number)

    def _read(self, line: bytes, number: int, writing: Writing, is_error: bool) -> list[PrintedReport]:
        raise NotImplementedError


def origin_of(metric: str, text: str, *, is_error: bool) -> str:
    """What reports are taken from, with a line of them."""
    return f"{metric} from lines such as {quoted(text)} of its {'standard error' if is_error else 'output'}"


@dataclass
class _Shown:
    """A value in a line, which may be written anew."""

    reading: Reading
    text: str
    stage: Stage
    prefix: bytes | None  # what other writings of the stage begin with; None if that is not known
    may_be_old: bool = False  # whether it is of a progress bar that shows the value of an earlier step, too
    latest: bytes | None = None  # a later writing, which has not been read


class AutoSource(OutputSource):
    """Reports as JSON; if there is none, values as programs print them for people.

    The first line of that kind waits a moment, because a report as JSON may follow it. A line that is written
    anew counts as `Bar` says, a progress bar in lines of its own when the next step begins.
    """

    def __init__(self, metric: str, output: str) -> None:
        super().__init__(metric, output)
        self._reader = LineReader(metric)
        self._objects = {False: ObjectLines(), True: ObjectLines()}
        pattern = "report: {stdout: '... (?P<value>[0-9.eE+-]+)'}"
        self.asks = (
            f"print lines such as {json.dumps({'step': 1, metric: 0.5})}, or the space must say by {pattern} "
            "how its lines look"
        )
        escaped = b"\\u00" if metric.isascii() else b"\\u"  # JSON may escape letters
        self._needles = (metric.encode(), REPORT_MARK.encode(), escaped)
        self._json = False  # whether a report as JSON was seen
        self._after = 0  # the last step before the first report as JSON
        self._stream: bool | None = None  # whether lines of standard error count, or of standard output
        self._held: tuple[float, _Shown] | None = None  # the first reading, and when it came
        self._began = False  # whether readings count
        self._step_name: str | None = None  # None: steps are counted
        self._last = (0, 0, 0)  # the last step, the steps before its epoch, and its epoch
        self._bar = Bar[_Shown]()
        self._is_one_bar = False  # whether that names no step
        self._reported = 0  # how many readings were
        self._counted: float | None = None  # the last value that counted
        self._phases = Phases[_Shown]()
        self._json_phases = Phases[PrintedReport]()
        self._forms: dict[bytes, bool] = {}  # of lines that are written anew: whether they have a value

    @property
    def waiting(self) -> PrintedReport | None:
        if self._held is None:
            return None
        _, shown = self._held
        return PrintedReport(shown.reading.value, self._step_of(shown.reading), dict(shown.reading.metrics))

    def take(self, piece: Piece) -> Arrived:
        was_waiting = self._phases.waits or self._json_phases.waits
        found, waited, _ = super().take(piece)
        waited = 0.0 if was_waiting else waited  # they have not come too late, but were held
        if self._held is not None and time.monotonic() - self._held[0] >= HOLD_SECONDS:
            found = [*self._begin(), *found]
        return Arrived(found, waited)

    def end(self) -> Arrived:
        found = [*super().end().found]
        for is_error, objects in self._objects.items():
            found += [report for each in objects.end() for report in self._read_line(*each, is_error)]
        if self._json:
            found += map(self._after_lines, self._json_phases.end())
        else:
            found += self._count(self._bar.end())
            for shown in self._phases.end():
                found += self._hold(shown)
        found += self._begin()
        if self._is_one_bar and self._reported == 1:
            self.unusual = ONE_BAR
        return Arrived(found)

    def remarks(self) -> list[tuple[str, str]]:
        told = (self._json_phases if self._json else self._phases).told(self._metric)
        return [*super().remarks(), *([("phases", told)] if told is not None else [])]

    def _read(self, line: bytes, number: int, writing: Writing, is_error: bool) -> list[PrintedReport]:
        objects = self._objects[is_error]
        if not objects.is_open and b"{" not in line:
            return self._read_line(line, number, writing, is_error)
        return [
            report
            for each in objects.take(line, number, writing)
            for report in self._read_line(*each, is_error)
        ]

    def _read_line(self, line: bytes, number: int, writing: Writing, is_error: bool) -> list[PrintedReport]:
        if not line:
            return self._count(self._bar.break_line()) if is_error == self._stream else []
        name, mark, escaped = self._needles
        named = name in line or mark in line or escaped in line
        if not named and not self._reader.in_table:
            if is_error == self._stream:
                self._bar.hide()
            if not (self._json or self._began):
                self._note(line, number)
            return []
        form = None
        if writing is Writing.REWRITTEN and not self._reader.in_table and b"{" not in line:
            form = line.translate(_ZEROS)
            if self._is_as_before(line, form, is_error):
                return []
        text = plain_text(line)
        if not is_error:
            reports = self._finder.find(text if b"\x1b" in line else line.decode("utf-8", "replace"), number)
            if reports and self._began and not self._json and not text.lstrip().startswith("{"):
                self._finder.add_unusable(
                    text, "it has other text before it, unlike the reports so far", number
                )
                return []
            if reports:
                return self._as_json(reports, text)
            if reports is None:
                return []
        reading = self._reader.read(text[-MAX_LINE_LETTERS:])
        if isinstance(reading, Reading) and self._phases.leaves_out(reading.phase):
            reading = None
        if form is not None and len(self._forms) < MAX_FORMS:
            self._forms[form] = isinstance(reading, Reading)
        if (
            isinstance(reading, Reading)
            and (step := reading.fractions.get(self._step_name or "")) is not None
        ):
            reading = f'its step is "{step}", not a whole number'
        if isinstance(reading, Reading):
            return [] if self._json else self._take(reading, text, line, writing, is_error)
        if is_error == self._stream:
            self._bar.hide()
        if isinstance(reading, str):
            self._finder.add_unusable(text, reading, number)
        else:
            self._finder.note(text, number)
        return []

    def _matters(self, text: bytes) -> bool:
        looks = self._finder.looks and not (self._json or self._began)
        is_open = (
            self._reader.in_table or self._bar.waits or any(each.is_open for each in self._objects.values())
        )
        return (
            looks or is_open or any(needle in text for needle in self._needles) or ObjectLines.may_open(text)
        )

    def _is_as_before(self, line: bytes, form: bytes, is_error: bool) -> bool:
        """Whether a writing of a line says no more than the one before it, but for its value.

        A progress bar of hours has a million of them. The value is read once it counts.
        """
        has_value = self._forms.get(form)
        if has_value is None or self._stream is None:
            return self._json
        if is_error != self._stream or self._json:
            return True
        if not has_value:
            self._bar.hide()
            return True
        if not self._bar.waits:
            return False
        (shown,) = self._bar.shown
        if shown.prefix is None or not line.startswith(shown.prefix):
            return False
        stage = shown.stage if shown.prefix else Stage.of_bar(line)
        if not self._bar.goes_on(stage):
            return False
        shown.latest = line
        self._bar.show((shown,), stage, line, Writing.REWRITTEN)
        return True

    def _as_json(self, reports: list[PrintedReport], text: str) -> list[PrintedReport]:
        """Reports as JSON count alone, from the first one on."""
        if self._began and not self._json:
            self.unusual = f"it prints {self._metric} as JSON, too, which counts alone from there"
            self._after = self._last[0]
        self._json, self._held, self.origin = True, None, None
        self._bar.end()
        phase = self._reader.phase_in(text)
        if phase is Phase.VALIDATION:
            self._prefer_validation(self._json_phases, text)
        return [
            self._after_lines(counting)
            for report in reports
            for counting in self._json_phases.take(phase, report.metrics.get("epoch", report.step), report)
        ]

    def _after_lines(self, report: PrintedReport) -> PrintedReport:
        """A report as JSON with a step after those of lines for people, if it has none."""
        if not self._after or report.step is not None:
            return report
        self._after += 1
        return replace(report, step=self._after)

    def _prefer_validation(self, phases: Phases[Any], text: str) -> bool:
        """Values of validation count alone. Returns whether they did not before."""
        if phases.chosen is Phase.TRAINING:
            raise ScriptError(
                f'it gives "{self._metric}" of training, and then of validation; say which counts by a '
                f"pattern in report.stdout, such as '^val.* {self._metric} (?P<value>\\S+)'",
                detail=f"it printed {quoted(text)}",
            )
        return phases.prefer_validation()

    def _take(
        self, reading: Reading, text: str, line: bytes, writing: Writing, is_error: bool
    ) -> list[PrintedReport]:
        """A reading counts, unless it is of the other stream; in a bar, or as the first, it waits."""
        if reading.phase is Phase.VALIDATION and self._prefer_validation(self._phases, text):
            self._forms.clear()
            if not self._began and self._held is None:  # lines of training, which do not count, have decided
                self._stream = None
        if self._stream is None:
            self._stream = is_error
            names = (*STEP_NAMES, *_STEPS_WITHIN) if writing is Writing.WHOLE else ("epoch", *STEP_NAMES)
            self._step_name = next((name for name in names if name in reading.steps), None)
        if is_error != self._stream:
            return []
        shown = self._shown(reading, text, line)
        shown.may_be_old = reading.progress and (shown.prefix != b"" or writing is Writing.WHOLE)
        if writing is not Writing.WHOLE or (reading.progress and shown.stage.step is not None):
            self._is_one_bar = shown.stage.step is None
            return self._count(self._bar.show((shown,), shown.stage, line, writing))
        return self._count([*self._bar.end(), shown])

    def _shown(self, reading: Reading, text: str, line: bytes) -> _Shown:
        """A reading with its stage, which is the place of a bar that counts epochs if it names no step."""
        step, place = self._step_of(reading), PLACE.search(line)
        if step is not None:
            end = end_of_steps(text, ("epoch", self._step_name or ""))
            prefix = text[: end + 1].encode()
            is_first = 0 < end < len(text) and line.startswith(prefix)
            stage = Stage((reading.steps.get("epoch"), step))
            return _Shown(reading, text, stage, prefix if is_first else None)
        if place is not None and counts_epochs(text):
            return _Shown(reading, text, Stage(int(place[1])), line[: place.end() + 1])
        return _Shown(reading, text, Stage.of_bar(line), b"")

    def _count(self, values: Sequence[_Shown]) -> list[PrintedReport]:
        """Values count, but none that a progress bar shows again; the first one of all is held."""
        found: list[PrintedReport] = []
        for shown in values:
            if shown.latest is not None:
                shown.text = plain_text(shown.latest)
                again = self._reader.pair_in(shown.text)
                if isinstance(again, Reading):
                    shown.reading = replace(again, steps=shown.reading.steps, phase=shown.reading.phase)
            if shown.may_be_old and shown.reading.value == self._counted:
                continue
            self._counted = shown.reading.value
            steps = shown.reading.steps
            epoch = next((steps[name] for name in ("epoch", *STEP_NAMES) if name in steps), None)
            for counting in self._phases.take(shown.reading.phase, epoch, shown):
                found += self._hold(counting)
        return found

    def _hold(self, shown: _Shown) -> list[PrintedReport]:
        """A value counts; the first one is held."""
        if self._began or self._held is not None:
            return [*self._begin(), self._report(shown.reading)]
        self._held = (time.monotonic(), shown)
        return []

    def _begin(self) -> list[PrintedReport]:
        """The reading that was held counts, and those after it."""
        if self._held is None:
            return []
        (_, shown), self._held = self._held, None
        self._began = True
        self.origin = origin_of(self._metric, shown.text, is_error=bool(self._stream))
        return [self._report(shown.reading)]

    def _step_of(self, reading: Reading) -> int | None:
        return None if self._step_name is None else reading.steps.get(self._step_name)

    def _report(self, reading: Reading) -> PrintedReport:
        """A reading as a report. Steps that begin again with each epoch are added up."""
        self._reported += 1
        last, before, epoch = self._last
        step = self._step_of(reading)
        if step is not None:
            now = reading.steps.get("epoch", epoch)
            if self._step_name != "epoch" and now > epoch and before + step <= last:
                before = last
            step += before
            self._last = (step, before, now)
        return PrintedReport(reading.value, step, dict(reading.metrics))
