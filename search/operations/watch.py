"""Follow a study from outside: its curves, the files of its trials, what they print."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ...storage import StorageError
from ...storage.files import OUTPUT
from ...storage.inside import DRIVER_LOG, FoundFile, files_inside, open_inside
from ...storage.locks import driver_running
from ...storage.pages import (
    StudyHead,
    read_numbers,
    read_reports,
    read_trial,
    read_values,
    study_head,
    thinned,
)
from ...storage.studies import SPEC
from ...storage.workspace import Workspace
from ..errors import UsageError
from ..results.study import stored_spec
from ..values import Value

POINTS = 200  # of a curve
MOST_CURVES = 1000  # in one answer
MOST_TEXT = 1 << 20  # bytes of a log in one answer
FOLLOW_SECONDS = 0.25  # between two looks at a log that is followed


@dataclass(frozen=True)
class Curves(Value):
    """The curves of trials, in columns: the nth step and value are those of the nth trial."""

    trial: tuple[int, ...]
    step: tuple[tuple[int, ...], ...]
    value: tuple[tuple[float | str, ...], ...]  # what is no finite number as "nan", "inf" or "-inf"
    last: int  # `since` for what is reported later
    more: bool  # whether there are further trials, or reports


@dataclass(frozen=True)
class Improvement:
    """A trial that was better than all that had ended before it."""

    trial: int
    value: float
    complete: int  # trials that had run to their end by then, this one among them
    ended: str


@dataclass(frozen=True)
class Improvements(Value):
    """How the best value of a study came about."""

    study: str
    metric: str
    goal: str
    found: tuple[Improvement, ...]
    complete: int  # trials that have run to their end by now


@dataclass(frozen=True)
class TrialFiles(Value):
    """The files in the folder of a trial."""

    study: str
    trial: int
    files: tuple[FoundFile, ...]


@dataclass(frozen=True)
class OpenFile(Value):
    """A file of a trial, opened; who asked for it closes it."""

    path: str
    bytes: int
    descriptor: int

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "bytes": self.bytes}


@dataclass(frozen=True)
class Log(Value):
    """A part of what a trial has printed, or of what a driver says."""

    study: str
    trial: int | None  # None: the driver
    begin: int  # bytes from the start of the log
    end: int
    size: int  # of the whole log by now
    text: str


def curves(
    *,
    workspace: Workspace,
    study: str,
    trials: Sequence[int] | None = None,
    since: int | None = None,
    points: int = POINTS,
    after: int | None = None,
    limit: int = MOST_CURVES,
) -> Curves:
    """Give the curves of trials: of some, or of a page of them; thinned to so many points each.

    The ends and the extremes of a curve stay. `since` is the `last` of an earlier answer: then only what was
    reported later comes, of all trials unless some are named, and nothing is thinned.
    """
    if trials is not None and len(trials) > MOST_CURVES:
        raise UsageError(
            f"{len(trials)} trials are too many; {MOST_CURVES} at a time", code="too-many-trials"
        )
    head = study_head(workspace, study)
    more, numbers = False, trials
    if since is None and numbers is None:
        numbers, more = read_numbers(head, after=after, limit=min(limit, MOST_CURVES))
    found = read_reports(head, numbers, since)
    shown = {
        number: thinned(found.points[number], points) if since is None else found.points[number]
        for number in sorted(found.points)
    }
    return Curves(
        tuple(shown),
        tuple(tuple(step for step, _ in curve) for curve in shown.values()),
        tuple(tuple(_spelled(value) for _, value in curve) for curve in shown.values()),
        found.last,
        more or found.more,
    )


def improvements(*, workspace: Workspace, study: str) -> Improvements:
    """Give the trials each of which was the best when it ended."""
    head = study_head(workspace, study)
    spec = stored_spec(study, head.attrs[SPEC])
    found: list[Improvement] = []
    complete, least = 0, math.inf
    for number, ended, value in read_values(head):
        complete += 1
        if (loss := spec.loss(value)) < least:
            least = loss
            at = ended.astimezone().isoformat(timespec="seconds")
            found.append(Improvement(number, value, complete, at))
    return Improvements(study, spec.metric, spec.goal, tuple(found), complete)


def files(*, workspace: Workspace, study: str, trial: int) -> TrialFiles:
    """List the files of a trial: its configuration, reports, output and checkpoint. Links are left out."""
    head = study_head(workspace, study)
    read_trial(head, trial)
    found = files_inside(workspace.runs, head.folder, str(trial))
    return TrialFiles(study, trial, tuple(found))


def open_file(*, workspace: Workspace, study: str, trial: int, path: str) -> OpenFile:
    """Open a file of a trial by its path in the trial's folder.

    Raises `StorageError` for a path that is no file of the trial: no link is followed, and none leads out.
    """
    head = study_head(workspace, study)
    read_trial(head, trial)
    descriptor = open_inside(workspace.runs, head.folder, str(trial), *path.split("/"))
    return OpenFile(path, os.fstat(descriptor).st_size, descriptor)


def log(*, workspace: Workspace, study: str, trial: int | None = None, begin: int | None = None) -> Log:
    """Read what a trial has printed, or what the driver says that a server has started.

    From a byte on, at most a MiB; without `begin` the last MiB.
    """
    return LogFile.of(workspace, study, trial).read(begin)


@dataclass(frozen=True)
class LogFile:
    """Where the log of a trial, or of a driver, is."""

    head: StudyHead
    trial: int | None

    @classmethod
    def of(cls, workspace: Workspace, study: str, trial: int | None) -> Self:
        """The log of a trial, or of the study's driver."""
        head = study_head(workspace, study)
        if trial is not None:
            read_trial(head, trial)
        return cls(head, trial)

    def open(self) -> OpenFile:
        """Open it; that of a trial that has printed nothing is empty. Raises `StorageError` without one."""
        parts = (DRIVER_LOG,) if self.trial is None else (str(self.trial), OUTPUT)
        try:
            descriptor = open_inside(self.head.workspace.runs, self.head.folder, *parts)
        except StorageError as error:
            if self.trial is None:
                told = f'no server has started a search of "{self.head.name}": it prints to its own terminal'
                raise StorageError(told, code="no-such-file") from error
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            descriptor = os.open(os.devnull, os.O_RDONLY)
        return OpenFile(parts[-1], os.fstat(descriptor).st_size, descriptor)

    def size(self) -> int:
        """How many bytes it has. Raises `StorageError` where it has none."""
        opened = self.open()
        os.close(opened.descriptor)
        return opened.bytes

    def read(self, begin: int | None, most: int = MOST_TEXT) -> Log:
        """A part of it; a character that is cut in two begins the next part."""
        opened = self.open()
        with open(opened.descriptor, "rb") as stream:
            begin = max(0, opened.bytes - most) if begin is None else min(begin, opened.bytes)
            stream.seek(begin)
            content = whole_text(stream.read(most))
        text = content.decode(errors="replace")
        return Log(self.head.name, self.trial, begin, begin + len(content), opened.bytes, text)

    def goes_on(self) -> bool:
        """Whether more may come."""
        if self.trial is None:
            return driver_running(self.head.workspace, self.head.folder) is not None
        return not read_trial(self.head, self.trial).state.is_finished()

    def follow(
        self,
        begin: int | None = None,
        *,
        sleep: Callable[[float], object] = time.sleep,
        ends: Callable[[], bool] = lambda: False,
    ) -> Iterator[Log]:
        """Its parts as they come, until the trial or the driver has ended; or `ends` says so.

        A log that became shorter is read from its new end on.
        """
        at, checked = begin, float("-inf")
        while not ends():
            part, goes_on = None, True
            try:
                if time.monotonic() - checked >= 1:
                    goes_on, checked = self.goes_on(), time.monotonic()
                part = self.read(at)
            except StorageError as error:
                if error.code != "no-such-file":
                    raise
            if part is not None and part.end > part.begin:
                at = part.end
                yield part
                continue
            if part is not None:
                at = part.end
            if not goes_on:
                return
            sleep(FOLLOW_SECONDS)


def whole_text(content: bytes) -> bytes:
    """Bytes without the beginning of a character of UTF-8 at their end."""
    for back in range(1, min(4, len(content) + 1)):
        byte = content[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 2 if byte >> 5 == 6 else 3 if byte >> 4 == 14 else 4 if byte >> 3 == 30 else 1
        return content[:-back] if length > back and len(content) > back else content
    return content


def _spelled(value: float) -> float | str:
    return value if value - value == 0 else str(value)
