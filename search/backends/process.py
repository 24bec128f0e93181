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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ...objectives.command import signal_name
from ...storage.files import OUTPUT, shorten
from .protocol import Channel, Message, end_session
from .resources import gibibytes

if TYPE_CHECKING:
    from ...spaces.settings import Execution

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


class Worker:
    """A process that runs one trial after another; started here, in a session of its own."""

    def __init__(self, setup: Message, limits: Limits, environment: Mapping[str, str], folder: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "hpsearch.search.backends.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the terminal is for the driver
                env=environment,
                cwd=folder,
            )
        self._channel = Channel(ours)
        self._limits = limits
        self._since = 0.0  # when its trial was given, or stopped, by the monotonic clock
        self._heard = 0.0  # when it last gave a sign of life
        self._output = Path(os.devnull)  # what its trial prints
        self.number: int | None = None  # of the trial it runs
        self.stopping = False  # the search has ended its trial; the objective is on its way out
        self.alive = True
        self._send({"kind": "setup", **setup})

    def fileno(self) -> int:
        return self._channel.fileno()

    def give(self, assignment: Message) -> None:
        """Let the worker run a trial: an `Assignment` as a message."""
        self.number, self.stopping = assignment["number"], False
        self._since = self._heard = time.monotonic()
        self._output = Path(assignment["folder"]) / OUTPUT
        self._send({"kind": "trial", **assignment})

    def go_on(self, report: Message) -> None:
        """Answer the trial's report: it goes on."""
        self._answer(report, stop=False)

    def stop(self, report: Message) -> None:
        """Answer the trial's report: it ends here. Its objective has a while to leave."""
        self.stopping, self._since = True, time.monotonic()
        self._answer(report, stop=True)

    def receive(self) -> list[Message]:
        """Wait for something to arrive; what of it the search is to know.

        That is a `report`, which waits for an answer, or the end of the trial: `done` or `failed`; each with
        the trial's `number`.
        """
        messages = self._channel.receive()
        self._heard = time.monotonic()
        if messages is None:
            return self._lost()
        return [told for message in messages for told in self._told(message)]

    def check(self) -> list[Message]:
        """Kill the worker where its trial takes too long or too much; the failure, where there is one."""
        if self.number is None:
            return []
        shorten(self._output)
        limits = self._limits
        seconds, memory = limits.leaving if self.stopping else limits.seconds, limits.memory
        if seconds is not None and time.monotonic() - self._since > seconds:
            return self._kill("timeout", f"the trial ran longer than {seconds:g} s")
        if time.monotonic() - self._heard > limits.silence and not self._channel.has_news():
            return self._kill("lost", f"the worker process gave no sign of life for {limits.silence:g} s")
        if memory is not None and (taken := self._memory()) > memory:
            return self._kill(
                "memory", f"the trial took {gibibytes(taken)}, max_memory is {gibibytes(memory)}"
            )
        return []

    def drop(self) -> None:
        """Kill the worker: its trial has ended, and it does not know."""
        self._leave(0)
        self.number = None

    def end(self) -> None:
        """Take the worker out of service. An idle one leaves by itself; a busy one is killed."""
        if self.number is None:
            self._send({"kind": "exit"})
        self._leave(EXIT_SECONDS if self.number is None else 0)

    def _told(self, message: Message) -> list[Message]:
        if message["kind"] == "alive":
            return []
        if message["kind"] == "report":
            if message["number"] != self.number or self.stopping:  # a thread that outlived its objective
                self._answer(message, stop=True)
                return []
            return [message]
        if message["kind"] == "stopped":
            return self._failed("error", "the objective raised TrialStopped, which is the search's")
        return self._ended(message)

    def _lost(self) -> list[Message]:
        """The process ended by itself, or was killed."""
        self._leave(EXIT_SECONDS)
        return self._failed("lost", _how_it_ended(self._process.returncode))

    def _kill(self, kind: str, what: str) -> list[Message]:
        self._leave(0)
        return self._failed(kind, what)

    def _failed(self, kind: str, what: str) -> list[Message]:
        return self._ended({"kind": "failed", "failure": {"kind": kind, "message": what}})

    def _ended(self, message: Message) -> list[Message]:
        """The trial is over; after its stop, or without one, the search hears no more of it."""
        number, self.number = self.number, None
        shorten(self._output)
        return [] if number is None or self.stopping else [{**message, "number": number}]

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

    def _memory(self) -> int:
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


def environment(threads: int) -> dict[str, str]:
    """A worker's environment: its share of the cores, and an allocator that keeps its pages."""
    found = dict(os.environ)
    found.pop("HPSEARCH_STORAGE", None)  # no worker opens the database, and its URL may hold a password
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        found[name] = str(threads)
    # glibc gives big buffers back to the kernel after every training step and faults them in at the next.
    found.setdefault("MALLOC_MMAP_MAX_", "0")
    found.setdefault("MALLOC_TRIM_THRESHOLD_", "100000000000")
    found.setdefault("MALLOC_TOP_PAD_", str(64 << 20))
    return found


def _how_it_ended(code: int) -> str:
    if code < 0:
        name = signal_name(-code)
        hint = "; the machine may have run out of memory" if name == "SIGKILL" else ""
        return f"the worker process was killed by {name}{hint}"
    return f"the worker process exited with code {code} in the middle of the trial"
