"""A worker process, seen from its parent: trials go in, and their messages come out.

A trial that ends without a message of its own, because its process is killed or it takes too much time or
memory, produces one like any other.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ....objectives.processes import STRATEGY
from ....objectives.user.command import signal_name
from ....storage.files import OUTPUT, shorten
from ...engine.guardian import WORKER
from ...errors import SearchError, why
from ...formatting import gibibytes
from .channel import Channel, Message, end_session
from .meter import Holding, Meter

if TYPE_CHECKING:
    from ....spaces.settings import Execution

TICK_SECONDS = 0.25  # between two checks of time and memory
EXIT_SECONDS = 5.0  # for an idle worker to exit by itself
SILENCE_SECONDS = 120.0  # without a sign of life, after which a worker counts as frozen
PREPARE_SECONDS = 1.0  # of a trial, after which its successor's process starts
STOP_SECONDS = 30.0  # for an objective to return after its trial is stopped; a command takes up to ten


@dataclass(frozen=True)
class TrialLimits:
    """What a trial may take before its worker is killed; None: no limit."""

    seconds: float | None
    memory: int | None  # bytes
    leaving: float  # seconds for an objective to return after its trial is stopped
    silence: float  # seconds without a sign of life

    @classmethod
    def of(cls, execution: Execution) -> TrialLimits:
        return cls(execution.trial_timeout, execution.max_memory, STOP_SECONDS, SILENCE_SECONDS)


@dataclass
class HostedTrial:
    """A trial in a worker."""

    number: int
    output: Path  # its output file
    since: float  # when it was given, or stopped, by the monotonic clock
    stopping: bool = False  # whether the search has ended it, and it has not left yet
    next_assignment: Message | None = None  # with which it runs again as soon as it has left


class Worker:
    """A process that runs up to `capacity` trials at once; started here, in a session of its own.

    A `fresh` one ends after its first trial.
    """

    def __init__(
        self,
        setup: Message,
        limits: TrialLimits,
        environment: Mapping[str, str],
        folder: str,
        holding: Holding | None = None,
    ) -> None:
        """`holding`: what is measured of the machine. Raises `SearchError` where no process starts."""
        try:
            self._channel, self._process = start_process(environment, folder, own_session=True)
        except OSError as error:
            raise SearchError(f"no worker can be started: {why(error)}") from error
        self._limits = limits
        self._heard = 0.0  # when it last gave a sign of life
        self._checked = 0.0  # when `news` last checked its limits
        self._trials: dict[int, HostedTrial] = {}
        self.capacity: int = setup["pack"]
        self.fresh: bool = setup.get("fresh", False)
        self._meter = None if holding is None else Meter(holding)
        self._given = 0  # trials in total
        self._most = 0  # the most trials at once, whose memory the process keeps
        self.alive = True
        self._send({"kind": "setup", **setup})

    @property
    def numbers(self) -> list[int]:
        """The trials of this worker, including those that are leaving."""
        return list(self._trials)

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self.alive and self._process.poll() is None

    @property
    def trial_seconds(self) -> float:
        """Seconds since its oldest trial was given, or stopped; 0 without a trial."""
        return max((time.monotonic() - trial.since for trial in self._trials.values()), default=0.0)

    def fileno(self) -> int:
        return self._channel.fileno()

    def give(self, assignment: Message) -> None:
        """Let the worker run a trial: an `Assignment` as a message."""
        number = assignment["number"]
        if number in self._trials:
            self._trials[number].next_assignment = assignment
            return
        if self._meter is not None:
            self._settle()
            self._meter.begin(number)
        self._heard = time.monotonic()
        self._trials[number] = HostedTrial(number, Path(assignment["folder"]) / OUTPUT, self._heard)
        self._given += 1
        self._most = max(self._most, len(self._trials))
        # A fresh one starts for its trial, whose seconds therefore count from here.
        since = {"since": self._heard} if self.fresh else {}
        self._send({"kind": "trial", **assignment, **since})

    def let_continue(self, report: Message) -> None:
        """Answer a report: the trial continues."""
        self._answer(report, stop=False)

    def stop(self, report: Message) -> None:
        """Answer a report: the trial ends here. Its objective has `STOP_SECONDS` to return."""
        self._settle()
        if (trial := self._trials.get(report["number"])) is not None:
            trial.stopping, trial.since = True, time.monotonic()
        self._answer(report, stop=True)

    def news(self) -> list[Message]:
        """Wait for a moment; the messages of `receive`, or now and then of `check`."""
        if time.monotonic() - self._checked >= TICK_SECONDS:
            self._checked = time.monotonic()
            return self.check()
        return self.receive() if self._channel.has_news(TICK_SECONDS) else []

    def clear(self) -> None:
        """Receive what an idle worker has sent: it is about an earlier trial, or the worker has ended."""
        while self.alive and self._channel.has_news():
            self.receive()

    def receive(self) -> list[Message]:
        """Wait for data; the messages in it that concern the search.

        Each is a `report`, which waits for an answer, or the end of a trial: `done`, `failed`, `crowded`
        where trials in one process took too much memory, or `worn` where earlier trials had left too little.
        Each has the trial's `number`, and what it has `used`, if that is measured.
        """
        messages = self._channel.receive()
        self._settle()
        self._heard = time.monotonic()
        if messages is None:
            return self._measured(self._lost())
        return self._measured([each for message in messages for each in self._relevant(message)])

    def check(self) -> list[Message]:
        """End trials that take too much time or memory; their failures, if any."""
        if not self._trials:
            return []
        self._settle()
        return self._measured(self._checked_trials())

    def _checked_trials(self) -> list[Message]:
        for trial in self._trials.values():
            shorten(trial.output)
        limits, now = self._limits, time.monotonic()
        if self._process.poll() is not None and not self._channel.has_news():
            return self._lost()  # processes it forked may keep its socket open
        if now - self._heard > limits.silence and not self._channel.has_news():
            return self._kill("lost", f"the worker process gave no sign of life for {limits.silence:g} s")
        if limits.memory is not None and (taken := self.memory()) > limits.memory * self._most:
            return self._too_much(f"took {gibibytes(taken)}, max_memory is {gibibytes(limits.memory)}")
        for trial in list(self._trials.values()):
            if trial.stopping and now - trial.since > limits.leaving:
                return self._kill(
                    "lost", f"trial {trial.number} did not leave its worker after it was stopped"
                )
            if not trial.stopping and limits.seconds is not None and now - trial.since > limits.seconds:
                return self._overdue(trial, f"the trial ran longer than {limits.seconds:g} s")
        return []

    def drop(self, number: int) -> None:
        """Remove a trial that has ended without its worker knowing."""
        trial = self._trials[number]
        if trial.stopping:
            trial.next_assignment = None
        elif self.capacity == 1:
            self._trials.clear()
            self._leave(0)
        else:
            self._ask_to_leave(trial)

    def end(self) -> None:
        """End the worker. An idle one exits by itself; a busy one is killed."""
        if not self._trials:
            self._send({"kind": "exit"})
        self._leave(0 if self._trials else EXIT_SECONDS)

    def _settle(self) -> None:
        """Charge the trials that train here with the time since this was called last."""
        if self._meter is not None:
            self._meter.settle([each.number for each in self._trials.values() if not each.stopping])

    def _measured(self, messages: list[Message]) -> list[Message]:
        """The messages with what their trials have used."""
        if self._meter is None:
            return messages
        return [
            message | {"used": self._meter.of(message["number"], ended=message["kind"] != "report").to_list()}
            for message in messages
        ]

    def _overdue(self, trial: HostedTrial, what: str) -> list[Message]:
        if self.capacity == 1:
            return self._kill("timeout", what)
        self._ask_to_leave(trial)
        return [{**_failure("timeout", what), "number": trial.number}]

    def _too_much(self, what: str) -> list[Message]:
        """End a worker that holds too much memory. Which of several trials took it is unknown.

        A worker keeps some of the memory of its earlier trials, so the next one may not fit: it is worn, and
        its trial resumes in a new worker, which shows whose memory it is.
        """
        if self._given == 1:
            return self._kill("memory", f"the trial {what}")
        self._leave(0)
        if self._most == 1:
            return self._all({"kind": "worn"})
        message = f"{self._most} trials in one worker {what} for each"
        return self._all({"kind": "crowded", "together": self._most, "message": message})

    def _ask_to_leave(self, trial: HostedTrial) -> None:
        """Let the trial leave at its next step, since the process has other trials."""
        trial.stopping, trial.since = True, time.monotonic()
        self._send({"kind": "drop", "number": trial.number})

    def _relevant(self, message: Message) -> list[Message]:
        if message["kind"] == "alive":
            return []
        if message["kind"] == "lost":  # another rank of the trial failed, which ended all of them
            self._leave(0)
            return self._all({"kind": "failed", "failure": message["failure"]})
        trial = self._trials.get(message["number"])
        if message["kind"] == "report":
            if trial is None or trial.stopping:  # a thread outlived its objective
                self._answer(message, stop=True)
                return []
            return [message]
        if message["kind"] == "stopped":
            what = "the objective raised TrialStopped, which only report() may raise"
            message = {**_failure("error", what), "number": message["number"]}
        return self._ended(message)

    def _lost(self) -> list[Message]:
        """The process ended by itself, or was killed."""
        self._leave(EXIT_SECONDS)
        return self._all(_failure("lost", exit_message("the worker process", self._process.returncode)))

    def _kill(self, kind: str, what: str) -> list[Message]:
        self._leave(0)
        return self._all(_failure(kind, what))

    def _all(self, end: Message) -> list[Message]:
        """End every trial of this worker alike."""
        return [message for number in self.numbers for message in self._ended({**end, "number": number})]

    def _ended(self, message: Message) -> list[Message]:
        """A trial has left; the search gets no message of one that it had stopped."""
        trial = self._trials.pop(message["number"], None)
        if trial is None:
            return []
        shorten(trial.output)
        if self.fresh and self.alive:
            self.end()
            if trial.next_assignment is not None:
                return [{"kind": "worn", "number": trial.number}]
        if trial.next_assignment is not None and not self.alive:
            return [message]  # its worker was gone before it started again
        if trial.next_assignment is not None:
            self.give(trial.next_assignment)
        return [] if trial.stopping else [message]

    def _leave(self, seconds: float) -> None:
        """Let the process exit within so many seconds, then kill it and its session."""
        self.alive = False
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        end_session(self._process.pid)
        self._channel.close()

    def memory(self) -> int:
        """Bytes that the worker and the programs it started hold."""
        total = 0
        try:
            process = psutil.Process(self._process.pid)
            for each in [process, *process.children(recursive=True)]:
                total += each.memory_info().rss
        except psutil.Error:
            return total  # one of them has just ended
        return total

    def _answer(self, report: Message, *, stop: bool) -> None:
        """Answer a report by its trial and step, so that no other report takes the answer."""
        self._send({"kind": "answer", "number": report["number"], "step": report["step"], "stop": stop})

    def _send(self, message: Message) -> None:
        try:
            self._channel.send(message)
        except OSError:
            return  # the worker is gone, which `receive` handles at the end of file


class WorkerPlace:
    """A place for one worker at a time. Where each trial gets a fresh one, the next is ready in time."""

    def __init__(self, start: Callable[[], Worker]) -> None:
        self._start = start
        self._next: Worker | None = None

    def take(self) -> Worker:
        """Its next worker."""
        ready, self._next = self._next, None
        return ready if ready is not None and ready.is_running else self._start()

    def prepare(self, worker: Worker) -> None:
        """Start the next worker, if this one ends with its trial, and that does not end at once."""
        if worker.fresh and self._next is None and worker.trial_seconds >= PREPARE_SECONDS:
            self._next = self._start()

    def end(self) -> None:
        """End the next worker, if there is one."""
        if self._next is not None and self._next.alive:
            self._next.end()
        self._next = None


def start_process(
    environment: Mapping[str, str] | None = None, folder: str | None = None, *, own_session: bool = False
) -> tuple[Channel, subprocess.Popen[bytes]]:
    """Start a worker's process; our end of the channel to it, and the process. Raises `OSError`.

    `environment`, `folder`: by default those of this process. With its `own_session` Ctrl-C in the terminal
    does not reach it.
    """
    ours, theirs = socket.socketpair()
    with ExitStack() as failed, theirs:
        failed.callback(ours.close)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", WORKER, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=own_session,
            env=environment,
            cwd=folder,
        )
        failed.pop_all()
    return Channel(ours), process


def environment(threads: int) -> dict[str, str]:
    """A worker's environment: its share of the cores, and an allocator that keeps its pages."""
    variables = dict(os.environ)
    for name in ("HPSEARCH_STORAGE", "HPSEARCH_NOTIFY"):  # URLs with secrets, which no worker needs
        variables.pop(name, None)
    variables.pop(STRATEGY, None)  # where this search runs inside a trial
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        variables[name] = str(threads)
    variables.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # or torch compiles in a process for each core
    # glibc returns big buffers to the kernel after every training step, and page-faults on them in the next.
    variables.setdefault("MALLOC_MMAP_MAX_", "0")
    variables.setdefault("MALLOC_TRIM_THRESHOLD_", "100000000000")
    variables.setdefault("MALLOC_TOP_PAD_", str(64 << 20))
    return variables


def _failure(kind: str, what: str) -> Message:
    return {"kind": "failed", "failure": {"kind": kind, "message": what}}


def exit_message(what: str, code: int) -> str:
    """How a process ended in the middle of a trial, from its exit code."""
    if code < 0:
        name = signal_name(-code)
        hint = "; the machine may have run out of memory" if name == "SIGKILL" else ""
        return f"{what} was killed by {name}{hint}"
    return f"{what} exited with code {code} in the middle of the trial"
