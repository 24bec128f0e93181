"""The backend contract: a backend runs trials, and stores nothing of its own."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

from ..engine.driver import Driver
from ..engine.running import Assignment, Failure
from ..trials.usage import Usage
from .worker.channel import Message

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

    from ...spaces import Spec
    from .resources import Room


class Backend(Protocol):
    """Asks the driver for trials, delivers their reports and ends, and obeys its answers."""

    threads: int  # of each worker; a trial's value depends on their number
    gpus: float | None  # of each worker; None where they are unknown before the search
    slots: int  # trials at a time, as far as known before the search starts
    pruner: BasePruner  # decides on early stopping
    leaving: float  # seconds from the last training to the end of the command, in a search of minutes
    room: Room | None  # the memory that a trial may take; None where it is unknown

    def run(self, driver: Driver) -> None:
        """Run trials until `driver.ask()` returns none and none is running.

        Every assigned trial is completed, failed or requeued through the driver before this returns or
        raises. After a trial is stopped, nothing more of it is delivered.
        """
        ...


def setup_of(spec: Spec, objective: Message) -> Message:
    """The setup of a worker, sent before its first trial, without its `pack`; `objective` as described."""
    execution = spec.execution
    return {
        "objective": objective,
        "metric": spec.metric,
        "processes": execution.processes_per_trial,
        "sharing": execution.sharing,
        "fresh": execution.fresh_process and "command" not in objective,
    }


def as_message(assignment: Assignment) -> Message:
    """An assignment as plain JSON, for a worker."""
    return asdict(assignment) | {"folder": str(assignment.folder)}


def deliver(driver: Driver, message: Message) -> str | None:
    """Pass a worker's message on to the driver; why the trial ends at this report, if it does."""
    number: int = message["number"]
    if number not in driver.running:
        return "the trial has ended"  # for another reason, before its worker knew
    if (used := message.get("used")) is not None:
        driver.running[number].used = Usage.from_list(used)
    for kind, text in message.get("remarks", ()):
        driver.remark(number, kind, text)
    for name, value in message.get("attributes", {}).items():
        driver.running[number].set_attribute(name, value)
    match message["kind"]:
        case "report":
            return driver.report(
                number,
                message["value"],
                message["step"],
                message["metrics"],
                seconds=message["seconds"],
                trained=message["trained"],
            )
        case "done":
            driver.complete(number, message["value"], message["seconds"])
        case "failed":
            driver.fail(number, Failure(**message["failure"]))
        case "crowded" | "worn":  # it needs a worker with fewer trials beside or before it
            driver.requeue(number)
    return None
