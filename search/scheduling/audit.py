"""The audit of a study: which trials are not stopped, and what came of it.

Which trials these are is drawn before they begin, from the study's seed and their numbers. One that is to
stop is marked with the step and goes on to its end; where trials pause, it does so when the search is over
and it still waits. To samplers and rungs it is a trial that ended there, so the search is the one that it
would be without an audit. What it comes to is a result like any other: it may be the best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...spaces.stopping import Rungs
from ...storage.live import LiveStorage
from ...storage.states import AUDITED, at_rung, audited_at
from ..engine.confirmation import searched
from ..results.audit import Audited, audited
from ..sampling.optuna_samplers import derived_seed
from ..sampling.view import value_at
from . import FEWEST_AUDITED, audited_one_in, expected_cost, expected_saving, places_of

SHARE = 0.03  # of a search's cost, where the space does not say how much


@dataclass(frozen=True)
class Draw:
    """Which trials are not stopped: of every so many one, drawn from the seed."""

    seed: int
    every: int | None  # None: all are
    fewest: float = 0.0  # whole trainings, that a search has to have room for

    @classmethod
    def of(cls, spec: Spec) -> Self:
        """What a space asks for; or what it says nothing about, where it tells enough."""
        every = audited_one_in(spec, SHARE if spec.audit is None else spec.audit)
        if spec.audit is not None or every is None:
            return cls(spec.search.seed, every)
        fewest = FEWEST_AUDITED * every * (1 - (expected_saving(spec) or 0.0))
        return cls(spec.search.seed, every, fewest).within(expected_cost(spec))

    def within(self, trainings: float | None) -> Self:
        """The same for a search that has room for so many whole trainings; None where nobody knows yet."""
        short = trainings is not None and trainings < self.fewest
        return replace(self, every=None) if short else self

    def __contains__(self, number: int) -> bool:
        if self.every is None:
            return False
        block, place = divmod(number, self.every)
        return place == derived_seed(self.seed, "audit", block) % self.every

    def waits(self, trial: FrozenTrial) -> bool:
        """Whether a trial waits at a rung that goes on, if it still waits when the search is over."""
        return at_rung(trial) and trial.number in self


def mark(storage: LiveStorage, trial: FrozenTrial, reason: str) -> None:
    """Note that a trial goes on that was to stop at its last step for a reason."""
    event = f"drawn for the audit, so it goes on to its end; it was to stop: {reason}"
    storage.set_trial_user_attr(trial._trial_id, AUDITED, trial.last_step)
    storage.add_event(trial, event)


def outcome(spec: Spec, trials: Sequence[FrozenTrial]) -> Audited | None:
    """What the audit of a study tells; None where none of its trials was in it."""
    stopping, sign = spec.early_stopping, 1 if spec.goal == "minimize" else -1
    own = searched(trials)
    if not isinstance(stopping, Rungs) or not any(AUDITED in trial.user_attrs for trial in own):
        return None
    ends = {t.number: sign * t.value for t in own if t.state == TrialState.COMPLETE and t.value is not None}
    through = [t.number for t in own if audited_at(t) is None and "baseline" not in t.user_attrs]
    stopped = [
        ends.get(t.number, math.inf)
        for t in own
        if audited_at(t) is not None and (t.number in ends or any(t.constraints.values()))
    ]
    rungs = []
    for step in places_of(spec):
        there = [(value_at(t, step), ends[t.number]) for t in own if t.number in ends]
        rungs.append((step, [(sign * value, end) for value, end in there if value is not None]))
    return audited(stopped, [ends[n] for n in through if n in ends], stopping.eta, rungs)
