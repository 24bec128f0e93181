"""Looks at studies, notes what their targets were not told, and has it sent.

It works in threads of its own and reads the database as every other reader does: neither a trial nor the end
of a search waits for it, but for `LAST_SECONDS`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial

import psutil

from ....storage import StorageError
from ....storage.database import open_tables
from ....storage.told import MOST_PENDING, Told, all_told, change_told
from ....storage.workspace import Workspace
from ...queue.foreseen import rest_of
from ...queue.observe import Observed, observe
from ...results.study import StudyResult, load_result
from .base import Target
from .happenings import Seen, first_sight, news
from .messages import best_of, notice_of, sentence_of
from .sender import Sender, Waiting

LOOK_SECONDS = 5.0
LAST_SECONDS = 5.0  # for what is still to be told when a search ends
REST_FACTOR = 50.0  # between two readings of a study's results, in times what one takes
log = logging.getLogger("hpsearch.service.notices")  # a server's log; a search tells its user at its end
log.addHandler(logging.NullHandler())


@dataclass
class _Results:
    """What is known of the results of a study."""

    at: tuple[int, bool] | None = None  # ended trials, and whether it was over, when they were read
    better: bool = False
    again: float = 0.0  # when they may be read again, by the monotonic clock


class Notifier:
    """Tells targets of one study, or of all of a workspace."""

    def __init__(
        self,
        workspace: Workspace,
        targets: Sequence[Target],
        *,
        study: Callable[[], str] | None = None,
        is_mine: Callable[[Observed], bool] = lambda study: True,
        link: Callable[[str], str | None] = lambda study: None,
    ) -> None:
        """`study`: the name of the only one; else all that a service has, or that are searched, if `is_mine`.

        `link` gives the address of a study's page.
        """
        self._workspace = workspace
        self._study = study
        self._is_mine = is_mine
        self._link = link
        self._targets = list(targets)
        self._database = open_tables(workspace.url)
        self._since = time.time()
        self._senders: dict[str, Sender] = {}
        self._told: dict[tuple[int, str], Told] = {}  # by the study's key and the target, as noted last
        self._results: dict[int, _Results] = {}
        self._followed: set[str] = set()  # studies whose end is still to be told
        self.failure: str | None = None  # why the search of the one study has failed
        self._disk_told: int | None = None  # the study of which the full disk was told
        self._trouble: str | None = None  # why the last look has failed
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    # Its life

    def start(self) -> None:
        """Begin to look, and to send what an earlier process could not; without targets nothing is done."""
        if not self._targets:
            return
        for target in self._targets:
            refused = partial(self._could_not, target.label)
            self._senders[target.label] = Sender(target, partial(self._sent, target.label), refused)
        self._thread = threading.Thread(target=self._run, name="notices", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Note how the one study stands before its search, and start: what happens from now on is told."""
        self._look_safely(at_rest=True)
        self.start()

    def ready(self) -> bool:
        """It holds nothing up."""
        return True

    def leave(self) -> None:
        """It holds nothing up."""

    def stop(self) -> None:
        """End; what could not be sent is in the studies."""
        self._ended.set()
        self._wake.set()
        for sender in self._senders.values():
            sender.leave()

    def close(self) -> Iterator[str]:
        """Tell how the search of the one study has ended, within `LAST_SECONDS`; what could not be told."""
        until = time.monotonic() + LAST_SECONDS
        self._ended.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(LAST_SECONDS)
            if self._thread.is_alive() and self._trouble is None:
                self._trouble = "the database did not answer in time"
        for sender in self._senders.values():
            sender.leave(until - time.monotonic())
        if self._trouble is not None:
            yield f"not all that has happened could be noted for those who are notified: {self._trouble}"
        for label, sender in self._senders.items():
            if left := sender.left(until - time.monotonic()):
                what = ", ".join(waiting.notice.body["type"] for waiting in left)
                yield (
                    f"{label} could not be notified ({what}): {sender.trouble or 'it has not answered yet'}; "
                    "hpsearch show tells it, and the next run that notifies it sends it"
                )

    def _run(self) -> None:
        while True:
            is_last = self._ended.is_set()
            self._look_safely(at_rest=is_last and self._study is not None)
            if is_last:
                return
            self._wake.wait(LOOK_SECONDS)

    def _look_safely(self, *, at_rest: bool = False) -> None:
        """Look; no trouble of the database, of a disk or of a library may end a search or a server."""
        try:
            self.look(at_rest=at_rest)
            self._trouble = None
        except StorageError as error:  # the next look may do better
            self._trouble = str(error)
        except Exception as error:
            self._trouble = f"{type(error).__name__}: {error}"
            log.exception("what is to be notified could not be found out")

    # A look

    def look(self, *, at_rest: bool = False) -> None:
        """Note what has happened since the last look. `at_rest`: this process does not search it now."""
        for study in self._studies():
            result = cache(partial(load_result, self._workspace, study.name))
            seen = self._seen(study, result, at_rest=at_rest)
            follows = False
            for target in self._targets:
                with suppress(KeyError):  # the study is gone
                    told = self._note(study, target.label, seen, result)
                    follows |= told.over is None
            (self._followed.add if follows else self._followed.discard)(study.name)

    def _studies(self) -> list[Observed]:
        if self._study is not None:
            return observe(self._workspace, self._database, names=[self._study()])
        if not self._told:  # what an earlier process followed
            labels = {target.label for target in self._targets}
            for name, known in all_told(self._database).items():
                if any(told.over is None or told.pending for label, told in known.items() if label in labels):
                    self._followed.add(name)
        found = observe(self._workspace, self._database)
        missing = self._followed - {study.name for study in found}
        self._followed -= missing  # some of them may be gone
        if missing:
            found += observe(self._workspace, self._database, names=missing)
        return [study for study in found if not study.elsewhere and self._is_mine(study)]

    def _seen(self, study: Observed, result: Callable[[], StudyResult], *, at_rest: bool) -> Seen:
        """A study as it stands."""
        searching = study.driver is not None and not at_rest
        is_over = study.is_over and not searching and self.failure is None
        failure = self.failure
        if failure is None and not searching and study.wanted is not None:
            failure = study.wanted.failure
        return Seen(
            searching=searching and not study.paused,
            over=study.progress.elapsed if is_over else None,
            failure=failure,
            better=self._is_better(study, result),
            rest=rest_of(dict(study.spec), study.progress),
            free=self._free(study) if searching else None,
        )

    def _is_better(self, study: Observed, result: Callable[[], StudyResult]) -> bool:
        """Whether a trial is better than the baseline, by what the search saw."""
        known = self._results.setdefault(study.key, _Results())
        at = study.progress.ended, study.is_over
        if (
            known.better
            or not study.spec.get("baseline")
            or at == known.at
            or not (study.progress.ended or study.is_over)
            or (time.monotonic() < known.again and not study.is_over)
        ):
            return known.better
        began = time.monotonic()
        records = result().records
        best, baseline = next(iter(records.best(1)), None), records.baseline
        known.better = (
            best is not None
            and baseline is not None
            and best.loss is not None
            and baseline.loss is not None
            and best.loss < baseline.loss
        )
        known.at, known.again = at, time.monotonic() + REST_FACTOR * (time.monotonic() - began)
        return known.better

    def _free(self, study: Observed) -> float | None:
        """The free part of the disk; of several studies on it, one is told of."""
        if self._disk_told not in (None, study.key):
            return None
        runs = self._workspace.runs
        there = next(each for each in (runs, *runs.parents) if each.exists())
        return 1 - float(psutil.disk_usage(str(there)).percent) / 100

    def _note(self, study: Observed, label: str, seen: Seen, result: Callable[[], StudyResult]) -> Told:
        """Note what a target was not told of a study, with the notices that tell it."""
        known, now = self._told.get((study.key, label)), time.time()
        if known is None or news(known, seen, now)[0] != known:

            def noted(before: Told | None) -> Told:
                return self._noted(study, before, seen, now, result)

            known = change_told(self._database, study.name, label, noted)
            self._told[study.key, label] = known
            if known.disk:
                self._disk_told = study.key
            elif self._disk_told == study.key:
                self._disk_told = None
        sender = self._senders.get(label)
        for notice in known.pending if sender is not None else ():
            assert sender is not None
            sender.add(Waiting(study.name, notice))
        return known

    def _noted(
        self,
        study: Observed,
        before: Told | None,
        seen: Seen,
        now: float,
        result: Callable[[], StudyResult],
    ) -> Told:
        if before is None:
            if not self._is_new(study):
                return first_sight(seen)
            before = Told()  # it has begun, and may be over, since the last look
        after, kinds = news(before, seen, now)
        if not kinds:
            return after
        best, link = best_of(result()), self._link(study.name)
        more = tuple(
            notice_of(kind, study.name, sentence_of(kind, result(), before, after), best, link)
            for kind in kinds
        )
        return replace(after, pending=(*before.pending, *more)[-MOST_PENDING:])

    def _is_new(self, study: Observed) -> bool:
        """Whether a study was submitted or begun since this looks at studies."""
        if study.wanted is not None and study.wanted.since >= self._since:
            return True
        started = study.provenance.get("started")
        return started is not None and datetime.fromisoformat(started).timestamp() >= self._since

    # What senders say

    def _sent(self, label: str, waiting: Waiting) -> None:
        """A target has taken a notice, so that nobody sends it again."""

        def without(told: Told | None) -> Told:
            told = told or Told()
            return replace(told, pending=tuple(n for n in told.pending if n.id != waiting.notice.id))

        with suppress(KeyError, StorageError):  # it is sent again by the next process, then
            change_told(self._database, waiting.study, label, without)

    def _could_not(self, label: str, why: str) -> None:
        log.warning("%s cannot be notified, and is tried again: %s", label, why)


@contextmanager
def notified(
    workspace: Workspace, targets: Sequence[Target], study: Callable[[], str], say: Callable[[str], None]
) -> Iterator[Notifier]:
    """Tell targets of the search of a study that runs in this block; `say` what they were not told."""
    notifier = Notifier(workspace, targets, study=study)
    if targets:
        notifier.begin()
    try:
        yield notifier
    except Exception as error:
        notifier.failure = str(error)
        raise
    finally:
        for untold in notifier.close() if targets else ():
            say(untold)
