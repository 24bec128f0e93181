"""The Optuna backend: local worker processes; Optuna samples, prunes and stores through the driver.

Workers live as long as the search, so that a trial does not wait for Python to start and import torch.
"""

from __future__ import annotations

import os
import selectors
import time

from ...spaces import Spec
from ..engine.deadline import SHUTDOWN_SECONDS
from ..engine.driver import Driver
from ..scheduling.pruners import make_pruner
from .base import as_message, deliver, setup_of
from .packing import check_pack, pack_after, pack_size
from .resources import room_for, share, this_machine, visible_gpus
from .worker.channel import Message
from .worker.process import TICK_SECONDS, TrialLimits, Worker, environment


class LocalBackend:
    """Runs trials in `execution.workers` persistent processes on this machine, `execution.pack` in each."""

    leaving = SHUTDOWN_SECONDS

    def __init__(self, spec: Spec, objective: Message) -> None:
        self.pruner = make_pruner(spec)
        check_pack(spec)
        self._spec = spec
        self._setup = setup_of(spec, objective)
        self._limits = TrialLimits.of(spec.execution)
        self._share = share(spec.execution, [this_machine()], "this machine")
        self.threads = self._share.threads
        self.room = room_for(spec.execution, self._share)
        self.slots = self._share.workers * (1 if spec.execution.pack == "auto" else spec.execution.pack)
        self._pack = 1  # trials in each worker
        self._workers: dict[int, Worker] = {}  # by slot, which determines a worker's device
        self._selector = selectors.DefaultSelector()
        self._ticked = 0.0  # when the driver last ticked, by the monotonic clock

    def run(self, driver: Driver) -> None:
        self._pack, notice = pack_size(self._spec, self._share, this_machine().memory)
        if notice is not None:
            driver.say(notice)
        try:
            while (self._assign(driver) or self._running() or driver.paused) and not driver.grace_is_over:
                for key, _ in self._selector.select(TICK_SECONDS):
                    self._handle(driver, key.data, self._workers[key.data].receive())
                if time.monotonic() - self._ticked >= TICK_SECONDS:
                    self._ticked = time.monotonic()
                    for slot, worker in list(self._workers.items()):
                        self._handle(driver, slot, worker.check())
                    driver.tick()
                    self._obey(driver)
        finally:
            for worker in self._workers.values():
                worker.end()
            self._selector.close()

    def _running(self) -> int:
        return sum(len(worker.numbers) for worker in self._workers.values())

    def _assign(self, driver: Driver) -> bool:
        """Assign trials while there is room, starting workers as needed; whether any was assigned."""
        assigned = False
        while self._running() < self._share.workers * self._pack:
            assignment = driver.ask()
            if assignment is None:
                break
            (self._leaving(assignment.number) or self._emptiest()).give(as_message(assignment))
            assigned = True
        return assigned

    def _leaving(self, number: int) -> Worker | None:
        """The worker that still has the trial, and writes its checkpoint until it has ended."""
        return next((worker for worker in self._workers.values() if number in worker.numbers), None)

    def _emptiest(self) -> Worker:
        """The worker with the fewest trials; a new one rather than a busy one."""
        emptiest = min(self._workers.values(), key=lambda worker: len(worker.numbers), default=None)
        if emptiest is None or (emptiest.numbers and len(self._workers) < self._share.workers):
            return self._start()
        return emptiest

    def _start(self) -> Worker:
        slot = min(set(range(self._share.workers)) - set(self._workers))
        surroundings = environment(self.threads) | devices_of(slot, self._share.gpus, visible_gpus())
        worker = Worker({**self._setup, "pack": self._pack}, self._limits, surroundings, os.getcwd())
        self._workers[slot] = worker
        self._selector.register(worker, selectors.EVENT_READ, slot)
        return worker

    def _obey(self, driver: Driver) -> None:
        """Drop trials that the driver has ended from their workers, and free the machine during a pause."""
        dropped = driver.pop_cancelled()
        for slot, worker in list(self._workers.items()):
            for number in worker.numbers:
                if number in dropped:
                    worker.drop(number)
            if driver.paused and worker.alive and not worker.numbers:
                worker.end()
            self._forget_ended(slot)

    def _forget_ended(self, slot: int) -> None:
        """Forget the worker in a slot if it has ended."""
        if not self._workers[slot].alive:
            self._selector.unregister(self._workers.pop(slot))

    def _handle(self, driver: Driver, slot: int, messages: list[Message]) -> None:
        worker = self._workers[slot]
        self._forget_ended(slot)
        self._pack = pack_after(messages, self._pack, driver)
        for message in messages:
            reason = deliver(driver, message)
            if message["kind"] == "report":
                worker.let_continue(message) if reason is None else worker.stop(message)


def devices_of(slot: int, gpus: float, devices: list[str]) -> dict[str, str]:
    """The environment that shows a worker its own devices, or the one that it shares."""
    if not devices:
        return {}
    whole = int(gpus)
    own = devices[slot * whole : (slot + 1) * whole]
    if 0 < gpus < 1:
        own = [devices[slot % len(devices)]]
    return {"CUDA_VISIBLE_DEVICES": ",".join(own)}
