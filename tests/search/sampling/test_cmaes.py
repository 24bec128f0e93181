"""CMA-ES equals Optuna's, step by step, and reads nothing but numbers from a study."""

from __future__ import annotations

import math
import os
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna._transform import _SearchSpaceTransform
from optuna.trial import TrialState

from hpsearch.search.sampling.cmaes import CmaEsSampler

OPTIONS: list[dict[str, Any]] = [
    {},
    {"popsize": 5, "sigma0": 0.3},
    {"with_margin": True},
    {"lr_adapt": True},
    {"use_separable_cma": True},
]


@pytest.fixture(autouse=True)
def only_our_warnings() -> Iterator[None]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        warnings.simplefilter("ignore", FutureWarning)  # Optuna removes sigma0; cmaes keeps it
        yield


def loss(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", -5, 5)
    y = trial.suggest_float("y", 1e-4, 1, log=True)
    n = trial.suggest_int("n", 1, 64)
    step = trial.suggest_float("step", 0, 1, step=0.1)
    kind = trial.suggest_categorical("kind", ["a", "b"])
    if trial.number % 11 == 7:
        raise optuna.TrialPruned
    return (x - 1) ** 2 + math.log(y) ** 2 + (n - 9) ** 2 / 30 + step + (kind == "b")


def searched(sampler: optuna.samplers.BaseSampler, trials: int) -> optuna.Study:
    study = optuna.create_study(sampler=sampler)
    study.optimize(loss, n_trials=trials)
    return study


def distribution_of(optimizer: Any) -> dict[str, Any]:
    """The normal distribution from which an optimizer of cmaes draws next."""
    inner = getattr(optimizer, "_cma", optimizer)
    if hasattr(inner, "_C"):
        inner._eigen_decomposition()  # makes the covariance exactly symmetric
    names = ("_mean", "_sigma", "_pc", "_p_sigma", "_C")
    return {name: getattr(inner, name) for name in names if hasattr(inner, name)}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_distribution_moves_as_optunas_does(options: dict[str, Any]) -> None:
    theirs = optuna.samplers.CmaEsSampler(seed=3, warn_independent_sampling=False, **options)
    study = searched(theirs, 80)
    ours = CmaEsSampler(seed=1, **options)
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    stored = theirs._restore_optimizer(complete)  # as of the last generation that began
    assert stored is not None and stored.generation >= 5
    before = [t for t in complete if t.system_attrs.get(ours._generation, -1) < stored.generation]
    space = ours.infer_relative_search_space(study, complete[-1])
    assert sorted(space) == ["n", "step", "x", "y"]
    transform = _SearchSpaceTransform(
        space, transform_step=not options.get("with_margin", False), transform_0_1=True
    )
    replayed = ours._replay(before, transform, study.direction)
    assert replayed.generation == stored.generation
    for name, value in distribution_of(stored).items():
        np.testing.assert_allclose(distribution_of(replayed)[name], value, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_study_of_optunas_sampler_is_continued(options: dict[str, Any]) -> None:
    study = searched(optuna.samplers.CmaEsSampler(seed=3, warn_independent_sampling=False, **options), 40)
    sampler = CmaEsSampler(seed=1, **options)
    reached = max(t.system_attrs.get(sampler._generation, 0) for t in study.trials)
    study.sampler = sampler
    study.optimize(loss, n_trials=20)
    added = [t.system_attrs for t in study.trials[40:]]
    assert min(attrs[sampler._generation] for attrs in added) >= reached
    assert max(attrs[sampler._generation] for attrs in added) > reached
    for attrs in added:
        assert attrs.keys() <= {sampler._generation, "x_for_tell"}, "numbers, not a pickle"


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.file),)


@pytest.mark.parametrize("prefix", ["cma", "cmawm", "sepcma"])
def test_a_pickle_in_a_study_is_never_loaded(tmp_path: Path, prefix: str) -> None:
    known: dict[str, dict[str, Any]] = {"cmawm": {"with_margin": True}, "sepcma": {"use_separable_cma": True}}
    options = known.get(prefix, {})
    study = searched(CmaEsSampler(seed=1, **options), 12)
    clean = study.ask()
    space = {name: d for name, d in study.trials[0].distributions.items() if name != "kind"}

    def proposed(sampler: optuna.samplers.BaseSampler) -> dict[str, Any]:
        return sampler.sample_relative(study, study.trials[clean.number], space)

    expected = proposed(CmaEsSampler(seed=5, **options))
    for trial in study.trials[:12]:
        payload = pickle.dumps(Bomb(tmp_path / "executed")).hex()
        study._storage._get_trial(trial._trial_id).system_attrs[f"{prefix}:optimizer:0"] = payload  # type: ignore[attr-defined]
    assert proposed(CmaEsSampler(seed=5, **options)) == expected
    assert not (tmp_path / "executed").exists()
    proposed(optuna.samplers.CmaEsSampler(seed=5, **options))
    assert (tmp_path / "executed").exists(), "the pickle works"


@pytest.mark.parametrize(
    "wrong", [None, "text", [[]], {"a": 1}, [1e300] * 4, [math.nan] * 4, [10**400] * 4, [0.5], -1, True]
)
def test_wrong_attributes_are_ignored(wrong: Any) -> None:
    study = searched(CmaEsSampler(seed=1, with_margin=True), 30)
    for trial in study.trials:
        attrs = study._storage._get_trial(trial._trial_id).system_attrs  # type: ignore[attr-defined]
        attrs["cmawm:generation" if trial.number % 2 else "x_for_tell"] = wrong
    study.optimize(loss, n_trials=8)
    assert len(study.trials) == 38


def test_one_parameter_is_not_separated_from_others() -> None:
    study = optuna.create_study(sampler=CmaEsSampler(seed=1, use_separable_cma=True), direction="maximize")
    study.optimize(lambda trial: -((trial.suggest_float("x", -5, 5) - 1.5) ** 2), n_trials=60)
    assert study.best_params["x"] == pytest.approx(1.5, abs=0.05)
