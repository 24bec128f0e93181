"""The workers of one machine for a search elsewhere: `hpsearch work`.

Trials run in the processes in which a local search runs them, under the same contract. In place of the driver
is a courier for each trial.
"""

from __future__ import annotations

import os
import queue
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from ....objectives.base import ObjectiveError
from ....objectives.info import ObjectiveInfo
from ....objectives.resolve import check_name, reports_again
from ....spaces import SpaceError, Spec
from ...backends.local import LocalWorkers
from ...backends.remote.requests import USUAL_LEASE
from ...backends.resources import share, this_machine
from ...engine.running import Assignment
from ...errors import SearchError, UsageError
from ...preflight.objective import described
from ...scheduling.rungs import rung_steps
from ...values import Value
from ..hpsearch_client import GIVES_UP_AFTER, Away, Refused, patiently
from .courier import Courier, Outcome
from .link import Answer, Link, link_to, worker_name

RETRY_SECONDS = 0.5  # after an answer without a trial
WAIT_SECONDS = 20.0  # that a request for a trial waits at the search
LEAVE_SECONDS = 10.0  # for couriers to give trials back, when the command is interrupted
LAST_SECONDS = 1.0  # for a trial that is on its way meanwhile
PREFIX = "hpsearch-work-"  # of the temporary folder; the process's number follows
Say = Callable[[str], None]


@dataclass(frozen=True)
class Worked(Value):
    """What the workers of a machine have done."""

    study: str
    worker: str
    trials: int  # that they were lent
    completed: int
    over: str | None  # why the study has nothing left; None where they were told to stop


def work(
    *,
    url: str,
    study: str,
    objective: str | Sequence[str] | None = None,
    workers: int | str | None = None,
    cpus_per_trial: float | None = None,
    gpus_per_trial: float | None = None,
    lease: float = USUAL_LEASE,
    token: str | None = None,
    say: Say = lambda message: None,
    stop: threading.Event | None = None,
    link: Link | None = None,
) -> Worked:
    """Train trials of a search at a server, or behind its own socket (`unix:...`), until it is over.

    `objective` is the code of the trials: a function, the words of a command, or a built-in name. Without it
    the space's own is taken if it is built in: a server never names code that runs here. `stop`: ends the
    work as Ctrl-C does, and gives running trials back.

    Raises `SearchError` where the server does not answer, or refuses.
    """
    with Agent(link or link_to(url, study, token), study, say, stop or threading.Event(), lease) as agent:
        agent.begin(objective, workers, cpus_per_trial, gpus_per_trial)
        return agent.run()


class Agent:
    """Lends trials, gives them to worker processes, and passes on what both sides say."""

    def __init__(self, link: Link, study: str, say: Say, stop: threading.Event, lease: float) -> None:
        self._link = link
        self._study = study
        self._say = say
        self._stop = stop
        self._lease = lease
        self._name = worker_name()
        self._folder = temporary_folder()
        self._inbox: queue.Queue[Outcome | Answer | BaseException] = queue.Queue()
        self._bell, self._rings = socket.socketpair()
        self._bell.setblocking(False)
        self._couriers: dict[int, Courier] = {}
        self._waiting: dict[int, int] = {}  # trials whose process waits for the answer to this step
        self._held: list[Courier] = []  # of trials whose earlier attempt is still leaving
        self._lent: list[Courier] = []  # of trials that wait for a process
        self._asks = threading.Semaphore(0)
        self._asking = self._said_away = False
        self._over: str | None = None
        self._trials = self._completed = 0

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self._bell.close()
        self._rings.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def begin(
        self,
        objective: str | Sequence[str] | None,
        workers: int | str | None,
        cpus: float | None,
        gpus: float | None,
    ) -> None:
        """Learn what the study needs. Raises `SearchError`."""
        about = self._first(self._link.about)
        if about.get("study") not in (self._study, None):
            told = f'the search is of the study "{about["study"]}", not of "{self._study}"'
            raise UsageError(told, code="study-missing")
        try:
            spec = Spec.from_json(about["space"])
            changes: dict[str, Any] = {"objective": _objective(spec, objective)}
            asked = {"workers": workers, "cpus_per_trial": cpus, "gpus_per_trial": gpus}
            given = {name: value for name, value in asked.items() if value is not None}
            if given:
                changes["execution"] = given
            spec = spec.override(**changes)
        except (SpaceError, KeyError) as error:
            raise SearchError(f"the study's space cannot be used here: {error}", code="space") from error
        _check(spec)
        self._objective = described(spec)
        self._seals = not reports_again(self._objective)
        self._rungs = frozenset(rung_steps(spec))
        self._share = share(spec.execution, [this_machine()], "this machine")
        pack = spec.execution.pack
        self._workers = LocalWorkers(spec, self._objective, self._share, pack if isinstance(pack, int) else 1)
        self._workers.wake_by(self._rings)
        self._slots = self._share.workers * self._workers.pack
        count, threads = self._share.workers, self._share.threads
        self._say(
            f'working for "{self._study}" with {count} {"worker" if count == 1 else "workers"}, '
            f"{threads} {'thread' if threads == 1 else 'threads'} each"
        )

    def run(self) -> Worked:
        """Train until the study is over, or this is told to stop."""
        threading.Thread(target=self._ask, daemon=True).start()
        try:
            while not self._stop.is_set() and (self._over is None or self._couriers or self._held):
                self._want()
                self._workers.fill(self._next)
                for _, messages in self._workers.news():
                    for message in messages:
                        self._hear(message)
                self._learn()
                self._tidy()
        finally:
            self._asks.release()
            self._leave()
            self._link.close()
        return Worked(self._study, self._name, self._trials, self._completed, self._over)

    # Asking for trials

    def _want(self) -> None:
        """Ask for a trial where there is room, one at a time."""
        room = self._slots - len(self._couriers) - len(self._held)
        if room > 0 and not self._asking and self._over is None:
            self._asking = True
            self._asks.release()

    def _ask(self) -> None:
        """Ask, in a thread of its own, as often as there is room; what comes is in the inbox."""
        run, asked = secrets.token_hex(4), 0
        while self._asks.acquire() and not self._stop.is_set() and self._over is None:
            asked += 1
            wanted = {
                "worker": self._name,
                "request": f"{run}-{asked}",
                "lease": self._lease,
                "wait": WAIT_SECONDS,
                "threads": self._share.threads,
            }
            try:
                answer = self._patiently(partial(self._link.ask, wanted), GIVES_UP_AFTER)
            except (Away, Refused) as error:
                self._tell(error)
                continue
            if not {"lease", "over"} & answer.keys():
                self._stop.wait(RETRY_SECONDS)
            self._tell(answer)
        with suppress(OSError):
            self._link.close()

    def _next(self) -> Assignment | None:
        """The next trial for a process, with its checkpoint."""
        while self._lent:
            courier = self._lent.pop(0)
            given = courier.given
            if not courier.over:
                place = courier.folder
                return Assignment(courier.number, given["params"], given["seed"], place, given["reported"])
        return None

    def _lend(self, given: Answer) -> None:
        """Take a trial: its courier begins at once, so that its lease lives while a process starts."""
        self._trials += 1
        folder = Path(tempfile.mkdtemp(prefix=f"{given['trial']}-", dir=self._folder))
        courier = Courier(self._link, given, folder, self._seals, self._rungs, self._tell)
        courier.start()
        if courier.number in self._couriers:
            self._held.append(courier)
        else:
            self._place(courier)

    def _place(self, courier: Courier) -> None:
        self._couriers[courier.number] = courier
        if courier.ready and not courier.begun:
            courier.begun = True
            self._lent.append(courier)

    # What processes and couriers say

    def _tell(self, news: Outcome | Answer | BaseException) -> None:
        """Put news into the inbox; called from any thread."""
        self._inbox.put(news)
        with suppress(OSError):  # full, so that it rings already
            self._bell.send(b"\0")

    def _hear(self, message: Answer) -> None:
        """A worker process says something of its trial."""
        number = message["number"]
        courier = self._couriers.get(number)
        if courier is None or courier.over:
            if message["kind"] == "report":
                self._answer(number, message["step"], stop=True)
            elif courier is not None:
                courier.leave()
            return
        notes: Answer = {"remarks": message.get("remarks", []), "attributes": message.get("attributes", {})}
        notes["used"] = message.get("used")
        match message["kind"]:
            case "report":
                said = {key: message[key] for key in ("step", "value", "metrics", "seconds", "trained")}
                away = courier.away
                courier.send("report", notes | said, waits=not away)
                if away:
                    self._answer(number, message["step"], stop=False)
                else:
                    self._waiting[number] = message["step"]
            case "done":
                self._completed += 1
                courier.send("complete", notes | {"value": message["value"], "seconds": message["seconds"]})
            case "failed" if message["failure"]["kind"] == "disk":
                courier.send("release", {})
                raise SearchError(
                    f"this machine's disk is full: {message['failure']['message']}", code="disk-full"
                )
            case "failed":
                failure = message["failure"]
                failure = failure | {"message": failure["message"][:2000] or "failed"}
                courier.send("fail", notes | failure)
                self._say(f"trial {number} failed: {message['failure']['message']}")
            case _:  # crowded or worn: it needs a worker with fewer trials beside or before it
                courier.send("release", {})

    def _learn(self) -> None:
        """Obey what couriers and the asking thread have learned."""
        while True:
            try:
                news = self._inbox.get_nowait()
            except queue.Empty:
                return
            if isinstance(news, Outcome):
                self._obey(news)
            elif isinstance(news, BaseException):
                if self._stop.is_set():
                    return
                raise SearchError(str(news), code=getattr(news, "type", "") or "no-answer") from news
            else:
                self._asking = False
                if "lease" in news:
                    self._lend(news)
                elif "over" in news:
                    self._over = str(news["over"])

    def _obey(self, news: Outcome) -> None:
        courier, number = news.courier, news.courier.number
        step = self._waiting.get(number)
        if courier is not self._couriers.get(number) and news.kind != "ended":
            return  # it is held, and nothing of it runs here
        match news.kind:
            case "ready":
                self._place(courier)
            case "goes_on":
                if step is not None and step == news.step:
                    self._answer(number, step, stop=False)
            case "away":
                self._say(f"the search does not answer ({news.reason}); trial {number} trains on")
                if step is not None:
                    self._answer(number, step, stop=False)
            case "says":
                self._say(f"trial {number}: {news.reason}")
            case "stops":
                self._say(f"trial {number}: {news.reason}")
                if step is not None:
                    self._answer(number, step, stop=True)
                else:
                    self._drop(number)
            case "ended":
                self._over = self._over or courier.study_over
                if news.reason:
                    self._say(f"trial {number}: {news.reason}")
                self._forget(courier)

    def _forget(self, courier: Courier) -> None:
        """A trial is over, here; the same one may wait to begin again."""
        self._held = [each for each in self._held if each is not courier]
        if self._couriers.get(courier.number) is courier:
            self._drop(courier.number)
            del self._couriers[courier.number]
            if (again := next((e for e in self._held if e.number == courier.number), None)) is not None:
                self._held.remove(again)
                self._place(again)
        shutil.rmtree(courier.folder, ignore_errors=True)

    def _answer(self, number: int, step: int, *, stop: bool) -> None:
        """Answer the report of a trial for which its process waits."""
        self._waiting.pop(number, None)
        for worker in self._workers:
            if number in worker.numbers:
                report = {"number": number, "step": step}
                worker.stop(report) if stop else worker.let_continue(report)

    def _drop(self, number: int) -> None:
        """End a trial in its process, wherever it is."""
        self._waiting.pop(number, None)
        self._lent = [each for each in self._lent if each.number != number]
        for worker in list(self._workers):
            if number in worker.numbers:
                worker.drop(number)

    def _tidy(self) -> None:
        """Tell couriers of trials that have left their processes that nothing more comes."""
        there = {number for worker in self._workers for number in worker.numbers}
        lent = {each.number for each in self._lent}
        for number, courier in self._couriers.items():
            if courier.over and number not in there | lent:
                courier.leave()
        for courier in self._held:
            if courier.over:
                courier.leave()

    def _leave(self) -> None:
        """End the processes, and give what they trained back."""
        self._workers.end()
        left = [*self._couriers.values(), *self._held]
        self._asking = self._asking and self._over is None
        for courier in left:
            courier.send("release", {})
        until = time.monotonic() + (LEAVE_SECONDS if left else LAST_SECONDS)
        while (left or self._asking) and time.monotonic() < until:
            try:
                news = self._inbox.get(timeout=0.1)
            except queue.Empty:
                continue
            if isinstance(news, Outcome):
                if news.kind == "ended":
                    left = [courier for courier in left if courier is not news.courier]
                    if not left:  # what was given back may come again, to the request that still waits
                        until = min(until, time.monotonic() + LAST_SECONDS)
                continue
            self._asking = False
            if isinstance(news, dict) and "lease" in news:
                with suppress(OSError, Refused):
                    self._link.call(news["lease"], "release", {})

    def _first(self, call: Callable[[], Answer]) -> Answer:
        try:
            return self._patiently(call, GIVES_UP_AFTER)
        except Refused as refusal:
            raise SearchError(str(refusal), code=refusal.type or "failed") from refusal
        except Away as error:
            if self._stop.is_set():
                raise KeyboardInterrupt from None
            raise SearchError(str(error), code="no-answer") from error

    def _patiently(self, call: Callable[[], Answer], leases: float) -> Answer:
        """Repeat a call for so many leases. Raises `Refused`, or `Away`, also where the work is to stop."""

        def pause(seconds: float) -> None:
            if not self._said_away:
                self._said_away = True
                self._say(f"the search does not answer; it is asked again for {leases * self._lease:.0f} s")
            if self._stop.wait(seconds):
                raise Away("the work was stopped")

        answer = patiently(call, leases * self._lease, pause)
        self._said_away = False
        return answer


def _objective(spec: Spec, given: str | Sequence[str] | None) -> str | dict[str, Any]:
    """The objective of the trials here."""
    if given is not None:
        return given if isinstance(given, str) else {"command": list(given)}
    if ObjectiveInfo(spec.objective_words).is_built_in and isinstance(spec.objective, str):
        return spec.objective
    named = "is remote" if spec.objective == "remote" else "is code that only its own machine has"
    raise UsageError(
        f"the study's objective {named}: give the code that runs here (objective), such as "
        "file.py:function or the words of a command",
        code="objective-needed",
    )


def _check(spec: Spec) -> None:
    """Raise `ObjectiveError` where the objective is not here."""
    if isinstance(spec.objective, str):
        if spec.objective == "remote":
            raise ObjectiveError('"remote" is no code: name a function, a built-in objective or a command')
        check_name(spec.objective)


def temporary_folder() -> Path:
    """A folder for the trials of this process; those of processes that were killed are removed first."""
    root = Path(tempfile.gettempdir())
    for old in root.glob(f"{PREFIX}*"):
        pid = old.name.removeprefix(PREFIX).split("-")[0]
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=root))
