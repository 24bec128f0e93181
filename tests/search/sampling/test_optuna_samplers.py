"""Every sampler and pruner that a space file can name, in searches without workers; warnings are errors."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from optuna.trial import FrozenTrial, TrialState
from pydantic import ValidationError

from hpsearch.search.engine.driver import Driver
from hpsearch.search.errors import SearchError
from hpsearch.search.sampling.distributions import distribution, suggest
from hpsearch.search.sampling.factory import make_sampler
from hpsearch.search.sampling.grid import GridSampler
from hpsearch.search.sampling.optuna_samplers import make_optuna_sampler
from hpsearch.search.sampling.space_sampler import SpaceSampler
from hpsearch.search.scheduling.pruners import make_pruner
from hpsearch.search.trials.seeds import derived_seed
from hpsearch.spaces import Range, SpaceError, Spec
from hpsearch.spaces.samplers import SAMPLERS
from hpsearch.spaces.stopping import METHODS
from hpsearch.storage.database import open_storage
from hpsearch.storage.studies import SPEC, open_live

from ...support.watchers import Undisturbed

NUMERIC: dict[str, Any] = {
    "x": {"min": 0.0, "max": 1.0},
    "lr": {"min": 1e-4, "max": 1e-1, "log": True},
    "n": {"min": 1, "max": 64},
}
MIXED: dict[str, Any] = {
    "x": {"min": 0.0, "max": 1.0},
    "r": {"min": 2, "max": 32, "factor": 2},
    "f": {"min": 0.001, "max": 0.1, "factor": 10},
    "step": {"min": 0.0, "max": 0.3, "step": 0.1},
    "modules": [["q"], ["q", "v"], ["q", "k", "v"]],
    "scheduler": ["constant", "linear", "cosine"],
    "warmup": {"min": 0.0, "max": 0.2, "when": {"scheduler": ["linear", "cosine"]}},
    "both": {"expr": "r * 2"},
}
GRID: dict[str, Any] = {
    "a": [1, 2, 3],
    "b": {"min": 2, "max": 8, "factor": 2},
    "c": {"min": 0.0, "max": 0.2, "step": 0.1, "when": {"a": 3}},
}
EXTRAS: dict[str, dict[str, Any]] = {
    "percentile": {"percentile": 25.0},
    "threshold": {"upper": 1.5},
    "patient": {"patience": 1},
    "hyperband": {"min": 1, "max": 9},
    "asha": {"min": 1, "max": 9},
}
# All except the grid, and adaptive TPE, which loads its models for every proposal.
DRAWN = [name for name in SAMPLERS if name not in ("grid", "hyperopt-atpe")]


def loss(params: dict[str, Any], step: int) -> float:
    x = float(params.get("x", 0.5))
    return (x - 0.3) ** 2 + math.log(1 + params.get("n", 1)) / 50 + 1 / step


RUNGS = (1, 3, 9)  # when trials report
Search = Callable[..., list[FrozenTrial]]


@pytest.fixture
def search(tmp_path: Path) -> Iterator[Search]:
    """Run a spec to its end, or until so many trials are asked. Returns its trials."""
    opened: list[optuna.storages.RDBStorage] = []
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def run(
        spec: Spec, until: int = 10**9, file: str = "a.db", steps: Iterable[int] = RUNGS
    ) -> list[FrozenTrial]:
        storage = open_storage(f"sqlite:///{tmp_path / file}", create=True)
        opened.append(storage)
        live = open_live(storage, spec.name, goal=spec.goal, attrs={SPEC: spec.to_json()})
        driver = Driver(spec, live, runs=tmp_path / "runs", watcher=Undisturbed(), pruner=make_pruner(spec))
        while len(driver.trials) < until and (given := driver.ask()) is not None:
            for step in steps:
                value = loss(given.params, step)
                if spec.metric == "diverging" and step == 3 and given.params["x"] > 0.6:
                    value = math.nan
                if driver.report(given.number, value, step, {}) is not None:
                    break
            else:
                driver.complete(given.number, loss(given.params, 9))
        driver.close()
        return driver.study.get_trials()

    yield run
    for storage in opened:
        storage.engine.dispose()


@pytest.fixture(autouse=True)
def quiet_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Optuna warns through its logger; no such warning is expected either."""
    optuna.logging.enable_propagation()
    yield
    optuna.logging.disable_propagation()
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert said == []


def configurations(trials: list[FrozenTrial]) -> list[dict[str, Any]]:
    return [t.params for t in trials]


@pytest.mark.parametrize("space", ["numeric", "mixed"])
@pytest.mark.parametrize("sampler", DRAWN)
def test_every_sampler_proposes_configurations_of_the_space(
    search: Search, make_spec: Any, sampler: str, space: str
) -> None:
    if (sampler, space) == ("cmaes", "mixed"):
        pytest.skip("numeric parameters only")
    parameters = NUMERIC if space == "numeric" else MIXED
    constraint = "x < 0.8 or n < 32" if space == "numeric" else "r < 16 or x < 0.5"
    spec = make_spec(
        parameters=parameters,
        constraints=[constraint],
        search={"sampler": sampler, "seed": 1},
        budget={"trials": 16},
        baseline={"x": 0.25},
    )
    trials = search(spec)
    assert [t.state for t in trials] == [TrialState.COMPLETE] * 16
    assert len({str(sorted(c.items())) for c in configurations(trials)}) >= 15, "no proposal is repeated"
    for trial in trials:
        config = spec.space.resolve(
            lambda name, p, trial=trial: (
                p.value_of(trial.params[name]) if hasattr(p, "choices") else p.accept(trial.params[name])
            )
        )
        assert spec.space.violated(config) is None
        assert set(trial.params) == {name for name in spec.space.searched if name in config}
        for name in trial.params:
            assert name not in ("r", "f", "step") or trial.params[name] in spec.parameters[name].values()


@pytest.mark.parametrize("sampler", [*(name for name in DRAWN if name != "gp"), "grid"])
def test_every_sampler_avoids_points_where_an_expression_has_no_value(
    search: Search, make_spec: Any, sampler: str
) -> None:
    """That is at half of the points, so every sampler meets some."""
    parameters = {
        "x": {"min": 0, "max": 30},
        "y": {"expr": "sqrt(x - 15) + 1 / (x - 22)"},
        "z": {"choices": [1, 2, 3], "when": "1 / (x - 20) < 5"},
    }
    first = {"n_startup_trials": 4} if sampler in ("tpe", "cmaes", "rung_gp") else {}
    wanted = {"sampler": sampler, "seed": 1, **first}
    count = 24 if sampler == "hyperopt-tpe" else 10  # its model begins later
    trials = search(make_spec(parameters=parameters, search=wanted, budget={"trials": count}))
    assert [t.state for t in trials] == [TrialState.COMPLETE] * count
    assert all(t.params["x"] >= 15 and t.params["x"] not in (20, 22) for t in trials)
    assert all(math.isfinite(t.user_attrs["y"]) for t in trials)


EXTREME: dict[str, Any] = {
    "x": {"min": -8e307, "max": 8e307},
    "n": {"min": 0, "max": 2**53},
    "m": {"min": 1, "max": 2**53, "log": True},
    "fine": {"min": 0.0, "max": 1.0, "step": 1e-15},
    "narrow": {"min": 1.0, "max": 1 + 2**-52},
    "wide": {"min": 5e-324, "max": 1.7e308, "log": True},
    "slow": {"min": 1.0, "max": 1e9, "factor": 10},
}


@pytest.mark.parametrize("sampler", DRAWN)
def test_every_sampler_takes_any_range_that_a_space_may_have(make_spec: Any, sampler: str) -> None:
    """And any values of trials."""
    first = {"n_startup_trials": 4} if sampler in ("tpe", "gp", "cmaes", "rung_gp") else {}
    spec = make_spec(parameters=EXTREME, search={"sampler": sampler, **first})
    study = optuna.create_study(sampler=make_sampler(spec))
    values = [1e308, -1e308, 0.0, 5e-324, 1.7e308]
    for number in range(24 if sampler == "hyperopt-tpe" else 8):
        trial = study.ask()
        config = spec.space.resolve(lambda name, p, trial=trial: suggest(trial, name, p))
        for name, parameter in spec.parameters.items():
            parameter.accept(config[name])
        study.tell(trial, values[number % 5])


NUMBERS = st.floats(-1.7e308, 1.7e308) | st.integers(-(2**53), 2**53)
STEPS = st.none() | st.floats(5e-324, 1e308) | st.integers(1, 2**53)


@given(
    least=NUMBERS,
    most=NUMBERS,
    kind=st.sampled_from(["", "log", "step", "factor"]),
    by=STEPS,
    count=st.integers(1, 9),
)
@example(least=-1.7e308, most=1.7e308, kind="", by=None, count=1)
@example(least=0.0, most=1.0, kind="step", by=1e-300, count=1)
@example(least=0.0, most=1.0, kind="step", by=8.98846567431158e307, count=1)
@example(least=0.0, most=1.0, kind="step", by=4.900000000000002e16, count=2)
@example(least=0.0, most=1.0, kind="step", by=4.900000000000006e16, count=2)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_valid_range_is_a_valid_distribution_of_optuna(
    make_spec: Any, least: float, most: float, kind: str, by: float | None, count: int
) -> None:
    fields: dict[str, Any] = {"min": least, "max": most} | ({"log": True} if kind == "log" else {})
    if kind in ("step", "factor") and by is not None:
        fields |= {kind: by, "max": least + count * by if kind == "step" else least * by}
    try:
        Range.model_validate(fields)  # a stored spec may be older than some checks
        spec = make_spec(parameters={"x": fields})
    except (ValidationError, SpaceError):
        return
    parameter = spec.space.searched["x"]
    wanted: Any = distribution(parameter)  # a warning would be an error
    assert (wanted.low, wanted.high) == (parameter.min, parameter.max)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    drawn = study.ask({"x": wanted}).params["x"]
    assert parameter.accept(parameter.snap(drawn)) == parameter.snap(drawn)


def test_a_sampler_that_fails_ends_the_search_with_the_reason(
    search: Search, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(optuna.samplers.RandomSampler):
        def sample_relative(self, *_: Any) -> dict[str, Any]:
            raise OverflowError("Range exceeds valid bounds\nand more")

    monkeypatch.setattr(
        "hpsearch.search.sampling.space_sampler.make_optuna_sampler", lambda spec, seed: Failing(seed)
    )
    told = r'^the sampler "random" cannot propose trial 0: OverflowError: Range exceeds valid bounds; try another sampler'
    for _ in range(2):
        with pytest.raises(SearchError, match=told):
            search(make_spec())
    monkeypatch.undo()
    assert [t.state for t in search(make_spec())] == [TrialState.COMPLETE] * 4, "the error leaves no trace"


@pytest.mark.parametrize("sampler", DRAWN)
def test_an_interrupted_search_proposes_what_an_uninterrupted_one_does(
    search: Search, make_spec: Any, sampler: str
) -> None:
    options = {"sampler": sampler, "seed": 7}
    if sampler in ("tpe", "gp", "cmaes", "rung_gp"):
        options["n_startup_trials"] = 3  # the model is what could differ
    if sampler == "hyperopt-tpe":
        options["n_startup_jobs"] = 3
    if sampler == "nsgaii":
        options["population_size"] = 4
    spec = make_spec(
        parameters=NUMERIC if sampler == "cmaes" else MIXED,
        search=options,
        budget={"trials": 10},
        early_stopping={"method": "hyperband", "min": 1, "max": 9},
    )
    whole = search(spec, file="whole.db")
    for until in (1, 4, 5, 9):
        search(spec, until=until)
    assert configurations(search(spec)) == configurations(whole)
    assert len({str(c) for c in configurations(whole)}) >= 9


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name.startswith("hyperopt-")])
def test_three_searches_of_ten_trials_are_one_of_thirty(search: Search, make_spec: Any, sampler: str) -> None:
    """With conditions, pruned trials and diverged trials."""
    spec = make_spec(
        parameters=MIXED,
        metric="diverging",
        search={"sampler": sampler, "seed": 5},
        budget={"trials": 30},
        early_stopping={"method": "asha", "min": 1, "max": 9},
    )
    whole = search(spec, file="whole.db")
    for until in (10, 20):
        search(spec, until=until)
    assert [(t.params, t.state, t.values) for t in search(spec)] == [
        (t.params, t.state, t.values) for t in whole
    ]
    assert {t.state for t in whole} == {TrialState.COMPLETE, TrialState.PRUNED}
    assert any(t.constraints for t in whole), "some diverge"


@pytest.mark.parametrize(
    "sampler", ["random", "qmc", "tpe", "gp", "nsgaii", "hyperopt-tpe", "hyperopt-anneal"]
)
def test_rare_parameters_are_drawn_anew_each_time(search: Search, make_spec: Any, sampler: str) -> None:
    """A sampler that falls back to independent draws must not repeat them with its seed."""
    parameters = {
        "kind": ["plain", "warm"],
        "warmup": {"min": 0.0, "max": 1.0, "when": {"kind": "warm"}},
        "x": {"min": 0.0, "max": 1.0},
    }
    spec = make_spec(
        parameters=parameters,
        search={"sampler": sampler, "seed": 3},
        budget={"trials": 16},
        baseline={"kind": "plain"},  # some samplers model only the parameters of the first trial
    )
    drawn = [t.params["warmup"] for t in search(spec) if "warmup" in t.params]
    assert len(drawn) >= 3
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("sampler", DRAWN)
def test_samplers_learn_from_diverged_trials_without_warnings(
    search: Search, make_spec: Any, sampler: str
) -> None:
    """Some samplers support constraints, and some warn about them."""
    spec = make_spec(
        parameters=NUMERIC, search={"sampler": sampler, "seed": 2}, budget={"trials": 24}, metric="diverging"
    )
    trials = search(spec)
    infeasible = [t.number for t in trials if t.constraints]
    assert infeasible and len(infeasible) < 24
    assert all(t.state == TrialState.PRUNED for t in trials if t.number in infeasible)
    if sampler == "tpe":
        assert sum(n >= 12 for n in infeasible) < sum(n < 12 for n in infeasible)


@pytest.mark.parametrize(
    "stopping",
    [{"method": "none"}, {"method": "asha", "type": "promotion", "min": 1, "max": 9}],
    ids=["whole", "at rungs"],
)
def test_tpe_avoids_failures(make_spec: Any, stopping: dict[str, Any]) -> None:
    """Optuna's own TPE ignores failed trials, so it proposes similar ones again and again."""
    spec = make_spec(search={"sampler": "tpe", "seed": 3}, early_stopping=stopping)
    study = optuna.create_study(sampler=make_sampler(spec))
    for _ in range(60):
        trial = study.ask()
        x = spec.space.resolve(partial(suggest, trial))["x"]
        if x > 0.75:
            study.tell(trial, state=TrialState.FAIL)
            continue
        for step in (1, 3, 9):
            trial.report((x - 0.3) ** 2, step)
        study.tell(trial, (x - 0.3) ** 2)
    failed = [t.number for t in study.get_trials() if t.state == TrialState.FAIL]
    assert sum(number >= 20 for number in failed) <= 4


def test_a_gaussian_process_makes_one_proposal_per_trial(
    search: Search, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    sample = optuna.samplers.GPSampler.sample_relative

    def counted(self: Any, study: Any, trial: FrozenTrial, space: Any) -> dict[str, Any]:
        asked.append(trial.number)
        return sample(self, study, trial, space)

    monkeypatch.setattr(optuna.samplers.GPSampler, "sample_relative", counted)
    spec = make_spec(
        parameters={"x": {"min": 0.0, "max": 1.0}, "n": {"min": 1, "max": 64}},
        constraints=["x < 0.1 or x > 0.5"],  # the best point is in between
        search={"sampler": "gp", "n_startup_trials": 4},
        budget={"trials": 8},
    )
    assert len(search(spec)) == 8
    assert asked == list(range(8))


def test_another_seed_is_another_search(search: Search, make_spec: Any) -> None:
    found = [
        configurations(search(make_spec(search={"sampler": "random", "seed": seed}), file=f"{seed}.db"))
        for seed in (0, 1)
    ]
    assert found[0] != found[1]
    assert len({derived_seed(0, "trial", n) for n in range(1000)}) == 1000


@pytest.mark.parametrize("stopping", METHODS)
def test_every_method_of_early_stopping_runs(search: Search, make_spec: Any, stopping: str) -> None:
    method = {"method": stopping} | EXTRAS.get(stopping, {})
    spec = make_spec(parameters=MIXED, early_stopping=method, budget={"trials": 15})
    trials = search(spec, steps=range(1, 10))
    assert len(trials) == 15
    assert {t.state for t in trials} <= {TrialState.COMPLETE, TrialState.PRUNED}
    if stopping in ("hyperband", "asha", "median", "percentile"):
        assert TrialState.PRUNED in {t.state for t in trials}
    for trial in trials:
        assert (trial.state == TrialState.PRUNED) == ("reason" in trial.user_attrs)


# The grid


@pytest.mark.parametrize("interrupt", [(), (1, 5, 14)])
def test_a_grid_is_walked_once_and_ends_the_search(
    search: Search, make_spec: Any, interrupt: tuple[int, ...]
) -> None:
    spec = make_spec(parameters=GRID, search={"sampler": "grid"}, budget={"trials": 100})
    for until in interrupt:
        search(spec, until=until)
    trials = search(spec)
    expected = [{k: v for k, v in c.items() if k in GRID} for c in spec.space.grid()]
    assert len(expected) == 15
    assert configurations(trials) == expected
    assert search(spec) and len(search(spec)) == 15, "no trial is left to ask"


def test_a_grid_leaves_out_forbidden_points_and_the_baseline(search: Search, make_spec: Any) -> None:
    spec = make_spec(
        parameters=GRID,
        constraints=["a * b < 20"],
        baseline={"a": 2, "b": 4},
        search={"sampler": "grid"},
        budget={"trials": 100},
    )
    found = configurations(search(spec))
    assert found[0] == {"a": 2, "b": 4}
    assert sorted(map(str, found)) == sorted(
        str({k: c[k] for k in ("a", "b", "c") if k in c}) for c in spec.space.grid()
    )


def test_the_last_point_of_a_grid_is_retried_too(tmp_path: Path, make_spec: Any, search: Search) -> None:
    spec = make_spec(parameters={"a": [1, 2]}, search={"sampler": "grid"}, budget={"trials": 9})
    search(spec, until=1)
    storage = open_storage(f"sqlite:///{tmp_path / 'a.db'}")
    live = open_live(storage, spec.name, goal=spec.goal, attrs={SPEC: spec.to_json()})
    driver = Driver(spec, live, runs=tmp_path / "runs", watcher=Undisturbed(), pruner=make_pruner(spec))
    assert driver.ask() is not None
    driver.close()
    storage.engine.dispose()
    assert configurations(search(spec)) == [{"a": 1}, {"a": 2}]


# Priors, options


@pytest.mark.parametrize(("confidence", "least"), [("low", 0.2), ("medium", 0.4), ("high", 0.6)])
def test_a_prior_shapes_the_start(search: Search, make_spec: Any, confidence: str, least: float) -> None:
    def parameters(prior: dict[str, Any]) -> dict[str, Any]:
        return {
            "lr": {"min": 1e-5, "max": 1e-1, "log": True} | prior,
            "kind": {"choices": ["a", "b", "c", "d", "e", "f", "g", "h"]},
        }

    def near(trials: list[FrozenTrial]) -> float:
        rates: list[float] = [t.params["lr"] for t in trials]
        return sum(1e-2 < rate < 6e-2 for rate in rates) / len(rates)

    budget, sampling = {"trials": 60}, {"sampler": "random", "seed": 5}
    plain = search(make_spec(parameters=parameters({}), budget=budget, search=sampling), file="plain.db")
    prior = {"prior": {"at": 2.5e-2, "confidence": confidence}}
    shaped = search(make_spec(parameters=parameters(prior), budget=budget, search=sampling))
    assert near(shaped) > near(plain)
    assert near(shaped) >= least - 0.1
    assert min(t.params["lr"] for t in shaped) < 1e-3, "the rest of the range is searched too"


def test_a_prior_of_a_choice_and_of_a_factor_range_gives_their_values(search: Search, make_spec: Any) -> None:
    parameters = {
        "kind": {"choices": [["q"], ["v"], ["k"]], "prior": {"at": ["k"], "confidence": "high"}},
        "r": {"min": 2, "max": 32, "factor": 2, "prior": {"at": 8, "confidence": "high"}},
    }
    parameters["x"] = {"min": 0.0, "max": 1.0}
    trials = search(make_spec(parameters=parameters, budget={"trials": 30}))
    assert sum(t.params["kind"] == '["k"]' for t in trials) > 15
    assert sum(t.params["r"] == 8 for t in trials) > 10
    assert {t.params["r"] for t in trials} <= {2, 4, 8, 16, 32}


@pytest.mark.parametrize(
    ("options", "attributes"),
    [
        ({"sampler": "tpe", "n_startup_trials": 3, "n_ei_candidates": 7, "constant_liar": False},
         {"_n_startup_trials": 3, "_n_ei_candidates": 7, "_constant_liar": False, "_multivariate": True}),
        ({"sampler": "tpe", "multivariate": False}, {"_multivariate": False, "_group": False}),
        ({"sampler": "tpe", "group": True}, {"_group": True}),
        ({"sampler": "gp", "n_startup_trials": 4, "deterministic_objective": True},
         {"_n_startup_trials": 4, "_deterministic": True}),
        ({"sampler": "cmaes", "n_startup_trials": 4, "popsize": 6, "sigma0": 0.2, "with_margin": True},
         {"_n_startup_trials": 4, "_popsize": 6, "_sigma0": 0.2, "_with_margin": True}),
        ({"sampler": "qmc", "qmc_type": "halton", "scramble": True, "seed": 5},
         {"_qmc_type": "halton", "_scramble": True, "_seed": 5}),
        ({"sampler": "nsgaii", "population_size": 9}, {"_population_size": 9}),
        ({"sampler": "hyperopt-tpe", "n_startup_jobs": 4, "n_EI_candidates": 7, "gamma": 0.4, "prior_weight": 0.5},
         {"_first": 4, "_options": {"n_EI_candidates": 7, "gamma": 0.4, "prior_weight": 0.5}}),
        ({"sampler": "hyperopt-anneal", "avg_best_idx": 3.0, "shrink_coef": 0.2},
         {"_options": {"avg_best_idx": 3.0, "shrink_coef": 0.2}}),
    ],
)  # fmt: skip
def test_options_reach_the_sampler(
    make_spec: Any, options: dict[str, Any], attributes: dict[str, Any]
) -> None:
    sampler = make_optuna_sampler(make_spec(search=options), seed=1)
    assert {name: getattr(sampler, name) for name in attributes} == attributes


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": "tpe", "multivariate": False, "n_startup_trials": 2},
        {"sampler": "tpe", "group": False, "n_startup_trials": 2},
        {"sampler": "tpe", "n_startup_trials": 0},
        {"sampler": "qmc", "qmc_type": "halton", "scramble": True},
        {"sampler": "gp", "n_startup_trials": 0},
        {"sampler": "nsgaii", "population_size": 2, "mutation_prob": 0.5, "swapping_prob": 0.2},
        {
            "sampler": "hyperopt-tpe",
            "n_startup_jobs": 0,
            "n_EI_candidates": 1,
            "gamma": 9.0,
            "prior_weight": 0.1,
        },
        {"sampler": "hyperopt-anneal", "avg_best_idx": 1.0, "shrink_coef": 0.0},
    ],
)
def test_unusual_options_run(search: Search, make_spec: Any, options: dict[str, Any]) -> None:
    assert len(search(make_spec(parameters=MIXED, search=options, budget={"trials": 8}))) == 8


@pytest.mark.parametrize("option", ["sigma0", "with_margin", "lr_adapt", "use_separable_cma"])
def test_the_options_of_cmaes_run(search: Search, make_spec: Any, option: str) -> None:
    options = {"sampler": "cmaes", option: 0.2 if option == "sigma0" else True}
    parameters = (
        NUMERIC if option != "with_margin" else NUMERIC | {"s": {"min": 0.0, "max": 1.0, "step": 0.1}}
    )
    assert len(search(make_spec(parameters=parameters, search=options, budget={"trials": 12}))) == 12


def test_conditions_are_modelled_by_group(make_spec: Any) -> None:
    for parameters, group in ((MIXED, True), (NUMERIC, False)):
        sampler: Any = make_optuna_sampler(make_spec(parameters=parameters, search={"sampler": "tpe"}), 0)
        assert sampler._group is group


def test_pruner_options_reach_the_pruner(make_spec: Any) -> None:
    options = {"n_startup_trials": 2, "n_warmup_steps": 3, "interval_steps": 4, "n_min_trials": 5}
    pruner: Any = make_pruner(make_spec(early_stopping={"method": "median", "max": 9} | options))
    assert {name: getattr(pruner, f"_{name}") for name in options} == options
    pruner = make_pruner(make_spec(early_stopping={"method": "threshold", "lower": -1.0, "upper": 1.0}))
    assert (pruner._lower, pruner._upper) == (-1.0, 1.0)
    halving = {"method": "asha", "min": 2, "max": 99, "eta": 4, "min_early_stopping_rate": 1}
    pruner = make_pruner(make_spec(early_stopping=halving))
    assert (pruner._min_resource, pruner._reduction_factor, pruner._min_early_stopping_rate) == (2, 4, 1)


def test_a_search_has_the_sampler_of_its_spec(make_spec: Any) -> None:
    assert isinstance(make_sampler(make_spec(parameters=GRID, search={"sampler": "grid"})), GridSampler)
    assert isinstance(make_sampler(make_spec()), SpaceSampler)


@pytest.mark.parametrize("name", ["tpe", "gp", "cmaes", "hyperopt-tpe"])
def test_a_sampler_starts_its_model_after_the_trials_that_its_library_says(make_spec: Any, name: str) -> None:
    option = "n_startup_jobs" if name == "hyperopt-tpe" else "n_startup_trials"
    usual = make_spec(search={"sampler": name})
    of_library = inspect.signature(type(make_optuna_sampler(usual, 0))).parameters[option].default
    assert usual.search.startup_trials == of_library
    assert make_spec(search={"sampler": name, option: 3}).search.startup_trials == 3
