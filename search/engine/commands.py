"""Other processes: their commands to a search, and their changes to its study."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

import optuna
from optuna.trial import FrozenTrial, TrialState

from ...spaces.settings import Budget, Confirm
from ...storage import DatabaseUnavailable
from ...storage.commands import StudyCommand
from ...storage.trial_attrs import ASKED, FIXED_PARAMS, at_rung
from ..trials.stops import Stop

if TYPE_CHECKING:
    from .lifecycle import TrialLifecycle

FAILURE_ATTRS = ("error", "reason", "retries", "traceback")  # a retry begins without these attributes


class Controls(Protocol):
    """What other processes may ask of a search."""

    def say(self, message: str) -> None: ...

    def request_stop(self, reason: str, by: str | None = None) -> None: ...

    def pause(self, by: str | None = None) -> None: ...

    def resume(self, by: str | None = None) -> None: ...

    def continue_with(self, budget: Budget, confirm: Confirm) -> None: ...


class CommandInbox:
    """The commands and changes of other processes."""

    def __init__(self, driver: Controls, lifecycle: TrialLifecycle) -> None:
        self._driver = driver
        self._storage = lifecycle.storage
        self._lifecycle = lifecycle

    def look(self) -> None:
        """Obey new commands, and adopt new changes."""
        try:
            commands, ended = self._storage.take_commands(), self._storage.ended_elsewhere()
        except DatabaseUnavailable as error:
            self._driver.say(f"the database does not answer ({error}); the search continues")
            return
        for command in commands:
            self._obey(command)
        for trial in ended:
            state = trial.state.name.lower()
            self._driver.say(f"trial {trial.number} was ended as {state} by another program")
            self._lifecycle.adopt_foreign_end(trial)
        for news in self._storage.take_news():
            self._driver.say(news)

    def _obey(self, command: StudyCommand) -> None:
        match command:
            case StudyCommand("stop"):
                self._driver.request_stop(f"asked by {command.by or 'hpsearch stop'}", command.by)
            case StudyCommand("pause"):
                self._driver.pause(command.by)
            case StudyCommand("resume"):
                self._driver.resume(command.by)
            case StudyCommand("kill", int(number)):
                self._kill(number, killed(command.by))
            case StudyCommand("retry", number):
                self._retry(number, command.by)
            case StudyCommand("budget", budget=dict()):
                self._budget(command)
            case StudyCommand("try", params=dict(), request=str()):
                self._try(command)
            case _:
                self._driver.say(f"another process sent an unknown command, which is ignored: {command.do}")

    def _budget(self, asked: StudyCommand) -> None:
        """Continue with other limits, or another confirmation; what is not named stays."""
        before = self._lifecycle.spec
        try:
            budget = Budget.model_validate({**dict(before.budget), **(asked.budget or {})})
            confirm = Confirm.model_validate({**dict(before.confirm), **(asked.confirm or {})})
        except ValueError:
            sent = asked.budget if asked.confirm is None else f"{asked.budget} {asked.confirm}"
            self._driver.say(f"another process sent a budget that is none, which is ignored: {sent}")
            return
        self._continue_with(budget, confirm, f", as {asked.by} asked" if asked.by else "")
        self._lifecycle.flush()

    def _continue_with(self, budget: Budget, confirm: Confirm, why: str) -> None:
        before = self._lifecycle.spec
        self._driver.continue_with(budget, confirm)
        if confirm != before.confirm:
            self._driver.say(f"{_confirming(confirm)}{why}")
        if confirm == before.confirm or budget != before.budget:
            limits = ", ".join(f"{name} {value:g}" for name, value in budget if value is not None)
            self._driver.say(f"the budget is now: {limits}{why}")

    def _try(self, asked: StudyCommand) -> None:
        """Enqueue a configuration, once."""
        if asked_by(self._lifecycle.trials, asked) is None:
            enqueue(self._lifecycle.study, asked)
            number = len(self._lifecycle.trials) - 1
            self._driver.say(f"trial {number} waits: a configuration to try{_by(asked.by)}")
            before = self._lifecycle.spec.budget
            budget = room_for(self._lifecycle.tally.searched, before)
            if budget != before:
                self._continue_with(budget, self._lifecycle.spec.confirm, ", with that trial")
            self._lifecycle.flush()

    def _kill(self, number: int, stop: Stop) -> None:
        """End a running, paused or requeued trial as failed."""
        waiting = [trial.number for trial in self._lifecycle.trials if _has_begun_and_waits(trial)]
        if number in self._lifecycle.running or number in waiting:
            self._lifecycle.fail(self._lifecycle.detach_from_worker(number), stop.reason, stop)
        else:
            self._driver.say(f"trial {number} is not running, so it cannot be killed")

    def _retry(self, number: int | None, by: str | None) -> None:
        """Requeue a failed trial, which resumes from its checkpoint; without a number all failed ones."""
        failed = [trial.number for trial in self._lifecycle.trials if trial.state == TrialState.FAIL]
        if number is not None and number not in failed:
            self._driver.say(f"trial {number} has not failed, so it is not retried")
            return
        asked = failed if number is None else [number]
        self._lifecycle.revive(asked, FAILURE_ATTRS)
        for each in asked:
            self._driver.say(f"trial {each} is retried{_by(by)}")
        self._lifecycle.flush()


def enqueue(study: optuna.Study, asked: StudyCommand) -> None:
    """Enqueue a trial with Optuna's labels of some parameters; the sampler proposes the others."""
    known = {"request": asked.request, "by": asked.by, "call": asked.call}
    attrs = {FIXED_PARAMS: asked.params, ASKED: known}
    study.add_trial(optuna.trial.create_trial(state=TrialState.WAITING, system_attrs=attrs))


def asked_by(trials: Iterable[FrozenTrial], asked: StudyCommand) -> FrozenTrial | None:
    """The trial that a command with this request has enqueued; None where none has."""
    return next((t for t in trials if t.system_attrs.get(ASKED, {}).get("request") == asked.request), None)


def room_for(trials: int, budget: Budget) -> Budget:
    """A budget of so many trials at least, where it limits them."""
    if budget.trials is None or budget.trials >= trials:
        return budget
    return budget.model_copy(update={"trials": trials})


def killed(by: str | None = None) -> Stop:
    """The end of a trial that somebody has killed; by default from the command line."""
    return Stop("killed", f"killed by {by or 'hpsearch kill'}")


def _confirming(confirm: Confirm) -> str:
    """What is trained again, in words."""
    if confirm.top == 0:
        return "the best trials are not confirmed"
    which = "the best trials are" if confirm.top is None else f"the best {confirm.top} are"
    return f"{which} confirmed after the search"


def _by(who: str | None) -> str:
    return f" by {who}" if who else ""


def _has_begun_and_waits(trial: FrozenTrial) -> bool:
    """Whether a trial is paused, or was requeued."""
    return at_rung(trial) or (trial.state == TrialState.WAITING and trial.datetime_start is not None)
