"""The objective `lora`: fine-tune low-rank adapters of the base, and return the validation loss.

Its parameters are the fields of `hpsearch.trainer.config.LoraConfig`.
"""

from __future__ import annotations

from ..trainer.config import LoraConfig
from ..trainer.export import export
from .base import Trial
from .built_in import train_with

__all__ = ["export", "lora"]


def lora(trial: Trial) -> float:
    """The validation loss in nats a byte."""
    return train_with(LoraConfig, trial)
