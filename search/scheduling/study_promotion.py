"""Promotion in a study: which trials wait at their rungs, and which goes on.

`scheduling` knows numbers and losses. Here they come from a study's trials, whose rungs are noted where
Optuna's own pruners note them, and a search that goes on begins with what the study says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Self

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Choice, Spec
from ...spaces.ranges import brief
from ...spaces.stopping import Rungs
from ...storage.live import LiveStorage
from ...storage.states import AT_RUNG, at_rung, audited_at, confirms, unusable
from ..formatting import counted
from . import PromotionRule, alike_of, bracket_of_trial, brackets_of, promotes
from .observed import as_decided
from .standings import RUNG_PREFIX, kind_of

PROMOTED, RESUMED = "goes on", "taken up"


class StudyPromotion:
    """Who pauses, who waits, and who goes on."""

    @classmethod
    def of(cls, spec: Spec, storage: LiveStorage) -> Self | None:
        """That of a study; None where its trials do not pause."""
        return cls(spec, storage) if promotes(spec) else None

    def __init__(self, spec: Spec, storage: LiveStorage) -> None:
        self._spec = spec
        self._storage = storage
        self._brackets, self._alike = brackets_of(spec), alike_of(spec)
        self.read()

    def read(self) -> None:
        """Begin with what the study says."""
        self._rule = promotion_of(self._spec, self._storage.get_all_trials(0, deepcopy=False))

    def pauses(
        self,
        trial: FrozenTrial,
        can_wait: Callable[[], bool],
        is_last_chance: Callable[[int | None], bool],
    ) -> bool:
        """Whether a trial pauses with its last report: it is at a rung, and there is one that goes first.

        Who left no checkpoint cannot wait, and would pass for having come when nobody waits: it goes on if it
        is among the best by now. So does who is the best where it has no time to wait for `other`, or a new
        one, as `is_last_chance` says: to go on later it would have to begin once more.
        """
        if _is_apart(trial) or audited_at(trial) is not None:
            return False
        number, step = trial.number, trial.last_step
        assert step is not None
        bracket = bracket_of_trial(self._brackets, self._spec.name, number)
        kind = kind_of(self._alike, trial)
        came = self._rule.report(number, bracket, step, _loss(self._spec, trial, step), kind)
        for rung in came:
            value = trial.intermediate_values[step]
            self._storage.set_trial_system_attr(trial._trial_id, f"{RUNG_PREFIX}{rung}", value)
        if not came:
            return False
        self._rule.pause(number)
        at_its_end = step >= (self._spec.early_stopping.max or math.inf)  # its cost is spent
        first = self._rule.next()
        goes_on = first == number if can_wait() else self._rule.passes(number)
        if not (goes_on or at_its_end or (self._rule.leading_waiter() == number and is_last_chance(first))):
            return True
        self._note(trial, PROMOTED)
        self._rule.promote(number)
        return False

    @property
    def paused(self) -> int:
        """How many trials wait."""
        return self._rule.paused

    def pause(self, trial: FrozenTrial) -> str:
        """Let a trial wait at its rung; how it stands there."""
        self._storage.set_trial_user_attr(trial._trial_id, AT_RUNG, trial.last_step)
        return self._note(trial, "paused")

    def next(self) -> int | None:
        """The trial to take up; None where none is good enough."""
        return self._rule.next()

    def leading_waiter(self) -> int | None:
        """Who waits at the last rung of its bracket and was better there than those that went on, if any."""
        return self._rule.leading_waiter()

    def leave_rung(self, trial: FrozenTrial, *, promoted: bool = False) -> None:
        """A trial that waited waits no more: it is taken up, or ends."""
        if promoted:
            self._note(trial, RESUMED)
            self._rule.promote(trial.number)
        else:
            self._rule.end(trial.number)
        if at_rung(trial):
            self._storage.forget(trial.number, AT_RUNG)

    def ended(self, trial: FrozenTrial) -> None:
        """A trial has ended: it keeps the places that it took, or leaves them to others."""
        if audited_at(trial) is None:  # what comes later of one that was to stop, the search does not see
            _take_in_end(self._rule, trial)

    def cannot_be_promoted(self) -> list[int]:
        """Those that will never be taken up."""
        return self._rule.cannot_be_promoted()

    def why_not_promoted(self, number: int, came: str = "paused") -> str:
        """Why a trial ends that waited at its rung, or came there and could not wait."""
        trial = self._storage.get_all_trials(0, deepcopy=False)[number]
        step, eta = self._rule.standing(number).step, self._rule.eta
        gone, reached = self._rule.promoted_count(number)
        return (
            f"{came} at {counted(step, self._spec.resource)}: {self._standing(trial)}, "
            f"one in {eta} goes on and {gone} of {reached} have"
        )

    def _note(self, trial: FrozenTrial, what: str) -> str:
        event = f"{what} at {counted(trial.last_step or 0, self._spec.resource)}, {self._standing(trial)}"
        self._storage.add_event(trial, event)
        return event

    def _standing(self, trial: FrozenTrial) -> str:
        told = []
        for name, label in kind_of(self._alike, trial):
            choice = self._spec.parameters[name]
            value = choice.value_of(label) if isinstance(choice, Choice) else label
            told.append(f"{name} {brief(value)}")
        return f"{self._rule.standing(trial.number)}{' with ' if told else ''}{', '.join(told)}"


def promotion_of(spec: Spec, trials: Sequence[FrozenTrial]) -> PromotionRule:
    """The rungs of a study whose trials pause, and who is at each."""
    stopping, brackets, alike = spec.early_stopping, brackets_of(spec), alike_of(spec)
    assert isinstance(stopping, Rungs)
    rule = PromotionRule(brackets, stopping.eta, spec.budget.trials)
    for number, trial in enumerate(map(as_decided, trials)):
        if _is_apart(trial):
            continue
        bracket, kind = bracket_of_trial(brackets, spec.name, number), kind_of(alike, trial)
        came: list[int] = []
        for step in sorted(trial.intermediate_values):
            came += rule.report(number, bracket, step, _loss(spec, trial, step), kind)
        if at_rung(trial):
            rule.pause(number)
        elif trial.state.is_finished():
            _take_in_end(rule, trial)
        elif came:
            rule.promote(number)
    return rule


def _take_in_end(rule: PromotionRule, trial: FrozenTrial) -> None:
    if _is_apart(trial):
        return
    if unusable(trial):
        rule.mark_untrainable(trial.number)
    elif trial.state == TrialState.COMPLETE:
        rule.complete(trial.number)
    else:
        rule.stop(trial.number)


def _loss(spec: Spec, trial: FrozenTrial, step: int) -> float:
    value = trial.intermediate_values[step]
    return value if spec.goal == "minimize" else -value


def _is_apart(trial: FrozenTrial) -> bool:
    """Whether a trial runs to its end whatever it reports, and takes nobody's place."""
    return "baseline" in trial.user_attrs or confirms(trial) is not None
