"""Plans: forecasts of searches, each measured by a process of its own in a part of the machine.

A plan is worth nothing once it was read, so none is kept longer than the server lives. Its process is the
command `hpsearch plan`, which ends after the seconds that it may measure, or with the server, however that
ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ...spaces import Spec
from ...storage.wanted import moment
from ..engine.guardian import LEAVE_SECONDS, ended_with_this_process
from ..errors import SearchError, UsageError, why
from ..operations.plan import refuse_remote
from ..queue.slots import Slice, need_of
from ..values import Value
from .queue.drivers import ERROR, LONGEST_WORDS, environment
from .queue.reconciler import Reconciler

KEPT = 100  # plans that have ended
OVERHEAD_SECONDS = 60.0  # of a plan at most, beside what it measures: its start, its last trainings, its end


@dataclass(frozen=True)
class Plan(Value):
    """A forecast that is measured, or was."""

    id: str
    study: str  # the name in its space
    state: Literal["measuring", "done", "failed"]
    since: str
    seconds: float  # that it may measure
    failure: str | None = None  # why it failed
    forecast: dict[str, Any] | None = None  # as `hpsearch plan --json` prints it


@dataclass
class _Measured:
    """The process of a plan."""

    process: subprocess.Popen[str]
    reason: str | None = None  # why it was told to end
    over: threading.Event = field(default_factory=threading.Event)


class Plans:
    """The plans of a server."""

    def __init__(self, queue: Reconciler, cwd: Path, tell: Callable[[Plan], None]) -> None:
        """`queue` lends parts of its machine; plans without code of their own work in `cwd`.

        `tell` is told each plan that has ended.
        """
        self._queue, self._cwd, self._tell = queue, cwd, tell
        self._plans: OrderedDict[str, Plan] = OrderedDict()
        self._asked: dict[str, str] = {}  # by id, a digest of what was asked
        self._measured: dict[str, _Measured] = {}  # by id
        self._lock = threading.Lock()
        self._leaving = False

    # The part of a service

    def start(self) -> None:
        """Nothing begins by it."""

    def ready(self) -> bool:
        """Whether plans can be made."""
        return not self._leaving

    def leave(self) -> None:
        """Nobody waits for a plan here."""

    def stop(self) -> None:
        """End the plans that are measured, and make no more."""
        self._leaving = True
        self.end("the server has ended")

    # Its plans

    def make(
        self, spec: Spec, seconds: float, *, folder: Path | None = None, key: str | None = None
    ) -> tuple[Plan, bool]:
        """Begin a plan, in the folder of its code; False: it is the one that was begun by the same `key`.

        Raises `UsageError` for what cannot be planned here, and `SearchError` while there is no room.
        """
        refuse_remote(spec)
        told = json.dumps([spec.to_json(), seconds, str(folder)], sort_keys=True)
        asked = hashlib.sha256(told.encode()).hexdigest()
        id = secrets.token_hex(8) if key is None else hashlib.sha256(key.encode()).hexdigest()[:16]
        with self._lock:
            if (there := self._plans.get(id)) is not None:
                if self._asked[id] != asked:
                    raise UsageError(
                        "another plan was asked for by this Idempotency-Key", code="request-differs"
                    )
                return there, False
            place = self._lend(id, spec, seconds)
            try:
                process = self._begin(place, seconds, folder or self._cwd)
            except OSError as error:
                self._queue.give_back(id)
                raise SearchError(f"the plan cannot be started: {why(error)}", code="failed") from error
            plan = Plan(id, spec.name, "measuring", moment(time.time()), seconds)
            self._plans[id], self._asked[id] = plan, asked
            measured = self._measured[id] = _Measured(process)
            self._forget_old()
        threading.Thread(
            target=self._follow, args=(plan, measured, spec), name=f"plan-{id}", daemon=True
        ).start()
        return plan, True

    def get(self, id: str) -> Plan | None:
        """A plan; None where there is none, or it has been forgotten."""
        return self._plans.get(id)

    def end(self, reason: str, id: str | None = None) -> None:
        """End a plan, or all of them, and return once nothing of it is measured any more."""
        with self._lock:
            ending = [each for key, each in self._measured.items() if id in (None, key)]
        for measured in ending:
            measured.reason = measured.reason or reason
            measured.process.send_signal(signal.SIGTERM)
        for measured in ending:
            _end(measured.process)
            measured.over.wait(LEAVE_SECONDS)

    def _lend(self, id: str, spec: Spec, seconds: float) -> Slice:
        machine = self._queue.machine
        need = need_of(None, spec.to_json().get("execution") or {}, {}, machine)
        if machine.pick(need, ()) is None:
            raise UsageError(f"it asks for {need}, which this machine never has: {machine}", code="slots")
        if self._queue.draining or self._leaving:
            raise SearchError("the server is drained, and starts nothing", code="draining")
        if full := self._queue.full_disk:
            raise SearchError(f"the disk of {full} is full", code="disk-full")
        place = self._queue.lend(id, f"plan {id}", need, seconds + OVERHEAD_SECONDS)
        if place is None:
            raise SearchError(
                f"a plan measures, and {need} of the machine is not free for it now; "
                "GET /v1/queue says when others end",
                code="no-room",
            )
        return place

    def _begin(self, place: Slice, seconds: float, cwd: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-m", "hpsearch.search.cli", "plan", "-", "--json"]
        return subprocess.Popen(
            [*command, f"--measure={seconds:g}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
            errors="replace",
            cwd=cwd,
            env=environment(os.environ, place, self._queue.machine),
        )

    def _follow(self, plan: Plan, measured: _Measured, spec: Spec) -> None:
        """Wait for a plan, and keep what it says."""
        process, most = measured.process, plan.seconds + OVERHEAD_SECONDS
        with process, ended_with_this_process(process.pid):
            try:
                output, errors = process.communicate(json.dumps(spec.to_json()), most)
            except subprocess.TimeoutExpired:
                measured.reason = measured.reason or f"it did not end within {most:.0f} s"
                process.send_signal(signal.SIGTERM)
                _end(process)
                output, errors = "", ""
        ended = _ended(plan, process.returncode, output, errors)
        if ended.state == "failed" and measured.reason is not None:
            ended = replace(ended, failure=measured.reason)
        self._queue.give_back(plan.id)
        with self._lock:
            self._plans[plan.id] = ended
            del self._measured[plan.id]
        measured.over.set()
        self._tell(ended)

    def _forget_old(self) -> None:
        over = [id for id, plan in self._plans.items() if plan.state != "measuring"]
        for id in over[: max(0, len(over) - KEPT)]:
            del self._plans[id], self._asked[id]


def _ended(plan: Plan, code: int, output: str, errors: str) -> Plan:
    """A plan whose process has ended."""
    if code == 0:
        with suppress(ValueError):
            return replace(plan, state="done", forecast=json.loads(output))
    lines = errors.strip().splitlines()
    last = next((line for line in reversed(lines) if line.startswith(ERROR)), " ".join(lines[-1:]))
    words = last.removeprefix(ERROR)[:LONGEST_WORDS]
    if code < 0:
        words = f"it was ended by signal {-code}"
    return replace(plan, state="failed", failure=words or f"it ended with the exit code {code}")


def _end(process: subprocess.Popen[str]) -> None:
    """Wait for a process that was told to end, and end it with all that it has started if it does not."""
    try:
        process.wait(LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
