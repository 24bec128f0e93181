"""Draws `live.svg`, the live table of a search as the README shows it: `python docs/live.py`."""

from __future__ import annotations

import io
import os
import re
import tempfile
from pathlib import Path

from optuna.trial import FrozenTrial
from rich.console import Console

from hpsearch.search import run
from hpsearch.search.cli.progress import picture
from hpsearch.search.engine.watcher import SearchView

FILE = Path(__file__).with_suffix(".svg")
COLUMNS = 110


class Photographer:
    """A watcher that keeps the picture in which most trials run and have reported, of these the last."""

    def __init__(self) -> None:
        self.shown = 0
        self.kept: Console | None = None

    def trial_ended(self, search: SearchView, trial: FrozenTrial) -> None: ...

    def tick(self, search: SearchView) -> None:
        shown = sum(bool(now.reported) for now in search.running.values())
        if shown and shown >= self.shown:
            self.shown = shown
            self.kept = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system="truecolor")
            self.kept.print(picture(search))

    def say(self, message: str) -> None: ...


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        photographer = Photographer()
        run("lora_quick", watcher=photographer, execution={"workers": 2})
        os.chdir(FILE.parent)
    assert photographer.kept is not None, "the search was over before a trial reported"
    drawn = photographer.kept.export_svg(title="hpsearch run lora_quick")
    FILE.write_text(
        re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL), encoding="utf-8"
    )  # fonts of the web
