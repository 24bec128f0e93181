"""Runs the trainer for a trial: what the built-in objectives share."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from contextlib import AbstractContextManager

from ..trainer.config.models import TrainConfig
from ..trainer.errors import TrainerError
from ..trainer.ranks import ALONE, Ranks, joined
from ..trainer.runs.base import FitResult, Report, drive
from ..trainer.runs.run import GptRun, fit
from ..trainer.runs.together import PackedRuns
from .base import ObjectiveError, Trial
from .errors import trainer_errors
from .processes import STRATEGY, ZERO_STAGE


def train_with(config: type[TrainConfig], trial: Trial) -> float:
    """The trial's value by the trainer, with its seed unless its parameters fix one.

    Every report is a checkpoint in the trial's folder, and an earlier attempt's is gone on from.
    """
    ranks = ranks_of_trial()
    if ranks.count > 1:
        gc.collect()  # the model of this process's last trial: what shared it out holds itself
    result = fit(
        config.of(trial),
        on_report=reporter(trial),
        checkpoint=trial.checkpoint,
        resume_from=trial.resume_from,
        ranks=ranks,
    )
    return result.value


def ranks_of_trial() -> Ranks:
    """The processes that train this trial together: this one alone, where nobody says otherwise."""
    strategy = os.environ.get(STRATEGY)
    return joined(strategy, int(os.environ[ZERO_STAGE])) if strategy else ALONE


class Packed:
    """Several trials of a built-in objective at once; each as `train_with` would run it.

    `within` surrounds what a trial does by itself: its start, its reports.
    """

    def __init__(
        self, config: type[TrainConfig], within: Callable[[Trial], AbstractContextManager[None]]
    ) -> None:
        self._config = config
        self._within = within
        self._trials: dict[GptRun, Trial] = {}
        self._together = PackedRuns(lambda run: within(self._trials[run]))

    @property
    def busy(self) -> bool:
        """Whether `advance` has anything to do."""
        return self._together.busy

    def join(self, trial: Trial) -> None:
        """Begin a trial. Raises `ObjectiveError` where it cannot begin."""
        with trainer_errors(), self._within(trial):
            run = self._together.new_run(self._config.of(trial))
        self._trials[run] = trial
        steps = drive(
            run, on_report=reporter(trial), checkpoint=trial.checkpoint, resume_from=trial.resume_from
        )
        self._together.join(run, steps)

    def leave(self, trial: Trial) -> None:
        """End a trial in the middle; one that has ended already is no trouble."""
        for run in [run for run, its in self._trials.items() if its is trial]:
            self._together.leave(run)
            del self._trials[run]

    def advance(self) -> list[tuple[Trial, float | BaseException]]:
        """Train all a little further; the trials that ended, with their values or what they raised."""
        ended: list[tuple[Trial, float | BaseException]] = []
        for run, outcome in self._together.advance():
            if isinstance(outcome, TrainerError):  # its message says what to change
                outcome = ObjectiveError(str(outcome))
            value = outcome.value if isinstance(outcome, FitResult) else outcome
            ended.append((self._trials.pop(run), value))
        return ended


def reporter(trial: Trial) -> Callable[[Report], None]:
    """What tells a trial the reports of its run."""
    return lambda report: trial.report(report.value, step=report.step, **report.metrics)
