"""What the training guides know of an objective: presets to begin with, advice after a bad run.

Loads no torch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ..trainer.advice import Ending, Seen, advise, advise_overfitted
from ..trainer.config import TrainConfig
from ..trainer.errors import ConfigError
from ..trainer.presets import LEARNING, PRESETS
from ..trainer.presets import preset_values as values_of
from .base import config_class, known_parameters

__all__ = ["LEARNING", "PRESETS", "Ending", "Seen", "advice", "preset_values"]


def preset_values(objective: Any, names: Sequence[str], given: Collection[str]) -> dict[str, Any]:
    """What these presets give an objective, beside the parameters that are `given`.

    Raises `ValueError` with every reason, a line each, why they give nothing.
    """
    config = _built_in(objective)
    if config is None:
        raise ConfigError(["presets are for the objectives lora and pretrain; write the parameters instead"])
    return values_of(config, names, given)


def advice(objective: str | list[str], seen: Seen) -> list[str]:
    """What to change after a run like this one, what helps most first."""
    return advise(_built_in(objective), seen)


def against_overfitting(objective: str | list[str], seen: Seen) -> list[str]:
    """What to change after a run like this one, where it overfitted."""
    return advise_overfitted(_built_in(objective), seen)


def _built_in(objective: Any) -> type[TrainConfig] | None:
    known = isinstance(objective, str) and known_parameters(objective) is not None
    return config_class(objective) if known else None
