"""What the objectives of boosted trees share: a training in parts, each from one checkpoint to the next.

A part begins with the model as it was written, and with a seed of its own: so a trial that was paused or
killed goes on as one that was not. The libraries' own generators begin anew with every call.
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

Part = Callable[[Path | None, int, int, Path], list[float]]


@dataclass(frozen=True, kw_only=True)
class BoostingParameters(RoundParameters):
    """What the libraries of boosted trees have alike."""

    measure: ClassVar[str] = "eval_metric"
    stops_after: ClassVar[str] = "early_stopping_rounds"

    eval_metric: str | None = optional(str, "", "what is reported (default by the target)")
    early_stopping_rounds: int = whole(
        0, "[0, inf)", "end after so many trees without a better validation, and keep the best; 0: never"
    )

    @property
    def library(self) -> dict[str, Any]:
        """The parameters that the library itself takes."""
        ours = {*rules(BoostingParameters), self.length}
        return {name: getattr(self, name) for name in rules(type(self)) if name not in ours}

    def library_on(self, table: Table) -> dict[str, Any]:
        """Those that fit the table's target. Raises `ConfigError` where one is given that does not."""
        params = self.library
        if len(table.classes) != 2 and params.pop("scale_pos_weight") != 1:
            raise ConfigError(["scale_pos_weight: is for a target of two classes"])
        return params


def boost(trial: Trial, config: BoostingParameters, part: Part, *, file: str, metric: str) -> float:
    """The trial's value after as many trees as it may have, or fewer with early stopping.

    `part(model, count, seed, to)` trains so many more trees of the model in a file, of a new one where it is
    None, writes it to another file, and returns the value after each. `file` is its name in the checkpoint.
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
    """How many a trial may use: its share of the cores, which the worker was given."""
    return int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
