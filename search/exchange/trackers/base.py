"""What a tracker is shown, and what it must do with it."""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ....spaces.ranges import LARGEST_INTEGER
from ...trials.reports import Report

OVER = ("complete", "pruned", "fail")  # states that a run ends in
PASSING = frozenset({"reason", "error"})  # of what is told about a run, that which a later attempt undoes


@dataclass(frozen=True)
class Run:
    """A trial, or a training, as it stands."""

    name: str  # among those of its group: trial-0012
    metric: str
    parameters: Mapping[str, Any]  # by dotted names
    reports: Sequence[Report]  # that the study has, by rising steps
    state: str  # running, paused, waiting, complete, pruned, fail
    value: float | None  # what it ended with, where it is complete
    about: Mapping[str, Any]  # where it comes from, why it ended
    began: datetime
    ended: datetime | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended; a failed one may all the same be tried again."""
        return self.state in OVER

    @property
    def last_step(self) -> int:
        """That of its last report; 0 before the first."""
        return self.reports[-1].step if self.reports else 0

    @property
    def mark(self) -> str:
        """Tells this end from one that a trial came to before it was tried again."""
        end = json.dumps([self.state, self.last_step, self.value, dict(self.about)])
        return hashlib.sha256(end.encode()).hexdigest()

    def values(self, report: Report) -> dict[str, float]:
        """All that a report tells, the metric first."""
        return {self.metric: report.value, **{n: v for n, v in report.metrics.items() if n != self.metric}}

    @property
    def flat(self) -> dict[str, str | bool | int | float]:
        """The parameters for a table, whose cells hold no lists; what is none is left out."""
        values = {name: _cell(value) for name, value in self.parameters.items()}
        return {name: value for name, value in values.items() if value is not None}


class Tracker(ABC):
    """One tool's copy of the runs of one group."""

    def __init__(self, root: Path, group: str) -> None:
        """`root`: the folder in which it has its own. `group`: a study, or all trainings of a folder."""
        self.root = root
        self.group = group
        self._written: dict[str, int] = {}  # the last step that it has, by the run's name

    @abstractmethod
    def write(self, run: Run) -> None:
        """Bring its copy of a run up to the run."""

    def close(self) -> None:
        """Let go of what is open."""
        self._written.clear()

    @property
    @abstractmethod
    def view(self) -> str:
        """The command that shows what was written."""

    def _new(self, run: Run) -> list[Report]:
        """The reports that it lacks."""
        if run.name not in self._written:
            self._written[run.name] = self._last_step(run)
        return [report for report in run.reports if report.step > self._written[run.name]]

    def _last_step(self, run: Run) -> int:
        """The last step that an earlier process wrote; 0 where there is none."""
        return 0


def near(path: Path) -> str:
    """A path as it is shortest to type from here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _cell(value: Any) -> str | bool | int | float | None:
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        return str(value)  # their tables hold floats, which would round it
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return json.dumps(value)
