"""What still fits into the time of a search, so that it ends on time with a winner that is confirmed.

Of the time, what the confirmation will take is kept back: the trainings of those that are the best now, each
by what its own trial took, in as many slots as there are. It is counted anew at every report, so a search
that finds slower or faster winners ends sooner or later. Towards the end nothing begins that could not come
to its next rung, or to its end where there are none. What is left after the confirmation goes into one more
seed of each, while a whole one fits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from optuna.trial import FrozenTrial

from ..spaces import Spec
from ..storage.states import CONFIRMS_SEED, confirms
from .confirming import Wish, chosen, cut_short, missing
from .pace import Pace, span
from .scheduling import places_of

LATE = 1.03  # of the time: no training goes on for longer
LEAVING = 1.0  # seconds, or a fiftieth of the time, that workers have to leave and the winner to be told
SPARE = 1.15  # times what a training to its end is expected to take, where it is the last chance for one
PATIENCE = 0.01  # of the time, that a trial may be silent for once the search is over

Todo = list[tuple[FrozenTrial, int]]


class Timing:
    """The time of one search. `elapsed`: its seconds so far; `busy`: those that confirming ones still run."""

    def __init__(self, spec: Spec, pace: Pace) -> None:
        self._spec = spec
        self._pace = pace
        self._places = places_of(spec)
        self._asked = spec.budget.time or math.inf
        self._time = self._asked - min(LEAVING, self._asked / 50) if spec.budget.time else math.inf

    def left(self, wish: Wish, trials: Sequence[FrozenTrial], elapsed: float, busy: Sequence[float]) -> float:
        """Seconds that trials of the search may still take; negative where there are none."""
        return self._time - elapsed - self._reserve(wish, trials, busy)

    def begins(self, number: int | None, step: int) -> float:
        """Seconds until a trial, or a new one, that goes on from a step has brought anything.

        That is its next rung: its value there is of use to a search that goes on, though this one ends.
        """
        return self._pace.seconds_until(number, step, self._rung(step))

    def is_last_chance(self, number: int, step: int, other: int | None, at: int, left: float) -> bool:
        """Whether so many seconds let a trial come to its end, but not after another has come to its rung."""
        rest = self._pace.seconds_until(number, step, None)
        return rest <= left and left - self.begins(other, at) < SPARE * rest

    def units_of(self, step: int) -> int:
        """The resource from a step to the next rung, or to the end."""
        return (self._rung(step) or self._spec.early_stopping.max or step) - step

    def _rung(self, step: int) -> int | None:
        return next((place for place in self._places if place > step), None)

    def spent(self, wish: Wish) -> str:
        """Why a search ends by its time."""
        kept = ", but for the confirmation" if wish.trainings(self._spec) else ""
        return f"the time budget of {self._asked:g} s is spent{kept}"

    def patience(self, every: float) -> float:
        """How long a search waits for the next reports of trials that report so often."""
        return min(every, PATIENCE * self._time)

    def is_late(self, end: float) -> bool:
        """Whether an end after so many seconds is too late for anything."""
        return end > LATE * self._time

    def is_over(
        self, wish: Wish, trials: Sequence[FrozenTrial], elapsed: float, busy: Sequence[float]
    ) -> bool:
        """Whether trials of the search that still run stand in the way of the confirmation."""
        return self.left(wish, trials, elapsed, busy) < -PATIENCE * self._time

    def next_round(
        self, wish: Wish, trials: Sequence[FrozenTrial], elapsed: float, busy: Sequence[float], *, more: bool
    ) -> tuple[Todo, str | None]:
        """The trainings that confirm the best with the next seed, and what to tell the user.

        `more`: whether the time is to be used up, by more seeds than were wished for.
        """
        todo = missing(self._spec, wish, trials)
        if todo:
            seed = todo[0][1]
            needed = [(trial, k) for trial, k in todo if k <= max(1, seed)]  # one seed alone says nothing
            while needed and self.is_late(elapsed + self._seconds(needed, busy)):
                needed = _without_the_last(needed) if seed == 1 else []
            found = [(trial, k) for trial, k in needed if k == seed]
            if seed == 0 and found:
                return found, f"the search is over; its best train again, with {wish.seeds} new seeds each"
            left = (
                "to confirm the winner" if seed == 0 else "to train all of them again as often as was meant"
            )
            return found, None if found else f"there is no time left {left}"
        seeds = [t.user_attrs[CONFIRMS_SEED] for t in trials if confirms(t) is not None and not cut_short(t)]
        if not (more and seeds and self._spec.confirm.seeds is None):
            return [], None
        todo = missing(self._spec, replace(wish, seeds=max(wish.seeds, max(seeds) + 1)), trials)
        todo = todo or missing(self._spec, replace(wish, seeds=max(seeds) + 2), trials)
        if not todo or elapsed + self._seconds(todo, busy) > self._time:
            return [], None
        return todo, "there is time for one more seed of each"

    def _reserve(self, wish: Wish, trials: Sequence[FrozenTrial], busy: Sequence[float]) -> float:
        """Seconds until the confirmation would be done, if it began now."""
        put_up = [t for t in trials if confirms(t) is not None and not t.state.is_finished()]
        todo = missing(self._spec, wish, trials)
        few = chosen(self._spec, wish, trials)
        unknown = [self._pace.whole or 0.0] * (wish.trainings(self._spec) - len(few) * wish.seeds)
        waiting = [self._pace.seconds_of(confirms(t) or 0) for t in put_up[len(busy) :]]
        seconds = [self._pace.seconds_of(trial.number) for trial, _ in todo]
        return span([*waiting, *seconds, *unknown], self._pace.slots, busy)

    def _seconds(self, todo: Todo, busy: Sequence[float]) -> float:
        return span([self._pace.seconds_of(trial.number) for trial, _ in todo], self._pace.slots, busy)


def _without_the_last(todo: Todo) -> Todo:
    """Without the worst of those to be confirmed; nobody where that leaves the baseline alone."""
    others = [trial.number for trial, _ in todo if "baseline" not in trial.user_attrs]
    left = set(others[:-1])
    return [(t, k) for t, k in todo if left and (t.number in left or "baseline" in t.user_attrs)]
