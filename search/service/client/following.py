"""A search at a server, followed here: what a driver would show, from what the server tells."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from optuna.trial import FrozenTrial, TrialState

from ....spaces import Spec
from ....storage import StorageError
from ....storage.studies import Phase
from ....storage.trial_attrs import CONFIRMS
from ...engine.watcher import Watcher
from ...errors import SearchError
from ...queue.view import Queue, QueuedStudy
from ...results.report import StudyReport
from ...results.trials import TrialRow
from .events import Event
from .problems import ServerUnavailable

LOOK_SECONDS = 1.0  # between two looks at what has changed
REPORT_SECONDS = 15.0  # between two looks at the whole study, which cost the server more
OVER = ("finished", "failed", "stopped", "paused")  # states in which nothing goes on by itself
STATES = {
    "complete": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "fail": TrialState.FAIL,
    "running": TrialState.RUNNING,
    "paused": TrialState.RUNNING,
    "waiting": TrialState.WAITING,
}


class Teller(Protocol):
    """What a server is asked of a search."""

    def space(self, *, study: str) -> Spec: ...

    def rows(self, *, study: str, after: int | None = None) -> Iterator[TrialRow]: ...

    def reported(self, *, study: str, trials: Sequence[int]) -> dict[int, dict[int, float]]: ...

    def show(self, *, study: str) -> StudyReport: ...

    def queue(self) -> Queue: ...

    def events(self, *, studies: Sequence[str]) -> Iterator[Event]: ...


@dataclass(frozen=True)
class _Running:
    """A trial that runs, as the live table shows it."""

    config: dict[str, Any]
    reported: int


class FollowedSearch:
    """A search as `SearchView` has it, read-only."""

    hurries = False  # Ctrl-C leaves it alone

    def __init__(self, name: str, spec: Spec) -> None:
        self.name, self.spec = name, spec
        self.id: int | None = None  # by which the queue has it, whatever its name
        self.rows: dict[int, TrialRow] = {}
        self.curves: dict[int, dict[int, float]] = {}
        self.report: StudyReport | None = None
        self.state, self.reason = "", ""
        self.stop_reason: str | None = None
        self._read = time.monotonic()

    def take(self, report: StudyReport) -> None:
        """Know what the server says of the study as a whole."""
        self.report, self._read = report, time.monotonic()

    @property
    def trials(self) -> Sequence[FrozenTrial]:
        """All trials by number."""
        last = max(self.rows, default=-1)
        return [self.frozen(number) for number in range(last + 1)]

    @property
    def running(self) -> Mapping[int, Any]:
        """The trials that run."""
        rows = (row for row in self.rows.values() if row.state == "running")
        return {row.number: _Running(row.params, row.last_step or 0) for row in rows}

    @property
    def best(self) -> FrozenTrial | None:
        """The best complete trial of the search itself."""
        rows = [r for r in self.rows.values() if r.state == "complete" and r.confirms is None]
        ranked = [row for row in rows if row.value is not None]
        if not ranked:
            return None
        return self.frozen(min(ranked, key=lambda row: self.spec.loss(row.value or 0.0)).number)

    @property
    def baseline(self) -> FrozenTrial | None:
        """The trial of the space's baseline."""
        found = (row.number for row in self.rows.values() if row.baseline)
        number = next(found, None)
        return None if number is None else self.frozen(number)

    @property
    def finished(self) -> int:
        """Trials of the search itself that have ended."""
        ended = ("complete", "pruned", "fail")
        return sum(row.state in ended and row.confirms is None for row in self.rows.values())

    @property
    def states(self) -> Counter[str]:
        """How many trials are in each state."""
        return Counter(row.state for row in self.rows.values())

    @property
    def phase(self) -> Phase:
        """What the search does."""
        return Phase.SEARCHING if self.report is None else self.report.phase

    @property
    def elapsed(self) -> float:
        """Seconds searched so far."""
        if self.report is None:
            return 0.0
        going = time.monotonic() - self._read if self.report.searching and not self.report.paused else 0.0
        return self.report.seconds.used + going

    def frozen(self, number: int) -> FrozenTrial:
        """A trial as Optuna has it."""
        row = self.rows.get(number)
        attrs: dict[str, Any] = {}
        if row is not None:
            given = {"reason": row.reason, CONFIRMS: row.confirms, "baseline": row.baseline or None}
            attrs = {name: value for name, value in given.items() if value is not None}
        state = TrialState.WAITING if row is None else STATES.get(row.state, TrialState.WAITING)
        return FrozenTrial(
            number=number,
            trial_id=number,
            state=state,
            value=None if row is None else row.value,
            datetime_start=None if row is None else _moment(row.started),
            datetime_complete=None if row is None else _moment(row.ended),
            params={},
            distributions={},
            user_attrs=attrs,
            system_attrs={},
            intermediate_values=self.curves.get(number, {}),
        )


def follow(server: Teller, study: str, watcher: Watcher) -> FollowedSearch:
    """Follow a search until nothing goes on in it by itself; `watcher` is told what happens.

    Connections may break and servers restart meanwhile. Raises `ServerUnavailable` where the server is away
    for good, and the errors of the operations.
    """
    search = FollowedSearch(study, server.space(study=study))
    news = _News(server, study, watcher)
    known: set[int] | None = None  # trials whose end is no news
    told = ""
    while True:
        if news.come():
            try:
                queued = _queued(server, search)
                if queued is not None and queued.study != search.name:
                    watcher.say(f'"{search.name}" is called "{queued.study}" now')
                    search.name = queued.study
                    news.stop()
                    news = _News(server, search.name, watcher)
                _read(server, search, queued)
            except ServerUnavailable as error:
                news.lost(str(error))
                continue
            except StorageError as error:
                if error.code != "study-missing":
                    raise
                if (queued := _queued(server, search)) is None or queued.study == search.name:
                    told = f'"{search.name}" can be followed no more: it was deleted, or renamed'
                    raise StorageError(told, code=error.code) from error
                news.missed = True
                continue
        ended = {number for number, row in search.rows.items() if row.ended}
        for number in sorted(ended - (ended if known is None else known)):
            watcher.trial_ended(search, search.frozen(number))
        known = ended
        if search.state != "running" and search.reason != told:
            told = search.reason
            watcher.say(f"{search.state}: {told}")
        search.stop_reason = told if search.state in ("stopping", "pausing") else None
        watcher.tick(search)
        if search.state in OVER:
            news.stop()
            return search


class _News:
    """Whether something has changed, as the server's events say it."""

    def __init__(self, server: Teller, study: str, watcher: Watcher) -> None:
        self.watcher, self.away, self.polls = watcher, False, False
        self._server, self._study = server, study
        self.missed = True  # something that has not been read yet
        self._arrived: SimpleQueue[Event | Exception] = SimpleQueue()
        self._stopped = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def come(self) -> bool:
        """After a moment, whether something has changed since the last time. Raises what ended the events."""
        changed, self.missed = self.missed or self.polls, False
        end = time.monotonic() + (0.0 if changed and not self.polls else LOOK_SECONDS)
        while True:
            try:
                event = self._arrived.get(timeout=max(0.0, end - time.monotonic()))
            except Empty:
                return changed
            if isinstance(event, Exception):
                if getattr(event, "code", "") != "server-version":
                    raise event
                self.polls = True  # it has no events
            elif event.kind == "lost":
                self.lost(str(event.data.get("why", "")))
            else:
                changed = True
                self.away = False
                if event.kind == "said" and (said := event.data.get("text")):
                    self.watcher.say(str(said))

    def lost(self, why: str) -> None:
        """The server cannot be reached now."""
        if not self.away:
            self.watcher.say(f"{why}; the search goes on, and this tries again")
        self.away = self.missed = True

    def stop(self) -> None:
        """Listen no more."""
        self._stopped.set()

    def _listen(self) -> None:
        try:
            for event in self._server.events(studies=[self._study]):
                self._arrived.put(event)
                if self._stopped.is_set():
                    return
        except Exception as error:  # whatever it is, `come` raises it
            self._arrived.put(error)


def _read(server: Teller, search: FollowedSearch, queued: QueuedStudy | None) -> None:
    """Read what may have changed: trials that had not ended, new ones, and the state of the study."""
    study = search.name
    open_ones = [number for number, row in search.rows.items() if not row.ended]
    after = min(open_ones, default=max(search.rows, default=-1) + 1) - 1
    for row in server.rows(study=study, after=None if after < 0 else after):
        search.rows[row.number] = row
    running = [number for number, row in search.rows.items() if row.state == "running"]
    if running:
        search.curves |= server.reported(study=study, trials=running)
    age = time.monotonic() - search._read
    before = search.state
    if queued is not None:
        search.state, search.reason = queued.state.state, queued.state.reason
    if search.report is None or queued is None or age > REPORT_SECONDS or search.state != before:
        search.take(server.show(study=study))
    if queued is None and search.report is not None:  # no queue has it
        search.state = "running" if search.report.searching else "stopped"
        if not search.report.searching and search.report.phase == Phase.OVER:
            search.state = "finished"


def _queued(server: Teller, search: FollowedSearch) -> QueuedStudy | None:
    """The study as the server's queue has it, by another name perhaps; None where it does not."""
    try:
        studies = server.queue().studies
    except SearchError as error:
        if error.code != "server-version":  # it has no queue
            raise
        return None
    for each in studies:
        if each.study == search.name if search.id is None else each.id == search.id:
            search.id = each.id
            return each
    return None


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone().replace(tzinfo=None)
