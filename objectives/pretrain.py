"""The objective `pretrain`: train the small GPT from scratch, and return the validation loss.

Its parameters are the fields of `hpsearch.trainer.config.PretrainConfig`.
"""

from __future__ import annotations

from ..trainer.config import PretrainConfig
from ..trainer.export import export
from .base import Trial
from .built_in import train_with

__all__ = ["export", "pretrain"]


def pretrain(trial: Trial) -> float:
    """The validation loss in nats a byte."""
    return train_with(PretrainConfig, trial)
