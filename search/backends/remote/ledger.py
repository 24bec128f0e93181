"""The leases of a search: given out, renewed, taken up again, ended; and what is said to a late call."""

from __future__ import annotations

import shutil
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from ....storage.claims import ID
from ....storage.files import METRICS
from ....storage.studies import LEASES_LOST
from ....storage.trial_attrs import LEASE, THREADS, at_rung, state_of
from ...engine.driver import Driver
from ...engine.running import Assignment, Failure
from ...trials.reports import read_reports
from ...trials.stops import stop_of
from .address import short_id
from .leases import Lease, StoredLease, new_token, number_in
from .requests import Ask
from .uploads import mend

GIVES_UP_AFTER = 5.0  # times its lease, that a worker tries to reach its search
MOST_REMEMBERED = 4096  # leases that are over
_WORDS = {  # for programs, of the kinds of ends that are no mere stop
    "pruned": "pruned",
    "no_checkpoint": "pruned",
    "not_promoted": "pruned",
    "diverged": "diverged",
    "killed": "killed",
}


class Refusal(Exception):
    """A request that changes nothing; `kind` says why for programs, and `more` what belongs to it."""

    def __init__(self, kind: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.more = more


class Ledger:
    """Knows which worker has which trial of a search."""

    def __init__(self, driver: Driver, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._driver = driver
        self._clock = clock
        self._wall = wall
        self.study = short_id(driver.study.user_attrs.get(ID, ""))
        self._lost: int = driver.study.user_attrs.get(LEASES_LOST, 0)
        self.live: dict[str, Lease] = {}  # by their tokens
        self._over: OrderedDict[str, Lease] = OrderedDict()  # the last ones, for calls that are repeated

    def adopt(self) -> None:
        """Give the trials of a driver that was killed back to their workers, which may train them still."""
        for trial in list(self._driver.trials):
            stored = StoredLease.of(trial)
            if trial.state != TrialState.WAITING or stored is None or stored.end is not None:
                continue
            if self._wall() - stored.heard <= GIVES_UP_AFTER * stored.seconds:
                self._take_up(trial.number, stored, adopted=True)

    def lend(self, assignment: Assignment, ask: Ask) -> Lease:
        """Give a trial to a worker."""
        token = new_token(self.study, assignment.number)
        lease = Lease(token, assignment, ask.worker, ask.request, ask.lease)
        if ask.threads is not None:
            self._set(lease.number, THREADS, ask.threads)
        self._keep(lease)
        return lease

    def find(self, token: str) -> Lease:
        """The lease of a token: a live one, which is renewed, one taken up again, or one that is over.

        Raises `Refusal` where another worker has the trial, or it ended with its driver.
        """
        lease = self.live.get(token)
        if lease is not None and lease.number not in self._driver.running:
            self.end(lease, by="search")
        elif lease is not None:
            lease.heard, lease.adopted = self._clock(), False
            return lease
        number = number_in(token, self.study)
        if number is None or number >= len(self._driver.trials):
            raise Refusal("no-such-lease", "there is no such lease; ask gives one")
        trial = self._driver.trials[number]
        stored = StoredLease.of(trial)
        if stored is None or stored.token != token:
            raise self.too_late(number)
        known = self._over.get(token)
        end = stored.end if known is None else known.end
        may_return = trial.state == TrialState.WAITING and _may_return(end)
        if may_return and (again := self._take_up(number, stored)) is not None:
            return again
        if known is not None:
            return known
        if end is None:  # the trial ended, and the driver with it
            raise self.too_late(number)
        place = Assignment(number, {}, 0, self._driver.folder(number), 0)
        return Lease(token, place, stored.worker, stored.request, stored.seconds, end=dict(end))

    def end(self, lease: Lease, **end: Any) -> None:
        """End a lease, before what ends its trial: both are written together."""
        lease.end = end
        self.live.pop(lease.token, None)
        self._over[lease.token] = lease
        while len(self._over) > MOST_REMEMBERED:
            self._over.popitem(last=False)
        forget_upload(lease)
        self._write(lease)

    def expire(self, lease: Lease) -> None:
        """End the lease of a worker that is silent for too long. Its trial waits for it, or for another."""
        if self._clock() - lease.heard <= lease.seconds:
            return
        self.end(lease, by="lost")
        self._lost += 1
        self._driver.study.set_user_attr(LEASES_LOST, self._lost)
        if lease.adopted:  # it was the driver that was gone
            self._driver.requeue(lease.number)
            return
        what = f'worker "{lease.worker}" was not heard of for {lease.seconds:g} s'
        self._driver.say(f"trial {lease.number}: {what}")
        self._driver.fail(lease.number, Failure("lost", what))

    def refresh(self, lease: Lease) -> None:
        """Now and then write when a worker was heard last, so that a later driver knows."""
        stored = StoredLease.of(self._driver.trials[lease.number])
        if stored is None or self._wall() - stored.heard > lease.seconds / 2:
            self._write(lease)

    def too_late(self, number: int) -> Refusal:
        """That a lease is over, with what has become of its trial."""
        trial = self._driver.trials[number]
        state, (_, reason) = state_of(trial), because(trial)
        told = f"the lease of trial {number} is over: {reason}"
        return Refusal("lease-over", told, state=state, reason=reason)

    def _take_up(self, number: int, stored: StoredLease, *, adopted: bool = False) -> Lease | None:
        """Give a trial that waits back to the worker that had it last."""
        assignment = self._driver.take_up(number)
        if assignment is None:
            return None
        running = self._driver.running[number]
        if stored.end is not None and stored.end["by"] == "lost":  # it is there again: no attempt was spent
            running.attempts = max(1, running.attempts - 1)
            running.trial.set_user_attr("retries", running.attempts - 1)
        lease = Lease(stored.token, assignment, stored.worker, stored.request, stored.seconds)
        lease.adopted = adopted
        mend(assignment.folder)
        self._keep(lease)
        if not adopted:
            self._driver.say(f'worker "{stored.worker}" is back, and goes on with trial {number}')
        return lease

    def _keep(self, lease: Lease) -> None:
        reports = read_reports(lease.folder / METRICS, repair=True)
        lease.recorded = max((report.step for report in reports), default=-1)
        lease.heard = self._clock()
        self.live[lease.token] = lease
        self._over.pop(lease.token, None)
        self._write(lease)

    def _write(self, lease: Lease) -> None:
        if not self._driver.trials[lease.number].state.is_finished():
            self._set(lease.number, LEASE, lease.to_json(self._wall()))

    def _set(self, number: int, name: str, value: Any) -> None:
        trial = self._driver.trials[number]
        self._driver.study._storage.set_trial_system_attr(trial._trial_id, name, value)


def forget_upload(lease: Lease) -> None:
    """Delete a checkpoint that no report has followed."""
    if lease.upload is not None:
        shutil.rmtree(lease.upload, ignore_errors=True)
        lease.upload = None


def because(trial: FrozenTrial) -> tuple[str, str]:
    """Why a trial does not go on, in a word for programs and in a sentence."""
    if at_rung(trial):
        return "paused", "it is paused at its rung"
    if trial.state == TrialState.WAITING:
        return "stopped", "it was requeued, and waits"
    if trial.state == TrialState.RUNNING:
        return "stopped", "another worker has it"
    if (stop := stop_of(trial)) is None:
        return "stopped", f"it has ended as {state_of(trial)}"
    return _WORDS.get(stop.kind, "stopped"), stop.reason


def _may_return(end: dict[str, Any] | None) -> bool:
    """Whether the worker of a lease may have its trial again: it was not told that it does not go on."""
    return end is None or end["by"] == "lost" or (end["by"] == "search" and not end.get("told"))
