"""Common code of the boosted-tree objectives: training in parts, each from one checkpoint to the next.

A part starts from the saved model, with its own seed, because the libraries' generators start anew with every
call. So a trial that was paused or killed continues as if it had not been.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...trainer.config.rules import optional, rules, whole
from ...trainer.errors import ConfigError
from ..base import Trial
from .rounds import RoundParameters
from .table import Table

TrainPart = Callable[[Path | None, int, int, Path], list[float]]


@dataclass(frozen=True, kw_only=True)
class BoostingParameters(RoundParameters):
    """The common parameters of the boosted-tree objectives."""

    measure: ClassVar[str] = "eval_metric"
    stops_after: ClassVar[str] = "early_stopping_rounds"

    eval_metric: str | None = optional(str, "", "the reported metric (default by the target)")
    early_stopping_rounds: int = whole(
        0, "[0, inf)", "stop after so many trees without a better validation, and keep the best; 0: never"
    )

    @property
    def library(self) -> dict[str, Any]:
        """The parameters for the library itself."""
        ours = {*rules(BoostingParameters), self.length}
        return {name: getattr(self, name) for name in rules(type(self)) if name not in ours}

    def library_on(self, table: Table) -> dict[str, Any]:
        """The library's parameters for the table's target. Raises `ConfigError` if one does not fit it."""
        params = self.library
        if len(table.classes) != 2 and params.pop("scale_pos_weight") != 1:
            raise ConfigError(["scale_pos_weight: only for a target with two classes"])
        return params


def boost(trial: Trial, config: BoostingParameters, part: TrainPart, *, file: str, metric: str) -> float:
    """Train a trial to its number of trees, or fewer with early stopping. Returns its value.

    `part(model, count, seed, to)` adds `count` trees to the model in a file, or to a new one if it is None,
    writes the result to the file `to`, and returns the value after each tree. `file` is the model's name in
    the checkpoint.
    """
    made = trial.checkpoint / f"next-{file}"
    rounds = config.rounds(trial, metric, lambda folder: os.replace(made, folder / file))
    while rounds.goes_on:
        model = trial.checkpoint / file if rounds.done else None
        for value in part(model, rounds.until_report, rounds.seed, made):
            rounds.after(value)
            if not rounds.goes_on:
                break
    return rounds.value


def threads() -> int:
    """How many threads a trial may use: its share of the cores."""
    return int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
