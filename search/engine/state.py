"""How far a search is, for its backend and for those who watch it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from optuna.trial import FrozenTrial

from .budget import BudgetTracker
from .clock import SearchClock
from .lifecycle import TrialLifecycle


class SearchState:
    """The state of a driver's search, read-only."""

    _lifecycle: TrialLifecycle
    _clock: SearchClock
    _budget: BudgetTracker

    @property
    def trials(self) -> Sequence[FrozenTrial]:
        """All trials of the study as they are now, by number; read-only."""
        return self._lifecycle.trials

    @property
    def best(self) -> FrozenTrial | None:
        """The best complete trial of the search."""
        return self._lifecycle.best

    @property
    def finished(self) -> int:
        """How many trials of the search have ended."""
        return self._lifecycle.tally.ended

    @property
    def states(self) -> Counter[str]:
        """How many trials of the study are in each state, `paused` among them."""
        return self._lifecycle.tally.states

    @property
    def baseline(self) -> FrozenTrial | None:
        """The baseline trial; None if there is none."""
        return next(iter(self._lifecycle.tally.baselines), None)

    @property
    def elapsed(self) -> float:
        """Seconds searched so far, over all resumes, without pauses."""
        return self._clock.elapsed

    @property
    def consumed(self) -> int:
        """Resource spent so far: the last steps of all trials, summed."""
        return self._budget.consumed

    @property
    def stopped(self) -> bool:
        """Whether the search was stopped, to be resumed later."""
        return self._clock.stopped

    @property
    def hurries(self) -> bool:
        """Whether the next Ctrl-C ends its running trials at once."""
        return self.stopped

    @property
    def paused(self) -> bool:
        """Whether the search is paused: no trial is asked, and running ones are requeued."""
        return self._clock.paused

    @property
    def grace_is_over(self) -> bool:
        """Whether the trials to be requeued have had their time to report."""
        return self.stopped and self._clock.is_overdue
