"""What events carry: the rows of studies and trials that have changed, and what drivers say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...spaces import Spec
from ...storage import StorageError
from ...storage.changes import Changes, best_trial
from ...storage.locks import driver_running
from ...storage.pages import StudyHead, study_head
from ...storage.rows import MOST_NAMED, TRIALS, read_trials
from ...storage.studies import SPEC
from ...storage.workspace import Workspace
from ..formatting import ENDING
from ..operations.studies import ListedStudy, list_studies, listed_study
from ..operations.watch import LogFile
from ..results.study import stored_spec
from ..results.trials import trial_row
from ..trials.records import TrialRecord
from .events import Event

MOST_TRIALS = 2000  # in one look; beyond that clients read anew
MOST_SAID = 200  # lines of a driver's log in one look


class ChangedRows:
    """The rows of what has changed. For one thread at a time."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._known: dict[str, ListedStudy] = {}  # as they were told last
        self._specs: dict[str, tuple[Any, Spec]] = {}  # as stored, and as understood
        self._logs: dict[str, int] = {}  # bytes of drivers' logs that were told

    def prime(self) -> None:
        """Read how all studies are now: what is told later is told as a difference from that."""
        listed = list_studies(workspace=self._workspace).studies
        self._known = {study.name: study for study in listed}

    def forget(self, study: str) -> None:
        """A study is gone."""
        self._known.pop(study, None)
        self._specs.pop(study, None)
        self._logs.pop(study, None)

    def events(self, changes: Changes) -> Iterator[Event]:
        """The events of what has changed: trials first, so that a best one is known by then."""
        if sum(map(len, changes.trials.values())) > MOST_TRIALS:
            yield Event("reset", {"why": "very many trials have changed: read again"})
            return
        for name in sorted(changes.gone):
            yield Event("study", {"name": name, "deleted": True}, name)
        for name in sorted(changes.studies):
            try:
                yield from self._of_study(name, changes)
            except StorageError:  # it is gone already, or another program's
                continue

    def _of_study(self, name: str, changes: Changes) -> Iterator[Event]:
        head = study_head(self._workspace, name)
        keys = sorted(changes.trials.get(name, ()))
        spec = self._spec(head)
        for begin in range(0, len(keys), MOST_NAMED):
            some = keys[begin : begin + MOST_NAMED]
            for row in _rows(head, spec, some):
                reports = changes.reports.get(row.pop("key"), [])
                points = [[step, value if value - value == 0 else str(value)] for step, value in reports]
                yield Event("trial", {"study": name, "trial": row, "reports": points}, name)
        if name in changes.states or name not in self._known:
            yield from self._summary(head, spec)

    def _summary(self, head: StudyHead, spec: Spec) -> Iterator[Event]:
        before = self._known.get(head.name)
        now = listed_study(self._workspace, head.name)
        if now is None:
            return
        self._known[head.name] = now
        if now != before:
            yield Event("study", now.to_json(), head.name)
        if now.best is not None and before is not None and before.best != now.best:
            with head.engine.connect() as connection:
                key = best_trial(connection, head.key, now.best)
            row = next(iter(_rows(head, spec, [key])), None) if key is not None else None
            if row is not None:
                del row["key"]
            told = {"study": head.name, "value": now.best, "before": before.best, "trial": row}
            yield Event("best", told | {"metric": spec.metric}, head.name)

    def _spec(self, head: StudyHead) -> Spec:
        stored = head.attrs[SPEC]
        if (known := self._specs.get(head.name)) is not None and known[0] == stored:
            return known[1]
        spec = stored_spec(head.name, stored)
        self._specs[head.name] = stored, spec
        return spec

    def moved(self) -> set[str]:
        """Studies whose driver has come or gone, which the database does not say when one is killed."""
        return {
            name
            for name, known in self._known.items()
            if known.folder is not None
            and known.unreadable is None
            and driver_running(self._workspace, known.folder) != known.searching
        }

    def said(self) -> Iterator[Event]:
        """What drivers have said since the last call, line by line; of studies that are searched now.

        Not that a trial has ended, which is an event of its own.
        """
        for name, known in list(self._known.items()):
            if known.searching is None and name not in self._logs:
                continue
            try:
                log = LogFile(study_head(self._workspace, name), None)
                part = log.read(self._logs.get(name, log.size()))
            except StorageError:
                continue
            lines = part.text.splitlines(keepends=True)
            if lines and not lines[-1].endswith("\n") and known.searching is not None:
                lines.pop()  # the rest comes later
            length = sum(len(line.encode()) for line in lines)
            self._logs[name] = part.begin + (length if "\ufffd" not in part.text else part.end - part.begin)
            for line in lines[-MOST_SAID:]:
                if (text := line.rstrip()) and not ENDING.match(text):
                    yield Event("said", {"study": name, "text": text}, name)
            if known.searching is None:
                del self._logs[name]


def _rows(head: StudyHead, spec: Spec, keys: list[int]) -> Iterator[dict[str, Any]]:
    """The rows of trials by their keys, which they have under `key`."""
    with head.engine.connect() as connection:
        trials = read_trials(connection, head.key, only=TRIALS.c.trial_id.in_(keys))
    for trial in trials:
        yield trial_row(TrialRecord(spec, trial)).to_json() | {"key": trial._trial_id}
