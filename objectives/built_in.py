"""Runs the trainer for a trial: what the built-in objectives share."""

from __future__ import annotations

from ..trainer.config import TrainConfig
from ..trainer.loop import fit
from .base import Trial


def train_with(config: type[TrainConfig], trial: Trial) -> float:
    """The trial's value by the trainer, with its seed unless its parameters fix one.

    Every report is a checkpoint in the trial's folder, and an earlier attempt's is gone on from.
    """
    result = fit(
        config.from_params({"seed": trial.seed} | trial.params),
        on_report=lambda report: trial.report(report.value, step=report.step, **report.metrics),
        checkpoint=trial.checkpoint,
        resume_from=trial.resume_from,
    )
    return result.value
