"""The Optuna backend: local worker processes; Optuna samples, prunes and stores through the driver.

Workers live as long as the search, so that a trial does not wait for Python to start and import torch, unless
the space asks for a fresh process for each.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial

from ...spaces import Spec
from ..engine.deadline import SHUTDOWN_SECONDS
from ..engine.driver import Driver
from ..engine.running import Assignment
from ..scheduling.pruners import make_pruner
from .base import as_message, deliver, setup_of
from .packing import check_pack, pack_after, pack_size
from .resources import WorkerShare, room_for, share, this_machine, visible_gpus
from .worker.channel import Message
from .worker.meter import Holding
from .worker.process import TICK_SECONDS, TrialLimits, Worker, WorkerPlace, environment


class LocalWorkers:
    """The worker processes of a search, each started when a trial needs it."""

    def __init__(self, spec: Spec, objective: Message, worker_share: WorkerShare, pack: int) -> None:
        self.pack = pack  # trials in each
        self._setup = setup_of(spec, objective)
        self._limits = TrialLimits.of(spec.execution)
        self._share = worker_share
        self._by_slot: dict[int, Worker] = {}  # the slot determines a worker's device
        self._places = [WorkerPlace(partial(self._started, slot)) for slot in range(worker_share.workers)]
        self._selector = selectors.DefaultSelector()
        self._checked = 0.0  # when the limits of trials were last checked, by the monotonic clock

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._by_slot.values())

    @property
    def trials(self) -> int:
        """How many trials they run, including those that are leaving."""
        return sum(len(worker.numbers) for worker in self)

    def fill(self, ask: Callable[[], Assignment | None]) -> bool:
        """Give them trials while there is room and `ask` returns one; whether it did."""
        for slot, worker in list(self._by_slot.items()):
            if not worker.alive:
                self._selector.unregister(self._by_slot.pop(slot))
        filled = False
        while self.trials < self._share.workers * self.pack and (assignment := ask()) is not None:
            # One that the trial is leaving writes its checkpoint until it has ended.
            leaving = (worker for worker in self if assignment.number in worker.numbers)
            (next(leaving, None) or self._emptiest()).give(as_message(assignment))
            filled = True
        return filled

    def news(self, seconds: float = TICK_SECONDS) -> list[tuple[Worker, list[Message]]]:
        """Wait for messages of workers for at most so many seconds; end trials that take too much."""
        ready = [key for key, _ in self._selector.select(seconds)]
        for key in ready:
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.recv(4096)
        news = [(key.data, key.data.receive()) for key in ready if key.data is not None]
        if time.monotonic() - self._checked >= TICK_SECONDS:
            self._checked = time.monotonic()
            news += [(worker, worker.check()) for worker in self]
            for slot, worker in self._by_slot.items():
                self._places[slot].prepare(worker)
        return news

    def wake_by(self, end: socket.socket) -> None:
        """Let `news` return early where something arrives at this end."""
        self._selector.register(end, selectors.EVENT_READ)

    def end_idle(self) -> None:
        """End the workers without a trial, which frees their part of the machine."""
        for place in self._places:
            place.end()
        for worker in self:
            if worker.alive and not worker.numbers:
                worker.end()

    def end(self) -> None:
        self.end_idle()
        for worker in self:
            if worker.alive:
                worker.end()
        self._selector.close()

    def _emptiest(self) -> Worker:
        """The worker with the fewest trials; a new one rather than a busy one."""
        emptiest = min(self, key=lambda worker: len(worker.numbers), default=None)
        if emptiest is None or (emptiest.numbers and len(self._by_slot) < self._share.workers):
            return self._start()
        return emptiest

    def _start(self) -> Worker:
        slot = min(set(range(self._share.workers)) - set(self._by_slot))
        worker = self._by_slot[slot] = self._places[slot].take()
        self._selector.register(worker, selectors.EVENT_READ, worker)
        return worker

    def _started(self, slot: int) -> Worker:
        surroundings = environment(self._share.threads) | devices_of(slot, self._share.gpus, visible_gpus())
        holding = Holding.of(self._share.cpus, self._share.gpus, surroundings)
        return Worker({**self._setup, "pack": self.pack}, self._limits, surroundings, os.getcwd(), holding)


class LocalBackend:
    """Runs trials in `execution.workers` persistent processes on this machine, `execution.pack` in each."""

    leaving = SHUTDOWN_SECONDS

    def __init__(self, spec: Spec, objective: Message) -> None:
        self.pruner = make_pruner(spec)
        check_pack(spec)
        self._spec = spec
        self._objective = objective
        self._share = share(spec.execution, [this_machine()], "this machine")
        self.threads = self._share.threads
        self.gpus: float | None = self._share.gpus
        self.room = room_for(spec.execution, self._share)
        self.slots = self._share.workers * (1 if spec.execution.pack == "auto" else spec.execution.pack)

    def run(self, driver: Driver) -> None:
        pack, notice = pack_size(self._spec, self._share, this_machine().memory)
        if notice is not None:
            driver.say(notice)
        workers = LocalWorkers(self._spec, self._objective, self._share, pack)
        ticked = 0.0  # when the driver last ticked, by the monotonic clock
        try:
            while (workers.fill(driver.ask) or workers.trials or driver.paused) and not driver.grace_is_over:
                for worker, messages in workers.news():
                    workers.pack = pack_after(messages, workers.pack, driver)
                    for message in messages:
                        _pass_on(driver, worker, message)
                if time.monotonic() - ticked >= TICK_SECONDS:
                    ticked = time.monotonic()
                    driver.tick()
                    _obey(driver, workers)
        finally:
            workers.end()


def _pass_on(driver: Driver, worker: Worker, message: Message) -> None:
    reason = deliver(driver, message)
    if message["kind"] == "report":
        worker.let_continue(message) if reason is None else worker.stop(message)


def _obey(driver: Driver, workers: LocalWorkers) -> None:
    """Drop trials that the driver has ended from their workers, and free the machine during a pause."""
    dropped = driver.pop_cancelled()
    for worker in workers:
        for number in worker.numbers:
            if number in dropped:
                worker.drop(number)
    if driver.paused:
        workers.end_idle()


def devices_of(slot: int, gpus: float, devices: list[str]) -> dict[str, str]:
    """The environment that shows a worker its own devices, or the one that it shares."""
    if not devices:
        return {}
    whole = int(gpus)
    own = devices[slot * whole : (slot + 1) * whole]
    if 0 < gpus < 1:
        own = [devices[slot % len(devices)]]
    return {"CUDA_VISIBLE_DEVICES": ",".join(own)}
