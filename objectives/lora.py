"""The objective `lora`: fine-tune low-rank adapters of the base, and return the validation loss.

Its parameters are the fields of `hpsearch.trainer.config.LoraConfig`.
"""

from __future__ import annotations

from ..trainer.config import LoraConfig
from ..trainer.export import export
from ..trainer.loop import fit
from .base import Trial

__all__ = ["export", "lora"]


def lora(trial: Trial) -> float:
    """The validation loss in nats a byte. Trained with the trial's seed, unless its parameters fix one."""
    config = LoraConfig.from_params({"seed": trial.seed} | trial.params)
    result = fit(
        config,
        on_report=lambda report: trial.report(report.value, step=report.step, **report.metrics),
        checkpoint=trial.checkpoint,
        resume_from=trial.resume_from,
    )
    return result.value
