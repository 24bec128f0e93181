"""A training outside a search as a run, for trackers that its document names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from ....objectives.user.macros import flat
from ....storage.files import METRICS, write
from ...trials.document import Document
from ...trials.reports import read_reports
from .base import TrackedRun
from .thread import TrackerThread

START_FILE = ".tracked"  # in a run's folder: when it started, which identifies it when it resumes
TRAININGS_GROUP = "trained"


class RunTracking:
    """Shows a training as it progresses, where its document names trackers; as failed where it raises.

    An interrupted training stays open in the trackers, and the same command continues it there.
    """

    def __init__(self, document: Document, folder: Path, say: Callable[[str], None]) -> None:
        self._document = document
        self._folder = folder
        self._state, self._reason = "running", ""
        self._value: float | None = None
        self._thread: TrackerThread | None = None
        self._began = datetime.now(UTC)
        if document.report_to:
            self._began = _began(folder / START_FILE)
            self._thread = TrackerThread(document.report_to, folder.absolute().parent, TRAININGS_GROUP, say)

    def __enter__(self) -> Self:
        self.show()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self._state, self._reason = "fail", str(error)
        elif error is not None:
            self._state = "waiting"
        self.show()
        if self._thread is not None:
            self._thread.close()

    def complete(self, value: float) -> None:
        """The training finished with this value."""
        self._state, self._value = "complete", value

    def show(self) -> None:
        """Show the training as it stands, and report news of trackers."""
        if self._thread is None:
            return
        self._thread.show(self._folder.name, self._run)
        self._thread.report()

    def _run(self) -> TrackedRun:
        document = self._document
        origin = {name: known for name, known in document.provenance.items() if name in ("study", "trial")}
        return TrackedRun(
            name=f"{self._folder.name}-{self._began.strftime('%Y%m%d-%H%M%S.%f')[:-3]}",
            metric=document.metric,
            parameters=flat(document.parameters),
            reports=read_reports(self._folder / METRICS),
            state=self._state,
            value=self._value,
            about={
                "file": document.file,
                "seed": document.seed,
                **origin,
                **({"reason": self._reason} if self._reason else {}),
            },
            began=self._began,
            ended=datetime.now(UTC) if self._state in ("complete", "fail") else None,
        )


def _began(path: Path) -> datetime:
    """When the run in this folder started: now, where it has not yet."""
    if path.exists():
        return datetime.fromisoformat(path.read_text(encoding="utf-8"))
    began = datetime.now(UTC)
    write(path, began.isoformat())
    return began
