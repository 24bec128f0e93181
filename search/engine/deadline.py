"""What still fits into the time of a search, so that it ends on time with a winner that is confirmed.

Of the time, what the audit and the confirmation will take is kept back: the rest of the trials that are in
the audit, and the trainings of those that are the best now, each by what its own trial took, in as many slots
as there are. It is counted anew at every report, so a search that finds slower or faster winners ends sooner
or later. Towards the end nothing begins that could not come to its next rung, or to its end where there are
none. What is left after the confirmation goes into one more seed of each, while a whole one fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...storage.states import CONFIRMS_SEED, confirms
from ..scheduling import places_of
from ..trials.selection import cut_short
from .clock import SearchClock
from .confirmation_size import MIN_SEEDS, ConfirmationSize
from .costs import TrialCosts
from .lifecycle import TrialLifecycle
from .running import RunningTrial

SECONDS_TO_END_PAUSED = 0.003  # seconds that it takes to end one that waits at a rung
MAX_OVERRUN = 1.03  # of the time: no training goes on for longer
SHUTDOWN_SECONDS = 1.0  # seconds that workers have to leave and the winner to be told
SHORT_SEARCH_SECONDS = 50.0  # seconds: a search of less has as much less for that
LAST_CHANCE_MARGIN = (
    1.15  # times what a training to its end is expected to take, where it is the last chance for one
)
MAX_SILENCE = 0.01  # of the time, that a trial may be silent for once the search is over

ConfirmationRuns = list[tuple[FrozenTrial, int]]


class Deadline:
    """The time of one search, of which trials of the search get what those that confirm the best leave."""

    def __init__(
        self,
        spec: Spec,
        costs: TrialCosts,
        clock: SearchClock,
        lifecycle: TrialLifecycle,
        shutdown_seconds: float,
    ) -> None:
        self._spec = spec
        self._costs = costs
        self._clock = clock
        self._lifecycle = lifecycle
        self._places = places_of(spec)
        time = spec.budget.time
        self._time = (
            math.inf if time is None else time - shutdown_seconds * min(1.0, time / SHORT_SEARCH_SECONDS)
        )

    def learn(self, running: RunningTrial, units: int | None = None) -> None:
        """Remember what a training costs; one that confirms says it of the configuration's trial too.

        A whole training of it has so many units, where it has run to its end.
        """
        cost, trained = running.attempt.cost, running.attempt.seconds
        if trained is not None:
            self._costs.waited(running.number, running.seconds - trained)
        if cost is not None:
            whose = running.number if running.confirms is None else running.confirms
            for number in {running.number, whose}:
                self._costs.learn(number, cost, units)

    def seconds_left(self, size: ConfirmationSize, audited: Iterable[int] = ()) -> float:
        """Seconds that trials of the search may still take; negative where there are none.

        `audited`: trials that then go on to their end, before the best are confirmed. What confirms them is
        kept back as far as it fits, else fewer of the best, less often: no search ends for what it has no
        time for.
        """
        return self._end_seconds - self._clock.elapsed - self._reserved(size, list(audited))[1]

    def largest_fitting(self, size: ConfirmationSize, audited: Sequence[int] = ()) -> ConfirmationSize:
        """As much of a confirmation as the time is kept back for; all of it once that has begun."""
        return self._reserved(size, audited)[0]

    def _reserved(self, size: ConfirmationSize, audited: Sequence[int]) -> tuple[ConfirmationSize, float]:
        """The confirmation that time is kept back for, and the seconds for it and for the audit."""
        if self._lifecycle.tally.confirming:
            return size, self._reserve(size, audited)
        left, before = self._end_seconds - self._clock.elapsed, self._until_confirming()
        room = left - before if before else left + (MAX_OVERRUN - 1) * self._time
        for each in size.shrinking:
            if (reserve := self._reserve(each, audited)) <= room:
                break
        return each, reserve

    def cost_in_trainings(self, size: ConfirmationSize) -> float:
        """What a confirmation costs, in whole trainings such as the search has seen.

        The best may cost more than others or less, and the baseline too.
        """
        whole = self._costs.full_training_seconds
        if not whole:
            return size.trainings(self._spec)
        few = self._lifecycle.confirmation_candidates(size)
        known = [self._costs.seconds_of(trial.number) for trial in few]
        baseline = self._baseline
        if baseline is not None and baseline.number not in {trial.number for trial in few}:
            known.append(self._costs.seconds_of(baseline.number))
        trials = size.trainings(self._spec) // size.seeds  # others that may be among them cost what most do
        return size.seeds * (sum(known) / whole + max(0, trials - len(known)))

    def seconds_to_next_rung(self, number: int | None, step: int) -> float:
        """Seconds until a trial, or a new one, that goes on from a step has brought anything.

        That is its next rung: its value there is of use to a search that goes on, though this one ends.
        """
        return self._costs.seconds_until(number, step, self._next_rung(step))

    def finishes_in_time(self, number: int, size: ConfirmationSize) -> bool:
        """Whether a trial that goes on from where it is has come to its end before it is in the way."""
        return self._seconds_to_end(number) <= self.seconds_left(size) + MAX_SILENCE * self._time

    def is_last_chance(self, number: int, other: int | None, left: float) -> bool:
        """Whether so many seconds let a trial come to its end, but not after another has come to its rung.

        One that runs would then have to begin once more.
        """
        after = left - self.seconds_to_next_rung(other, self._lifecycle.step_of(other))
        again = self._costs.seconds_until(number, self._lifecycle.step_of(number), None)
        return self._seconds_to_end(number) <= left and after < LAST_CHANCE_MARGIN * again

    def units_to_next_rung(self, step: int) -> int:
        """The resource from a step to the next rung, or to the end."""
        return (self._next_rung(step) or self._spec.early_stopping.max or step) - step

    @property
    def report_grace_seconds(self) -> float:
        """How long a search waits for the next reports of all that run, as far as that is known."""
        found = (each.attempt.seconds_per_report for each in self._lifecycle.running.values())
        return min(
            max((every for every in found if every is not None), default=0.0), MAX_SILENCE * self._time
        )

    def is_too_late_to_start(self, confirmed: int) -> bool:
        """Whether there is no time left for a training that confirms a trial."""
        return self._is_late(self._costs.seconds_of(confirmed))

    def overdue_trials(self, size: ConfirmationSize) -> list[int]:
        """Trials that run and would keep a search from ending on time that asks for no more.

        The baseline comes to its end where nobody else did: a search ends with a winner. One at its last step
        has only to return.
        """
        late, last = self._is_late(0.0), self._spec.early_stopping.max or math.inf
        over = late or self.seconds_left(size) < -MAX_SILENCE * self._time
        needs_winner = self._lifecycle.best is None
        return [
            number
            for number, running in self._lifecycle.running.items()
            if (late if running.confirms is not None or running.reported >= last else over)
            and not (needs_winner and "baseline" in running.trial.user_attrs)
        ]

    def next_round(self, size: ConfirmationSize, *, more: bool) -> tuple[ConfirmationRuns, str | None]:
        """The trainings that confirm the best with the next seed, and what to tell the user.

        `more`: whether the time is to be used up, by more seeds than were wished for.
        """
        few = self._lifecycle.confirmation_candidates(size)
        todo = self._outstanding(size)
        first = self._affordable(few, [(trial, k) for trial, k in todo if k < MIN_SEEDS])
        if first:
            begins = not self._lifecycle.tally.confirming
            told = f"the search is over; its best train again, with {size.seeds} new seeds each"
            return _one_round(first), told if begins else None
        both = {trial.number for trial in few} - {trial.number for trial, k in todo if k < MIN_SEEDS}
        if all("baseline" in trial.user_attrs for trial in few if trial.number in both):
            return [], "what is left of the time is too short to confirm the winner" if todo else None
        rest = _one_round([(trial, k) for trial, k in todo if trial.number in both])
        if rest and not self._is_late(self._seconds_of(rest)):
            return rest, None
        extra = self._one_more_seed(both, size) if more and not rest else []
        if extra:
            return extra, "there is time for one more seed of each"
        return [], "there is no time left to train all of them again as often as was meant" if todo else None

    def _affordable(self, few: list[FrozenTrial], todo: ConfirmationRuns) -> ConfirmationRuns:
        """The trainings that still fit, without those of the worst; none where the baseline were alone."""
        others = [trial.number for trial in few if "baseline" not in trial.user_attrs]
        while others:
            found = [(t, k) for t, k in todo if t.number in others or "baseline" in t.user_attrs]
            if not self._is_late(self._seconds_of(found)):
                return found
            del others[-1]
        return []

    def _one_more_seed(self, numbers: set[int], size: ConfirmationSize) -> ConfirmationRuns:
        """A further seed of each, where the space leaves it open how many and there is time for it."""
        again = self._lifecycle.tally.confirming
        seeds = [trial.user_attrs[CONFIRMS_SEED] for trial in again if not cut_short(trial)]
        if not seeds or self._spec.confirm.seeds is not None:
            return []
        for count in (max(size.seeds, max(seeds) + 1), max(seeds) + 2):
            todo = self._outstanding(replace(size, seeds=count))
            found = [(trial, k) for trial, k in todo if trial.number in numbers]
            if found:
                return found if self._clock.elapsed + self._seconds_of(found) <= self._end_seconds else []
        return []

    def _reserve(self, size: ConfirmationSize, audited: Sequence[int]) -> float:
        """Seconds until the audit and the confirmation would be done, if they began now."""
        busy = self._busy_seconds
        put_up = [t for t in self._lifecycle.tally.confirming if not t.state.is_finished()]
        waiting = [self._costs.seconds_of(confirms(t) or 0) for t in put_up[len(busy) :]]
        seconds = [self._costs.seconds_of(trial.number) for trial, _ in self._outstanding(size)]
        rests = [self._seconds_to_end(number) for number in audited]
        return self._costs.makespan([*rests, *waiting, *self._unfinished_candidates(size), *seconds], busy)

    def _unfinished_candidates(self, size: ConfirmationSize) -> list[float]:
        """Seconds of the trainings that confirm whose trials have not come to their end yet.

        One of the best is meant where there is none, and the baseline.
        """
        few, baseline = self._lifecycle.confirmation_candidates(size), self._baseline
        found = [] if few or not size.top else [self._costs.full_training_seconds or 0.0]
        if size.top and baseline is not None and baseline not in few:
            found.append(self._costs.seconds_of(baseline.number))
        return found * size.seeds

    def _outstanding(self, size: ConfirmationSize) -> ConfirmationRuns:
        """What is still to be put up, of each seed the longest first: so they end soonest.

        Without a limit of time the best come first, as what the clock tells is not to change a search.
        """
        todo = self._lifecycle.outstanding_confirmations(size)
        if self._time == math.inf:
            return todo
        return sorted(todo, key=lambda each: (each[1], -self._costs.seconds_of(each[0].number)))

    @property
    def _end_seconds(self) -> float:
        """When the last training is to be over, so that those that wait at rungs end in time too."""
        return self._time - SECONDS_TO_END_PAUSED * self._lifecycle.paused

    @property
    def _baseline(self) -> FrozenTrial | None:
        """The trial that all are compared with; None where it is of no use any more."""
        if self._spec.baseline is None:
            return None
        found = self._lifecycle.tally.baselines
        return next((t for t in found if not t.state.is_finished() or t.state == TrialState.COMPLETE), None)

    def _until_confirming(self) -> float:
        """Seconds until there is somebody to be confirmed, and the baseline to compare it with."""
        baseline = self._baseline
        rest = (
            0.0 if baseline is None or baseline.state.is_finished() else self._seconds_to_end(baseline.number)
        )
        somebody = self._lifecycle.confirmation_candidates(ConfirmationSize(1, 1))
        return max(rest, 0.0 if somebody else self._costs.full_training_seconds or 0.0)

    def _seconds_to_end(self, number: int) -> float:
        """Seconds of a trial to its end; one that has reported to us has begun."""
        running = self._lifecycle.running.get(number)
        begins = running is None or not running.attempt.reports
        return self._costs.seconds_until(number, self._lifecycle.step_of(number), None, begins=begins)

    def _seconds_of(self, todo: ConfirmationRuns) -> float:
        return self._costs.makespan(
            [self._costs.seconds_of(trial.number) for trial, _ in todo], self._busy_seconds
        )

    @property
    def _busy_seconds(self) -> list[float]:
        """Seconds that the trainings which confirm and run still take."""
        return [
            max(0.0, self._costs.seconds_of(each.confirms) - each.seconds)
            for each in self._lifecycle.running.values()
            if each.confirms is not None
        ]

    def _is_late(self, seconds: float) -> bool:
        """Whether an end in so many seconds is too late for anything."""
        return self._clock.elapsed + seconds > self._end_seconds + (MAX_OVERRUN - 1) * self._time

    def _next_rung(self, step: int) -> int | None:
        return next((place for place in self._places if place > step), None)


def _one_round(todo: ConfirmationRuns) -> ConfirmationRuns:
    """Those of the next seed alone."""
    return [(trial, k) for trial, k in todo if k == todo[0][1]]
