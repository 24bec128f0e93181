"""Keeps actors without a trial, and those that start.

Tune ends all idle actors but one, since it knows of no next trial. A search that ends would then confirm its
best trials in actors that have to start first: on a machine with few cores one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler

if TYPE_CHECKING:
    from .hooks import Hooks


ACTOR_START_SECONDS = 30.0  # for an actor to start, before a trial takes another that is free


class KeepingScheduler(FIFOScheduler):
    """Lets as many actors start and wait for a trial as there are workers."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Tune's has no annotations
        self._hooks = hooks
        self._to_keep = hooks.workers if hooks.alone else 0  # on a cluster others may use their places

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        tune_controller._actor_cache.increase_max(trial.placement_group_factory, by=self._to_keep)
        self._to_keep = 0  # all trials request the same

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Let a trial wait for the actor that starts for it, and a new trial take the free actor.

        Tune would give the free actor to the first waiting trial, and cancel the one that starts: as long as
        trials take less time than actors to start, the first few actors would train all of them. On a cluster
        a place may never come free, so a trial that has waited for long takes what is free.
        """
        trial: Trial | None = super().choose_trial_to_run(tune_controller)
        if trial is None:
            return None
        running = self._hooks.driver.running
        waiting = running.keys() & self._hooks.numbers[trial.trial_id]
        seconds = max((running[number].seconds for number in waiting), default=0.0)
        return trial if seconds > ACTOR_START_SECONDS else None
