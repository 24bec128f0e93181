"""Hyperopt's algorithms over a study: what they see, and what they propose."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState, create_trial

from hpsearch.objectives.catalog import Requirements
from hpsearch.search import run
from hpsearch.search.preflight import requirements
from hpsearch.search.preflight.requirements import check_extras
from hpsearch.search.sampling.hyperopt import HyperoptSampler, _Label
from hpsearch.spaces import SpaceError
from hpsearch.spaces.samplers import SAMPLERS
from hpsearch.spaces.settings import STRATEGIES, TRACKERS

SPACE: dict[str, BaseDistribution] = {
    "x": FloatDistribution(-1, 1),
    "lr": FloatDistribution(1e-5, 1, log=True),
    "depth": IntDistribution(1, 12),
    "width": IntDistribution(8, 512, log=True),
    "dropout": FloatDistribution(0, 0.3, step=0.1),
    "kind": CategoricalDistribution(["a", "b", "c"]),
    "warm.up": FloatDistribution(0, 1),  # only for some kinds
    "fixed": IntDistribution(3, 3),
}
ALGORITHMS = ["tpe", pytest.param("atpe", marks=pytest.mark.slow), "anneal"]


def loss(params: dict[str, Any]) -> float:
    away: float = (
        abs(params["x"] - 0.3) + abs(math.log10(params["lr"] / 1e-3)) / 2 + abs(params["depth"] - 9) / 8
    )
    other_kind = 0.0 if params["kind"] == "b" else 1.0
    return away + other_kind + float(params.get("warm.up", 0.5))


def searched(
    algorithm: str,
    trials: int,
    value: Callable[[dict[str, Any]], float],
    direction: Literal["minimize", "maximize"] = "minimize",
) -> optuna.Study:
    """A study of so many trials, each proposed by a new sampler."""
    study = optuna.create_study(direction=direction)
    for number in range(trials):
        study.sampler = HyperoptSampler(algorithm, SPACE, seed=number)
        trial = study.ask()
        for name, d in SPACE.items():
            if name != "warm.up" or trial.params["kind"] != "a":
                trial._suggest(name, d)
        study.tell(trial, value(trial.params))
    return study


@pytest.mark.parametrize("algorithm", ["tpe", "anneal"])
def test_it_learns(algorithm: str) -> None:
    found: list[Any] = [t.value for t in searched(algorithm, 60, loss).trials]
    assert np.median(found[20:]) < 0.7 * np.median(found[:20])


@pytest.mark.parametrize("algorithm", ["tpe", "anneal"])
def test_to_maximise_is_to_minimise_the_opposite(algorithm: str) -> None:
    up = searched(algorithm, 30, lambda params: -loss(params), "maximize")
    assert [t.params for t in up.trials] == [t.params for t in searched(algorithm, 30, loss).trials]


@pytest.mark.parametrize("value", [0.0, -1e308, 1e300, 1e-320, math.inf], ids=str)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_uninformative_values_do_no_harm(algorithm: str, value: float) -> None:
    assert len(searched(algorithm, 26 if algorithm == "tpe" else 13, lambda params: value).trials) >= 13


@pytest.mark.parametrize(
    "wide",
    [IntDistribution(0, 2**53), IntDistribution(1, 2**53, log=True)],
    ids=str,
)
def test_values_of_a_very_wide_range_stay_possible(wide: IntDistribution) -> None:
    study = optuna.create_study()
    for number in range(30):
        study.sampler = HyperoptSampler("tpe", {"x": wide}, seed=number)
        trial = study.ask({"x": wide})
        study.tell(trial, abs(trial.params["x"] - 1e15))
    found: list[Any] = [t.value for t in study.trials]
    assert np.median(found[20:]) < np.median(found[:20])


def steps() -> st.SearchStrategy[BaseDistribution]:
    whole = st.integers(-50, 50)
    ints = st.builds(
        lambda low, n, step: IntDistribution(low, low + n * step, step=step),
        whole,
        st.integers(0, 40),
        st.integers(1, 9),
    )
    floats = st.builds(
        lambda low, n, step: FloatDistribution(low / 8, low / 8 + n * step, step=step),
        whole,
        st.integers(0, 40),
        st.sampled_from([0.125, 0.25, 3.0]),  # sums of which are exact, or Optuna warns
    )
    logs = st.builds(
        lambda low, more: IntDistribution(low, low + more, log=True),
        st.integers(1, 100),
        st.integers(0, 1000),
    )
    choices = st.builds(lambda n: CategoricalDistribution([f"c{i}" for i in range(n)]), st.integers(1, 9))
    return st.one_of(ints, floats, logs, choices)


@given(steps(), st.data())
def test_a_value_comes_back_as_itself(distribution: BaseDistribution, data: st.DataObject) -> None:
    label = _Label("p0", distribution)
    if isinstance(distribution, CategoricalDistribution):
        value = data.draw(st.sampled_from(distribution.choices))
    else:
        d: Any = distribution
        value = d.low + data.draw(st.integers(0, round((d.high - d.low) / d.step))) * d.step
    trial = create_trial(params={"p": value}, distributions={"p": distribution}, value=0.0)
    [number] = label.values_in(trial, "p")
    assert label.from_hyperopt(number) == pytest.approx(value)
    assert type(label.from_hyperopt(np.float64(number))) is type(value), "a study does not hold numpy's types"


@given(
    st.one_of(steps(), st.just(FloatDistribution(1e-5, 0.1, log=True)), st.just(FloatDistribution(-1, 1))),
    st.floats(0, 1),
)
def test_whatever_hyperopt_draws_is_in_range(distribution: BaseDistribution, share: float) -> None:
    label = _Label("p0", distribution)
    d: Any = distribution
    if isinstance(d, CategoricalDistribution):
        low, high = 0.0, len(d.choices) - 1.0
    elif label.count is not None:
        low, high = -0.5, label.count - 0.5
    else:
        low, high = d.low - 0.5 * (type(d.low) is int), d.high + 0.5 * (type(d.low) is int)
    value = label.from_hyperopt(low + share * (high - low))
    assert d._contains(d.to_internal_repr(value))


def test_the_ends_of_a_stepped_range_are_as_likely_as_other_steps() -> None:
    space: dict[str, BaseDistribution] = {"x": IntDistribution(0, 4)}
    study = optuna.create_study()
    study.add_trial(create_trial(params={"x": 2}, distributions=space, value=1.0))
    study.ask()
    asked = study.trials[-1]
    drawn = []
    for seed in range(600):  # no model yet: annealing begins with the whole range
        sampler = HyperoptSampler("anneal", space, seed=seed, shrink_coef=0.0)
        drawn.append(sampler.sample_relative(study, asked, space)["x"])
    assert all(80 < drawn.count(value) < 160 for value in range(5))


def test_what_each_algorithm_sees_of_a_study() -> None:
    space = {"x": SPACE["x"]}
    study = optuna.create_study()

    def add(
        state: TrialState,
        value: float | None = None,
        curve: dict[int, float] | None = None,
        x: float = 0.5,
        **attrs: Any,
    ) -> None:
        trial = create_trial(
            state=state, value=value, params={"x": x}, distributions={"x": FloatDistribution(-9, 9)}, intermediate_values=curve or {}
        )  # fmt: skip
        study.add_trial(trial)

    add(TrialState.COMPLETE, 2.0)
    add(TrialState.PRUNED, curve={3: 0.1})
    add(TrialState.PRUNED, curve={3: 0.5, 9: 5.0})
    add(TrialState.FAIL)
    add(TrialState.COMPLETE, 1.0, x=5.0)  # enqueued by another program
    add(TrialState.RUNNING)
    study.enqueue_trial({"x": 0.1})

    def known(algorithm: str) -> dict[int, float]:
        sampler = HyperoptSampler(algorithm, space, seed=0)
        return {trial.number: value for trial, value in sampler._known(study.trials, study)}

    assert known("tpe") == {4: 0.0, 0: 1.0, 2: 2.0, 1: 3.0, 5: 4.0}, (
        "ranks: further is better, running is worst"
    )
    assert known("anneal") == {4: 0.0, 0: 1.0, 2: 2.0, 1: 3.0}
    assert known("atpe") == {0: 2.0, 1: 2.0, 2: 2.0, 4: 1.0}, "values, and the worst one for the rest"
    label = _Label("p0", space["x"])
    assert [label.values_in(t, "x") for t in study.trials[3:5]] == [[0.5], []]


@pytest.mark.slow
def test_adaptive_tpe_leaves_the_generators_of_others_alone() -> None:
    study = searched("atpe", 3, loss)
    study.ask()
    asked = study.trials[-1]
    random.seed(1)
    np.random.seed(1)
    expected = random.random(), np.random.random()
    random.seed(1)
    np.random.seed(1)
    proposals = [
        HyperoptSampler("atpe", SPACE, seed=7).sample_relative(study, asked, {"x": SPACE["x"]}) for _ in "ab"
    ]
    assert (random.random(), np.random.random()) == expected
    assert proposals[0] == proposals[1]


@pytest.mark.any_backend
@pytest.mark.slow
@pytest.mark.any_storage
def test_parallel_workers_search_with_it(bench: Any) -> None:
    """It learns also from running and pruned trials."""
    sampler = {"sampler": "hyperopt-tpe", "n_startup_jobs": 4}
    stopping = {"method": "asha", "min": 1, "max": 9}
    fields = {"search": sampler, "early_stopping": stopping, "budget": {"trials": 14}}
    bench.search("descend", execution={"workers": 2}, **fields)
    states = bench.states()
    assert len(states) == 14 and set(states) == {"COMPLETE", "PRUNED"}


def test_a_missing_package_is_refused_with_the_name_of_the_extra(
    make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = Requirements(("no_such_package",), "hyperopt")
    monkeypatch.setitem(requirements.PACKAGES, "hyperopt-tpe", missing)
    spec = make_spec(search={"sampler": "hyperopt-tpe"})
    told = r"search.sampler: .* needs no_such_package, not installed here: pip install 'hpsearch\[hyperopt\]'"
    with pytest.raises(SpaceError, match=told):
        run(spec, objective=lambda trial: 1.0)
    check_extras(make_spec())
    assert requirements.PACKAGES.keys() <= {*SAMPLERS, *TRACKERS, *STRATEGIES}
