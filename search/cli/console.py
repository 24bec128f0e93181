"""The terminal, which shows what users wrote as they wrote it, or as near as its encoding can."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ..streams import harmless, make_readable, never_refusing


class PlainConsole(Console):
    """A console that takes no text for markup or for the name of an emoji: a choice may be `[/b]`."""

    def __init__(self, **options: Any) -> None:
        make_readable(surroundings := dict(os.environ))
        super().__init__(markup=False, emoji=False, highlight=False, **{"_environ": surroundings} | options)
        never_refusing(self.file)

    @property
    def redraws(self) -> bool:
        """Whether lines can be drawn anew: on a terminal that breaks none of them."""
        try:
            return self.is_terminal and self.width <= os.get_terminal_size(self.file.fileno()).columns
        except OSError:
            return False

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:  # Rich's own
                yield segment
            else:
                yield segment._replace(text=harmless(segment.text))
