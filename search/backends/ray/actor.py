"""What Tune runs: an actor on some node that keeps a worker process and passes on its messages.

A trial of Tune's is one of the study's (`TrialActor`), or where trials are packed a *slot* of the cluster, in
which trials come and go (`PackActor`).

The objective runs in a process of its own, as on the other backend, and not in a thread of the actor: it has
a main thread and its own output, and may take its time to return, or be killed, while the actor stays. The
end of a trial is a result here, not an error of the actor, so that actors are reused.

Nothing here imports Tune, which would take longer than the rest of an actor's start (`actors`).
"""

from __future__ import annotations

import json
import os
import selectors
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ..worker.channel import Message
from ..worker.process import TICK_SECONDS, TrialLimits, Worker, environment
from .files import DriverNode, NodeFolder

MESSAGES_KEY = "messages"  # the key of a worker's messages in a result
ASSIGNMENT_KEY = "assignment"  # the key of a trial in a config, as JSON: Tune would look into a mapping


@dataclass(frozen=True)
class ActorSettings:
    """What all trials of a search have in common."""

    setup: Message  # of a worker
    limits: TrialLimits
    threads: int
    gpus: float  # of each trial
    driver: DriverNode


class WorkerActor:
    """Keeps a worker process for the trials that Tune sends here.

    Tune calls its methods like those of a `Trainable`: `train` repeatedly, `reset` for another trial, `stop`.
    """

    def __init__(self, settings: ActorSettings, assignment: str) -> None:
        self._settings = settings
        if settings.driver.is_here():
            _end_with(settings.driver.pid)
        self._checked = 0.0  # when the worker's limits were last checked, by the monotonic clock
        self._events = selectors.DefaultSelector()
        self._worker = self._started()
        self._take(json.loads(assignment))

    def reset(self, assignment: str) -> bool:
        self._leave()
        self._take(json.loads(assignment))
        return True

    def stop(self) -> None:
        self._leave()
        self._end_worker()
        self._events.close()

    def train(self) -> dict[str, Any]:
        """The messages of trials within a moment, under `MESSAGES_KEY`: reports and ends. Often none."""
        raise NotImplementedError

    def get_auto_filled_metrics(self, **options: Any) -> dict[str, Any]:
        """What Tune would show of a silent trial: nothing."""
        return {}

    def _take(self, assignment: Message) -> None:
        """Remember the first trial.

        It starts only when Tune calls `train`: Tune may start two actors for a trial, and drop one of them.
        """
        raise NotImplementedError

    def forget(self) -> None:
        """Do not start the trial: it ended before this actor was ready."""
        raise NotImplementedError

    def _leave(self) -> None:
        """Let running trials return, and send home what they leave behind."""
        raise NotImplementedError

    def _end_worker(self) -> None:
        if self._worker.alive:
            self._events.unregister(self._worker)
            self._worker.end()

    def _begin(self, assignment: Message) -> NodeFolder:
        """Give the worker a trial; return its folder on this node."""
        if not self._worker.alive:
            self._worker = self._started()
        folder = self._settings.driver.folder_here(Path(assignment["folder"]))
        self._worker.give({**assignment, "folder": str(folder.path)})
        return folder

    def _started(self) -> Worker:
        settings, driver = self._settings, self._settings.driver
        where = driver.folder if driver.is_here() else os.getcwd()
        surroundings = environment(settings.threads)
        if not settings.gpus:
            surroundings["CUDA_VISIBLE_DEVICES"] = ""  # otherwise Ray has set this actor's devices
        worker = Worker(settings.setup, settings.limits, surroundings, where)
        self._events.register(worker, selectors.EVENT_READ)
        return worker

    def _news(self) -> list[Message]:
        """Wait for a moment; the worker's messages that concern the search."""
        if time.monotonic() - self._checked >= TICK_SECONDS:
            self._checked = time.monotonic()
            return self._hear(self._worker.check())
        if self._events.select(TICK_SECONDS):
            return self._hear(self._worker.receive())
        return []

    def _hear(self, messages: list[Message]) -> list[Message]:
        """The worker's messages; stops listening where they were its last."""
        if not self._worker.alive:
            self._events.unregister(self._worker)
        return messages


class TrialActor(WorkerActor):
    """Runs one trial after another."""

    def _take(self, assignment: Message) -> None:
        self._next: Message | None = assignment  # the trial that `train` starts
        self._folder: NodeFolder | None = None  # of the trial that has started
        self._unanswered: Message | None = None  # its report, which waits for the driver's answer

    def forget(self) -> None:
        self._next = None

    def train(self) -> dict[str, Any]:
        """A report of the trial within a moment, or its end, or nothing.

        Being called again after a report means that the trial may continue.
        """
        if self._next is not None:
            while self._events.select(0):  # the last messages of an idle worker are about another trial
                self._hear(self._worker.receive())
            self._folder = self._begin(self._next)
            self._next = None
        if self._folder is None:
            return {MESSAGES_KEY: []}
        if self._unanswered is not None:
            self._worker.let_continue(self._unanswered)
            self._unanswered = None
        messages = self._news()
        if not messages:
            return {MESSAGES_KEY: []}
        self._folder.send_home()
        *earlier, last = messages
        for report in earlier:  # of a thread, while its objective returned
            self._worker.let_continue(report)
        self._unanswered = last if last["kind"] == "report" else None
        return {MESSAGES_KEY: messages}

    def release(self, *, pause: bool = False) -> None:
        """Tell the trial that it is over, since Tune may tell the actor much later.

        A trial that waits for no answer hears nothing: its worker is ended with it. For a `pause` the worker
        is ended too, which frees its part of the machine.
        """
        if self._unanswered is not None:
            self._worker.stop(self._unanswered)
            self._unanswered = None
        else:
            for number in self._worker.numbers:
                self._worker.drop(number)
                self._hear([])
        if pause:
            self._leave()
            self._end_worker()

    def _leave(self) -> None:
        if self._folder is None:
            return
        self.release()
        while self._worker.numbers:
            self._news()
        self._folder.send_home()
        self._folder.remove()
        self._folder = None


class PackActor(WorkerActor):
    """Runs several trials at once, which come and go as the driver orders.

    Orders arrive while `train` runs, and are carried out when the next call begins, so each call is short.
    """

    def _take(self, assignment: Message) -> None:
        self._orders: list[Message] = [{"kind": "trial", "trial": assignment}]
        self._folders: dict[int, NodeFolder] = {}

    def forget(self) -> None:
        self._orders.clear()

    def order(self, orders: list[Message]) -> None:
        """Add orders, which the next `train` carries out first, in this sequence; it fails where they do."""
        self._orders += orders

    def train(self) -> dict[str, Any]:
        """The messages of trials within a moment: reports, which wait for an answer, and ends. Often none."""
        orders, self._orders = self._orders, []
        for order in orders:
            self._obey(order)
        messages: list[Message] = []
        until = time.monotonic() + TICK_SECONDS
        while not messages and time.monotonic() < until:
            messages = self._news()
        for message in messages:
            self._folders[message["number"]].send_home()
        self._tidy()
        return {MESSAGES_KEY: messages}

    def release(self, *, pause: bool = False) -> None:
        """End the slot. For a `pause` the worker is ended too, which frees its part of the machine."""
        if pause:
            self._leave()
            self._end_worker()

    def _obey(self, order: Message) -> None:
        match order["kind"]:
            case "trial":
                assignment: Message = order["trial"]
                self._folders[assignment["number"]] = self._begin(assignment)
            case "continue":
                self._worker.let_continue(order["report"])
            case "stop":
                self._worker.stop(order["report"])
            case "drop" if order["number"] in self._worker.numbers:
                self._worker.drop(order["number"])

    def _leave(self) -> None:
        orders, self._orders = self._orders, []
        for order in orders:
            if order["kind"] != "trial":
                self._obey(order)
        for number in self._worker.numbers:
            self._worker.drop(number)
        while self._worker.numbers:
            self._news()
        self._tidy()

    def _tidy(self) -> None:
        """Send home and remove the folders of trials that have left."""
        for number in set(self._folders) - set(self._worker.numbers):
            folder = self._folders.pop(number)
            folder.send_home()
            folder.remove()


def _end_with(pid: int) -> None:
    """End this process as soon as the driver's ends.

    Ray takes seconds to notice, in which a continued search would share its trials with this process.
    """

    def watch() -> None:
        with suppress(psutil.NoSuchProcess):  # already gone
            psutil.Process(pid).wait()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
