"""A worker process, as whoever started it sees it: a trial goes in, its messages come out.

What ends a trial without a word of its own (a killed process, too much time or memory) comes out as a message
like any other.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ....objectives.processes import STRATEGY
from ....objectives.user.command import signal_name
from ....storage.files import OUTPUT, shorten
from ...errors import SearchError, why
from ...formatting import gibibytes
from .channel import Channel, Message, end_session

if TYPE_CHECKING:
    from ....spaces.settings import Execution

TICK_SECONDS = 0.25  # between two looks at the clock
EXIT_SECONDS = 5.0  # for an idle worker to leave by itself
SILENCE_SECONDS = 120.0  # without a sign of life, after which a worker counts as frozen
STOP_SECONDS = 30.0  # for an objective to return once its trial is stopped; a command takes up to ten


@dataclass(frozen=True)
class Limits:
    """What a trial may take before its worker is killed; None: as much as it likes."""

    seconds: float | None
    memory: int | None  # bytes
    leaving: float  # seconds that an objective has to return once its trial is stopped
    silence: float  # seconds that its process may give no sign of life

    @classmethod
    def of(cls, execution: Execution) -> Limits:
        return cls(execution.trial_timeout, execution.max_memory, STOP_SECONDS, SILENCE_SECONDS)


@dataclass
class Running:
    """A trial in a worker."""

    number: int
    output: Path  # where it prints
    since: float  # when it was given, or stopped, by the monotonic clock
    stopping: bool = False  # the search has ended it; it is on its way out
    again: Message | None = None  # and is to be run again as soon as it is out: its assignment


class Worker:
    """A process that runs up to `capacity` trials at once; started here, in a session of its own."""

    def __init__(self, setup: Message, limits: Limits, environment: Mapping[str, str], folder: str) -> None:
        """Raises `SearchError` where the system starts no process."""
        try:
            ours, self._process = _started(environment, folder)
        except OSError as error:
            raise SearchError(f"no worker can be started: {why(error)}") from error
        self._channel = Channel(ours)
        self._limits = limits
        self._heard = 0.0  # when it last gave a sign of life
        self._trials: dict[int, Running] = {}
        self.capacity: int = setup["pack"]
        self._given = 0  # trials so far
        self._most = 0  # trials that it had at once; it keeps the memory that they took
        self.alive = True
        self._send({"kind": "setup", **setup})

    @property
    def numbers(self) -> list[int]:
        """The trials in it, those on their way out too."""
        return list(self._trials)

    def fileno(self) -> int:
        return self._channel.fileno()

    def give(self, assignment: Message) -> None:
        """Let the worker run a trial: an `Assignment` as a message."""
        number = assignment["number"]
        if number in self._trials:
            self._trials[number].again = assignment
            return
        self._heard = time.monotonic()
        self._trials[number] = Running(number, Path(assignment["folder"]) / OUTPUT, self._heard)
        self._given += 1
        self._most = max(self._most, len(self._trials))
        self._send({"kind": "trial", **assignment})

    def go_on(self, report: Message) -> None:
        """Answer the trial's report: it goes on."""
        self._answer(report, stop=False)

    def stop(self, report: Message) -> None:
        """Answer the trial's report: it ends here. Its objective has a while to leave."""
        if (trial := self._trials.get(report["number"])) is not None:
            trial.stopping, trial.since = True, time.monotonic()
        self._answer(report, stop=True)

    def receive(self) -> list[Message]:
        """Wait for something to arrive; what of it the search is to know.

        That is a `report`, which waits for an answer, or the end of the trial: `done`, `failed`, `crowded`
        where it shared too little memory with others, or `worn` where others had left too little; each with
        the trial's `number`.
        """
        messages = self._channel.receive()
        self._heard = time.monotonic()
        if messages is None:
            return self._lost()
        return [told for message in messages for told in self._told(message)]

    def check(self) -> list[Message]:
        """End what takes too long or too much; the failures, where there are some."""
        if not self._trials:
            return []
        for trial in self._trials.values():
            shorten(trial.output)
        limits, now = self._limits, time.monotonic()
        if self._process.poll() is not None and not self._channel.has_news():
            return self._lost()  # what it forked keeps its socket open
        if now - self._heard > limits.silence and not self._channel.has_news():
            return self._kill("lost", f"the worker process gave no sign of life for {limits.silence:g} s")
        if limits.memory is not None and (taken := self.memory()) > limits.memory * self._most:
            return self._too_much(f"took {gibibytes(taken)}, max_memory is {gibibytes(limits.memory)}")
        for trial in list(self._trials.values()):
            if trial.stopping and now - trial.since > limits.leaving:
                return self._kill(
                    "lost", f"trial {trial.number} did not leave their worker when it was told to"
                )
            if not trial.stopping and limits.seconds is not None and now - trial.since > limits.seconds:
                return self._overdue(trial, f"the trial ran longer than {limits.seconds:g} s")
        return []

    def drop(self, number: int) -> None:
        """Take a trial out: it has ended, and its worker does not know."""
        trial = self._trials[number]
        if trial.stopping:
            trial.again = None
        elif self.capacity == 1:
            self._trials.clear()
            self._leave(0)
        else:
            self._ask_to_leave(trial)

    def end(self) -> None:
        """Take the worker out of service. An idle one leaves by itself; a busy one is killed."""
        if not self._trials:
            self._send({"kind": "exit"})
        self._leave(0 if self._trials else EXIT_SECONDS)

    def _overdue(self, trial: Running, what: str) -> list[Message]:
        if self.capacity == 1:
            return self._kill("timeout", what)
        self._ask_to_leave(trial)
        return [{**_failure("timeout", what), "number": trial.number}]

    def _too_much(self, what: str) -> list[Message]:
        """End a worker that holds too much memory. Of several trials nobody knows which it was.

        A worker that had others before keeps of what they took what does not fit the next: it is worn, and
        its trial goes on in a new one, which tells whose memory it is.
        """
        if self._given == 1:
            return self._kill("memory", f"the trial {what}")
        self._leave(0)
        if self._most == 1:
            return self._all({"kind": "worn"})
        told = f"{self._most} trials in one worker {what} for each"
        return self._all({"kind": "crowded", "together": self._most, "message": told})

    def _ask_to_leave(self, trial: Running) -> None:
        """Others go on in the process, so the trial leaves it at its next step."""
        trial.stopping, trial.since = True, time.monotonic()
        self._send({"kind": "drop", "number": trial.number})

    def _told(self, message: Message) -> list[Message]:
        if message["kind"] == "alive":
            return []
        if message["kind"] == "lost":  # another rank of the trial, and all of them with it
            self._leave(0)
            return self._all({"kind": "failed", "failure": message["failure"]})
        trial = self._trials.get(message["number"])
        if message["kind"] == "report":
            if trial is None or trial.stopping:  # of a thread that outlived its objective
                self._answer(message, stop=True)
                return []
            return [message]
        if message["kind"] == "stopped":
            what = "the objective raised TrialStopped, which is the search's"
            message = {**_failure("error", what), "number": message["number"]}
        return self._ended(message)

    def _lost(self) -> list[Message]:
        """The process ended by itself, or was killed."""
        self._leave(EXIT_SECONDS)
        return self._all(_failure("lost", how_it_ended("the worker process", self._process.returncode)))

    def _kill(self, kind: str, what: str) -> list[Message]:
        self._leave(0)
        return self._all(_failure(kind, what))

    def _all(self, end: Message) -> list[Message]:
        """This is the end of every trial in it."""
        return [told for number in self.numbers for told in self._ended({**end, "number": number})]

    def _ended(self, message: Message) -> list[Message]:
        """A trial is over; after its stop, or without one, the search hears no more of it."""
        trial = self._trials.pop(message["number"], None)
        if trial is None:
            return []
        shorten(trial.output)
        if trial.again is not None and not self.alive:
            return [message]  # its worker is gone before it began
        if trial.again is not None:
            self.give(trial.again)
        return [] if trial.stopping else [message]

    def _leave(self, seconds: float) -> None:
        """Let the process end within so many seconds, then kill it and what it started."""
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
        """Answer a report by its trial and step: a stray one's answer is nobody else's."""
        self._send({"kind": "answer", "number": report["number"], "step": report["step"], "stop": stop})

    def _send(self, message: Message) -> None:
        try:
            self._channel.send(message)
        except OSError:
            return  # the worker is gone; its end of file comes next and is dealt with there


def _started(environment: Mapping[str, str], folder: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """A worker's process, and our end of the line to it. Raises `OSError`."""
    ours, theirs = socket.socketpair()
    with ExitStack() as failed, theirs:
        failed.callback(ours.close)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "hpsearch.search.backends.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal is for the driver
            env=environment,
            cwd=folder,
        )
        failed.pop_all()
    return ours, process


def environment(threads: int) -> dict[str, str]:
    """A worker's environment: its share of the cores, and an allocator that keeps its pages."""
    found = dict(os.environ)
    found.pop("HPSEARCH_STORAGE", None)  # no worker opens the database, and its URL may hold a password
    found.pop(STRATEGY, None)  # of a trial that searches itself
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        found[name] = str(threads)
    found.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # or torch compiles in a process for each core
    # glibc gives big buffers back to the kernel after every training step and faults them in at the next.
    found.setdefault("MALLOC_MMAP_MAX_", "0")
    found.setdefault("MALLOC_TRIM_THRESHOLD_", "100000000000")
    found.setdefault("MALLOC_TOP_PAD_", str(64 << 20))
    return found


def _failure(kind: str, what: str) -> Message:
    return {"kind": "failed", "failure": {"kind": kind, "message": what}}


def how_it_ended(what: str, code: int) -> str:
    """How a process ended in the middle of a trial, by its exit code."""
    if code < 0:
        name = signal_name(-code)
        hint = "; the machine may have run out of memory" if name == "SIGKILL" else ""
        return f"{what} was killed by {name}{hint}"
    return f"{what} exited with code {code} in the middle of the trial"
