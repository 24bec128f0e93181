"""Which trial trains next: a waiting one, a paused one or a new one; after the search, confirmation runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from optuna.trial import FrozenTrial

from ...storage.files import has_checkpoint
from ...storage.studies import Phase
from ...storage.trial_attrs import CONFIRMS, CONFIRMS_SEED, at_rung, audited_at, confirms, is_baseline
from ..sampling.whole_sampler import WholeSampler
from ..scheduling.audit import mark_audited
from ..trials.stops import Stop
from .budget import BudgetTracker
from .deadline import Deadline
from .lifecycle import InvalidTrial, TrialLifecycle
from .running import RunningTrial


@dataclass(frozen=True)
class Candidate:
    """A trial that may begin: a waiting one, a paused one that is promoted, or else a new one."""

    waiting: FrozenTrial | None = None
    promoted: int | None = None

    @property
    def phase(self) -> Phase:
        """The phase of the search to which it belongs."""
        if self.waiting is not None and confirms(self.waiting) is not None:
            return Phase.CONFIRMING
        is_audited = self.waiting is not None and audited_at(self.waiting) is not None
        return Phase.AUDITING if is_audited else Phase.SEARCHING


class TrialQueue:
    """The order in which the trials of a search train."""

    def __init__(self, lifecycle: TrialLifecycle, deadline: Deadline, budget: BudgetTracker) -> None:
        self._spec = lifecycle.spec
        self._study = lifecycle.study
        self._promotion = lifecycle.promotion
        self._lifecycle = lifecycle
        self._deadline = deadline
        self._budget = budget
        self._exhausted = False  # whether the user knows that all configurations are tried

    def next(self, left: float) -> Candidate | None:
        """What trains next: the first waiting trial that may resume, else a promoted or a new one.

        `left`: seconds left for trials of the search. None if nothing can begin now.
        """
        waiting = next((t for t in self._lifecycle.tally.waiting if self._may_resume(t, left)), None)
        if waiting is not None:
            return Candidate(waiting=waiting)
        all_asked = self.all_asked()
        if (promoted := self._promoted(left, all_asked)) is not None:
            return Candidate(promoted=promoted)
        begins = not all_asked and self._deadline.seconds_to_next_rung(None, 0) <= left
        return Candidate() if begins else None

    def requeued(self, number: int, left: float) -> Candidate | None:
        """A trial of this number that has begun, waits, and may resume now; `left` as in `next`."""
        waiting = (t for t in self._lifecycle.tally.waiting if t.number == number and t.datetime_start)
        found = next((t for t in waiting if self._may_resume(t, left)), None)
        return None if found is None else Candidate(waiting=found)

    def ends_instead(self, chosen: Candidate) -> bool:
        """End a trial that was chosen, but cannot begin any more; whether it was one."""
        waiting, promoted = chosen.waiting, chosen.promoted
        confirmed = None if waiting is None else confirms(waiting)
        if waiting is not None and confirmed is not None and self._deadline.is_too_late_to_start(confirmed):
            self._lifecycle.end_out_of_time(waiting.number)
        elif promoted is not None and not has_checkpoint(self._lifecycle.folder(promoted)):
            gone = Stop("not_promoted", "paused, and its checkpoint is gone")
            self._lifecycle.stop_paused([promoted], gone)
        else:
            return False
        return True

    def begin(self, chosen: Candidate) -> RunningTrial | None:
        """Begin a trial that was chosen. None if it failed instead."""
        waiting, promoted = chosen.waiting, chosen.promoted
        try:
            if waiting is not None and waiting.datetime_start is not None:  # requeued
                return self._lifecycle.resume(waiting)
            if waiting is not None:
                return self._lifecycle.begin(waiting)
            if promoted is not None:
                return self._lifecycle.resume(self._lifecycle.trials[promoted], promoted=True)
            return self._lifecycle.begin()
        except InvalidTrial as error:
            self._lifecycle.fail(error.running, str(error), Stop("refused", f"cannot begin: {error}"))
        return None

    def all_asked(self) -> bool:
        """Whether the budget allows no more new trials, or all configurations have been tried."""
        budget, sampler = self._spec.budget, self._study.sampler
        if budget.trials is not None and self._lifecycle.tally.searched >= budget.trials:
            return True
        assert isinstance(sampler, WholeSampler)
        if not sampler.exhausted(self._study):
            return False
        if not self._exhausted and self._spec.search.sampler != "grid":  # where that is the plan
            self._exhausted = True
            self._lifecycle.say("every configuration of the space has been tried")
        return True

    def _may_resume(self, waiting: FrozenTrial, left: float) -> bool:
        """Whether a waiting trial may resume; `left`: seconds left for trials of the search.

        The baseline may in any case if no trial has completed: a search ends with a winner.
        """
        if confirms(waiting) is not None or (is_baseline(waiting) and self._lifecycle.best is None):
            return True
        if audited_at(waiting) is not None:  # it shows nothing before its end
            return self._budget.has_time_to_audit(waiting.number)
        return self._seconds_to_next_rung(waiting.number) <= left

    def _promoted(self, left: float, all_asked: bool) -> int | None:
        """The paused trial to promote now, if any; `left`: seconds left for trials, or -inf."""
        if self._promotion is None or left == -math.inf:
            return None
        number = self._promotion.rule.choose(
            all_asked=all_asked,
            idle=not self._lifecycle.running,
            is_last_chance=partial(self._budget.is_last_chance, left=left),
        )
        return number if number is not None and self._seconds_to_next_rung(number) <= left else None

    def _seconds_to_next_rung(self, number: int) -> float:
        """Seconds until a trial that resumes now reaches its next rung, or its end."""
        return self._deadline.seconds_to_next_rung(number, self._lifecycle.step_of(number))

    def resume_audit(self) -> bool:
        """After the search, requeue the paused trials of the audit. Returns whether there are any."""
        audit, paused = self._budget.audit, filter(at_rung, self._lifecycle.tally.open)
        drawn = [t for t in paused if t.number in audit and self._budget.has_time_to_audit(t.number)]
        for trial in drawn:
            assert self._promotion is not None
            stop = self._promotion.stop_of_paused(trial)
            self._promotion.leave(trial)
            mark_audited(self._lifecycle.storage, trial, stop.reason)
            self._lifecycle.accounts.audit(trial)
            self._lifecycle.storage.requeue(trial.number)
        if drawn:
            self._lifecycle.say(f"the search is over; {len(drawn)} of its paused trials resume for the audit")
        return bool(drawn)

    def confirm(self, *, ended_early: bool) -> bool:
        """After the search, enqueue the next confirmation runs. Returns whether there are any."""
        runs, message = self._budget.next_round(ended_early=ended_early)
        for record, seed in runs:
            again = {CONFIRMS: record.number, CONFIRMS_SEED: seed}
            self._study.enqueue_trial(record.trial.params, user_attrs=again)
        if message and (runs or not self._lifecycle.running):
            self._lifecycle.say(message)
        return bool(runs)
