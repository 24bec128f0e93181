"""The learning rate range test of the built-in objectives, for the search's commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..trainer.range_test import Point, Proposal, RangeTest
from ..trainer.range_test import range_test as train
from .base import config_class, trainer_errors

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
    """The test of a built-in objective; `params` fix all but the learning rate, its schedule and the length.

    Raises `ObjectiveError` where it refuses one of them.
    """
    with trainer_errors():
        config = config_class(objective).from_params(params)
        return train(config, low=low, high=high, steps=steps, on_point=on_point)
