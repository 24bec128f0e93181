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
from ..scheduling.audit import mark_audited
from ..scheduling.study_promotion import StudyPromotion
from ..trials.retries import REFUSED_PREFIX
from .budget import BudgetTracker
from .confirmation import confirmation_attrs
from .deadline import Deadline
from .lifecycle import InvalidTrial, TrialLifecycle
from .running import RunningTrial


class TrialQueue:
    """The trials of a search in the order in which they train."""

    def __init__(
        self,
        spec: Spec,
        study: optuna.Study,
        storage: LiveStorage,
        lifecycle: TrialLifecycle,
        promotion: StudyPromotion | None,
        deadline: Deadline,
        budget: BudgetTracker,
        say: Callable[[str], None],
    ) -> None:
        self._spec = spec
        self._study = study
        self._storage = storage
        self._lifecycle = lifecycle
        self._promotion = promotion
        self._deadline = deadline
        self._budget = budget
        self._say = say
        self._untried = UntriedConfigs(spec)
        self._exhausted = False  # whether it was said that all were tried

    def waiting(self, left: float) -> FrozenTrial | None:
        """The first trial that waits and may go on; those of the search have so many seconds left."""
        return next((t for t in self._lifecycle.tally.waiting if self._may_resume(t, left)), None)

    def begin(self, waiting: FrozenTrial | None, promoted: int | None) -> RunningTrial | None:
        """Begin a trial: the first that waits, or else one from a rung, or a new one.

        None where that one ended instead.
        """
        confirmed = None if waiting is None else confirms(waiting)
        late = confirmed is not None and self._deadline.is_too_late_to_start(confirmed)
        try:
            if waiting is not None and late:
                self._lifecycle.end_out_of_time(waiting.number)
            elif waiting is not None and waiting.datetime_start is not None:  # it has begun before
                return self._lifecycle.resume(waiting)
            elif waiting is not None:
                return self._lifecycle.begin(waiting)
            elif promoted is not None and not has_checkpoint(self._lifecycle.folder(promoted)):
                self._lifecycle.prune_waiting([promoted], "paused, and its checkpoint is gone")
            elif promoted is not None:
                return self._lifecycle.resume(self._lifecycle.trials[promoted], promoted=True)
            else:
                return self._lifecycle.begin()
        except InvalidTrial as error:
            self._lifecycle.fail(error.running, str(error), f"{REFUSED_PREFIX}{error}")
        return None

    def all_asked(self) -> bool:
        """Whether the budget has no more new trials, or the space none that was not tried."""
        budget, sampler = self._spec.budget, self._study.sampler
        if budget.trials is not None and self._lifecycle.tally.searched >= budget.trials:
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

    def _may_resume(self, waiting: FrozenTrial, left: float) -> bool:
        """Whether a trial that waits may go on, where those of the search have so many seconds left.

        The baseline does in any case where nobody else has come to the end: a search ends with a winner.
        """
        attrs = waiting.user_attrs
        if CONFIRMS in attrs or ("baseline" in attrs and self._lifecycle.best is None):
            return True
        if AUDITED in attrs:  # it tells nothing before its end
            return self._budget.has_time_to_audit(waiting.number)
        return self._seconds_to_next_rung(waiting.number) <= left

    def promoted(self, left: float, all_asked: bool) -> int | None:
        """The trial that waits at a rung and goes on now; trials have so many seconds left, or -inf.

        By the rules few come to their end, and of a short search none. At last those go on too that are
        better than all that did: the winner is to be one of the best.
        """
        if self._promotion is None or left == -math.inf:
            return None
        found, unbeaten = self._promotion.next(), self._promotion.leading_waiter()
        if found is None and all_asked:
            found = None if self._lifecycle.running else unbeaten
        elif unbeaten not in (None, found) and self._budget.is_last_chance(unbeaten, found, left):
            found = unbeaten
        return found if found is not None and self._seconds_to_next_rung(found) <= left else None

    def _seconds_to_next_rung(self, number: int) -> float:
        """Seconds until a trial that goes on from where it is brings anything."""
        return self._deadline.seconds_to_next_rung(number, self._lifecycle.step_of(number))

    def audit_paused(self) -> bool:
        """Let go on who still waits at a rung and is drawn, where the search is over; whether anybody is."""
        audit = self._budget.audit
        drawn = [
            t
            for t in self._lifecycle.tally.open
            if audit.includes_paused(t) and self._budget.has_time_to_audit(t.number)
        ]
        for trial in drawn:
            assert self._promotion is not None
            reason = self._promotion.why_not_promoted(trial.number)
            self._promotion.leave_rung(trial)
            self.audits(trial.number, reason)
            self._storage.suspend(trial.number)
        if drawn:
            self._say(f"the search is over; {len(drawn)} of its paused trials go on, for the audit")
        return bool(drawn)

    def confirm(self, *, ended_early: bool) -> bool:
        """Put up the next trainings that confirm the best, the search being over; whether there are any."""
        found, told = self._budget.next_round(ended_early=ended_early)
        for trial, seed in found:
            self._study.enqueue_trial(trial.params, user_attrs=confirmation_attrs(trial, seed))
        if told and (found or not self._lifecycle.running):
            self._say(told)
        return bool(found)

    def audits(self, number: int, reason: str) -> bool:
        """Whether a trial that is to stop for a reason is in the audit, and so goes on."""
        audited = number in self._budget.audit
        if audited:
            mark_audited(self._storage, self._lifecycle.trials[number], reason)
        return audited
