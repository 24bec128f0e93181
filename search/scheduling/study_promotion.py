"""Promotion in a study: which trials are paused at their rungs, and which is promoted next.

`promotion` knows only numbers and losses. This module takes them from a study's trials, and notes their rungs
in the attributes that Optuna's own pruners use. A resumed search rebuilds its state from the study.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Choice, Spec
from ...spaces.ranges import brief
from ...spaces.stopping import Rungs
from ...storage.live import LiveStorage
from ...storage.trial_attrs import (
    AT_RUNG,
    RUNG_PREFIX,
    at_rung,
    audited_at,
    confirms,
    is_baseline,
    unusable,
)
from ..formatting import position
from ..trials.events import event_in_words, rank_in_words
from ..trials.stops import Stop
from .observed import as_judged, as_searched
from .promotion import PromotionRule, RungEntry
from .rungs import bracket_of_trial, brackets_of
from .standings import trial_kind

PAUSED, PROMOTED, RESUMED = "paused", "promoted", "resumed"  # promoted at once, resumed after a pause


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

    def enter(self, trial: FrozenTrial, *, can_wait: bool) -> RungEntry | None:
        """Enter a trial's last report. None if it does not bring the trial to a rung.

        Until it is promoted or ends, the trial waits there. `can_wait`: whether it has a checkpoint to wait
        with.
        """
        if _runs_to_end(trial) or audited_at(trial) is not None:
            return None
        trial, number, step = as_judged(self._spec, trial), trial.number, trial.last_step
        assert step is not None
        bracket = bracket_of_trial(self._brackets, self._spec.name, number)
        loss, kind = _loss(self._spec, trial, step), trial_kind(self._spec, trial)
        came = self.rule.report(number, bracket, step, loss, kind)
        for rung in came:
            value = trial.intermediate_values[step]
            self._storage.set_trial_system_attr(trial._trial_id, f"{RUNG_PREFIX}{rung}", value)
        if not came:
            return None
        entry = self.rule.enter(number, can_wait=can_wait)
        at_its_end = step >= (self._spec.early_stopping.max or math.inf)  # its cost is spent
        return replace(entry, goes_first=True, leads=False) if at_its_end else entry

    def promote(self, trial: FrozenTrial) -> None:
        """Promote a trial from its rung: at once, or after a pause."""
        self._note(trial, RESUMED if at_rung(trial) else PROMOTED)
        self.rule.promote(trial.number)
        self._forget_rung(trial)

    def pause(self, trial: FrozenTrial) -> str:
        """Pause a trial at its rung. Returns its standing there, as a sentence."""
        self._storage.set_trial_user_attr(trial._trial_id, AT_RUNG, trial.last_step)
        return event_in_words(self._note(trial, PAUSED), self._spec.resource)

    def leave(self, trial: FrozenTrial) -> None:
        """A trial leaves its rung without a promotion."""
        self.rule.end(trial.number)
        self._forget_rung(trial)

    def _forget_rung(self, trial: FrozenTrial) -> None:
        if at_rung(trial):
            self._storage.forget(trial.number, AT_RUNG)

    def ended(self, trial: FrozenTrial) -> None:
        """A trial has ended: it keeps the slots that it took, or frees them for others."""
        if audited_at(trial) is None:  # the search does not see how an audited trial ends
            _take_in_end(self.rule, trial)

    def stop_of_paused(self, trial: FrozenTrial) -> Stop:
        """The end of a trial that is paused at its rung, and is not promoted."""
        return Stop("not_promoted", *self._not_promoted(trial, PAUSED))

    def stop_without_checkpoint(self, trial: FrozenTrial) -> Stop:
        """The end of a trial that is not promoted at once, and cannot pause."""
        reason, why = self._not_promoted(trial, "stopped")
        return Stop("no_checkpoint", f"{reason}; it left no checkpoint", why)

    def _not_promoted(self, trial: FrozenTrial, what: str) -> tuple[str, str]:
        """Why a trial is not promoted: a sentence, and few words."""
        standing, eta = self.rule.standing(trial.number), self.rule.eta
        gone, reached = self.rule.promoted_count(trial.number)
        rank = rank_in_words(standing.rank, standing.reached, self._kind(trial))
        why = f"{what} at {position(standing.step, self._spec.resource)}"
        return f"{why}: {rank}; one in {eta} is promoted, so far {gone} of {reached}", why

    def _note(self, trial: FrozenTrial, what: str) -> dict[str, Any]:
        """Add to a trial's events what happens to it at its rung. Returns the event."""
        standing, kind = self.rule.standing(trial.number), self._kind(trial)
        event: dict[str, Any] = {"kind": what, "step": trial.last_step or 0}
        event |= {"rank": standing.rank, "of": standing.reached} | ({"alike": kind} if kind else {})
        self._storage.add_event(trial, event)
        return event

    def _kind(self, trial: FrozenTrial) -> dict[str, str]:
        """The values that the trial shares with those it is compared with."""
        kind = {}
        for name, label in trial_kind(self._spec, trial):
            choice = self._spec.parameters[name]
            kind[name] = brief(choice.value_of(label) if isinstance(choice, Choice) else label)
        return kind


def promotion_of(spec: Spec, trials: Sequence[FrozenTrial]) -> PromotionRule:
    """The rungs of a study whose trials pause, and the trials at each."""
    stopping, brackets = spec.early_stopping, brackets_of(spec)
    assert isinstance(stopping, Rungs)
    rule = PromotionRule(brackets, stopping.eta, spec.budget.trials)
    for number, trial in enumerate(as_searched(spec, each) for each in trials):
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
    return spec.loss(trial.intermediate_values[step])


def _runs_to_end(trial: FrozenTrial) -> bool:
    """Whether a trial runs to its end whatever it reports, and takes no slot: the baseline, confirmations."""
    return is_baseline(trial) or confirms(trial) is not None
