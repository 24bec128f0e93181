"""The training guides for the search's commands: presets and ranges to start with, advice after a run.

Loads no torch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ..trainer.errors import ConfigError
from ..trainer.guides.advice import advise, advise_worse
from ..trainer.guides.evidence import EndedRun, RunEnd
from ..trainer.guides.first_ranges import FirstRange, first_range
from ..trainer.guides.presets import PRESETS, RATE_PARAMETERS
from ..trainer.guides.presets import preset_values as values_of
from .info import ObjectiveInfo

__all__ = [
    "PRESETS",
    "RATE_PARAMETERS",
    "EndedRun",
    "FirstRange",
    "RunEnd",
    "advice",
    "first_range",
    "preset_values",
]


def preset_values(objective: Any, names: Sequence[str], given: Collection[str]) -> dict[str, Any]:
    """The values of these presets for an objective, without the parameters that are `given`.

    Raises `ValueError` if a preset cannot be used, with a line for each reason.
    """
    config = ObjectiveInfo(objective).trainer
    if config is None:
        raise ConfigError(["presets are for the objectives lora and pretrain; write the parameters instead"])
    return values_of(config, names, given)


def advice(objective: str | list[str], seen: EndedRun) -> list[str]:
    """What to change after a run, the most helpful first."""
    return advise(ObjectiveInfo(objective).training, seen)


def against_worsening(objective: str | list[str], seen: EndedRun) -> list[str]:
    """What to change after a run that ended worse than its best validation."""
    return advise_worse(ObjectiveInfo(objective).training, seen)
