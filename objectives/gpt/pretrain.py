"""The objective `pretrain`: train the small GPT from scratch, and return the validation loss.

Its parameters are the fields of `hpsearch.trainer.config.models.PretrainConfig`.
"""

from __future__ import annotations

from ...trainer.config.models import PretrainConfig as Config
from ..base import Trial
from .lora import export

__all__ = ["Config", "export", "train"]


def train(trial: Trial) -> float:
    """Train a trial. Returns the validation loss in nats per byte."""
    from ..runs import train_with

    return train_with(Config, trial)
