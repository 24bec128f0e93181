"""What the failure of an attempt leads to: a retry, the end of its trial, or the end of the search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ...storage.files import OUTPUT, drop_checkpoint
from ..trials.events import event_in_words
from ..trials.retries import failed_alike, has_failed_with
from ..trials.stops import failed
from .running import Failure

if TYPE_CHECKING:
    from .lifecycle import TrialLifecycle

FATAL_SAME_FAILURES = 3  # a search ends if so many trials fail alike from its start


class Search(Protocol):
    """What a failure may do to a search."""

    fatal: str | None

    @property
    def may_retry(self) -> bool: ...

    def say(self, message: str) -> None: ...

    def requeue(self, number: int) -> None: ...

    def request_stop(self, reason: str) -> None: ...


class FailedAttempts:
    """The failed attempts of a search."""

    def __init__(self, search: Search, lifecycle: TrialLifecycle) -> None:
        self._search = search
        self._lifecycle = lifecycle
        self._spec = lifecycle.spec
        self._storage = lifecycle.storage

    def handle(self, number: int, failure: Failure) -> None:
        """An attempt ended without a value: the trial is pruned, requeued for a retry, or failed."""
        search, lifecycle = self._search, self._lifecycle
        running, folder, trials = lifecycle.running[number], lifecycle.folder(number), lifecycle.trials
        if failure.kind == "disk":
            search.requeue(number)
            why = f"trial {number} cannot write: {failure.message}"
            search.fatal = f"{why}; make room, and the same command resumes the search"
            search.request_stop(search.fatal)
        elif failure.kind == "checkpoint" and not has_failed_with(failure.message, trials):
            event = {"kind": "started_over", "error": failure.message}
            search.say(f"trial {number} {event_in_words(event, self._spec.resource)}")
            self._storage.add_event(trials[number], event)
            drop_checkpoint(folder)
            search.requeue(number)
        elif failure.recurs(trials):
            lifecycle.fail(
                running, failure.message, failed(failure.whole_reason(folder / OUTPUT), failure.message)
            )
            search.fatal = f"trial {number}: {lifecycle.trials[number].user_attrs['reason']}"
            search.request_stop(search.fatal)
        elif (stop := failure.as_stop) is not None:
            lifecycle.stop(running, stop)
        elif running.attempts <= self._spec.execution.retries and search.may_retry:
            running.trial.set_user_attr("retries", running.attempts)
            running.trial.set_user_attr("error", failure.message)
            search.requeue(number)
        else:
            if failure.traceback:
                running.trial.set_user_attr("traceback", failure.traceback)
            lifecycle.fail(
                running, failure.message, failed(failure.whole_reason(folder / OUTPUT), failure.message)
            )
            self._check_same_failures()

    def _check_same_failures(self) -> None:
        states = self._lifecycle.tally.states
        if states["fail"] < FATAL_SAME_FAILURES or states["complete"] or states["pruned"]:
            return
        if (last := failed_alike(self._lifecycle.trials)) is not None:
            reason = last.user_attrs["reason"]
            fatal = f"the first {states['fail']} trials all failed the same way: {reason}"
            self._search.fatal = fatal
            self._search.request_stop(fatal)
