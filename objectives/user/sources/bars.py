"""The values of a line that a program writes anew again and again, as progress bars do.

Such a line may have another value in each writing. One counts: the last before the line ends, before it names
another step, or before the bar begins again.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...reports import Writing

PLACE = re.compile(rb"(?<![\d/.])(\d+)/\d+(?![\d/.])")  # how far a bar has come: 3 of 3/10
_CURSOR_UP = b"\x1b[A"  # after the inner one of two bars
T = TypeVar("T")


@dataclass(frozen=True)
class Stage:
    """What a writing of a line belongs to: a step, or else one bar."""

    step: Hashable | None
    place: int = 0  # of the bar

    @classmethod
    def of_bar(cls, line: bytes) -> Stage:
        """That of a line which names no step."""
        found = PLACE.search(line)
        return cls(None, int(found[1]) if found is not None else 0)

    def ends_before(self, after: Stage) -> bool:
        """Whether a writing is of a later step, or of the bar that begins again."""
        return self.step != after.step or (self.step is None and after.place < self.place)


class Bar(Generic[T]):
    """What the lines of one stream that are written anew show; it counts once it cannot change any more."""

    def __init__(self) -> None:
        self.shown: Sequence[T] = ()  # the latest values
        self._stage: Stage | None = None  # of them; None: there are none
        self._stands = False  # whether the line shows them still

    @property
    def waits(self) -> bool:
        """Whether it has values that do not count yet."""
        return self._stage is not None

    def goes_on(self, stage: Stage) -> bool:
        """Whether a writing belongs to what is shown."""
        return self._stage is not None and not self._stage.ends_before(stage)

    def show(self, values: Sequence[T], stage: Stage, line: bytes, writing: Writing) -> list[T]:
        """Write values into the line. Returns those that count now."""
        counting = [] if self.goes_on(stage) else self.end()
        self.shown, self._stage = values, stage
        self._stands = not line.endswith(_CURSOR_UP)
        return [*counting, *(self.break_line() if writing is Writing.LAST else [])]

    def hide(self) -> None:
        """Write other text into the line: the bar will be written again, or is over."""
        self._stands = False

    def break_line(self) -> list[T]:
        """End the line as it stands. Returns the values that count now."""
        return self.end() if self._stands else []

    def end(self) -> list[T]:
        """The values that it has shown last, which count now."""
        shown, self.shown, self._stage, self._stands = list(self.shown), (), None, False
        return shown
