"""The clock of a search: how long it has searched, over all its resumes, and whether it pauses or stops."""

from __future__ import annotations

import time

import optuna

from ...storage.studies import ELAPSED, PAUSED

SAVE_EVERY_SECONDS = 5.0  # of a search that a killed driver may forget
REPORT_SECONDS = 30.0  # that running trials have for one more report when the search is asked to stop
MAX_SETBACK_SECONDS = 2.0  # that the machine's clock may be set back without a word


class SearchClock:
    """The time of one search, by a clock that is never set back."""

    def __init__(self, study: optuna.Study, begun: float | None) -> None:
        """`begun`: since when the time of the search counts; by default since now."""
        self._study = study
        self.counts = False  # until a trial runs: a command that finds nothing to do took no time of it
        self._begun = time.monotonic() if begun is None else begun
        self._before = float(study.user_attrs.get(ELAPSED, 0.0))
        self._paused_since: float | None = None
        self._suspending_since: float | None = None
        self._ahead = _wall_ahead()
        study.set_user_attr(PAUSED, False)

    @property
    def elapsed(self) -> float:
        """Seconds searched so far; pauses do not count."""
        return self._before + (self._paused_since or time.monotonic()) - self._begun

    @property
    def paused(self) -> bool:
        """Whether the search waits to be resumed."""
        return self._paused_since is not None

    @property
    def stopped(self) -> bool:
        """Whether somebody stopped the search, to go on with it later."""
        return self.suspends and not self.paused

    @property
    def suspends(self) -> bool:
        """Whether running trials are put back at their next report: the search pauses or stops."""
        return self._suspending_since is not None

    @property
    def is_overdue(self) -> bool:
        """Whether those that are to be put back have had their time to report."""
        since = self._suspending_since
        return since is not None and time.monotonic() - since > REPORT_SECONDS

    def pause(self) -> None:
        """Stand still until `resume`."""
        self._paused_since = self._suspending_since = time.monotonic()
        self._study.set_user_attr(PAUSED, True)

    def resume(self) -> None:
        """Go on after a pause."""
        self._end_pause()
        self._study.set_user_attr(PAUSED, False)

    def stop(self) -> None:
        """Running trials are put back from now on; a pause is over."""
        self._end_pause()
        self._suspending_since = self._suspending_since or time.monotonic()

    def tick(self) -> str | None:
        """Note the time where that is due; what to say of the machine's clock, if that was set back."""
        if self.elapsed - self._study.user_attrs.get(ELAPSED, 0.0) >= SAVE_EVERY_SECONDS:
            self.note()
        before, self._ahead = self._ahead, _wall_ahead()
        if self._ahead >= before - MAX_SETBACK_SECONDS:
            return None
        back = f"{before - self._ahead:.0f} s"
        return f"the clock was set back by {back}; times in the study are as it shows"

    def note(self) -> None:
        """Keep in the study how long it was searched."""
        if self.counts:
            self._study.set_user_attr(ELAPSED, round(self.elapsed, 1))

    def close(self) -> None:
        """The search ends here, and does not pause any more."""
        self.note()
        self._study.set_user_attr(PAUSED, False)

    def _end_pause(self) -> None:
        if self._paused_since is not None:
            self._begun += time.monotonic() - self._paused_since
            self._paused_since = self._suspending_since = None


def _wall_ahead() -> float:
    """Seconds by which the clock on the wall is ahead of the one that only goes on."""
    return time.time() - time.monotonic()
