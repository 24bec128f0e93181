"""What a search has spent of its budget, what it reserves for its end, and why it is over.

At the end of a search its best trials are confirmed, and audited trials run to their end. The time and the
resource for that are reserved from the beginning.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...storage.trial_attrs import search_trials, trained_to
from ..formatting import counted
from ..scheduling.audit import AuditSample
from ..scheduling.rungs import expected_cost
from ..trials.records import StudyRecords, TrialRecord
from .confirmation import ConfirmationPlan, ConfirmationRuns
from .confirmation_size import ConfirmationSize
from .costs import TrialCosts
from .deadline import Deadline, units_are_short
from .lifecycle import TrialLifecycle


class BudgetTracker:
    """The budget of one search."""

    def __init__(
        self,
        lifecycle: TrialLifecycle,
        costs: TrialCosts,
        confirmation: ConfirmationPlan,
        deadline: Deadline,
    ) -> None:
        self._spec = spec = lifecycle.spec
        self._lifecycle = lifecycle
        self._costs = costs
        self._confirmation = confirmation
        self._deadline = deadline
        self._tally = lifecycle.tally
        self._settled_size: ConfirmationSize | None = None  # once the confirmation has begun
        self.consumed = sum(spent_on(spec, t) for t in lifecycle.trials)  # updated by every report

    @property
    def confirmation_is_settled(self) -> bool:
        """Whether the candidates are settled. No further trial of the search ends after that."""
        return self._settled_size is not None

    def end_reason(self) -> str | None:
        """Why the search is over; None if it is not."""
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
        """Which trials are audited: none if the search has too little time for an audit."""
        time = self._spec.budget.time
        return self._tally.audit_sample.within(None if time is None else self._costs.trainings_in(time))

    def time_spent_reason(self) -> str:
        """Why a search is over if there is no time for another trial."""
        audited = self._tally.unfinished_audit(self.audit)
        spent = f"the time budget of {self._spec.budget.time:g} s is spent"
        fitting = self._deadline.largest_fitting(self._size(), audited)
        return spent + _but_for(fitting.trainings(self._spec), len(audited))

    def time_left(self) -> float:
        """Seconds left for trials of the search, without those that its end needs."""
        if self._spec.budget.time is None:
            return math.inf
        return self._deadline.seconds_left(self._size(), self._tally.unfinished_audit(self.audit))

    def has_time_to_audit(self, number: int) -> bool:
        """Whether an audited trial finishes in time; the time to confirm the winner is reserved."""
        return self._spec.budget.time is None or self._deadline.finishes_in_time(number, self._size())

    def overdue_trials(self) -> list[int]:
        """Running trials that would make the search end late, once it asks no more trials."""
        return [] if self._spec.budget.time is None else self._deadline.overdue_trials(self._size())

    def reserved_units(self) -> tuple[int, int]:
        """The units of the resource that are reserved for the confirmation and for the audit.

        A confirmation run counts as a whole training, whatever it took, so that a search that was over stays
        so. A search that has confirmed before and continues may find a new best trial.
        """
        last, size, runs = self._spec.early_stopping.max or 0, self._size(), self._tally.confirming
        further = max(len(self._confirmation.outstanding(size)), size.seeds if runs else 0)
        trainings = max(size.trainings(self._spec), self._confirmation_count + further)
        confirming = trainings * last - sum(spent_on(self._spec, trial) for trial in runs)
        return max(0, confirming), self._tally.reserved_for_audit(self.audit)

    def is_last_chance(self, number: int, other: int | None, left: float) -> bool:
        """Whether a paused trial cannot finish any more if another, or a new one, goes first.

        `left`: seconds left for trials.
        """
        if self._deadline.is_last_chance(number, other, left):
            return True
        if self._spec.budget.samples is None:
            return False
        units = self._spec.budget.samples - sum(self.reserved_units()) - self.consumed
        step, at = self._lifecycle.step_of(number), self._lifecycle.step_of(other)
        rest = (self._spec.early_stopping.max or 0) - step
        return units_are_short(units, rest, self._deadline.units_to_next_rung(at), self._costs.slots)

    def next_round(self, *, ended_early: bool) -> tuple[ConfirmationRuns, str | None]:
        """The next confirmation runs after the search, and what to tell the user about them.

        `ended_early`: the search ended before all its trials were asked. Then the rest of its time is used.
        """
        self._settled_size = self._affordable(self._size())  # the candidates must not change any more
        more = ended_early and self._spec.budget.time is not None and self._at_target() is None
        return self._deadline.next_round(self._settled_size, more=more)

    @property
    def _confirmation_count(self) -> int:
        """How many confirmation runs there are so far."""
        return sum(not run.was_cut_short for run in self._confirmation.runs)

    def _affordable(self, size: ConfirmationSize) -> ConfirmationSize:
        """As many candidates as the resource allows: a search that was extended may have new ones."""
        last, samples = self._spec.early_stopping.max or 0, self._spec.budget.samples
        if samples is None:
            return size
        left = samples - sum(spent_on(self._spec, trial) for trial in search_trials(self._lifecycle.trials))
        while size.top:
            trainings = self._confirmation_count + len(self._confirmation.outstanding(size))
            if trainings <= size.trainings(self._spec) or trainings * last < left + last:
                break
            size = replace(size, top=size.top - 1)
        return size

    def _size(self) -> ConfirmationSize:
        """The size of the confirmation, as far as the budget allows."""
        if self._settled_size is not None:
            return self._settled_size
        cost, seconds = self._expected_cost, self._spec.budget.time
        if self._at_target() is not None:  # a search that ends early costs only what it has spent
            return ConfirmationSize.of(self._spec, self._cost if cost is None else min(cost, self._cost))
        time = None if seconds is None else self._costs.trainings_in(seconds)
        if cost is None and time is None:
            cost = self._cost
        return ConfirmationSize.of(
            self._spec, cost, time, None if time is None else self._deadline.cost_in_trainings
        )

    @property
    def _cost(self) -> float:
        """What the trials of the search cost so far, in whole trainings; unchanged when paused trials end."""
        return self._tally.trainings(self._spec.early_stopping.max)

    @cached_property
    def _expected_cost(self) -> float | None:
        return expected_cost(self._spec)  # cached: it may count a grid, and every report needs it

    def _at_target(self) -> TrialRecord | None:
        if self._spec.budget.target is None:
            return None
        return StudyRecords(self._spec, self._tally.best(1)).at_target

    def _has_open_confirmations(self) -> bool:
        """Whether any confirmation run is running or waiting."""
        return any(not trial.state.is_finished() for trial in self._tally.confirming)


def spent_on(spec: Spec, trial: FrozenTrial) -> int:
    """The units of the resource that a trial took: a whole training's if it completed without a report."""
    if trial.last_step is None and trial.state == TrialState.COMPLETE:
        return spec.early_stopping.max or 0
    return trained_to(trial)


def _but_for(confirming: int, auditing: int) -> str:
    """The part of a spent budget that is reserved, in words."""
    reserved_for = [*["the confirmation"] * bool(confirming), *["the audit"] * bool(auditing)]
    return f"; the rest is for {' and '.join(reserved_for)}" if reserved_for else ""
