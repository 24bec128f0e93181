"""What still fits into the time of a search, so that it ends on time with a confirmed winner.

Time is reserved for the audit and the confirmation: the rest of each audited trial, and new trainings of the
trials that are best now, each with the cost of its own trial, in the available slots. The reserve is updated
at every report, so a search that finds slower or faster winners ends earlier or later. Near the end, nothing
begins that could not reach its next rung, or its end if there is none. The time left after the confirmation
goes into further seeds for all candidates, one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from optuna.trial import FrozenTrial, TrialState

from ...storage.trial_attrs import is_baseline
from ..scheduling.rungs import rung_steps
from ..trials.records import TrialRecord
from .confirmation import ConfirmationPlan, ConfirmationRuns
from .confirmation_size import MIN_SEEDS, ConfirmationSize
from .costs import TrialCosts
from .lifecycle import TrialLifecycle
from .running import RunningTrial

SECONDS_TO_END_PAUSED = 0.003  # for each trial
MAX_OVERRUN = 1.03  # times the time of the search: no training runs longer
SHUTDOWN_SECONDS = 1.0  # for workers to leave and the winner to be shown
SHORT_SECONDS = 50.0  # a search of less time has proportionally less to shut down
LAST_CHANCE_MARGIN = 1.15  # times the expected seconds of a training that must not be postponed any more
MAX_SILENCE = 0.01  # of the time, in which a trial must report once the search is over


class Deadline:
    """The time of one search, shared between its trials, its audit and its confirmation."""

    def __init__(
        self, lifecycle: TrialLifecycle, costs: TrialCosts, confirmation: ConfirmationPlan, shutdown: float
    ) -> None:
        """`shutdown`: seconds that the backend needs after the last training."""
        self._spec = spec = lifecycle.spec
        self._clock = lifecycle.clock
        self._costs = costs
        self._lifecycle = lifecycle
        self._confirmation = confirmation
        self._rungs = rung_steps(spec)
        time = spec.budget.time
        self._time = math.inf if time is None else time - shutdown * min(1.0, time / SHORT_SECONDS)

    def learn(self, running: RunningTrial, units: int | None = None) -> None:
        """Note the cost of a training, also for the trial that it confirms, if any.

        `units`: those of its whole training, if it has run to its end.
        """
        cost, trained = running.attempt.cost, running.attempt.seconds
        if trained is not None:
            self._costs.waited(running.number, running.seconds - trained)
        if cost is not None:
            whose = running.number if running.confirms is None else running.confirms
            for number in {running.number, whose}:
                self._costs.learn(number, cost, units)

    def seconds_left(self, size: ConfirmationSize, audited: Iterable[int] = ()) -> float:
        """Seconds left for trials of the search; negative if there are none.

        `audited`: trials that run to their end afterwards, before the confirmation. If the whole confirmation
        does not fit, time for a smaller one is reserved.
        """
        return self._end_seconds - self._clock.elapsed - self._reserved(size, list(audited))[1]

    def largest_fitting(self, size: ConfirmationSize, audited: Sequence[int] = ()) -> ConfirmationSize:
        """The largest part of a confirmation that fits; all of it once it has begun."""
        return self._reserved(size, audited)[0]

    def _reserved(self, size: ConfirmationSize, audited: Sequence[int]) -> tuple[ConfirmationSize, float]:
        """The confirmation for which time is reserved, and the seconds for it and for the audit."""
        if self._lifecycle.tally.confirming:
            return size, self._reserve(size, audited)
        left = self._end_seconds - self._clock.elapsed
        room = room_to_confirm(left, self._until_confirming(), self._time)
        return size.fitting(room, partial(self._reserve, audited=audited))

    def cost_in_trainings(self, size: ConfirmationSize) -> float:
        """The cost of a confirmation, in typical whole trainings of the search.

        The best trials and the baseline may cost more or less than typical ones.
        """
        whole = self._costs.full_training_seconds
        if not whole:
            return size.trainings(self._spec)
        candidates = self._confirmation.candidates(size)
        known = [self._costs.seconds_of(trial.number) for trial in candidates]
        baseline = self._baseline
        if baseline is not None and baseline.number not in {trial.number for trial in candidates}:
            known.append(self._costs.seconds_of(baseline.number))
        trials = size.trainings(self._spec) // size.seeds  # those not known yet cost the typical time
        return size.seeds * (sum(known) / whole + max(0, trials - len(known)))

    def seconds_to_next_rung(self, number: int | None, step: int) -> float:
        """Seconds until a trial, or a new one, at a step reaches its next rung, or its end.

        A value at a rung is of use to a later resume, even if this search ends. 0 without a limit of time.
        """
        if self._time == math.inf:
            return 0.0
        return self._costs.seconds_until(number, step, self._next_rung(step))

    def finishes_in_time(self, number: int, size: ConfirmationSize) -> bool:
        """Whether a trial that resumes now finishes before it delays the end of the search."""
        return self._seconds_to_end(number) <= self.seconds_left(size) + MAX_SILENCE * self._time

    def is_last_chance(self, number: int, other: int | None, left: float) -> bool:
        """Whether a trial can finish in `left` seconds, but not after another one has reached its next rung.

        To resume later costs the start-up again.
        """
        if left == math.inf:
            return False
        others = self.seconds_to_next_rung(other, self._lifecycle.step_of(other))
        resumed = self._costs.seconds_until(number, self._lifecycle.step_of(number), None)
        return time_is_short(left, self._seconds_to_end(number), resumed, others)

    def units_to_next_rung(self, step: int) -> int:
        """The units from a step to the next rung, or to the end."""
        return (self._next_rung(step) or self._spec.early_stopping.max or step) - step

    @property
    def report_grace_seconds(self) -> float:
        """How long a search waits for the next reports of all running trials, as far as known."""
        seconds = (each.attempt.seconds_per_report or 0.0 for each in self._lifecycle.running.values())
        return min(max(seconds, default=0.0), MAX_SILENCE * self._time)

    def is_too_late_to_start(self, confirmed: int) -> bool:
        """Whether there is no time left for a confirmation run of a trial."""
        return self._is_late(self._costs.seconds_of(confirmed))

    def overdue_trials(self, size: ConfirmationSize) -> list[int]:
        """Running trials that would make the search end late, once it asks no more trials.

        The baseline finishes if no other trial has: a search ends with a winner. A trial at its last step
        only has to return.
        """
        late, last = self._is_late(0.0), self._spec.early_stopping.max or math.inf
        over = late or self.seconds_left(size) < -MAX_SILENCE * self._time
        needs_winner = self._lifecycle.best is None
        return [
            number
            for number, running in self._lifecycle.running.items()
            if (late if running.confirms is not None or running.reported >= last else over)
            and not (needs_winner and is_baseline(self._lifecycle.trials[running.number]))
        ]

    def next_round(self, size: ConfirmationSize, *, more: bool) -> tuple[ConfirmationRuns, str | None]:
        """The confirmation runs with the next seed, and what to tell the user.

        `more`: whether time that is left may go into more seeds than planned.
        """
        candidates = self._confirmation.candidates(size)
        todo = self._outstanding(size)
        first = self._affordable(candidates, [(trial, k) for trial, k in todo if k < MIN_SEEDS])
        if first:
            begins = not self._lifecycle.tally.confirming
            told = f"the search is over; confirming its best trials with {size.seeds} new seeds each"
            return _one_round(first), told if begins else None
        judged = {trial.number for trial in candidates} - {trial.number for trial, k in todo if k < MIN_SEEDS}
        if all(trial.is_baseline for trial in candidates if trial.number in judged):
            return [], "the time that is left is too short to confirm the winner" if todo else None
        rest = _one_round([(trial, k) for trial, k in todo if trial.number in judged])
        if rest and not self._is_late(self._seconds_of(rest)):
            return rest, None
        extra = self._one_more_seed(judged, size) if more and not rest else []
        if extra:
            return extra, "there is time for one more seed of each"
        return [], "there is no time left to confirm all of them with every seed" if todo else None

    def _affordable(self, candidates: list[TrialRecord], todo: ConfirmationRuns) -> ConfirmationRuns:
        """The runs that still fit, without those of the worst candidates; none if only the baseline fits."""
        others = [trial.number for trial in candidates if not trial.is_baseline]
        while others:
            runs = [(t, k) for t, k in todo if t.number in others or t.is_baseline]
            if not self._is_late(self._seconds_of(runs)):
                return runs
            del others[-1]
        return []

    def _one_more_seed(self, numbers: set[int], size: ConfirmationSize) -> ConfirmationRuns:
        """One more seed for each, if the space does not fix their number and there is time."""
        seeds = [run.seed for run in self._confirmation.runs if not run.was_cut_short]
        if not seeds or self._spec.confirm.seeds is not None:
            return []
        for count in (max(size.seeds, max(seeds) + 1), max(seeds) + 2):
            todo = self._outstanding(replace(size, seeds=count))
            runs = [(trial, k) for trial, k in todo if trial.number in numbers]
            if runs:
                return runs if self._clock.elapsed + self._seconds_of(runs) <= self._end_seconds else []
        return []

    def _reserve(self, size: ConfirmationSize, audited: Sequence[int]) -> float:
        """Seconds until the audit and the confirmation would end, if they began now."""
        busy = self._busy_seconds
        enqueued = [run for run in self._confirmation.runs if not run.has_ended]
        waiting = [self._costs.seconds_of(run.confirms or 0) for run in enqueued[len(busy) :]]
        seconds = [self._costs.seconds_of(trial.number) for trial, _ in self._outstanding(size)]
        rests = [self._seconds_to_end(number) for number in audited]
        return self._costs.makespan([*rests, *waiting, *self._unfinished_candidates(size), *seconds], busy)

    def _unfinished_candidates(self, size: ConfirmationSize) -> list[float]:
        """Seconds of the confirmation runs of trials that have not finished yet.

        That is one candidate, if there is none so far, and the baseline.
        """
        candidates = {trial.number for trial in self._confirmation.candidates(size)}
        baseline = self._baseline
        seconds = [] if candidates or not size.top else [self._costs.full_training_seconds or 0.0]
        if size.top and baseline is not None and baseline.number not in candidates:
            seconds.append(self._costs.seconds_of(baseline.number))
        return seconds * size.seeds

    def _outstanding(self, size: ConfirmationSize) -> ConfirmationRuns:
        """The confirmation runs still to enqueue, the longest of each seed first, so that they end soonest.

        Without a limit of time the best come first: then measured times must not change a search.
        """
        todo = self._confirmation.outstanding(size)
        if self._time == math.inf:
            return todo
        return sorted(todo, key=lambda each: (each[1], -self._costs.seconds_of(each[0].number)))

    @property
    def _end_seconds(self) -> float:
        """When the last training must end, so that there is time to end the paused trials."""
        promotion = self._lifecycle.promotion
        paused = 0 if promotion is None else promotion.rule.paused_count
        return self._time - SECONDS_TO_END_PAUSED * paused

    @property
    def _baseline(self) -> FrozenTrial | None:
        """The baseline; None if there is none, or it ended without a value."""
        if self._spec.baseline is None:
            return None
        found = self._lifecycle.tally.baselines
        return next((t for t in found if not t.state.is_finished() or t.state == TrialState.COMPLETE), None)

    def _until_confirming(self) -> float:
        """Seconds until there is a trial to confirm, and the baseline to compare it with."""
        baseline = self._baseline
        is_over = baseline is None or baseline.state.is_finished()
        rest = 0.0 if baseline is None or is_over else self._seconds_to_end(baseline.number)
        candidates = self._confirmation.candidates(ConfirmationSize(1, 1))
        return max(rest, 0.0 if candidates else self._costs.full_training_seconds or 0.0)

    def _seconds_to_end(self, number: int) -> float:
        """Seconds of a trial to its end. A trial that has reported in this attempt has begun."""
        running = self._lifecycle.running.get(number)
        begins = running is None or not running.attempt.reports
        return self._costs.seconds_until(number, self._lifecycle.step_of(number), None, begins=begins)

    def _seconds_of(self, todo: ConfirmationRuns) -> float:
        seconds = [self._costs.seconds_of(trial.number) for trial, _ in todo]
        return self._costs.makespan(seconds, self._busy_seconds)

    @property
    def _busy_seconds(self) -> list[float]:
        """Seconds that each running confirmation run still takes."""
        return [
            max(0.0, self._costs.seconds_of(each.confirms) - each.seconds)
            for each in self._lifecycle.running.values()
            if each.confirms is not None
        ]

    def _is_late(self, seconds: float) -> bool:
        """Whether so many seconds from now is later than the search may end."""
        return self._clock.elapsed + seconds > self._end_seconds + (MAX_OVERRUN - 1) * self._time

    def _next_rung(self, step: int) -> int | None:
        return next((rung for rung in self._rungs if rung > step), None)


def time_is_short(left: float, rest: float, resumed: float, others: float) -> bool:
    """Whether a trial can finish in `left` seconds, but not after another one has reached its next rung.

    `rest`: its seconds to its end. `resumed`: those if it begins again. `others`: those of the other one.
    """
    return rest <= left and left - others < LAST_CHANCE_MARGIN * resumed


def units_are_short(left: float, rest: float, others: float, slots: int) -> bool:
    """Whether `left` units are too few for a trial after another one has reached its next rung.

    `rest`: its units to its end. `others`: those of the other one. All slots consume units meanwhile.
    """
    return left - others * slots < rest * slots


def room_to_confirm(left: float, before: float, time: float) -> float:
    """Seconds that may be reserved for the end of a search.

    `left`: seconds left. `before`: those until a trial can be confirmed. `time`: that of the whole search,
    which a confirmation that can begin may overrun.
    """
    return left - before if before else left + (MAX_OVERRUN - 1) * time


def _one_round(todo: ConfirmationRuns) -> ConfirmationRuns:
    """The runs of the next seed alone."""
    return [(trial, k) for trial, k in todo if k == todo[0][1]]
