"""Tune's scheduler: passes the messages of trials to the driver, obeys, and keeps the slots full.

A trial of Tune's is a slot of the cluster, in which trials of the study come and go. So Tune's resources stay
exact: a slot holds those of one worker as long as it has trials. It starts with one trial, the driver fills
it up, and it ends when the driver has no more trials for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from ..base import as_message, deliver
from ..packing import pack_after
from .actor import MESSAGES_KEY

if TYPE_CHECKING:
    from .hooks import Hooks

ACTOR_START_SECONDS = 30.0  # for an actor to start, before its trial takes another that is free


class StudyScheduler(FIFOScheduler):
    """Obeys the driver, and keeps actors without a trial and those that start.

    Tune ends all idle actors but one, since it knows of no next trial. A search that ends would then confirm
    its best trials in actors that have to start first: on a machine with few cores one after the other.
    """

    def __init__(self, hooks: Hooks) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Tune's has no annotations
        self._hooks = hooks
        self._to_keep = hooks.workers if hooks.alone else 0  # on a cluster others may use their places

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        tune_controller._actor_cache.increase_max(trial.placement_group_factory, by=self._to_keep)
        self._to_keep = 0  # all slots request the same

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        hooks = self._hooks
        mine = hooks.numbers[trial.trial_id]
        stopped: set[int] = set()
        with hooks.errors_kept():
            hooks.pack = pack_after(result[MESSAGES_KEY], hooks.pack, hooks.driver)
            for message in result[MESSAGES_KEY]:
                number, is_report = message["number"], message["kind"] == "report"
                if number in mine and deliver(hooks.driver, message) is None and is_report:
                    continue
                mine.discard(number)  # if it was not dropped before, and is maybe in another slot by now
                if is_report:
                    stopped.add(number)
            if stopped:
                hooks.actors[trial.trial_id].end.remote(stopped)
            self._fill()
        return TrialScheduler.CONTINUE if mine else TrialScheduler.STOP

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Let a slot wait for the actor that starts for it, and a new slot take the free actor.

        Tune would give the free actor to the first waiting slot, and cancel the one that starts: as long as
        trials take less time than actors to start, the first few actors would train all of them. On a cluster
        a place may never come free, so a slot that has waited for long takes what is free.
        """
        trial: Trial | None = super().choose_trial_to_run(tune_controller)
        return trial if trial is not None and self._waits_long(trial.trial_id) else None

    def _fill(self) -> None:
        """Give the slots the trials there are, the emptiest first; the searcher fills new slots before."""
        hooks = self._hooks
        while len(hooks.numbers) == hooks.workers and hooks.has_room:
            slot = min(hooks.actors, key=lambda each: len(hooks.numbers[each]))
            others = hooks.numbers.keys() - hooks.actors.keys()  # which have not started yet
            if len(hooks.numbers[slot]) >= hooks.pack:
                return
            if not hooks.numbers[slot] and any(map(self._waits_long, others)):
                return  # its actor is free for another
            assignment = hooks.driver.ask()
            if assignment is None:
                return
            hooks.numbers[slot].add(assignment.number)
            hooks.actors[slot].add.remote(as_message(assignment))

    def _waits_long(self, slot: str) -> bool:
        """Whether a slot has waited for its place for long."""
        running = self._hooks.driver.running
        waiting = running.keys() & self._hooks.numbers[slot]
        return any(running[number].seconds > ACTOR_START_SECONDS for number in waiting)
