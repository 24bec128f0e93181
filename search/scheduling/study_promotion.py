"""Promotion in a study: which trials are paused at their rungs, and which is promoted next.

`promotion` knows only numbers and losses. This module takes them from a study's trials, and notes their rungs
in the attributes that Optuna's own pruners use. A resumed search rebuilds its state from the study.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Choice, Spec
from ...spaces.ranges import brief
from ...spaces.stopping import Rungs
from ...storage.live import LiveStorage
from ...storage.trial_attrs import AT_RUNG, RUNG_PREFIX, at_rung, audited_at, confirms, is_baseline, unusable
from ..formatting import counted
from .observed import as_decided
from .promotion import PromotionRule
from .rungs import bracket_of_trial, brackets_of
from .standings import trial_kind

PROMOTED, RESUMED = "promoted", "resumed"  # at once, or after a pause


class StudyPromotion:
    """Which trials of a study that promotes pause, wait and are promoted: its `rule`, kept up to date."""

    def __init__(self, spec: Spec, storage: LiveStorage) -> None:
        self._spec = spec
        self._storage = storage
        self._brackets = brackets_of(spec)
        self.read()

    def read(self) -> None:
        """Rebuild the state from the study."""
        self.rule = promotion_of(self._spec, self._storage.trials)

    def pauses(
        self,
        trial: FrozenTrial,
        can_wait: Callable[[], bool],
        is_last_chance: Callable[[int | None], bool],
    ) -> bool:
        """Enter a trial's last report. Returns whether it pauses: it is at a rung, and another trial goes
        first.

        A trial without a checkpoint cannot wait; it continues if it is among the best so far. The best trial
        also continues if `is_last_chance` says that there is no time to let another one, or a new one, go
        first: to resume later costs the start-up again.
        """
        if _runs_to_end(trial) or audited_at(trial) is not None:
            return False
        number, step = trial.number, trial.last_step
        assert step is not None
        bracket = bracket_of_trial(self._brackets, self._spec.name, number)
        loss, kind = _loss(self._spec, trial, step), trial_kind(self._spec, trial)
        came = self.rule.report(number, bracket, step, loss, kind)
        for rung in came:
            value = trial.intermediate_values[step]
            self._storage.set_trial_system_attr(trial._trial_id, f"{RUNG_PREFIX}{rung}", value)
        if not came:
            return False
        self.rule.pause(number)
        at_its_end = step >= (self._spec.early_stopping.max or math.inf)  # its cost is spent
        first = self.rule.next()
        goes_first = first == number if can_wait() else self.rule.passes(number)
        if not (goes_first or at_its_end or (self.rule.leading_waiter() == number and is_last_chance(first))):
            return True
        self._note(trial, PROMOTED)
        self.rule.promote(number)
        return False

    def pause(self, trial: FrozenTrial) -> str:
        """Pause a trial at its rung. Returns its standing there, as a sentence."""
        self._storage.set_trial_user_attr(trial._trial_id, AT_RUNG, trial.last_step)
        return self._note(trial, "paused")

    def leave_rung(self, trial: FrozenTrial, *, promoted: bool = False) -> None:
        """A paused trial leaves its rung: it is promoted, or ends."""
        if promoted:
            self._note(trial, RESUMED)
            self.rule.promote(trial.number)
        else:
            self.rule.end(trial.number)
        if at_rung(trial):
            self._storage.forget(trial.number, AT_RUNG)

    def ended(self, trial: FrozenTrial) -> None:
        """A trial has ended: it keeps the slots that it took, or frees them for others."""
        if audited_at(trial) is None:  # the search does not see how an audited trial ends
            _take_in_end(self.rule, trial)

    def why_not_promoted(self, trial: FrozenTrial, came: str = "paused") -> str:
        """Why a trial ends that was paused at its rung, or could not pause there."""
        step, eta = self.rule.standing(trial.number).step, self.rule.eta
        gone, reached = self.rule.promoted_count(trial.number)
        return (
            f"{came} at {counted(step, self._spec.resource)}: {self._standing(trial)}; "
            f"one in {eta} is promoted, so far {gone} of {reached}"
        )

    def _note(self, trial: FrozenTrial, what: str) -> str:
        event = f"{what} at {counted(trial.last_step or 0, self._spec.resource)}, {self._standing(trial)}"
        self._storage.add_event(trial, event)
        return event

    def _standing(self, trial: FrozenTrial) -> str:
        kind = []
        for name, label in trial_kind(self._spec, trial):
            choice = self._spec.parameters[name]
            value = choice.value_of(label) if isinstance(choice, Choice) else label
            kind.append(f"{name} {brief(value)}")
        return f"{self.rule.standing(trial.number)}{' with ' if kind else ''}{', '.join(kind)}"


def promotion_of(spec: Spec, trials: Sequence[FrozenTrial]) -> PromotionRule:
    """The rungs of a study whose trials pause, and the trials at each."""
    stopping, brackets = spec.early_stopping, brackets_of(spec)
    assert isinstance(stopping, Rungs)
    rule = PromotionRule(brackets, stopping.eta, spec.budget.trials)
    for number, trial in enumerate(map(as_decided, trials)):
        if _runs_to_end(trial):
            continue
        bracket, kind = bracket_of_trial(brackets, spec.name, number), trial_kind(spec, trial)
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
    if _runs_to_end(trial):
        return
    if unusable(trial):
        rule.mark_untrainable(trial.number)
    elif trial.state == TrialState.COMPLETE:
        rule.complete(trial.number)
    else:
        rule.stop(trial.number)


def _loss(spec: Spec, trial: FrozenTrial, step: int) -> float:
    return spec.sign * trial.intermediate_values[step]


def _runs_to_end(trial: FrozenTrial) -> bool:
    """Whether a trial runs to its end whatever it reports, and takes no slot: the baseline, confirmations."""
    return is_baseline(trial) or confirms(trial) is not None
