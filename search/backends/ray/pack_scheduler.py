"""Packs on Ray: a trial of Tune's is a slot of the cluster, and those of the study come and go in it.

So Tune's budget is what it says: a slot holds the resources of one worker for as long as it has trials. It
begins with one, and the driver fills it up; it ends when the driver has no more for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from ..base import as_message, deliver
from ..packing import pack_after
from ..worker.channel import Message
from .actor import MESSAGES
from .schedulers import KeepingScheduler

if TYPE_CHECKING:
    from .hooks import Hooks


class PackScheduler(KeepingScheduler):
    """Tune's scheduler where trials are packed: brings what a slot says to the driver, and sends orders."""

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        hooks = self._hooks
        mine = hooks.numbers[trial.trial_id]
        orders: list[Message] = []
        with hooks.kept():
            hooks.pack = pack_after(result[MESSAGES], hooks.pack, hooks.driver)
            for message in result[MESSAGES]:
                stop = message["number"] not in mine  # dropped, and it may be in another slot by now
                if not stop:
                    stop = deliver(hooks.driver, message) is not None or message["kind"] != "report"
                if stop:
                    mine.discard(message["number"])
                if message["kind"] == "report":
                    orders.append({"kind": "stop" if stop else "go on", "report": message})
            hooks.actors[trial.trial_id].order.remote(orders)
            fill(hooks)
        return TrialScheduler.CONTINUE if mine else TrialScheduler.STOP


def fill(hooks: Hooks) -> None:
    """Give the slots what trials there are, the emptiest first. New slots come before: the searcher asks."""
    while len(hooks.numbers) == hooks.workers and hooks.has_room:
        slot = min(hooks.actors, key=lambda each: len(hooks.numbers[each]), default=None)
        if slot is None or len(hooks.numbers[slot]) >= hooks.pack:
            return  # the others have not started yet
        assignment = hooks.driver.ask()
        if assignment is None:
            return
        hooks.numbers[slot].add(assignment.number)
        hooks.actors[slot].order.remote([{"kind": "trial", "trial": as_message(assignment)}])
