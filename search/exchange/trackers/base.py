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

from ....spaces.ranges import LARGEST_EXACT_INTEGER
from ...trials.reports import Report

END_STATES = ("complete", "pruned", "fail")
CLEARED_BY_RETRY = frozenset({"reason", "error"})  # keys of `about` that a later attempt removes


@dataclass(frozen=True)
class TrackedRun:
    """A trial, or a training, as it stands."""

    name: str  # unique in its group: trial-0012
    metric: str
    parameters: Mapping[str, Any]  # by dotted names
    reports: Sequence[Report]  # in the study, by rising steps
    state: str  # running, paused, waiting, complete, pruned, fail
    value: float | None  # final, where it is complete
    about: Mapping[str, Any]  # where it comes from, and why it ended
    began: datetime
    ended: datetime | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended; a failed run may still be retried."""
        return self.state in END_STATES

    @property
    def last_step(self) -> int:
        """The step of its last report; 0 before the first."""
        return self.reports[-1].step if self.reports else 0

    @property
    def mark(self) -> str:
        """Distinguishes this end from an earlier end of the same run, before it was retried."""
        end = json.dumps([self.state, self.last_step, self.value, dict(self.about)])
        return hashlib.sha256(end.encode()).hexdigest()

    def values(self, report: Report) -> dict[str, float]:
        """All values of a report, the metric first."""
        return {self.metric: report.value, **{n: v for n, v in report.metrics.items() if n != self.metric}}

    @property
    def flat(self) -> dict[str, str | bool | int | float]:
        """The parameters for a table, whose cells hold no lists; None is left out."""
        values = {name: _cell(value) for name, value in self.parameters.items()}
        return {name: value for name, value in values.items() if value is not None}


class Tracker(ABC):
    """One tool's copy of the runs of a group."""

    def __init__(self, root: Path, group: str) -> None:
        """`root`: the folder that holds the tool's files. `group`: a study, or all trainings of a folder."""
        self.root = root
        self.group = group
        self._written: dict[str, int] = {}  # by the run's name, the last step written

    @abstractmethod
    def write(self, run: TrackedRun) -> None:
        """Write what the copy of a run lacks."""

    def close(self) -> None:
        """Close what is open."""
        self._written.clear()

    @property
    @abstractmethod
    def view(self) -> str:
        """The command that shows what was written."""

    def _new(self, run: TrackedRun) -> list[Report]:
        """The reports that the copy lacks."""
        if run.name not in self._written:
            self._written[run.name] = self._last_step(run)
        return [report for report in run.reports if report.step > self._written[run.name]]

    def _last_step(self, run: TrackedRun) -> int:
        """The last step that an earlier process wrote; 0 where there is none."""
        return 0


def near(path: Path) -> str:
    """A path in its shortest form from the current folder."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _cell(value: Any) -> str | bool | int | float | None:
    if isinstance(value, int) and abs(value) > LARGEST_EXACT_INTEGER:
        return str(value)  # trackers' tables hold floats, which would round it
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return json.dumps(value)
