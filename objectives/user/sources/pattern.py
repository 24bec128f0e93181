"""Reports in what a program prints, found by a pattern of the user's."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...base import ScriptError
from ...reports import PrintedReport, Writing, not_a_number, number_of, quoted
from ..output import Piece
from .bars import Bar, Stage
from .base import MAX_LINE_LETTERS, Arrived, metrics_of, plain_text, whole_step
from .limit import SEARCH_SECONDS, SearchLimit
from .output import OutputSource, origin_of

_CUT = re.compile(
    r"[.,'\u2019]?\d[\d.,'\u2019]*|_\d+|#\w+|[eE][-+]?\d+"
)  # the rest of a number that a pattern has cut


class PatternSource(OutputSource):
    """Reports by a regular expression with the groups `value`, `step` and those of further metrics."""

    def __init__(self, metric: str, output: str, pattern: str) -> None:
        super().__init__(metric, output)
        self._pattern = re.compile(pattern)
        self._limit = SearchLimit()
        self._bars = {False: Bar[PrintedReport](), True: Bar[PrintedReport]()}
        self.asks = f"print lines that match {quoted(pattern)}"

    def take(self, piece: Piece) -> Arrived:
        with self._limit.watching():
            return super().take(piece)

    def end(self) -> Arrived:
        with self._limit.watching():
            found = [*super().end().found]
        return Arrived(found + [report for bar in self._bars.values() for report in bar.end()])

    def _read(self, line: bytes, number: int, writing: Writing, is_error: bool) -> list[PrintedReport]:
        bar = self._bars[is_error]
        if not line:
            return bar.break_line()
        text = plain_text(line)
        try:
            self._limit.line = line
            found = list(self._found(text[-MAX_LINE_LETTERS:], number))
            self._limit.line = None
        except TimeoutError:
            raise self._too_slow(text, number) from None
        if found and self.origin is None:
            self.origin = origin_of(self._metric, text, is_error=is_error)
        elif not found and self.origin is None and self._finder.looks:
            self._note(line, number)
        if writing is Writing.WHOLE:
            return [*(bar.end() if found else []), *found]
        if found:
            step = found[-1].step
            return bar.show(found, Stage.of_bar(line) if step is None else Stage(step), line, writing)
        bar.hide()
        return []

    def _too_slow(self, text: str, number: int) -> ScriptError:
        place = f"line {number:,} of {self._output}" if number else f"the last line of {self._output}"
        return ScriptError(
            f"the pattern of report.stdout took longer than {SEARCH_SECONDS:g} s for a line; "
            f"repeat nothing that is repeated already: {quoted(self._pattern.pattern)}",
            detail=f"{place}: {quoted(text)}",
        )

    def _found(self, text: str, number: int) -> Iterator[PrintedReport]:
        for match in self._pattern.finditer(text):
            groups = match.groupdict()
            value = None if _CUT.match(text, match.end("value")) else number_of(groups["value"])
            step = None if groups.get("step") is None else whole_step(groups["step"])
            if value is None:
                self._finder.add_unusable(text, self._fault(match, text), number)
            elif groups.get("step") is not None and step is None:
                self._finder.add_unusable(
                    text, f"its step is {groups['step']!r:.60}, not a whole number", number
                )
            else:
                yield PrintedReport(value, step, metrics_of(groups, self._metric))

    def _fault(self, match: re.Match[str], text: str) -> str:
        if (rest := _CUT.match(text, match.end("value"))) is None:
            return not_a_number(match["value"])
        return f'the pattern takes only {match["value"]!r} of "{match["value"]}{rest[0]}"'
