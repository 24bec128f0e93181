"""Actors that have no trial for a while.

Tune ends all of them but one, as it knows of no trial that could be next, and a search that is over would
train its best again in actors that have to start first: on a machine with few cores one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler

if TYPE_CHECKING:
    from .backend import Hooks


class KeepingScheduler(FIFOScheduler):
    """Lets as many actors wait for a trial as there may be at a time."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Tune's has no annotations
        self._hooks = hooks
        self._to_keep = hooks.workers if hooks.alone else 0  # on a cluster others may use their places

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        tune_controller._actor_cache.increase_max(trial.placement_group_factory, by=self._to_keep)
        self._to_keep = 0  # all trials ask for the same
