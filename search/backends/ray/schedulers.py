"""Actors that have no trial for a while, and those that start.

Tune ends all of the idle but one, as it knows of no trial that could be next, and a search that is over would
train its best again in actors that have to start first: on a machine with few cores one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler

if TYPE_CHECKING:
    from .hooks import Hooks


START_SECONDS = 30.0  # for an actor to start, before a trial takes one that others have left


class KeepingScheduler(FIFOScheduler):
    """Lets as many actors start and wait for a trial as there may be at a time."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Tune's has no annotations
        self._hooks = hooks
        self._to_keep = hooks.workers if hooks.alone else 0  # on a cluster others may use their places

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        tune_controller._actor_cache.increase_max(trial.placement_group_factory, by=self._to_keep)
        self._to_keep = 0  # all trials ask for the same

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Let a trial have the actor that starts for it, and a new one the actor that is free.

        Tune gives that to the first that waits and gives up the one that starts: as long as trials take less
        than actors to start, the first few train all of them. On a cluster a place may never come free, so
        who has waited for long takes what is.
        """
        found: Trial | None = super().choose_trial_to_run(tune_controller)
        if found is None:
            return None
        running = self._hooks.driver.running
        waiting = running.keys() & self._hooks.numbers[found.trial_id]
        asked = max((running[number].seconds for number in waiting), default=0.0)
        return found if asked > START_SECONDS else None
