"""The Optuna backend: local worker processes; Optuna samples, prunes and stores through the driver.

Workers live as long as the search, so that a trial does not pay for starting Python and importing torch.
"""

from __future__ import annotations

import glob
import os
import selectors
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

import psutil

from ...objectives.command import signal_name
from ...spaces import Spec
from ..driver import Assignment, Driver, Failure
from .protocol import Channel, Message, end_session

TICK_SECONDS = 0.5
EXIT_SECONDS = 5.0  # for an idle worker to leave by itself
STOP_SECONDS = 30.0  # for an objective to return once its trial is stopped; a command takes up to ten
WORKER_MEMORY = 1 << 30  # bytes a worker is counted with where their number is `auto`


@dataclass
class Worker:
    """A worker process and the trial it runs, if any."""

    process: subprocess.Popen[bytes]
    channel: Channel
    slot: int  # its place among the workers, which decides its device
    number: int | None = None  # of the trial it runs
    stopping: bool = False  # its trial has ended in the study; the objective is on its way out
    since: float = 0.0  # when its trial was assigned, or stopped, by the monotonic clock


class OptunaBackend:
    """Runs trials in `execution.workers` persistent processes on this machine."""

    def __init__(self, spec: Spec, objective: Message) -> None:
        self._spec = spec
        self._objective = objective
        self._devices = visible_gpus()
        self._count = worker_count(spec, self._devices)
        self.threads = max(1, _cores() // self._count)
        self._workers: list[Worker] = []
        self._selector = selectors.DefaultSelector()
        self._ticked = 0.0  # when the driver last looked at the clock, by the monotonic one

    def run(self, driver: Driver) -> None:
        try:
            while (self._assign(driver) or self._busy()) and not driver.overdue:
                for key, _ in self._selector.select(TICK_SECONDS):
                    self._receive(driver, key.data)
                if time.monotonic() - self._ticked >= TICK_SECONDS:
                    self._ticked = time.monotonic()
                    self._check_timeouts(driver)
                    driver.tick()
        finally:
            self._end_all()

    def _busy(self) -> list[Worker]:
        return [w for w in self._workers if w.number is not None]

    def _assign(self, driver: Driver) -> bool:
        """Give every free worker a trial, starting workers as they are needed; whether any was given."""
        given = False
        while len(self._busy()) < self._count:
            assignment = driver.ask()
            if assignment is None:
                break
            worker = next((w for w in self._workers if w.number is None), None) or self._start()
            self._give(worker, assignment)
            given = True
        return given

    def _give(self, worker: Worker, assignment: Assignment) -> None:
        worker.number, worker.stopping, worker.since = assignment.number, False, time.monotonic()
        _send(worker, asdict(assignment) | {"kind": "trial", "folder": str(assignment.folder)})

    def _receive(self, driver: Driver, worker: Worker) -> None:
        messages = worker.channel.receive()
        if messages is None:
            self._lost(driver, worker)
            return
        for message in messages:
            self._handle(driver, worker, message)

    def _handle(self, driver: Driver, worker: Worker, message: Message) -> None:
        number = worker.number
        if number is None:  # a thread that outlived its objective still reports
            _send(worker, {"kind": "answer", "stop": True})
            return
        if message["kind"] == "report":
            reason = driver.report(number, message["value"], message["step"], message["metrics"])
            if reason is not None:
                worker.stopping, worker.since = True, time.monotonic()
            _send(worker, {"kind": "answer", "stop": worker.stopping})
            return
        worker.number = None
        if worker.stopping:
            return
        if message["kind"] == "done":
            driver.complete(number, message["value"])
        elif message["kind"] == "failed":
            driver.fail(number, Failure(**message["failure"]))
        else:
            driver.fail(number, Failure("error", "the objective raised TrialStopped, which is the search's"))

    def _lost(self, driver: Driver, worker: Worker) -> None:
        """A worker's process ended by itself, or was killed."""
        number, stopping = worker.number, worker.stopping
        self._end(worker, wait=EXIT_SECONDS)
        if number is not None and not stopping:
            driver.fail(number, Failure("lost", _how_it_ended(worker.process.returncode)))

    def _check_timeouts(self, driver: Driver) -> None:
        for worker in self._busy():
            assert worker.number is not None
            limit = STOP_SECONDS if worker.stopping else self._spec.execution.trial_timeout
            if limit is not None and time.monotonic() - worker.since > limit:
                number, stopping = worker.number, worker.stopping
                self._end(worker, wait=0)
                if not stopping:
                    driver.fail(number, Failure("timeout", f"the trial ran longer than {limit:g} s"))

    def _start(self) -> Worker:
        ours, theirs = socket.socketpair()
        slot = min(set(range(self._count)) - {w.slot for w in self._workers})
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "hpsearch.search.backends.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the terminal is for the driver
                env=worker_environment(slot, self.threads, self._devices),
            )
        worker = Worker(process, Channel(ours), slot)
        _send(worker, {"kind": "setup", "objective": self._objective, "metric": self._spec.metric})
        self._workers.append(worker)
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)
        return worker

    def _end(self, worker: Worker, wait: float) -> None:
        """Take a worker out of service: it may leave within `wait` seconds, then it is killed."""
        self._selector.unregister(worker.channel)
        self._workers.remove(worker)
        try:
            worker.process.wait(wait)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
        end_session(worker.process.pid)
        worker.channel.close()

    def _end_all(self) -> None:
        for worker in self._workers:
            if worker.number is None:
                _send(worker, {"kind": "exit"})
        for worker in list(self._workers):
            self._end(worker, wait=EXIT_SECONDS if worker.number is None else 0)
        self._selector.close()


def _send(worker: Worker, message: Message) -> None:
    try:
        worker.channel.send(message)
    except OSError:
        return  # the worker is gone; its end of file comes next and is dealt with there


def visible_gpus() -> list[str]:
    """The CUDA devices of this machine, as CUDA_VISIBLE_DEVICES names them, without loading torch."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [device for device in chosen.split(",") if device not in ("", "-1")]
    return [str(i) for i in range(len(glob.glob("/dev/nvidia[0-9]*")))]


def worker_count(spec: Spec, devices: list[str]) -> int:
    """How many workers run: as the space file says, else one per GPU, else what cores and memory carry."""
    workers = spec.execution.workers
    if workers != "auto":
        return int(workers)
    if devices:
        return len(devices)
    memory = max(1, psutil.virtual_memory().available // WORKER_MEMORY)
    return int(min(_cores(), memory))


def worker_environment(slot: int, threads: int, devices: list[str]) -> dict[str, str]:
    """A worker's environment: its share of the cores and GPUs, and an allocator that keeps its pages."""
    environment = dict(os.environ)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment[name] = str(threads)
    # glibc gives big buffers back to the kernel after every training step and faults them in at the next.
    environment.setdefault("MALLOC_MMAP_MAX_", "0")
    environment.setdefault("MALLOC_TRIM_THRESHOLD_", "100000000000")
    environment.setdefault("MALLOC_TOP_PAD_", str(64 << 20))
    if devices:
        environment["CUDA_VISIBLE_DEVICES"] = devices[slot % len(devices)]
    return environment


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _how_it_ended(code: int) -> str:
    if code < 0:
        name = signal_name(-code)
        hint = "; the machine may have run out of memory" if name == "SIGKILL" else ""
        return f"the worker process was killed by {name}{hint}"
    return f"the worker process exited with code {code} in the middle of the trial"
