"""A study in a notebook: what it says, as a small table, once or as it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from ..errors import SearchError
from ..formatting import counted, duration
from .report import StudyReport, study_report
from .study import StudyResult, load_result

EVERY = 1.0  # seconds between two looks
STYLE = "text-align:left;padding:.1em 1em .1em 0"


class Study(StudyResult):
    """A study that shows itself in a notebook."""

    @classmethod
    def of(cls, result: StudyResult) -> Study:
        """The same study."""
        return cls(**vars(result))

    def _repr_html_(self) -> str:
        return study_html(study_report(self))

    def watch(self, every: float = EVERY) -> None:
        """Show it here as it goes on, until nobody searches it; interrupting ends that, not the search."""
        watch(lambda: study_report(load_result(self.workspace, self.name)), every)


def study_html(report: StudyReport) -> str:
    """A study as a table of HTML: what was found, how sure that is, and how far it has come."""
    best, spent = report.best, f"{report.trials.used:.0f}"
    value = "no trial is complete" if best is None else f"{best.value:.6g} (trial {best.number})"
    if report.trials.total is not None:
        spent += f" of {report.trials.total:.0f}"
    states = ", ".join(f"{count} {state}" for state, count in report.states.items())
    time_spent = duration(report.seconds.used)
    if report.seconds.total is not None:
        time_spent += f" of {duration(report.seconds.total)}"
    rows = [
        (report.metric, value),
        ("how sure", report.comparison or ""),
        *(("", line) for line in report.confirmation),
        ("trials", f"{spent}: {states}" if states else spent),
        ("time", time_spent),
        ("trained", counted(round(report.consumed.used), report.resource)),
        ("state", _state(report)),
        *((ending.state, f"{len(ending.trials)}: {ending.why}") for ending in report.endings),
    ]
    found = [] if best is None else [(name, _value(value)) for name, value in best.params.items()]
    tables = [_table(report.name, rows), *([_table("winner", found)] if found else [])]
    return f'<div style="display:flex;flex-wrap:wrap;gap:0 3em;align-items:start">{"".join(tables)}</div>'


def watch(read: Callable[[], StudyReport], every: float = EVERY) -> None:
    """Show a study in a cell until nobody searches it. Raises `SearchError` outside of a notebook."""
    try:
        from IPython import display
        from IPython.core.getipython import get_ipython
    except ImportError as error:
        raise SearchError(NOT_HERE, code="no-notebook") from error
    if get_ipython() is None:
        raise SearchError(NOT_HERE, code="no-notebook")
    report = read()
    drawing: Any = display  # it has no types
    shown = drawing.display(drawing.HTML(study_html(report)), display_id=True)
    try:
        while report.searching is not None:
            time.sleep(every)
            report = read()
            shown.update(drawing.HTML(study_html(report)))
    except KeyboardInterrupt:
        pass  # the cell ends, as its user asked; the search is another process


NOT_HERE = "a study is watched in a notebook (IPython); in a terminal, hpsearch top shows all of them"


def _state(report: StudyReport) -> str:
    if report.searching is None:
        return "over" if report.phase == "over" else "nobody searches it now"
    return "paused" if report.paused else f"{report.phase}, in process {report.searching}"


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    lines = "".join(
        f'<tr><th style="{STYLE}">{escape(name)}</th><td style="{STYLE}">{escape(text)}</td></tr>'
        for name, text in rows
        if text
    )
    return f'<table><caption style="text-align:left"><b>{escape(title)}</b></caption>{lines}</table>'
