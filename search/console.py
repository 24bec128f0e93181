"""The terminal, which shows what users wrote as they wrote it, or as near as its encoding can."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from .streams import never_refusing


class PlainConsole(Console):
    """A console that takes no text for markup or for the name of an emoji: a choice may be `[/b]`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)
        never_refusing(self.file)
