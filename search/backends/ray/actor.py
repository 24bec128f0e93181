"""What Tune runs: an actor that keeps a worker process, on whichever node, and passes on what its trials say.

A trial of Tune's is one of the study's (`TrialActor`), or where trials train several at once a *slot* of the
cluster, in which they come and go (`PackActor`).

The objective runs in a process of its own, the same as on the other backend, and not in a thread of the
actor: it has a main thread and its own output, and may take its time to leave, or be killed, while the
actor stays. A trial's end is a result here, not an error of the actor's, so that actors are used again.

No Tune is loaded here, which would take an actor longer than all else that it does to begin (`actors`).
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
from ..worker.process import TICK_SECONDS, Limits, Worker, environment
from .files import Home, NodeFolder

MESSAGES = "messages"  # where a result holds what the worker said
ASSIGNMENT = "assignment"  # where a config holds a trial, as JSON: Tune would look into a mapping


@dataclass(frozen=True)
class Setting:
    """What is the same for all trials of a search."""

    setup: Message  # of a worker
    limits: Limits
    threads: int
    gpus: float  # of each trial
    home: Home  # the driver's machine


class WorkerActor:
    """Keeps a worker process for the trials that come here.

    What Tune asks of its `Trainable`: `train`, again and again, `reset` for another trial, `stop`.
    """

    def __init__(self, setting: Setting, assignment: str) -> None:
        self._setting = setting
        if setting.home.is_here():
            _end_with(setting.home.pid)
        self._checked = 0.0  # when the worker's limits were looked at, by the monotonic clock
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
        """What trials say within a moment, under `MESSAGES`: their reports, and their ends. Often nothing."""
        raise NotImplementedError

    def get_auto_filled_metrics(self, **options: Any) -> dict[str, Any]:
        """What Tune would show of a trial that has said nothing: it shows nothing here."""
        return {}

    def _take(self, assignment: Message) -> None:
        """Remember the trial to begin with.

        Not before Tune says `train`: it may start a second actor for a trial, and drop one of the two.
        """
        raise NotImplementedError

    def forget(self) -> None:
        """Do not begin with the trial: it was over before this actor was there."""
        raise NotImplementedError

    def _leave(self) -> None:
        """Let what runs here return; what it leaves behind goes home too."""
        raise NotImplementedError

    def _end_worker(self) -> None:
        if self._worker.alive:
            self._events.unregister(self._worker)
            self._worker.end()

    def _begin(self, assignment: Message) -> NodeFolder:
        """Give the worker a trial; its folder on this node."""
        if not self._worker.alive:
            self._worker = self._started()
        folder = self._setting.home.folder_here(Path(assignment["folder"]))
        self._worker.give({**assignment, "folder": str(folder.path)})
        return folder

    def _started(self) -> Worker:
        setting, home = self._setting, self._setting.home
        where = home.folder if home.is_here() else os.getcwd()
        surroundings = environment(setting.threads)
        if not setting.gpus:
            surroundings["CUDA_VISIBLE_DEVICES"] = ""  # else Ray has said which are this actor's
        worker = Worker(setting.setup, setting.limits, surroundings, where)
        self._events.register(worker, selectors.EVENT_READ)
        return worker

    def _news(self) -> list[Message]:
        """Wait for a moment; what the worker said by then that the search is to know."""
        if time.monotonic() - self._checked >= TICK_SECONDS:
            self._checked = time.monotonic()
            return self._hear(self._worker.check())
        if self._events.select(TICK_SECONDS):
            return self._hear(self._worker.receive())
        return []

    def _hear(self, messages: list[Message]) -> list[Message]:
        """What the worker said; there is no more to hear of it where these were its last words."""
        if not self._worker.alive:
            self._events.unregister(self._worker)
        return messages


class TrialActor(WorkerActor):
    """Runs one trial after another."""

    def _take(self, assignment: Message) -> None:
        self._next: Message | None = assignment  # the trial that `train` is to begin
        self._folder: NodeFolder | None = None  # of the trial that has begun
        self._unanswered: Message | None = None  # its report, which waits for the driver's word

    def forget(self) -> None:
        self._next = None

    def train(self) -> dict[str, Any]:
        """What the trial says within a moment: a report, or its end, or nothing.

        Asked again after a report, the trial has gone on.
        """
        if self._next is not None:
            while self._events.select(0):  # an idle worker's last words are about another trial
                self._hear(self._worker.receive())
            self._folder = self._begin(self._next)
            self._next = None
        if self._folder is None:
            return {MESSAGES: []}
        if self._unanswered is not None:
            self._worker.go_on(self._unanswered)
            self._unanswered = None
        messages = self._news()
        if not messages:
            return {MESSAGES: []}
        self._folder.send_home()
        *earlier, last = messages
        for report in earlier:  # of a thread, while its objective returned
            self._worker.go_on(report)
        self._unanswered = last if last["kind"] == "report" else None
        return {MESSAGES: messages}

    def release(self, *, pause: bool = False) -> None:
        """Tell the trial that it is over. Tune has no use for it any more, and says so only when it likes.

        One that waits for no answer hears nothing: its worker ends with it. For a `pause` the worker leaves,
        and with it what it holds of the machine.
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

    Orders come while a `train` runs, and are carried out when the next one begins: so each is short.
    """

    def _take(self, assignment: Message) -> None:
        self._orders: list[Message] = [{"kind": "trial", "trial": assignment}]
        self._folders: dict[int, NodeFolder] = {}

    def forget(self) -> None:
        self._orders.clear()

    def order(self, orders: list[Message]) -> None:
        """Carry these out before anything else, in this order; what goes wrong is the next error."""
        self._orders += orders

    def train(self) -> dict[str, Any]:
        """What the trials say within a moment: reports, which wait for an answer, and ends. Often nothing."""
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
        return {MESSAGES: messages}

    def release(self, *, pause: bool = False) -> None:
        """The slot is over. For a `pause` the worker leaves, and with it what it holds of the machine."""
        if pause:
            self._leave()
            self._end_worker()

    def _obey(self, order: Message) -> None:
        match order["kind"]:
            case "trial":
                assignment: Message = order["trial"]
                self._folders[assignment["number"]] = self._begin(assignment)
            case "go on":
                self._worker.go_on(order["report"])
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
        """Be done with the folders of trials that have left."""
        for number in set(self._folders) - set(self._worker.numbers):
            folder = self._folders.pop(number)
            folder.send_home()
            folder.remove()


def _end_with(pid: int) -> None:
    """End this process as soon as the driver's does.

    Ray takes seconds to notice, and a search that goes on at once would share its trials with this one.
    """

    def watch() -> None:
        with suppress(psutil.NoSuchProcess):  # it is gone already
            psutil.Process(pid).wait()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
