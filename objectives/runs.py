"""Runs the trainer for trials of the built-in objectives `lora` and `pretrain`."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from contextlib import AbstractContextManager

from ..trainer.config.models import TrainConfig
from ..trainer.errors import TrainerError
from ..trainer.ranks import ALONE, Ranks, join_ranks
from ..trainer.runs.base import BaseRun, FitResult, RunReport, Steps, drive, train_to_end
from ..trainer.runs.run import GptRun
from ..trainer.runs.together import PackedRuns
from .base import ObjectiveError, Trial
from .errors import trainer_errors
from .processes import STRATEGY, ZERO_STAGE

Within = Callable[[Trial], AbstractContextManager[None]]


def train_with(config: type[TrainConfig], trial: Trial) -> float:
    """Train a trial, with its seed unless its parameters fix one. Returns its value."""
    ranks = ranks_of_trial()
    if ranks.count > 1:
        gc.collect()  # frees the last trial's model: sharded models have reference cycles
    run = GptRun(config.of(trial), ranks=ranks)
    return train_to_end(run, steps_of(run, trial)).value


def steps_of(run: BaseRun, trial: Trial) -> Steps:
    """Everything in a trial's run except its steps, as in `drive`.

    Every report saves a checkpoint in the trial's folder; a checkpoint of an earlier attempt is resumed.
    """

    def on_report(report: RunReport) -> None:
        trial.report(report.value, step=report.step, **report.metrics)

    return drive(run, on_report=on_report, checkpoint=trial.checkpoint, resume_from=trial.resume_from)


def ranks_of_trial() -> Ranks:
    """The processes that train this trial, by the environment; without it this one alone."""
    strategy = os.environ.get(STRATEGY)
    return join_ranks(strategy, int(os.environ[ZERO_STAGE])) if strategy else ALONE


class PackedTrials:
    """Runs several trials of a built-in objective at once, each as `train_with` would.

    `within` is a context for what a trial does by itself: its start and its reports.
    """

    def __init__(self, config: type[TrainConfig], within: Within) -> None:
        self._config = config
        self._within = within
        self._trials: dict[GptRun, Trial] = {}
        self._together = PackedRuns(lambda run: within(self._trials[run]))

    @property
    def busy(self) -> bool:
        """Whether `advance` has anything to do."""
        return self._together.busy

    def join(self, trial: Trial) -> None:
        """Start a trial. Raises `ObjectiveError` if it cannot start."""
        with trainer_errors(), self._within(trial):
            run = self._together.new_run(self._config.of(trial))
        self._trials[run] = trial
        self._together.join(run, steps_of(run, trial))

    def leave(self, trial: Trial) -> None:
        """Remove a trial before its end; does nothing if it has already ended."""
        for run in [run for run, running in self._trials.items() if running is trial]:
            self._together.leave(run)
            del self._trials[run]

    def advance(self) -> list[tuple[Trial, float | BaseException]]:
        """Train all trials a little further. Returns those that ended, with their values or errors."""
        ended: list[tuple[Trial, float | BaseException]] = []
        for run, outcome in self._together.advance():
            if isinstance(outcome, TrainerError):  # its message says what to change
                outcome = ObjectiveError(str(outcome))
            value = outcome.value if isinstance(outcome, FitResult) else outcome
            ended.append((self._trials.pop(run), value))
        return ended
