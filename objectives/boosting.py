"""What the objectives of boosted trees share: a training in parts, each from one checkpoint to the next.

A part begins with the model as it was written, and with a seed of its own: so a trial that was paused or
killed goes on as one that was not. The libraries' own generators begin anew with every call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ..trainer.errors import ConfigError
from ..trainer.rules import Course, defaults_of, did_you_mean, optional, rules, whole
from .base import Trial
from .rounds import Rounds
from .tables import Metrics, Table, TableParameters

Part = Callable[[Path | None, int, int, Path], list[float]]


@dataclass(frozen=True, kw_only=True)
class BoostingParameters(TableParameters):
    """What the libraries of boosted trees have alike."""

    length: ClassVar[str]  # the parameter that says how many trees there are
    metrics: ClassVar[Metrics]

    eval_metric: str | None = optional(str, "", "what is reported (default by the target)")
    early_stopping_rounds: int = whole(
        0, "[0, inf)", "end after so many trees without a better validation, and keep the best; 0: never"
    )
    eval_every: int | None = optional(
        int, "[1, inf)", "report after so many trees (default: a tenth of them)"
    )

    @classmethod
    def _contradictions(cls, values: Mapping[str, Any]) -> list[str]:
        problems, metric = super()._contradictions(values), values["eval_metric"]
        if metric is not None and metric not in cls.metrics.names:
            near = did_you_mean(metric, cls.metrics.names)
            problems.append(f"eval_metric: found {metric!r}, allowed: {', '.join(cls.metrics.names)}{near}")
        return problems

    @classmethod
    def course(cls, params: Mapping[str, Any]) -> Course:
        """Where runs of these parameters end and report."""
        trees = params.get(cls.length, defaults_of(cls)[cls.length])
        return Course(cls.length, trees, params.get("eval_every"))

    @classmethod
    def goal(cls, params: Mapping[str, Any]) -> str | None:
        return cls.metrics.goal(params.get("eval_metric"))

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
    rounds = Rounds(
        trial,
        seed=config.seed,
        length=getattr(config, config.length),
        every=config.eval_every,
        save=lambda folder: os.replace(made, folder / file),
        patience=config.early_stopping_rounds,
        higher_is_better=metric in config.metrics.higher,
    )
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
