"""What Tune runs: an actor that keeps a worker process, on whichever node, and passes on what its trials say.

The objective runs in a process of its own, the same as on the other backend, and not in a thread of the
actor: it has a main thread and its own output, and may take its time to leave, or be killed, while the
actor stays. A trial's end is a result here, not an error of the actor's, so that actors are used again.
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
from ray import tune

from ..process import TICK_SECONDS, Limits, Worker, environment
from ..protocol import Message
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


class TrialActor(tune.Trainable):
    """Runs one trial after another in a worker process."""

    def setup(self, config: dict[str, Any], *, setting: Setting) -> None:  # type: ignore[override]
        # `tune.with_parameters` hands over the setting.
        self._setting = setting
        if setting.home.is_here():
            _end_with(setting.home.pid)
        self._next: Message | None = json.loads(config[ASSIGNMENT])  # the trial that `step` is to begin
        self._folder: NodeFolder | None = None  # of the trial that has begun
        self._unanswered: Message | None = None  # its report, which waits for the driver's word
        self._checked = 0.0  # when the worker's limits were looked at, by the monotonic clock
        self._events = selectors.DefaultSelector()
        self._worker = self._started()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._leave()
        self._next = json.loads(new_config[ASSIGNMENT])
        return True

    def step(self) -> dict[str, Any]:
        """What the trial says next: a report, or its end. Asked again, the trial has gone on."""
        if self._next is not None:
            self._begin(self._next)
            self._next = None
        assert self._folder is not None
        if self._unanswered is not None:
            self._worker.go_on(self._unanswered)
        messages = self._wait()
        self._folder.send_home()
        *earlier, last = messages
        for report in earlier:  # of a thread, while its objective returned
            self._worker.go_on(report)
        self._unanswered = last if last["kind"] == "report" else None
        return {MESSAGES: messages}

    def release(self, *, pause: bool = False) -> None:
        """Tell the trial that it is over. Tune has no use for it any more, and says so only when it likes.

        For a `pause` the worker leaves, and with it what it holds of the machine.
        """
        if self._unanswered is not None:
            self._worker.stop(self._unanswered)
            self._unanswered = None
        if pause:
            self._leave()
            self._end_worker()

    def cleanup(self) -> None:
        self._leave()
        self._end_worker()
        self._events.close()

    def _end_worker(self) -> None:
        if self._worker.alive:
            self._events.unregister(self._worker)
            self._worker.end()

    def _begin(self, assignment: Message) -> None:
        """Give the worker its trial.

        Not before Tune says `train`: it may start a second actor for a trial, and drop one of the two.
        """
        while self._events.select(0):  # an idle worker's last words are about another trial
            self._hear(self._worker.receive())
        if not self._worker.alive:
            self._worker = self._started()
        self._folder = self._setting.home.folder_here(Path(assignment["folder"]))
        self._worker.give({**assignment, "folder": str(self._folder.path)})

    def _started(self) -> Worker:
        setting, home = self._setting, self._setting.home
        where = home.folder if home.is_here() else os.getcwd()
        surroundings = environment(setting.threads)
        if not setting.gpus:
            surroundings["CUDA_VISIBLE_DEVICES"] = ""  # else Ray has said which are this actor's
        worker = Worker(setting.setup, setting.limits, surroundings, where)
        self._events.register(worker, selectors.EVENT_READ)
        return worker

    def _wait(self) -> list[Message]:
        """Wait until the worker has something to say that the search is to know."""
        while self._worker.numbers:
            messages: list[Message] = []
            if time.monotonic() - self._checked >= TICK_SECONDS:
                self._checked = time.monotonic()
                messages = self._hear(self._worker.check())
            elif self._events.select(TICK_SECONDS):
                messages = self._hear(self._worker.receive())
            if messages:
                return messages
        return []

    def _hear(self, messages: list[Message]) -> list[Message]:
        """What the worker said; there is no more to hear of it where these were its last words."""
        if not self._worker.alive:
            self._events.unregister(self._worker)
        return messages

    def _leave(self) -> None:
        """Let the stopped trial's objective return; what it leaves behind goes home too."""
        if self._folder is None:
            return
        self.release()
        self._wait()
        self._folder.send_home()
        self._folder.remove()
        self._folder = None


def _end_with(pid: int) -> None:
    """End this process as soon as the driver's does.

    Ray takes seconds to notice, and a search that goes on at once would share its trials with this one.
    """

    def watch() -> None:
        with suppress(psutil.NoSuchProcess):  # it is gone already
            psutil.Process(pid).wait()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
