"""What the training guides know: presets and ranges to begin with, advice after a bad run.

Loads no torch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ..trainer.errors import ConfigError
from ..trainer.guides.advice import advise, advise_worse
from ..trainer.guides.evidence import Ending, Seen
from ..trainer.guides.first_ranges import FirstRange, first_range
from ..trainer.guides.presets import LEARNING, PRESETS
from ..trainer.guides.presets import preset_values as values_of
from .catalog import trainer_config, training_config

__all__ = ["LEARNING", "PRESETS", "Ending", "FirstRange", "Seen", "advice", "first_range", "preset_values"]


def preset_values(objective: Any, names: Sequence[str], given: Collection[str]) -> dict[str, Any]:
    """What these presets give an objective, beside the parameters that are `given`.

    Raises `ValueError` with every reason, a line each, why they give nothing.
    """
    config = trainer_config(objective)
    if config is None:
        raise ConfigError(["presets are for the objectives lora and pretrain; write the parameters instead"])
    return values_of(config, names, given)


def advice(objective: str | list[str], seen: Seen) -> list[str]:
    """What to change after a run like this one, what helps most first."""
    return advise(training_config(objective), seen)


def against_worsening(objective: str | list[str], seen: Seen) -> list[str]:
    """What to change after a run like this one, where it ended worse than it had been."""
    return advise_worse(training_config(objective), seen)
