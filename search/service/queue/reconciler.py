"""Makes of the studies what is wanted of them: once a second, and whenever something has changed.

What is wanted is in the studies, what runs is in the locks. This thread compares them, and starts or stops
drivers. What it remembers between two looks saves it repetitions, and no more: a server that is killed leaves
nothing behind that the next one would not find.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import filelock
import optuna
import psutil

from ....storage import DatabaseUnavailable, StorageError
from ....storage.claims import ID
from ....storage.commands import StudyCommand, send
from ....storage.database import open_storage
from ....storage.presence import Presence
from ....storage.studies import attrs_of, quiet_optuna
from ....storage.wanted import Wanted, change_wanted
from ....storage.workspace import Workspace
from ...errors import SearchError
from ...queue.decide import Entry, Start
from ...queue.observe import Observed, observe, with_times
from ...queue.slots import Machine, Need, Slice
from ...queue.view import NORMAL, Queue, Situation, view
from ..home import Home, full_disk
from .drivers import (
    STOP_SECONDS,
    Child,
    append_line,
    end,
    last_words,
    log_of,
    start_driver,
    starting_drivers,
    what_lacks,
)

LOOK_SECONDS = 1.0
SOON_SECONDS = 0.05  # to the next look after a change, so that several are seen at once
AGAIN_SECONDS = 10.0  # after which a driver is told the same again
INTERRUPTED = 130  # the exit code of a driver that was asked to leave by a signal
READY_SECONDS = 5.0  # since the last look, after which the queue counts as stuck
GONE_SECONDS = 60.0  # after which another server's studies are taken over; it may only be started anew
log = logging.getLogger("hpsearch.service")


class Reconciler:
    """The queue of one server."""

    def __init__(
        self,
        workspace: Workspace,
        home: Path,
        machine: Machine,
        *,
        bundles: Path | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.workspace = workspace
        self.machine = machine
        self._drained = Home(home).drained
        self.draining = Home(home).is_drained  # whether nothing is started, and what runs is put back
        self.moved: Callable[[Situation], None] = lambda situation: None  # told what each look has found
        self.changed = threading.Condition()  # notified after each look
        self.looks = 0
        self._home = home
        self._bundles = bundles or home / "bundles"
        self._now = now
        self._server = Home(home).server
        self._database = open_storage(workspace.url, create=True)
        self._presence = Presence(self._database.engine, self._server)
        self._gone: dict[str, float] = {}  # since when other servers are gone
        self._lacks: dict[str, str] = {}  # what is not here of their studies, by these
        self._children: dict[int, Child] = {}  # by the study's key, until their ends are noted
        self._found: dict[int, tuple[int, Slice]] = {}  # of an earlier server, not locked yet: process, slice
        self._served: set[int] = set()  # of this server, whose drivers held locks at the last look
        self._told: dict[int, tuple[str, float]] = {}  # drivers that were told something last, and when
        self._leaving: dict[int, float] = {}  # since when drivers are to leave
        self._lent: dict[str, Entry] = {}  # parts of the machine that something short has, by its id
        self._looked = -math.inf
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        file = workspace.file
        self._only = filelock.FileLock(  # of several servers on one file, one has the queue
            home / "queue.lock" if file is None else file.with_name(f".{file.name}-serve.lock"),
            timeout=0,
            thread_local=False,
        )

    # The part of a service

    def start(self) -> None:
        """Begin to look."""
        self._thread = threading.Thread(target=self._run, name="queue", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Nothing ends by it: nobody waits for a look."""

    def stop(self) -> None:
        """Look no more. Drivers go on."""
        self._ended.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=10.0)
        with self._lock:
            self._only.release(force=True)
            self._presence.close()

    def ready(self) -> bool:
        """Whether it works: it has looked lately, and starts what is to start."""
        looks = time.monotonic() - self._looked < READY_SECONDS
        return self._thread is None or (looks and not self.draining and self.full_disk is None)

    def has_queue(self) -> bool:
        """Whether it has the queue of this database, from now on; False where another server has it."""
        try:
            if not self._only.is_locked:
                self._only.acquire()
        except OSError:
            return False
        return True

    @property
    def full_disk(self) -> Path | None:
        """The folder whose disk is full, while nothing is started for that."""
        file = self.workspace.file
        return full_disk(self._home, *([] if file is None else [file.parent]))

    def poke(self) -> None:
        """Look soon: something has changed."""
        self._wake.set()

    def drain(self, on: bool) -> None:
        """Put back what runs and start nothing, or go on; the next server too, until the next boot."""
        if on:
            self._drained.touch()
        else:
            self._drained.unlink(missing_ok=True)
        self.draining = on
        self.poke()

    @property
    def server(self) -> str:
        """What this server is called in the studies that it has."""
        return self._server

    def view(self) -> Queue:
        """The queue as it is now."""
        with self._lock:
            found = self._observe()
        return view(replace(found, studies=with_times(self._database, found.studies)))

    def lend(self, id: str, name: str, need: Need, seconds: float) -> Slice | None:
        """Give a part of the machine to something short that is no study, until it is given back.

        It gets what a study that is submitted now would get at once; None where that one would wait. In the
        queue it has this name.
        """
        with self._lock:
            now = self._now()
            asks = Entry(name, NORMAL, now, need, seconds=seconds, begun=now, preemptible=False)
            situation = self._observe()
            decision = replace(situation, lent=(*situation.lent, asks)).decide()
            starts = {each.study: each.slice for each in decision.actions if isinstance(each, Start)}
            place = starts.get(name)
            if place is not None:
                self._lent[id] = replace(asks, holds=place)
            return place

    def give_back(self, id: str) -> None:
        """Take a part of the machine back that was lent."""
        with self._lock:
            self._lent.pop(id, None)
        self.poke()

    def _run(self) -> None:
        quiet_optuna()
        first = True
        while not self._ended.is_set():
            try:
                if first:
                    self._find()
                    first = False
                self.look()
            except DatabaseUnavailable:
                pass  # at the next look, perhaps
            except Exception:  # one study must not end the queue of all
                log.exception("the queue could not look")
            self._wake.wait(LOOK_SECONDS)
            if self._wake.is_set():
                self._ended.wait(SOON_SECONDS)
            self._wake.clear()

    # A look

    def look(self) -> None:
        """Compare what is with what is wanted, and act."""
        with self._lock:
            if not self.has_queue():
                self._looked = time.monotonic()
                return
            self._presence.keep()
            self._lacks.clear()
            situation = self._observe()
            if any([self._take_over(study) for study in situation.studies]) or self._lacks:
                situation = self._observe()
            for study in situation.studies:
                self._note(study)
            situation = self._observe() if self._reap(situation) else situation
            for study in situation.studies:
                self._steer(study)
            if situation.starts_nothing is None:
                self._act(self._observe() if self._leaving else situation)
            self.moved(situation)
            self._looked = time.monotonic()
        with self.changed:
            self.looks += 1
            self.changed.notify_all()

    def _observe(self) -> Situation:
        found = observe(self.workspace, self._database)
        names = {study.key: study.name for study in found}
        free = {study.key for study in found if study.driver is None}
        for study in found:
            child = self._children.get(study.key)
            if child is not None and study.driver is not None and study.driver.pid == child.process.pid:
                child.has_locked = True
        for key, (pid, _) in list(self._found.items()):
            if key not in free or not psutil.pid_exists(pid):
                del self._found[key]
        starting = {names[key]: place for key, (_, place) in self._found.items()}
        starting |= {
            names[key]: child.slice
            for key, child in self._children.items()
            if key in free and child.code is None and not child.has_locked
        }
        leaving = {names[key]: at for key, at in self._leaving.items() if key in names}
        return Situation(
            found,
            self.machine,
            self._now(),
            self._server,
            starting,
            leaving,
            self.draining,
            tuple(self._lent.values()),
            dict(self._lacks),
            self.full_disk,
        )

    def _find(self) -> None:
        """Find the drivers that an earlier server started just before it was killed."""
        keys = {study.name: study.key for study in observe(self.workspace, self._database)}
        for name, pid, place in starting_drivers(self.workspace):
            if name in keys:
                self._found[keys[name]] = pid, place

    def _take_over(self, study: Observed) -> bool:
        """Take a study over from a server that is gone for good, where its files are here."""
        wanted, now = study.wanted, self._now()
        if wanted is None or wanted.server in (None, self._server) or study.is_over or study.elsewhere:
            return False
        before = wanted.server
        if not self._presence.is_gone(before):
            self._gone.pop(before, None)
            return False
        since = self._gone.setdefault(before, now)
        if self.workspace.file is None and now - since < GONE_SECONDS:
            return False
        id = (attrs_of(self._database, study.name) or {}).get(ID)
        if lacks := what_lacks(study, wanted, id, self.workspace, self._bundles):
            self._lacks[study.name] = lacks
            return False

        def mine(wanted: Wanted) -> Wanted:
            return replace(wanted, server=self._server) if wanted.server == before else wanted

        taken = self._change(study.name, mine)
        if taken is None or taken.server != self._server:
            return False
        if study.driver is not None and study.driver.served and taken.backend == "remote":
            self._leave(study, "the server that has taken it over")  # it listens in the other one's home
        return True

    def _note(self, study: Observed) -> None:
        """Note in the study what has come of a preemption."""
        wanted, now = study.wanted, self._now()
        if wanted is None or wanted.preempted is None or not self.is_mine(study):
            return
        told, reached = wanted.preempted, study.progress.reached
        if study.is_over and told.started is None:  # it has ended instead
            self._change(study.name, lambda wanted: replace(wanted, preempted=None))
        elif told.left is None and study.driver is None:
            self._change(study.name, lambda wanted: wanted.has_left(reached, now))
        elif told.started is not None and (
            study.is_over or (study.driver is not None and reached > told.reached)
        ):
            cost = round(told.cost(now, study.between_reports), 1)
            if self._change(study.name, lambda wanted: wanted.goes_on(cost)) is not None:
                line = (
                    f"goes on after it made room for {told.by}, which cost {cost:g} s and changed no number"
                )
                append_line(log_of(self.workspace, study.folder), line)

    def _reap(self, situation: Situation) -> bool:
        """Note how drivers have ended; whether any has."""
        held = {study.key: study for study in situation.studies if study.driver is not None}
        free = {study.key: study for study in situation.studies if study.driver is None}
        codes = {key: child.code for key, child in self._children.items()}
        ended = {key for key, code in codes.items() if code is not None} | (
            self._served - held.keys() - codes.keys()
        )
        # The lock of a killed driver stays at a database's server for a moment.
        ended -= {key for key, study in free.items() if study.elsewhere and (codes.get(key) or -1) < 0}
        for key in ended:
            self._children.pop(key, None)
            told = self._leaving.pop(key, None)
            self._told.pop(key, None)
            study = free.get(key)  # else another process has it now
            if study is not None and not study.elsewhere and not study.is_over:
                if told is None:
                    self._ended_early(study, codes.get(key))
                else:
                    self._change(study.name, lambda wanted: wanted.put_back(self._now()))
        mine = {
            key for key, study in held.items() if study.driver and study.driver.served and self.is_mine(study)
        }
        self._served = (self._served - held.keys() - ended) | mine
        return bool(ended)

    def _ended_early(self, study: Observed, code: int | None) -> None:
        """A driver has ended before its search was over. The code of another server's is unknown."""
        words, is_error = last_words(log_of(self.workspace, study.folder))
        if is_error if code is None else code > 0 and code != INTERRUPTED:
            self._fail(study, words or f"its driver ended with the exit code {code}")
        else:
            how = None if code is None or code >= 0 else f"signal {-code}"
            self._change(study.name, lambda wanted: wanted.killed_at(self._now(), how))

    def _fail(self, study: Observed, failure: str) -> None:
        self._change(study.name, lambda wanted: replace(wanted, failure=failure))

    # Acting

    def _steer(self, study: Observed) -> None:
        """Tell a driver of a server what is wanted of it, until it obeys."""
        driver, wanted = study.driver, study.wanted
        if driver is None:
            if study.key not in self._children:
                self._leaving.pop(study.key, None)
            return
        if not driver.served or wanted is None or not self.is_mine(study):
            return
        preempted = wanted.preempted is not None and wanted.preempted.left is None
        if self.draining:
            self._leave(study, "the server, which is drained")
        elif wanted.desired == "stop":
            self._leave(study, wanted.by)
        elif wanted.desired == "pause" and study.paused:
            self._leave(study, wanted.by)  # what waits takes no part of the machine
        elif wanted.desired == "pause":
            self._tell(study, "pause", wanted.by)
        elif preempted and wanted.preempted is not None:
            self._leave(study, f'the queue, for "{wanted.preempted.by}"')
        elif study.paused and study.key not in self._leaving:
            self._tell(study, "resume", wanted.by)

    def _leave(self, study: Observed, by: str | None) -> None:
        """Stop a driver, first by asking it."""
        assert study.driver is not None
        since = self._leaving.setdefault(study.key, self._now())
        if self._now() - since > STOP_SECONDS:
            log.warning("driver %s of %r did not leave, and is killed", study.driver.pid, study.name)
            end(study.driver.pid)
        else:
            self._tell(study, "stop", by)

    def _tell(self, study: Observed, what: str, by: str | None) -> None:
        said, at = self._told.get(study.key, ("", 0.0))
        if said == what and self._now() - at < AGAIN_SECONDS:
            return
        assert study.driver is not None
        with suppress(KeyError):
            loaded = optuna.load_study(study_name=study.name, storage=self._database)
            send(loaded, StudyCommand(what, driver=study.driver.pid, by=by))
            self._told[study.key] = what, self._now()

    def _act(self, situation: Situation) -> None:
        by_name = {study.name: study for study in situation.studies}
        for action in situation.decide().actions:
            study = by_name[action.study]
            if isinstance(action, Start):
                self._start(study, action.slice)
                continue
            preempted = partial(Wanted.preempted_by, study=action.by, now=self._now())
            after = self._change(study.name, preempted)
            if after is not None and after.preempted is not None and after.preempted.left is None:
                self._leave(study, f'the queue, for "{action.by}"')

    def _start(self, study: Observed, place: Slice) -> None:
        """Start the driver of a study, if that is still wanted and nobody has it."""
        if study.key in self._children:
            return  # it has just unlocked the study, and ends
        now = self._now()
        fresh = observe(self.workspace, self._database, names=[study.name])
        if not fresh or fresh[0].driver is not None or fresh[0].elsewhere or fresh[0].is_over:
            return
        wanted = self._change(study.name, lambda wanted: wanted.begun(self._server, now))
        if wanted is None or wanted.started != now:
            return
        try:
            child = start_driver(
                self.workspace, study.name, study.key, study.folder, wanted, place, self.machine,
                home=self._home, bundles=self._bundles,
            )  # fmt: skip
        except SearchError as error:
            self._fail(study, str(error))
        else:
            self._children[study.key] = child

    def is_mine(self, study: Observed) -> bool:
        """Whether a study is not another server's."""
        return study.wanted is not None and study.wanted.server in (None, self._server)

    def _change(self, name: str, change: Callable[[Wanted], Wanted]) -> Wanted | None:
        """Change what is wanted of a study; None where it is gone, or no service has it any more."""
        try:
            return change_wanted(self._database, name, lambda wanted: wanted and change(wanted))
        except (KeyError, StorageError):
            return None
