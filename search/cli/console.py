"""The terminal, which shows what users wrote as they wrote it, or as near as its encoding can."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ..streams import harmless, make_readable, never_refusing

GAP = 2  # between the columns of a table


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

    def say(self, text: str | Text, style: str | None = None) -> None:
        """Print a line; one that is longer than the console is wide stays one line."""
        self.print(text, style=style, soft_wrap=True)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:  # Rich's own
                yield segment
            else:
                yield segment._replace(text=harmless(segment.text))


def frameless(**options: Any) -> Table:
    """A table without lines."""
    return Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim", **options)
