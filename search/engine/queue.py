"""Which trial trains next: one that waits, one from a rung, or a new one; at the end those that confirm."""

from __future__ import annotations

import math
from collections.abc import Callable

import optuna
from optuna.trial import FrozenTrial

from ...spaces import Spec
from ...storage.files import has_checkpoint
from ...storage.live import LiveStorage
from ...storage.states import AUDITED, CONFIRMS, confirms
from ..sampling.grid import GridSampler
from ..sampling.tried import UntriedConfigs
from ..sampling.whole_sampler import WholeSampler
from ..scheduling.audit import mark
from ..scheduling.study_promotion import StudyPromotion
from ..trials.retries import REFUSED
from .budget import BudgetTracker
from .confirmation import attrs_of
from .deadline import Deadline
from .lifecycle import TrialLifecycle, Unusable
from .running import RunningTrial


class TrialQueue:
    """The trials of a search in the order in which they train."""

    def __init__(
        self,
        spec: Spec,
        study: optuna.Study,
        storage: LiveStorage,
        lives: TrialLifecycle,
        promoting: StudyPromotion | None,
        timing: Deadline,
        spending: BudgetTracker,
        say: Callable[[str], None],
    ) -> None:
        self._spec = spec
        self._study = study
        self._storage = storage
        self._lives = lives
        self._promoting = promoting
        self._timing = timing
        self._spending = spending
        self._say = say
        self._untried = UntriedConfigs(spec)
        self._exhausted = False  # whether it was said that all were tried

    def waiting(self, left: float) -> FrozenTrial | None:
        """The first trial that waits and may go on; those of the search have so many seconds left."""
        return next((t for t in self._lives.tally.waiting if self._may_go_on(t, left)), None)

    def begin(self, waiting: FrozenTrial | None, promoted: int | None) -> RunningTrial | None:
        """Begin a trial: the first that waits, or else one from a rung, or a new one.

        None where that one ended instead.
        """
        confirmed = None if waiting is None else confirms(waiting)
        late = confirmed is not None and self._timing.is_too_late_to_start(confirmed)
        try:
            if waiting is not None and late:
                self._lives.end_out_of_time(waiting.number)
            elif waiting is not None and waiting.datetime_start is not None:  # it has begun before
                return self._lives.resume(waiting)
            elif waiting is not None:
                return self._lives.begin(waiting)
            elif promoted is not None and not has_checkpoint(self._lives.folder(promoted)):
                self._lives.prune_waiting([promoted], "paused, and its checkpoint is gone")
            elif promoted is not None:
                return self._lives.resume(self._lives.trials[promoted], promoted=True)
            else:
                return self._lives.begin()
        except Unusable as error:
            self._lives.fail(error.running, str(error), f"{REFUSED}{error}")
        return None

    def all_asked(self) -> bool:
        """Whether the budget has no more new trials, or the space none that was not tried."""
        budget, sampler = self._spec.budget, self._study.sampler
        if budget.trials is not None and self._lives.tally.searched >= budget.trials:
            return True
        if isinstance(sampler, GridSampler):
            return sampler.next(self._study) is None
        assert isinstance(sampler, WholeSampler)
        if not self._untried.exhausted(sampler.tried(self._study)):
            return False
        if not self._exhausted:
            self._exhausted = True
            self._say("every configuration of the space has been tried")
        return True

    def _may_go_on(self, waiting: FrozenTrial, left: float) -> bool:
        """Whether a trial that waits may go on, where those of the search have so many seconds left.

        The baseline does in any case where nobody else has come to the end: a search ends with a winner.
        """
        attrs = waiting.user_attrs
        if CONFIRMS in attrs or ("baseline" in attrs and self._lives.best is None):
            return True
        if AUDITED in attrs:  # it tells nothing before its end
            return self._spending.has_time_to_audit(waiting.number)
        return self._rest(waiting.number) <= left

    def promoted(self, left: float, all_asked: bool) -> int | None:
        """The trial that waits at a rung and goes on now; trials have so many seconds left, or -inf.

        By the rules few come to their end, and of a short search none. At last those go on too that are
        better than all that did: the winner is to be one of the best.
        """
        if self._promoting is None or left == -math.inf:
            return None
        found, unbeaten = self._promoting.next(), self._promoting.leading_waiter()
        if found is None and all_asked:
            found = None if self._lives.running else unbeaten
        elif unbeaten not in (None, found) and self._spending.is_last_chance(unbeaten, found, left):
            found = unbeaten
        return found if found is not None and self._rest(found) <= left else None

    def _rest(self, number: int) -> float:
        """Seconds until a trial that goes on from where it is brings anything."""
        return self._timing.seconds_to_next_rung(number, self._lives.step_of(number))

    def audit_paused(self) -> bool:
        """Let go on who still waits at a rung and is drawn, where the search is over; whether anybody is."""
        audit = self._spending.audit
        drawn = [
            t for t in self._lives.tally.open if audit.waits(t) and self._spending.has_time_to_audit(t.number)
        ]
        for trial in drawn:
            assert self._promoting is not None
            reason = self._promoting.why_not(trial.number)
            self._promoting.leave(trial)
            self.audits(trial.number, reason)
            self._storage.suspend(trial.number)
        if drawn:
            self._say(f"the search is over; {len(drawn)} of its paused trials go on, for the audit")
        return bool(drawn)

    def confirm(self, *, ended_early: bool) -> bool:
        """Put up the next trainings that confirm the best, the search being over; whether there are any."""
        found, told = self._spending.next_round(ended_early=ended_early)
        for trial, seed in found:
            self._study.enqueue_trial(trial.params, user_attrs=attrs_of(trial, seed))
        if told and (found or not self._lives.running):
            self._say(told)
        return bool(found)

    def audits(self, number: int, reason: str) -> bool:
        """Whether a trial that is to stop for a reason is in the audit, and so goes on."""
        audited = number in self._spending.audit
        if audited:
            mark(self._storage, self._lives.trials[number], reason)
        return audited
