"""The Gaussian process against its formulas, and the unit cube."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hpsearch.search.sampling.gaussian_process import (
    JITTER,
    Array,
    GaussianProcess,
    log_expected_improvement,
    standardised,
)
from hpsearch.search.sampling.unit_cube import UnitCube

OWNER = np.array([0, 1, 1, 1, 2], np.intp)  # a range, a choice of three, a range


def covariance(a: Array, b: Array, scales: Array) -> Array:
    """Matern 5/2, from its definition."""
    found = np.empty((len(a), len(b)))
    for i, p in enumerate(a):
        for j, q in enumerate(b):
            r = np.sqrt(5) * np.linalg.norm((p - q) / scales[OWNER])
            found[i, j] = (1 + r + r * r / 3) * np.exp(-r)
    return found


def data() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x = rng.random((25, 5))
    return x, standardised(np.sin(6 * x[:, 0]) + x[:, 2] + 0.05 * rng.standard_normal(25))


def log_posterior(model: GaussianProcess, theta: Array, x: Array, y: Array) -> float:
    noisy = covariance(x, x, np.exp(theta[:-1])) + (np.exp(theta[-1]) + JITTER) * np.eye(len(y))
    prior = stats.norm(model._mean, model._spread).logpdf(theta).sum()
    return float(stats.multivariate_normal(np.zeros(len(y)), noisy).logpdf(y) + prior)


def test_it_predicts_by_the_formula() -> None:
    x, y = data()
    model = GaussianProcess(OWNER)
    model.condition(x, y)
    scales, noise = np.exp(model._theta[:-1]), np.exp(model._theta[-1])
    at = np.random.default_rng(1).random((7, 5))
    known = covariance(x, x, scales) + (noise + JITTER) * np.eye(len(y))
    between = covariance(x, at, scales)
    mean, deviation = model.predict(at)
    assert mean == pytest.approx(between.T @ np.linalg.solve(known, y))
    left = 1 - np.diag(between.T @ np.linalg.solve(known, between))
    assert deviation == pytest.approx(np.sqrt(left))


def test_it_finds_the_most_probable_scales() -> None:
    x, y = data()
    model = GaussianProcess(OWNER)
    before = log_posterior(model, model._theta, x, y)
    model.optimise(x, y)
    found = log_posterior(model, model._theta, x, y)
    assert found > before + 1
    for index in range(len(model._theta)):
        for step in (-0.2, 0.2):
            nearby = model._theta.copy()
            nearby[index] += step
            assert log_posterior(model, nearby, x, y) < found + 1e-3
    assert model._theta[0] < model._theta[2], "the parameter that matters has the shorter scale"


@given(st.floats(-3, 3), st.floats(0.01, 3), st.floats(-3, 3))
def test_the_log_of_the_expected_improvement(mean: float, deviation: float, best: float) -> None:
    z = (best - mean) / deviation
    expected = deviation * (z * stats.norm.cdf(z) + stats.norm.pdf(z))
    found = log_expected_improvement(np.array([mean]), np.array([deviation]), best)
    if expected > 1e-8:  # below it the plain formula is only rounding errors
        assert found[0] == pytest.approx(np.log(expected), abs=1e-5)


def test_the_improvement_does_not_underflow() -> None:
    means = np.array([5.0, 10.0, 20.0, 100.0, 1000.0])
    found = log_expected_improvement(means, np.ones(5), 0.0)
    assert np.isfinite(found).all() and (np.diff(found) < 0).all()


@pytest.mark.parametrize("scale", [1e-300, 1e-14, 1.0, 1e160, 1.7e308 / 4])
def test_values_of_any_size_are_standardised(scale: float) -> None:
    """Warnings, such as of an overflow, are errors here."""
    values = np.array([-4.0, 1.0, 2.0, 4.0])
    found = standardised(scale * values)
    assert found.mean() == pytest.approx(0.0, abs=1e-12) and found.std() == pytest.approx(1.0)
    assert found == pytest.approx(standardised(values))


def test_values_of_which_most_are_the_best_are_all_0() -> None:
    assert standardised(np.array([1.0, 1.0, 1.0, 2.0])).tolist() == [0.0] * 4


def test_an_outlier_does_not_make_the_other_values_alike() -> None:
    found = standardised(np.array([1.0, 2.0, 3.0, 4.0, 1e30]))
    assert found.mean() == pytest.approx(0) and found.std() == pytest.approx(1)
    assert (np.diff(found) > 0.3).all()


SPACE = {
    "learning_rate": {"min": 1e-5, "max": 1e-1, "log": True},
    "rank": {"min": 2, "max": 32, "factor": 2},
    "dropout": {"min": 0.0, "max": 0.2, "step": 0.05},
    "layers": {"min": 1, "max": 9},
    "batch": [4, 8, 16],
    "schedule": ["constant", "linear", "cosine"],
    "warmup": {"min": 0.0, "max": 0.5, "when": {"schedule": ["linear", "cosine"]}},
}


@given(st.integers(0, 10**6))
def test_a_point_is_its_configuration_and_a_configuration_its_point(seed: int) -> None:
    from hpsearch.spaces import Spec

    spec = Spec.from_json({"version": 1, "name": "s", "objective": "a:b", "metric": "m", "parameters": SPACE})
    cube = UnitCube(spec.space)
    config = spec.space.sample(random.Random(seed))
    point = cube.point(config)
    assert ((point >= 0) & (point <= 1)).all()
    again: dict[str, Any] = spec.space.resolve(cube.suggester(point))
    assert again.keys() == config.keys()
    for name, value in config.items():
        assert again[name] == (pytest.approx(value) if isinstance(value, float) else value)
    drawn = spec.space.resolve(cube.suggester(np.random.default_rng(seed).random(cube.dimensions)))
    assert spec.space.violated(drawn) is None
    assert cube.point(spec.space.resolve(cube.suggester(cube.point(drawn)))) == pytest.approx(
        cube.point(drawn)
    )


CHAIN = {
    "warm": {"value": True, "when": {"schedule": "cosine"}},
    "cycles": {"min": 1, "max": 4, "when": {"warm": True}},
    "decay": {"min": 0.0, "max": 1.0, "when": {"cycles": [2, 3], "layers": [1, 2, 3, 4, 5]}},
}


@given(st.integers(0, 10**6))
def test_snapped_points_are_those_of_the_nearest_configurations(seed: int) -> None:
    from hpsearch.spaces import Spec

    parameters = {**SPACE, **CHAIN, "tokens": {"min": 1, "max": 10**6}}
    spec = Spec.from_json(
        {"version": 1, "name": "s", "objective": "a:b", "metric": "m", "parameters": parameters}
    )
    cube = UnitCube(spec.space)
    assert cube.snaps_to_configs
    points = np.random.default_rng(seed).random((20, cube.dimensions))
    for point, snapped in zip(points, cube.snapped(points), strict=True):
        config = spec.space.resolve(cube.suggester(point))
        assert spec.space.resolve(cube.suggester(snapped)) == config
        long = [name in config and name in LONG for name in spec.space.searched]
        assert snapped == pytest.approx(np.where(long, point, cube.point(config)))


LONG = ("learning_rate", "warmup", "decay", "tokens")


@pytest.mark.parametrize(
    ("changes", "exact"),
    [
        ({}, True),
        ({"constraints": ["layers < 5"]}, False),
        ({"parameters": {**SPACE, "twice": {"expr": "2 * layers"}}}, False),
        ({"parameters": {**SPACE, "y": {"min": 0.0, "max": 1.0, "when": "layers > 5"}}}, False),
        (
            {
                "parameters": {
                    **SPACE,
                    "n": {"min": 1, "max": 10**6},
                    "y": {"min": 0, "max": 1, "when": {"n": 7}},
                }
            },
            False,
        ),
    ],
    ids=["values decide", "constraint", "expression", "condition in words", "too many values to list"],
)
def test_snapped_points_may_be_no_configurations(
    make_spec: Any, changes: dict[str, Any], exact: bool
) -> None:
    spec = make_spec(**({"parameters": SPACE} | changes))
    assert UnitCube(spec.space).snaps_to_configs is exact


@pytest.mark.parametrize(
    "written",
    [
        {"min": 8, "max": 64, "factor": 2},
        {"min": 0.0, "max": 0.15, "step": 0.05},
        {"min": 1, "max": 4},
        [1, 2, 4, 8],
    ],
)
def test_every_value_has_as_much_room(make_spec: Any, written: Any) -> None:
    space = make_spec(parameters={"x": written}).space
    cube = UnitCube(space)
    drawn = [space.resolve(cube.suggester(np.array([(n + 0.5) / 400])))["x"] for n in range(400)]
    assert set(Counter(drawn).values()) == {100}


def test_values_without_an_order_are_all_as_far_apart_as_the_ends_of_a_range(make_spec: Any) -> None:
    cube = UnitCube(make_spec(parameters={"a": ["x", "y", "z"], "b": [4, 8, 16]}).space)
    points = np.array([[u, 0.5] for u in (1 / 6, 0.5, 5 / 6)])
    columns, owner = cube.features(points)
    assert list(owner) == [0, 0, 0, 1]
    assert [np.linalg.norm(columns[i] - columns[j]) for i, j in ((0, 1), (0, 2), (1, 2))] == pytest.approx(
        [1] * 3
    )


RANGES = [
    {"min": 1, "max": 400, "log": True},
    {"min": 1, "max": 10**6},
    {"min": -3, "max": 3},
    {"min": 0.0, "max": 1.0, "step": 0.01},
    {"min": 1e-5, "max": 1.0, "factor": 10},
    {"min": 0.5, "max": 2.5},
]


@given(st.sampled_from(RANGES), st.floats(0, 1))
def test_a_point_is_the_nearest_value_of_its_range(written: dict[str, Any], at: float) -> None:
    from hpsearch.spaces import Range, Spec

    parameters = {"x": written}
    spec = Spec.from_json(
        {"version": 1, "name": "s", "objective": "a:b", "metric": "m", "parameters": parameters}
    )
    parameter = spec.parameters["x"]
    assert isinstance(parameter, Range)
    half = 0.0 if parameter.count is None else 0.5 * (parameter.step or 1)
    ends = [parameter.min - half, parameter.max + half]  # so that each value has as much room
    if parameter.factor:
        ends = [parameter.min / parameter.factor**0.5, parameter.max * parameter.factor**0.5]
    if parameter.log or parameter.factor:
        raw = math.exp(np.interp(at, [0, 1], np.log(ends)))
    else:
        raw = float(np.interp(at, [0, 1], ends))
    value = spec.space.resolve(UnitCube(spec.space).suggester(np.array([at])))["x"]
    nearest = parameter.snap(raw)
    assert type(value) is type(nearest)
    if value != nearest:  # half way between both, up to rounding
        assert parameter.factor or abs(value - raw) == pytest.approx(abs(nearest - raw))
        if parameter.factor:
            assert value / raw == pytest.approx(raw / nearest)
