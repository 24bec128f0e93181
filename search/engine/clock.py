"""The clock of a search: its time over all resumes, and whether it is pausing or stopping."""

from __future__ import annotations

import time
from collections.abc import Callable

import optuna

from ...storage.studies import ELAPSED, PAUSED

SAVE_EVERY_SECONDS = 5.0  # a killed driver forgets at most so much of the search's time
REPORT_SECONDS = 30.0  # that running trials have for one more report when the search pauses or stops
MAX_SETBACK_SECONDS = 2.0  # of the machine's clock, before the user is told


class SearchClock:
    """The time of one search, by a monotonic clock."""

    def __init__(self, study: optuna.Study, begun: float | None, now: Callable[[], float]) -> None:
        """`begun`: the time of the clock from which the search's time counts; by default `now`."""
        self._study = study
        self.now = now
        self.counts = False  # until a trial runs: a command that finds nothing to do takes no search time
        self._begun = now() if begun is None else begun
        self._before = float(study.user_attrs.get(ELAPSED, 0.0))
        self._paused_since: float | None = None
        self._requeuing_since: float | None = None
        self.asked_by: str | None = None  # who asked for the pause or the stop, if that was another
        self._ahead = _wall_ahead()
        study.set_user_attr(PAUSED, False)

    @property
    def elapsed(self) -> float:
        """Seconds searched so far, without pauses."""
        return self._before + (self._paused_since or self.now()) - self._begun

    @property
    def paused(self) -> bool:
        """Whether the search is paused, until `resume`."""
        return self._paused_since is not None

    @property
    def stopped(self) -> bool:
        """Whether the search was stopped, to be resumed later."""
        return self.requeues and not self.paused

    @property
    def requeues(self) -> bool:
        """Whether running trials are requeued at their next report: the search pauses or stops."""
        return self._requeuing_since is not None

    @property
    def is_overdue(self) -> bool:
        """Whether the trials to be requeued have had their time to report."""
        since = self._requeuing_since
        return since is not None and self.now() - since > REPORT_SECONDS

    def pause(self, by: str | None = None) -> None:
        """Stop counting time until `resume`; `by`: who asks for it."""
        self.asked_by = by
        self._paused_since = self._requeuing_since = self.now()
        self._study.set_user_attr(PAUSED, True)

    def resume(self) -> None:
        """Continue after a pause."""
        self._end_pause()
        self._study.set_user_attr(PAUSED, False)

    def stop(self, by: str | None = None) -> None:
        """Requeue running trials from now on, which ends a pause; `by`: who asks for it."""
        self.asked_by = by
        self._end_pause()
        self._requeuing_since = self._requeuing_since or self.now()

    def tick(self) -> str | None:
        """Save the time if that is due. Returns what to tell the user if the machine's clock was set back."""
        if self.elapsed - self._study.user_attrs.get(ELAPSED, 0.0) >= SAVE_EVERY_SECONDS:
            self.note()
        before, self._ahead = self._ahead, _wall_ahead()
        if self._ahead >= before - MAX_SETBACK_SECONDS:
            return None
        back = f"{before - self._ahead:.0f} s"
        return f"the clock was set back by {back}; times in the study are those of the clock"

    def note(self) -> None:
        """Save in the study how long it was searched."""
        if self.counts:
            self._study.set_user_attr(ELAPSED, round(self.elapsed, 1))

    def close(self) -> None:
        """Save the time at the end of the search, and end a pause."""
        self.note()
        self._study.set_user_attr(PAUSED, False)

    def _end_pause(self) -> None:
        if self._paused_since is not None:
            self._begun += self.now() - self._paused_since
            self._paused_since = self._requeuing_since = None


def _wall_ahead() -> float:
    """Seconds by which the machine's clock is ahead of the monotonic one."""
    return time.time() - time.monotonic()
