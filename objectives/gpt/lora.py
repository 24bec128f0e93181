"""The objective `lora`: fine-tune low-rank adapters of the base, and return the validation loss.

Its parameters are the fields of `hpsearch.trainer.config.models.LoraConfig`.
"""

from __future__ import annotations

from pathlib import Path

from ...trainer.config.models import LoraConfig as Config
from ...trainer.errors import CheckpointError
from ..base import Trial

__all__ = ["Config", "export", "problems_of_files", "train"]


def problems_of_files(config: Config) -> list[str]:
    """Problems with the base's file: not a base, or made for shorter sequences."""
    from ...trainer.guides.footprint import shape_of

    try:
        longest = shape_of(config).max_length
    except FileNotFoundError:
        return []  # `ObjectiveInfo.missing_file` reports it
    except OSError as error:
        return [f"base: {config.base} cannot be read: {error.strerror}"]
    except CheckpointError as error:
        return [f"base: {error}"]
    if config.max_length > longest:
        return [f"max_length: found {config.max_length}, but the base was made for {longest}"]
    return []


def train(trial: Trial) -> float:
    """Train a trial. Returns the validation loss in nats per byte."""
    from ..runs import train_with

    return train_with(Config, trial)


def export(checkpoint: Path, folder: Path, *, merge: bool) -> list[Path]:
    """Write the files of `hpsearch.trainer.output.export`."""
    from ...trainer.output.export import export

    return export(checkpoint, folder, merge=merge)
