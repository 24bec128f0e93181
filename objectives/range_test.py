"""The learning rate range test of the trainer's objectives, for the search's commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..trainer.tools.range_test import Point, Proposal, RangeTest
from ..trainer.tools.range_test import range_test as train
from .errors import trainer_errors
from .info import ObjectiveInfo

__all__ = ["Point", "Proposal", "RangeTest", "range_test"]


def range_test(
    objective: str,
    params: Mapping[str, Any],
    *,
    low: float,
    high: float,
    steps: int,
    on_point: Callable[[Point], None],
) -> RangeTest:
    """Run the test for one of the trainer's objectives; `params` exclude the learning rate and its schedule.

    Raises `ObjectiveError` if the parameters are invalid.
    """
    config = ObjectiveInfo(objective).trainer
    assert config is not None, f"the trainer does not train {objective}"
    with trainer_errors():
        return train(config.from_params(params), low=low, high=high, steps=steps, on_point=on_point)
