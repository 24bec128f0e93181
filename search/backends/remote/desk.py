"""The desk to which workers come: lends trials, takes reports and ends, and answers repetitions alike.

Whatever may be lost on the way may be said again: an ask by its worker and request, a report by its step, an
end by what it says. What comes too late changes nothing, and is told so.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from optuna.trial import TrialState

from ....storage.files import CHECKPOINT, METRICS, OUTPUT, SEALED, has_checkpoint, opened, shorten
from ....storage.trial_attrs import at_rung, state_of
from ...engine.driver import Driver
from ...engine.running import Assignment, Failure
from ...trials import reports
from ...trials.snapshot import CheckpointSnapshot
from ...trials.usage import Usage
from ...values import plain
from .leases import Lease, StoredLease, number_in
from .ledger import Ledger, Refusal, because, forget_upload
from .requests import Ask, Complete, Fail, Notes, Report
from .uploads import is_place, mend, new_place, seal

Answer = dict[str, Any]
RETRY_SECONDS = 2.0  # after which a worker may ask again that has got no trial


@dataclass
class Waiting:
    """A worker that waits for a trial."""

    ask: Ask
    until: float  # by the driver's clock
    reply: Callable[[Answer], None]


class Desk:
    """Answers the workers of a search."""

    def __init__(
        self,
        driver: Driver,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._ledger = Ledger(driver, clock, wall)
        self._waiting: list[Waiting] = []
        self._workers: set[str] = set()  # that the user has been told of
        self._ledger.adopt()

    @property
    def is_over(self) -> bool:
        """Whether the search has no trial left, now or after a resume."""
        driver = self._driver
        if driver.running or driver.paused or driver.stopped or driver.fatal is not None:
            return False
        return driver.peek() is None

    def tick(self) -> None:
        """End what is over: leases of workers that are silent, trials that were ended, asks that waited."""
        ended, limit = set(self._driver.pop_cancelled()), self._driver.spec.execution.trial_timeout
        for lease in list(self._ledger.live.values()):
            running = self._driver.running.get(lease.number)
            if running is None or lease.number in ended:
                self._ledger.end(lease, by="search")
            elif limit is not None and running.seconds > limit:
                self._ledger.end(lease, by="search")
                failure = Failure("timeout", f"the trial ran longer than {limit:g} s")
                self._driver.fail(lease.number, failure)
            else:
                self._ledger.expire(lease)
        self.serve()
        for waiting in [each for each in self._waiting if self._clock() >= each.until]:
            self._waiting.remove(waiting)
            waiting.reply({"wait": RETRY_SECONDS})

    def close(self) -> None:
        """Tell the workers that wait for a trial that this search gives out no more."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.reply(self._over_too() or {"wait": RETRY_SECONDS})
        for lease in self._ledger.live.values():
            forget_upload(lease)

    # Giving out

    def ask(self, ask: Ask, reply: Callable[[Answer], None]) -> None:
        """Reply with a trial as soon as there is one, or that there was none in the time to wait."""
        for lease in self._ledger.live.values():
            if (lease.worker, lease.request) == (ask.worker, ask.request):
                lease.heard, lease.seconds = self._clock(), ask.lease
                reply(self._given(lease))
                return
        for earlier in [each for each in self._waiting if _is_same(each.ask, ask)]:
            self._waiting.remove(earlier)  # a repetition, which nobody waits for any more
            earlier.reply({"wait": RETRY_SECONDS})
        waiting = Waiting(ask, self._clock() + ask.wait, reply)
        self._waiting.append(waiting)
        self.serve()
        if waiting in self._waiting and (not ask.wait or self.is_over):
            self._waiting.remove(waiting)
            reply(self._over_too() or {"wait": RETRY_SECONDS})

    def leave(self, reply: Callable[[Answer], None]) -> None:
        """A worker that waits for a trial has gone."""
        self._waiting = [each for each in self._waiting if each.reply != reply]

    def serve(self) -> None:
        """Give the workers that wait what trials there are, first come first served."""
        while self._waiting and (assignment := self._next()) is not None:
            waiting = self._waiting.pop(0)
            waiting.reply(self._given(self._ledger.lend(assignment, waiting.ask)))
            if waiting.ask.worker not in self._workers:
                self._workers.add(waiting.ask.worker)
                self._driver.say(f'worker "{waiting.ask.worker}" has come')

    def _next(self) -> Assignment | None:
        while (assignment := self._driver.ask()) is not None:
            if (ready := self._caught_up(assignment)) is not None:
                return ready
        return None

    def _caught_up(self, assignment: Assignment) -> Assignment | None:
        """Deliver what an earlier attempt recorded, if its checkpoint has it; None if the trial ends so."""
        number, folder = assignment.number, assignment.folder
        mend(folder)
        local = StoredLease.of(self._driver.trials[number]) is None
        if local and (folder / SEALED).exists():  # as a local worker would, in whose hands it was
            CheckpointSnapshot(folder).restore()
        recorded = reports.read_reports(folder / METRICS, repair=True) if has_checkpoint(folder) else ()
        for each in recorded:
            if each.step > assignment.reported and (
                self._driver.report(number, each.value, each.step, each.metrics) is not None
            ):
                return None
        return replace(assignment, reported=self._driver.running[number].reported)

    def _given(self, lease: Lease) -> Answer:
        return {
            "lease": lease.token,
            "trial": lease.number,
            "params": plain(lease.assignment.params),
            "seed": lease.assignment.seed,
            "reported": self._driver.running[lease.number].reported,
            "checkpoint": has_checkpoint(lease.folder),
            "until": lease.seconds,
        }

    # Reports

    def report(self, token: str, report: Report) -> Answer:
        """Record a report. The answer says whether the trial goes on, or because of what it does not."""
        lease = self._ledger.find(token)
        if lease.last is not None and report.step <= lease.last[0]:
            return lease.last[1]
        answer = self._stopped(lease) if lease.end is not None else self._recorded(lease, report)
        lease.last = report.step, answer
        return answer

    def beat(self, token: str) -> Answer:
        """A sign of life."""
        lease = self._ledger.find(token)
        if lease.end is not None:
            return self._stopped(lease)
        self._ledger.refresh(lease)
        return _goes_on(lease)

    def _recorded(self, lease: Lease, report: Report) -> Answer:
        number = lease.number
        self._note(lease, report)
        if report.step > lease.recorded:
            lease.recorded = report.step
            reports.record(lease.folder / METRICS, report.step, report.value, report.metrics)
        _seal(lease)
        reason = self._driver.report(
            number,
            report.value,
            report.step,
            report.metrics,
            seconds=report.seconds,
            trained=report.trained,
        )
        if reason is None:
            self._ledger.refresh(lease)
            return _goes_on(lease)
        self._ledger.end(lease, by="search", told=True)
        why, _ = because(self._driver.trials[number])
        return {"go_on": False, "because": why, "reason": reason} | self._over_too()

    def _stopped(self, lease: Lease) -> Answer:
        """That a trial does not go on, told once; raises `Refusal` where its worker knows."""
        assert lease.end is not None
        if lease.end["by"] != "search" or lease.end.get("told"):
            raise self._ledger.too_late(lease.number)
        lease.end["told"] = True
        why, reason = because(self._driver.trials[lease.number])
        return {"go_on": False, "because": why, "reason": reason} | self._over_too()

    def _note(self, lease: Lease, notes: Notes) -> None:
        """What a worker says beside a report or an end."""
        if notes.used is not None:
            self._driver.running[lease.number].used = Usage.from_list(notes.used)
        for kind, text in notes.remarks:
            self._driver.remark(lease.number, kind, text)
        for name, value in notes.attributes.items():
            self._driver.running[lease.number].set_attribute(name, value)
        if notes.output:
            path = lease.folder / OUTPUT
            with suppress(OSError):  # what a trial prints is no reason to end it
                with open(opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as stream:
                    stream.write(notes.output.encode("utf-8", "replace"))
                shorten(path)

    # Ends

    def complete(self, token: str, complete: Complete) -> Answer:
        """End a trial with its value."""
        value = complete.value if math.isfinite(complete.value) else str(complete.value)
        lease = self._ending(token, complete, {"by": "complete", "value": value})
        if lease is not None:
            self._driver.complete(lease.number, complete.value, complete.seconds)
        return self._ended(token)

    def fail(self, token: str, fail: Fail) -> Answer:
        """End an attempt without a value; the trial is tried again, or has failed."""
        lease = self._ending(token, fail, {"by": "fail", "kind": fail.kind, "message": fail.message})
        if lease is not None:
            self._driver.fail(lease.number, Failure(fail.kind, fail.message, fail.traceback, fail.detail))
        return self._ended(token)

    def release(self, token: str) -> Answer:
        """Requeue a trial, for this worker or another; it costs no attempt."""
        lease = self._ending(token, None, {"by": "release"})
        if lease is not None:
            self._driver.requeue(lease.number)
        return self._ended(token)

    def _ending(self, token: str, notes: Notes | None, end: dict[str, Any]) -> Lease | None:
        """The lease, which ends now in this way; None where it has done so before."""
        lease = self._ledger.find(token)
        if lease.end is None:
            if notes is not None:
                self._note(lease, notes)
            _seal(lease)
            self._ledger.end(lease, **end)
            return lease
        if lease.end["by"] not in ("complete", "fail", "release"):
            raise self._ledger.too_late(lease.number)
        if lease.end != end:
            state, before = state_of(self._driver.trials[lease.number]), lease.end["by"]
            told = f"trial {lease.number} has ended otherwise before, by {before}, and is {state}"
            raise Refusal("wrong-state", told, state=state)
        return None

    def _ended(self, token: str) -> Answer:
        """The trial after its lease has ended, and whether there is more to ask for."""
        number = number_in(token, self._ledger.study)
        assert number is not None
        trial = self._driver.trials[number]
        answer = {"trial": number, "state": state_of(trial), "value": plain(trial.value)}
        return answer | {"reason": trial.user_attrs.get("reason")} | self._over_too()

    def _over_too(self) -> Answer:
        """Why there is nothing left to ask for, if so."""
        return {"over": self._driver.stop_reason or "all its trials have ended"} if self.is_over else {}

    # Checkpoints

    def place(self, token: str) -> Answer:
        """Where the files of a checkpoint may be put, before `uploaded` says that they are there."""
        return {"folder": str(new_place(self._for_upload(token).folder))}

    def uploaded(self, token: str, place: Path) -> Answer:
        """A checkpoint is there. It becomes the trial's with the next report, or now if the trial waits."""
        lease = self._for_upload(token)
        if not is_place(place, lease.folder):
            raise Refusal("malformed", f"{place} is no upload of this trial")
        forget_upload(lease)
        lease.upload = place
        if lease.end is not None:
            _seal(lease)
        return {"trial": lease.number}

    def checkpoint(self, token: str) -> Answer:
        """The folder of the checkpoint from which the trial resumes; null without one."""
        lease = self._ledger.find(token)
        if lease.end is not None:
            raise self._ledger.too_late(lease.number)
        there = has_checkpoint(lease.folder)
        return {"folder": str(lease.folder / CHECKPOINT) if there else None}

    def _for_upload(self, token: str) -> Lease:
        """The lease whose worker may send a checkpoint: a live one, or the last one of a trial that waits."""
        lease = self._ledger.find(token)
        trial = self._driver.trials[lease.number]
        if lease.end is not None and not (at_rung(trial) or trial.state == TrialState.WAITING):
            raise self._ledger.too_late(lease.number)
        return lease


def _seal(lease: Lease) -> None:
    """Make the checkpoint that waits, if one does, that of the trial."""
    if (upload := lease.upload) is not None:
        lease.upload = None
        seal(upload, lease.folder)


def _goes_on(lease: Lease) -> Answer:
    return {"go_on": True, "until": lease.seconds}


def _is_same(one: Ask, other: Ask) -> bool:
    return (one.worker, one.request) == (other.worker, other.request)
