"""The audit of a study: a sample of trials that run to their end instead of being stopped early.

The sample is drawn from the study's seed and the trials' numbers, before the trials begin. When one of them
would be stopped, it is marked with the step and continues to its end; a paused one does so after the search,
if it is still waiting. Samplers and rungs see it as stopped at that step, so the search is the same as
without an audit. Its final value is a result like any other: it may be the best.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from optuna.trial import FrozenTrial

from ...spaces import Spec
from ...storage.live import LiveStorage
from ...storage.trial_attrs import AUDITED
from ..trials.seeds import derived_seed
from .rungs import MIN_AUDITED, audited_one_in, expected_cost, expected_saving

AUDIT_SHARE = 0.03  # of a search's cost, if the space gives none


@dataclass(frozen=True)
class AuditSample:
    """Which trials are audited: one of every `every`, drawn from the seed."""

    seed: int
    every: int | None  # None: no audit
    fewest: float = 0.0  # whole trainings that the search must have room for

    @classmethod
    def of(cls, spec: Spec) -> Self:
        """The sample that a space asks for; by default one if the search is large enough for a result."""
        every = audited_one_in(spec, AUDIT_SHARE if spec.audit is None else spec.audit)
        if spec.audit is not None or every is None:
            return cls(spec.search.seed, every)
        fewest = MIN_AUDITED * every * (1 - (expected_saving(spec) or 0.0))
        return cls(spec.search.seed, every, fewest).within(expected_cost(spec))

    def within(self, trainings: float | None) -> Self:
        """The same sample, or none, for a search with room for so many whole trainings; None if unknown."""
        short = trainings is not None and trainings < self.fewest
        return replace(self, every=None) if short else self

    def __contains__(self, number: int) -> bool:
        if self.every is None:
            return False
        block, offset = divmod(number, self.every)
        return offset == derived_seed(self.seed, "audit", block) % self.every


def mark_audited(storage: LiveStorage, trial: FrozenTrial, reason: str) -> None:
    """Note that a trial is audited, which would have been stopped at its last step for a reason."""
    storage.set_trial_user_attr(trial._trial_id, AUDITED, trial.last_step)
    storage.add_event(trial, {"kind": "audited", "reason": reason})
