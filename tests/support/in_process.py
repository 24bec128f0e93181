"""A backend without workers: what is the driver's or the database's own needs no process."""

from __future__ import annotations

import queue
import time

from hpsearch.objectives.resolve import resolve
from hpsearch.search.backends.base import as_message, deliver
from hpsearch.search.backends.worker.channel import Channel, Message
from hpsearch.search.backends.worker.server import WorkerTrial, run_trial
from hpsearch.search.engine.driver import Driver
from hpsearch.search.scheduling.pruners import make_pruner
from hpsearch.spaces import Spec


class InProcessBackend:
    """Runs one trial after the other in this process, by the code of a worker."""

    threads = 1
    gpus = 0.0
    slots = 1
    leaving = 0.0
    room = None

    def __init__(self, spec: Spec, objective: Message) -> None:
        self.pruner = make_pruner(spec)
        self._objective = resolve(objective, metric=spec.metric, processes=1)

    def run(self, driver: Driver) -> None:
        while (assignment := driver.ask()) is not None or driver.paused:
            if assignment is None:
                time.sleep(0.02)
                driver.tick()
                continue
            channel = _DriverChannel(driver)
            trial = WorkerTrial(as_message(assignment), channel, channel.answers, sealed=True)
            end = run_trial(self._objective, trial, assignment.reported)
            if end["kind"] != "stopped":
                deliver(driver, end)
            driver.tick()


class _DriverChannel(Channel):
    """The connection of a worker that answers each report at once."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.answers: queue.Queue[Message] = queue.Queue()

    def send(self, message: Message) -> None:
        stop = deliver(self._driver, message) is not None
        self.answers.put(
            {"kind": "answer", "number": message["number"], "step": message["step"], "stop": stop}
        )
