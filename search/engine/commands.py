"""Other processes: their commands to a search, and their changes to its study."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from optuna.trial import FrozenTrial, TrialState

from ...storage import DatabaseUnavailable
from ...storage.live import StudyCommand
from ...storage.trial_attrs import at_rung
from ..trials.stops import Stop

if TYPE_CHECKING:
    from .lifecycle import TrialLifecycle

KILLED = Stop("killed", "killed by hpsearch kill")
FAILURE_ATTRS = ("error", "reason", "retries", "traceback")  # a retry begins without these attributes


class Controls(Protocol):
    """What other processes may ask of a search."""

    def say(self, message: str) -> None: ...

    def request_stop(self, reason: str) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


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
                self._driver.request_stop("asked by hpsearch stop")
            case StudyCommand("pause"):
                self._driver.pause()
            case StudyCommand("resume"):
                self._driver.resume()
            case StudyCommand("kill", int(number)):
                self._kill(number)
            case StudyCommand("retry", number):
                self._retry(number)
            case _:
                self._driver.say(f"another process sent an unknown command, which is ignored: {command.do}")

    def _kill(self, number: int) -> None:
        """End a running, paused or requeued trial as failed."""
        waiting = [trial.number for trial in self._lifecycle.trials if _has_begun_and_waits(trial)]
        if number in self._lifecycle.running or number in waiting:
            self._lifecycle.fail(self._lifecycle.detach_from_worker(number), KILLED.reason, KILLED)
        else:
            self._driver.say(f"trial {number} is not running, so it cannot be killed")

    def _retry(self, number: int | None) -> None:
        """Requeue a failed trial, which resumes from its checkpoint; without a number all failed ones."""
        failed = [trial.number for trial in self._lifecycle.trials if trial.state == TrialState.FAIL]
        if number is not None and number not in failed:
            self._driver.say(f"trial {number} has not failed, so it is not retried")
            return
        asked = failed if number is None else [number]
        self._lifecycle.revive(asked, FAILURE_ATTRS)
        for each in asked:
            self._driver.say(f"trial {each} is retried")
        self._lifecycle.flush()


def _has_begun_and_waits(trial: FrozenTrial) -> bool:
    """Whether a trial is paused, or was requeued."""
    return at_rung(trial) or (trial.state == TrialState.WAITING and trial.datetime_start is not None)
