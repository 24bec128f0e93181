"""Counts the reports of a program that gives them no steps, over all attempts of its trial.

An attempt that resumes goes on after the report that belongs to its checkpoint. Nobody says which one that
is, so it is the one that came nearest in time to the checkpoint's last change: programs save just before
they report, or just after.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

from ..base import Trial
from .checkpoints import UNFINISHED
from .rest import Rest
from .writing import changes

LATE_SECONDS = 0.5  # between a report and when it is heard, at most
COUNTED = "counted.jsonl"  # in the trial's folder: the counted reports with the times when they were heard


class Count:
    """The reports that a trial has made before this attempt, and how they go on."""

    def __init__(self, trial: Trial, rest: Rest | None) -> None:
        """`rest`: what the attempt before has reported after its pause."""
        self._file = trial.checkpoint.parent / COUNTED
        self._times: list[tuple[int, int]] = []  # of the attempts before: step and nanoseconds
        self._begun = time.time_ns()
        self._written = False  # whether the file is that of this attempt
        self.before = 0  # the step of the report that belongs to the checkpoint; 0 without one
        if trial.resume_from is not None:
            self.before = self._at(trial, rest)

    @property
    def offset(self) -> int:
        """What is added to steps that a library counts in each attempt from 0."""
        return self.before + 1 if self.before else 0

    def from_first(self) -> None:
        """The reports that come are those of all attempts."""
        self.before = 0

    def note(self, step: int) -> None:
        """A report was heard now, and got this step."""
        mode = "a" if self._written else "w"
        kept = [] if self._written else [*self._times, (self.before, self._begun)]
        self._written = True
        if mode == "w":
            self._file.unlink(missing_ok=True)  # it may be a link to somebody else's file
        with self._file.open(mode, encoding="utf-8") as stream:
            stream.writelines(f"{json.dumps(each)}\n" for each in [*kept, (step, time.time_ns())])

    def _at(self, trial: Trial, rest: Rest | None) -> int:
        """The step of the report that belongs to the checkpoint."""
        times = _read(self._file)
        if not times:  # they were heard on another machine
            return trial.reported
        saved = max(
            (at for path, at in changes(trial.checkpoint) if not UNFINISHED.fullmatch(path.name)), default=0
        )
        if saved > times[-1][1] and rest is not None and rest.reports:
            return rest.reports[-1][0]
        step, _ = min(times, key=lambda each: (_apart(saved, each[1]), -each[0]))
        self._times = [each for each in times if each[0] <= step]
        return step


def _apart(saved: int, heard: int) -> int:
    """The nanoseconds between a checkpoint and a report, which may have come earlier than it was heard."""
    return max(0, heard - int(LATE_SECONDS * 1e9) - saved) if heard > saved else saved - heard


def _read(file: Path) -> list[tuple[int, int]]:
    """The steps and times in a file, up to the last whole line."""
    with suppress(OSError, ValueError, TypeError):
        lines = file.read_text(encoding="utf-8").split("\n")[:-1]
        return [(int(step), int(at)) for step, at in map(json.loads, lines)]
    return []
