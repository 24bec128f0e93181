"""`hpsearch top`: all studies at a glance, as they go on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SearchError
from . import options, places
from .queue import clock, queue_of

if TYPE_CHECKING:
    from rich.table import Table

    from ..operations.studies import ListedStudy, Studies
    from ..queue.view import QueuedStudy

LOOK_SECONDS = 2.0


def top(
    once: Annotated[bool, typer.Option("--once", help="Print it once, and end.")] = False,
    storage: options.Storage = None,
    runs: options.Runs = None,
) -> None:
    """Show all studies as they go on: trials, best values, what runs and what waits. Ctrl-C ends this view.

    Example: hpsearch --server local top
    """
    from rich.live import Live

    from ..operations import queue, studies
    from . import views
    from .console import PlainConsole

    at, asked, console = places.place(storage, runs), queue_of(storage, runs), PlainConsole()

    def look() -> Table:
        listed = at(studies.list_studies)
        try:
            queued = asked(queue.queue).studies
        except SearchError as error:
            if error.code != "server-version":
                raise
            queued = ()  # the server has no queue
        return _table(listed, queued)

    if once or not console.redraws:
        views.show(look())
        return
    with Live(look(), console=console, auto_refresh=False, screen=False) as live:
        while True:
            time.sleep(LOOK_SECONDS)
            try:
                live.update(look(), refresh=True)
            except SearchError as error:
                if error.code != "server-unavailable":
                    raise
                live.console.print(f"{error}; trying again", style="yellow")


def _table(listed: Studies, queue: Sequence[QueuedStudy]) -> Table:
    """A row for each study: those that run, those that wait, all others."""
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    from .console import frameless
    from .progress import STYLES
    from .views import number

    known: dict[str, ListedStudy] = {study.name: study for study in listed.studies}
    table = frameless(expand=True)
    for title in ("study", "state", "metric", "best", "trials", "", "ends"):
        table.add_column(title, justify="right" if title in ("best", "trials") else "left", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)  # what the others leave
    rows = [(each.study, each) for each in queue if each.study in known]
    for name, queued in rows:
        study, state = known.pop(name), queued.state.state
        of = f"/{study.budget}" if study.budget else ""
        running = study.states.get("running", 0)
        bar = ProgressBar(total=study.budget or max(study.ended, 1), completed=study.ended, width=16)
        table.add_row(
            Text(name, style="bold"),
            Text(state, style=STYLES.get(state, "cyan" if running else "")),
            study.metric,
            number(study.best),
            f"{study.ended}{of}",
            bar,
            clock(queued.ends) if queued.has is not None or queued.place is not None or queued.ends else "",
            Text(f"{running} running" if running else queued.state.reason, style="dim"),
        )
    for study in known.values():
        of = f"/{study.budget}" if study.budget else ""
        bold = Text(study.name, style="bold")
        table.add_row(bold, "", study.metric, number(study.best), f"{study.ended}{of}", "", "", "")
    return table
