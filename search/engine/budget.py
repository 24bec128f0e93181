"""What a search has spent of its budget, what it keeps back for its end, and why it is over.

At its end the best are confirmed and the audit's trials go on; what that takes is kept back of the time and
of the resource from the beginning on.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...storage.states import trained_to
from ..formatting import counted
from ..scheduling import expected_cost
from ..scheduling.audit import AuditSample
from ..trials.selection import at_target, cut_short, search_trials
from .confirmation_size import ConfirmationSize
from .costs import TrialCosts
from .deadline import ConfirmationRuns, Deadline
from .lifecycle import TrialLifecycle


class BudgetTracker:
    """The budget of one search."""

    def __init__(self, spec: Spec, lifecycle: TrialLifecycle, costs: TrialCosts, deadline: Deadline) -> None:
        self._spec = spec
        self._lifecycle = lifecycle
        self._costs = costs
        self._deadline = deadline
        self._settled_size: ConfirmationSize | None = None  # who is confirmed, once that has begun
        self.consumed = sum(
            spent_on(spec, t) for t in lifecycle.trials
        )  # counted on: every report asks for it

    @property
    def confirmation_is_settled(self) -> bool:
        """Whether it was settled who is confirmed; trials of the search end no more then."""
        return self._settled_size is not None

    def end_reason(self) -> str | None:
        """Why the search is over; None where it is not."""
        budget = self._spec.budget
        if budget.time is not None and self.time_left() <= self._deadline.report_grace_seconds:
            return self.time_spent_reason()
        if budget.samples is not None and not self._has_open_confirmations():
            confirming, auditing = self.reserved_units()
            if self.consumed + confirming + auditing >= budget.samples:
                spent = f"the budget of {counted(budget.samples, self._spec.resource)} is spent"
                return spent + _but_for(confirming, auditing)
        if (best := self._at_target()) is not None:
            return f"trial {best.number} reached the target {budget.target:g}"
        return None

    @property
    def audit(self) -> AuditSample:
        """Which trials are not stopped: none of a search whose time has too little room for that."""
        time = self._spec.budget.time
        return self._lifecycle.tally.audit_sample.within(
            None if time is None else self._costs.trainings_in(time)
        )

    def time_spent_reason(self) -> str:
        """Why a search is over that has no time for a further trial."""
        audited = self._lifecycle.tally.unfinished_audit(self.audit)
        spent = f"the time budget of {self._spec.budget.time:g} s is spent"
        fitting = self._deadline.largest_fitting(self._size(), audited)
        return spent + _but_for(fitting.trainings(self._spec), len(audited))

    def time_left(self) -> float:
        """Seconds that trials of the search may still take; what its end takes is kept back."""
        if self._spec.budget.time is None:
            return math.inf
        return self._deadline.seconds_left(self._size(), self._lifecycle.tally.unfinished_audit(self.audit))

    def has_time_to_audit(self, number: int) -> bool:
        """Whether a trial of the audit comes to its end in time; what confirms the winner is kept back."""
        return self._spec.budget.time is None or self._deadline.finishes_in_time(number, self._size())

    def overdue_trials(self) -> list[int]:
        """Trials that run and would keep a search from ending on time that asks for no more."""
        return [] if self._spec.budget.time is None else self._deadline.overdue_trials(self._size())

    def reserved_units(self) -> tuple[int, int]:
        """The resource that is kept back for the confirmation and for the audit.

        Each training that confirms is counted whole, whatever it took: a search that was over stays so. One
        that has confirmed before and goes on may find a new best.
        """
        last, size, again = (
            self._spec.early_stopping.max or 0,
            self._size(),
            self._lifecycle.tally.confirming,
        )
        further = max(len(self._lifecycle.outstanding_confirmations(size)), size.seeds if again else 0)
        trainings = max(size.trainings(self._spec), self._confirmation_count + further)
        confirming = trainings * last - sum(spent_on(self._spec, trial) for trial in again)
        return max(0, confirming), self._lifecycle.tally.reserved_for_audit(self.audit)

    def is_last_chance(self, number: int, other: int | None, left: float) -> bool:
        """Whether a trial that waits will not come to its end if another, or a new one, goes first.

        `left`: seconds that trials may still take.
        """
        if self._deadline.is_last_chance(number, other, left):
            return True
        if self._spec.budget.samples is None:
            return False
        units = self._spec.budget.samples - sum(self.reserved_units()) - self.consumed
        step, at = self._lifecycle.step_of(number), self._lifecycle.step_of(other)
        last = self._spec.early_stopping.max or 0
        slots = self._costs.slots  # which all spend them meanwhile
        return units - self._deadline.units_to_next_rung(at) * slots < (last - step) * slots

    def next_round(self, *, ended_early: bool) -> tuple[ConfirmationRuns, str | None]:
        """The next trainings that confirm the best, the search being over, and what to say of them.

        `ended_early`: before all its trials were asked. Then its time is used up.
        """
        self._settled_size = self._affordable(self._size())  # who is compared is not changed under way
        more = ended_early and self._spec.budget.time is not None and self._at_target() is None
        return self._deadline.next_round(self._settled_size, more=more)

    @property
    def _confirmation_count(self) -> int:
        """How many trainings that confirm there are by now."""
        return sum(not cut_short(trial) for trial in self._lifecycle.tally.confirming)

    def _affordable(self, size: ConfirmationSize) -> ConfirmationSize:
        """As many of the best as the resource has room for: a search that was extended may find several."""
        last, samples = self._spec.early_stopping.max or 0, self._spec.budget.samples
        if samples is None:
            return size
        left = samples - sum(spent_on(self._spec, trial) for trial in search_trials(self._lifecycle.trials))
        while size.top:
            trainings = self._confirmation_count + len(self._lifecycle.outstanding_confirmations(size))
            if trainings <= size.trainings(self._spec) or trainings * last < left + last:
                break
            size = replace(size, top=size.top - 1)
        return size

    def _size(self) -> ConfirmationSize:
        """Who is to be confirmed, as far as the budget allows."""
        if self._settled_size is not None:
            return self._settled_size
        cost, seconds = self._expected_cost, self._spec.budget.time
        if self._at_target() is not None:  # a search that ends early has cost no more than it did
            return ConfirmationSize.of(self._spec, self._cost if cost is None else min(cost, self._cost))
        time = None if seconds is None else self._costs.trainings_in(seconds)
        if cost is None and time is None:
            cost = self._cost
        return ConfirmationSize.of(
            self._spec, cost, time, None if time is None else self._deadline.cost_in_trainings
        )

    @property
    def _cost(self) -> float:
        """What the trials of the search took so far, in whole trainings; the same when those who wait end."""
        return self._lifecycle.tally.trainings(self._spec.early_stopping.max)

    @cached_property
    def _expected_cost(self) -> float | None:
        return expected_cost(self._spec)  # which counts a grid, and every report asks for it

    def _at_target(self) -> FrozenTrial | None:
        return at_target(self._spec, self._lifecycle.tally.best(1))

    def _has_open_confirmations(self) -> bool:
        """Whether the best train again, or wait to."""
        return any(not trial.state.is_finished() for trial in self._lifecycle.tally.confirming)


def spent_on(spec: Spec, trial: FrozenTrial) -> int:
    """What a trial took of the resource: all of it where it came to its end without a report."""
    if trial.last_step is None and trial.state == TrialState.COMPLETE:
        return spec.early_stopping.max or 0
    return trained_to(trial)


def _but_for(confirming: int, auditing: int) -> str:
    """What is kept back of a budget that is spent."""
    reserved_for = [*["the confirmation"] * bool(confirming), *["the audit"] * bool(auditing)]
    return f", but for {' and '.join(reserved_for)}" if reserved_for else ""
