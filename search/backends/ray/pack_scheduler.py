"""Packs on Ray: a trial of Tune's is a slot of the cluster, in which trials of the study come and go.

So Tune's resources stay exact: a slot holds those of one worker as long as it has trials. It starts with one
trial, the driver fills it up, and it ends when the driver has no more trials for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from ..base import as_message, deliver
from ..packing import pack_after
from ..worker.channel import Message
from .actor import MESSAGES_KEY
from .schedulers import KeepingScheduler

if TYPE_CHECKING:
    from .hooks import Hooks


class PackScheduler(KeepingScheduler):
    """Tune's scheduler for packed trials: passes a slot's messages to the driver, and sends it orders."""

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        hooks = self._hooks
        mine = hooks.numbers[trial.trial_id]
        orders: list[Message] = []
        with hooks.errors_kept():
            hooks.pack = pack_after(result[MESSAGES_KEY], hooks.pack, hooks.driver)
            for message in result[MESSAGES_KEY]:
                stop = message["number"] not in mine  # dropped, and maybe in another slot by now
                if not stop:
                    stop = deliver(hooks.driver, message) is not None or message["kind"] != "report"
                if stop:
                    mine.discard(message["number"])
                if message["kind"] == "report":
                    orders.append({"kind": "stop" if stop else "continue", "report": message})
            hooks.actors[trial.trial_id].order.remote(orders)
            fill(hooks)
        return TrialScheduler.CONTINUE if mine else TrialScheduler.STOP


def fill(hooks: Hooks) -> None:
    """Give the slots the trials there are, the emptiest first; the searcher fills new slots before."""
    while len(hooks.numbers) == hooks.workers and hooks.has_room:
        slot = min(hooks.actors, key=lambda each: len(hooks.numbers[each]), default=None)
        if slot is None or len(hooks.numbers[slot]) >= hooks.pack:
            return  # the other slots have not started yet
        assignment = hooks.driver.ask()
        if assignment is None:
            return
        hooks.numbers[slot].add(assignment.number)
        hooks.actors[slot].order.remote([{"kind": "trial", "trial": as_message(assignment)}])
