"""The audit of a study: which trials are not stopped, and what came of it.

Which trials these are is drawn before they begin, from the study's seed and their numbers. One that is to
stop is marked with the step and goes on to its end; where trials pause, it does so when the search is over
and it still waits. To samplers and rungs it is a trial that ended there, so the search is the one that it
would be without an audit. What it comes to is a result like any other: it may be the best.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from optuna.trial import FrozenTrial

from ...spaces import Spec
from ...storage.live import LiveStorage
from ...storage.states import AUDITED, at_rung
from ..trials.seeds import derived_seed
from . import MIN_AUDITED, audited_one_in, expected_cost, expected_saving

AUDIT_SHARE = 0.03  # of a search's cost, where the space does not say how much


@dataclass(frozen=True)
class AuditSample:
    """Which trials are not stopped: of every so many one, drawn from the seed."""

    seed: int
    every: int | None  # None: all are
    fewest: float = 0.0  # whole trainings, that a search has to have room for

    @classmethod
    def of(cls, spec: Spec) -> Self:
        """What a space asks for; or what it says nothing about, where it tells enough."""
        every = audited_one_in(spec, AUDIT_SHARE if spec.audit is None else spec.audit)
        if spec.audit is not None or every is None:
            return cls(spec.search.seed, every)
        fewest = MIN_AUDITED * every * (1 - (expected_saving(spec) or 0.0))
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


def mark_audited(storage: LiveStorage, trial: FrozenTrial, reason: str) -> None:
    """Note that a trial goes on that was to stop at its last step for a reason."""
    event = f"drawn for the audit, so it goes on to its end; it was to stop: {reason}"
    storage.set_trial_user_attr(trial._trial_id, AUDITED, trial.last_step)
    storage.add_event(trial, event)
