"""The importances are those of Optuna, also of trials that count several times or not at all."""

from __future__ import annotations

import copy
import random
import warnings
from typing import Any, Literal

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, create_trial

from hpsearch.search.results.ped_anova import PedAnova

DISTRIBUTIONS = {
    "rate": FloatDistribution(1e-4, 1.0, log=True),
    "share": FloatDistribution(0.0, 0.5, step=0.05),
    "size": IntDistribution(2, 64, log=True),
    "layers": IntDistribution(1, 5),
    "kind": CategoricalDistribution(("a", "b", "c")),
    "only": IntDistribution(3, 3),
    "warmup": FloatDistribution(0.0, 1.0),  # only where the kind is not a
}


def trials(count: int, seed: int) -> list[FrozenTrial]:
    draw, found = random.Random(seed), []
    for number in range(count):
        params: dict[str, Any] = {
            "rate": 10 ** draw.uniform(-4, 0),
            "share": 0.05 * draw.randrange(11),
            "size": draw.randint(2, 64),
            "layers": draw.randint(1, 5),
            "kind": draw.choice("abc"),
            "only": 3,
            "warmup": draw.random(),
        }
        if params["kind"] == "a":
            del params["warmup"]
        value = params["rate"] + params["layers"] / 5 + draw.gauss(0, 0.1)
        shared = {name: DISTRIBUTIONS[name] for name in params}
        trial = create_trial(
            value=draw.choice([value] * 9 + [float("inf")]),
            params=params,
            distributions=copy.deepcopy(shared),
        )
        trial.number = trial._trial_id = number
        found.append(trial)
    return found


Direction = Literal["minimize", "maximize"]


def by_optuna(trials: list[FrozenTrial], direction: Direction) -> dict[str, float]:
    study = optuna.create_study(direction=direction)
    study.get_trials = lambda deepcopy=False, states=None: trials  # type: ignore[method-assign]
    with warnings.catch_warnings(action="ignore"):
        return optuna.importance.get_param_importances(study)


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("seed", range(4))
def test_they_are_optunas_to_the_last_digit(direction: Direction, seed: int) -> None:
    some = trials(40, seed)
    anova = PedAnova(some, 1 if direction == "minimize" else -1)
    assert anova.shares(np.ones(40, int)) == by_optuna(some, direction)
    for _ in range(5):
        drawn = np.random.default_rng(seed).integers(40, size=40)
        weights = np.bincount(drawn, minlength=40)
        assert anova.shares(weights) == by_optuna([some[number] for number in drawn], direction)


def test_of_a_single_trial_no_parameter_is_more_important() -> None:
    assert set(PedAnova(trials(1, 0), 1).shares(np.ones(1, int)).values()) == {1 / 7}
