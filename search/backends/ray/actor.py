"""What Tune runs: an actor on some node that keeps a worker process and passes on its messages.

A trial of Tune's is a *slot* of the cluster, in which trials of the study come and go.

The objective runs in a process of its own, as on the other backend, and not in a thread of the actor: it has
a main thread and its own output, and may take its time to return, or be killed, while the actor stays. The
end of a trial is a result here, not an error of the actor, so that actors are reused.

Nothing here imports Tune, which would take longer than the rest of an actor's start (`actors`).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ..worker.channel import Message
from ..worker.meter import Holding
from ..worker.process import TICK_SECONDS, TrialLimits, Worker, WorkerPlace, environment
from .files import DriverNode, NodeFolder

MESSAGES_KEY = "messages"  # the key of a worker's messages in a result
ASSIGNMENT_KEY = "assignment"  # the key of a trial in a config, as JSON: Tune would look into a mapping


@dataclass(frozen=True)
class ActorSettings:
    """What all trials of a search have in common."""

    setup: Message  # of a worker
    limits: TrialLimits
    threads: int
    cpus: float  # of each worker
    gpus: float  # of each worker
    driver: DriverNode


class WorkerActor:
    """Keeps a worker process for the trials of a slot.

    Tune calls its methods like those of a `Trainable`: `train` repeatedly, `reset` for another slot, `stop`.
    The driver's side calls `add` and `end`, which take effect between two calls of `train`.
    """

    def __init__(self, settings: ActorSettings, assignment: str) -> None:
        self._settings = settings
        if settings.driver.is_here():
            _end_with(settings.driver.pid)
        self._place = WorkerPlace(self._started)
        self._worker = self._place.take()
        # Its first trial starts only when Tune calls `train`: Tune may start two actors for a slot, and drop
        # one of them.
        self._waiting: list[Message] = [json.loads(assignment)]  # for room in the worker
        self._folders: dict[int, NodeFolder] = {}  # of the trials in the worker
        self._unanswered: list[Message] = []  # reports whose trials continue with the next `train`

    def reset(self, assignment: str) -> bool:
        self._leave()
        self._waiting = [json.loads(assignment)]
        return True

    def stop(self) -> None:
        """End the slot and its worker, which frees its part of the machine."""
        self._leave()
        self._place.end()
        if self._worker.alive:
            self._worker.end()

    def add(self, assignment: Message) -> None:
        """Start a trial when the worker has room."""
        self._waiting.append(assignment)

    def forget(self) -> None:
        """Do not start the first trial: it ended before this actor was ready."""
        self._waiting.clear()

    def end(self, numbers: Collection[int]) -> None:
        """End trials: at a report that waits for an answer, or else wherever they are."""
        self._waiting = [each for each in self._waiting if each["number"] not in numbers]
        for report in self._unanswered:
            if report["number"] in numbers:
                self._worker.stop(report)
        self._unanswered = [each for each in self._unanswered if each["number"] not in numbers]
        for number in self._worker.numbers:
            if number in numbers:
                self._worker.drop(number)

    def train(self) -> dict[str, Any]:
        """The messages of trials within a moment, under `MESSAGES_KEY`: reports and ends. Often none.

        Being called again after a report means that its trial may continue.
        """
        for report in self._unanswered:
            self._worker.let_continue(report)
        messages: list[Message] = []
        until = time.monotonic() + TICK_SECONDS
        while not messages and time.monotonic() < until:
            self._start_waiting()
            if not self._worker.numbers:
                break
            messages = self._worker.news()
            self._place.prepare(self._worker)
            for message in messages:
                self._folders[message["number"]].send_home()
            self._tidy()
        self._unanswered = [message for message in messages if message["kind"] == "report"]
        return {MESSAGES_KEY: messages}

    def get_auto_filled_metrics(self, **options: Any) -> dict[str, Any]:
        """What Tune would show of a silent trial: nothing."""
        return {}

    def _start_waiting(self) -> None:
        """Give the worker the trials that wait, while it has room for them."""
        while self._waiting and len(here := self._worker.numbers) < self._worker.capacity:
            if self._waiting[0]["number"] in here:
                return  # it is still leaving
            if not here:
                self._worker.clear()
            if not self._worker.alive:
                self._worker = self._place.take()
            assignment = self._waiting.pop(0)
            folder = self._settings.driver.folder_here(Path(assignment["folder"]))
            self._folders[assignment["number"]] = folder
            self._worker.give({**assignment, "folder": str(folder.path)})

    def _started(self) -> Worker:
        settings, driver = self._settings, self._settings.driver
        where = driver.folder if driver.is_here() else os.getcwd()
        surroundings = environment(settings.threads)
        if not settings.gpus:
            surroundings["CUDA_VISIBLE_DEVICES"] = ""  # otherwise Ray has set this actor's devices
        holding = Holding.of(settings.cpus, settings.gpus, surroundings)
        return Worker(settings.setup, settings.limits, surroundings, where, holding)

    def _leave(self) -> None:
        """Let running trials return, and send home what they leave behind."""
        self._waiting.clear()
        self.end(self._worker.numbers)
        while self._worker.numbers:
            self._worker.news()
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
