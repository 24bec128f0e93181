"""Turns a framework's training in rounds into a trial: reports, early stopping, checkpoints.

An objective passes the value of its rounds (trees, epochs, folds) to `Rounds`, and trains as long as it
`goes_on`. Objectives that evaluate after each round share the parameters for that (`RoundParameters`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...trainer.anew import write_anew
from ...trainer.config.rules import ReportPlan, defaults_of, did_you_mean, optional
from ...trainer.errors import CheckpointError
from ...trainer.seeds import seed_of
from ..base import Trial
from .table import Metrics, Table, TableParameters

STATE = "rounds.json"


class Rounds:
    """The rounds of one trial, including those of earlier attempts."""

    def __init__(
        self,
        trial: Trial,
        *,
        seed: int,
        length: int,
        every: int | None,
        save: Callable[[Path], None],
        patience: int = 0,
        higher_is_better: bool = False,
    ) -> None:
        """Reports come `every` so many rounds (default: a tenth of `length`, at least 1) and after the last.

        `save` writes the model into a folder. With `patience`, training stops after so many rounds without a
        better value, and the trial's value is the best one.
        """
        self._trial = trial
        self._seed = seed
        self._length = length
        self._every = every or max(1, length // 10)
        self._save = save
        self._patience = patience
        self._sign = -1 if higher_is_better else 1
        state: dict[str, Any] = {"done": 0, "value": None, "best": None, "best_round": 0}
        if trial.resume_from is not None and (trial.resume_from / STATE).is_file():
            state |= json.loads((trial.resume_from / STATE).read_text(encoding="utf-8"))
        self._state = state

    @property
    def done(self) -> int:
        """The number of trained rounds."""
        done: int = self._state["done"]
        return done

    @property
    def until_report(self) -> int:
        """The number of rounds until the next report."""
        return min(self._every - self.done % self._every, self._length - self.done)

    @property
    def seed(self) -> int:
        """The seed of the next rounds; it depends on the round alone, however often the trial was resumed."""
        return seed_of("rounds", self._seed, self.done) % 2**31

    @property
    def goes_on(self) -> bool:
        """Whether there is another round to train."""
        without_gain = self.done - self._state["best_round"]
        out_of_patience = self._patience and self.done and without_gain >= self._patience
        return self.done < self._length and not out_of_patience

    @property
    def value(self) -> float:
        """The trial's value: the best with patience, else the last."""
        value: float = self._state["best"] if self._patience else self._state["value"]
        return value

    def improved_by(self, value: float) -> bool:
        """Whether a value is better than all values so far."""
        best = self._state["best"]
        return best is None or self._sign * value < self._sign * best

    def after(self, value: float, rounds: int = 1) -> None:
        """Record the value after more rounds, at most `until_report`; save and report if due.

        Raises `TrialStopped` if the search ends the trial here.
        """
        state = self._state
        state["done"] += rounds
        state["value"] = value = float(value)
        if self.improved_by(value):
            state["best"], state["best_round"] = value, self.done
        state["model"] = state["best_round"] if self._patience else self.done
        if self.done % self._every == 0 or not self.goes_on:
            self._save(self._trial.checkpoint)
            write_anew(self._trial.checkpoint / STATE, json.dumps(state))
            self._trial.report(value, step=self.done)


@dataclass(frozen=True, kw_only=True)
class RoundParameters(TableParameters):
    """The common parameters of objectives whose library evaluates after each round."""

    length: ClassVar[str]  # the name of the parameter for the number of rounds,
    measure: ClassVar[str]  # for the reported metric,
    stops_after: ClassVar[str]  # and for the patience of early stopping
    metrics: ClassVar[Metrics]

    eval_every: int | None = optional(
        int, "[1, inf)", "report every so many rounds (trees or epochs; default: a tenth of them)"
    )

    @classmethod
    def _contradictions(cls, values: Mapping[str, Any]) -> list[str]:
        problems, metric = super()._contradictions(values), values[cls.measure]
        if metric is not None and metric not in cls.metrics.names:
            near = did_you_mean(metric, cls.metrics.names)
            problems.append(f"{cls.measure}: found {metric!r}, allowed: {', '.join(cls.metrics.names)}{near}")
        return problems

    @classmethod
    def report_plan(cls, params: Mapping[str, Any]) -> ReportPlan:
        rounds = params.get(cls.length, defaults_of(cls)[cls.length])
        return ReportPlan(cls.length, rounds, params.get("eval_every"))

    @classmethod
    def goal(cls, params: Mapping[str, Any]) -> str | None:
        return cls.metrics.goal(params.get(cls.measure))

    def metric(self, table: Table) -> str:
        """The reported metric for this table. Raises `ConfigError`."""
        return self.metrics.of(table, getattr(self, self.measure), self.measure)

    def rounds(self, trial: Trial, metric: str, save: Callable[[Path], None]) -> Rounds:
        """The rounds of a trial with these parameters; `save` as in `Rounds`."""
        return Rounds(
            trial,
            seed=self.seed,
            length=getattr(self, self.length),
            every=self.eval_every,
            save=save,
            patience=getattr(self, self.stops_after),
            higher_is_better=metric in self.metrics.higher,
        )


def model_round(checkpoint: Path) -> int:
    """The round whose model is the result of a trial. Raises `CheckpointError` if there is no checkpoint."""
    try:
        state = json.loads((checkpoint / STATE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{checkpoint}: no checkpoint to export") from None
    return int(state["model"])
