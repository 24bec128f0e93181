"""What a trial is judged by: `value: last | best`, and reports that are not finite."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpsearch.search.trials.judging import Judge
from hpsearch.spaces import SpaceError, Spec

from ...support.driving import PROMOTION, DrivenStudy, asked, save_checkpoint
from ...support.spaces import small

NAN = math.nan
STOPPING: list[dict[str, Any]] = [
    {"method": "none", "max": 9},
    {"method": "asha", "type": "stopping", "min": 1, "max": 9, "eta": 3},
    {"method": "hyperband", "type": "stopping", "min": 1, "max": 9, "eta": 3},
    PROMOTION,
    {"method": "median", "n_startup_trials": 1, "max": 9},
    {"method": "percentile", "percentile": 50.0, "n_startup_trials": 1, "max": 9},
    {"method": "patient", "patience": 2, "max": 9},
    {"method": "threshold", "upper": 0.6, "max": 9},
]
IDS = ["none", "asha", "hyperband", "promotion", "median", "percentile", "patient", "threshold"]
VALUES = st.one_of(st.floats(0.0, 1.0), st.sampled_from([0.0, 0.5, 1.0]))
CURVES = st.lists(st.lists(VALUES, min_size=9, max_size=9), min_size=12, max_size=12)


def running_best(curve: list[float], goal: str) -> list[float]:
    better = max if goal == "maximize" else min
    return [better(curve[: step + 1]) for step in range(len(curve))]


def searched(spec: Spec, curves: list[list[float]], ends: list[float]) -> list[dict[str, Any]]:
    """Search with these curves, two trials in turn; what is known of each trial but its reports."""
    with tempfile.TemporaryDirectory() as folder:
        study = DrivenStudy(Path(folder))
        driver = study.driver(spec)
        answers: dict[int, list[str | None]] = {}
        running: list[Any] = []
        while True:
            while len(running) < 2 and (assignment := driver.ask()) is not None:
                save_checkpoint(assignment)
                running.append((assignment, assignment.reported))
            if not running:
                break
            assignment, step = running.pop(0)
            number = assignment.number
            if step == 9:
                driver.complete(number, ends[number % len(ends)])
                continue
            answer = driver.report(number, curves[number % len(curves)][step], step + 1, {})
            answers.setdefault(number, []).append(answer)
            if answer is None:
                running.append((assignment, step + 1))
        driver.finish()
        driver.close()
        trials = [
            {
                "state": trial.state,
                "value": trial.value,
                "params": trial.params,
                "user": {k: v for k, v in trial.user_attrs.items() if not isinstance(v, float)},
                "rungs": {k: v for k, v in trial.system_attrs.items() if "rung" in k},
                "steps": sorted(trial.intermediate_values),
                "answers": answers.get(trial.number),
            }
            for trial in study.trials()
        ]
        if spec.value == "best":
            for trial in study.trials():
                raw = curves[trial.number % len(curves)]
                assert all(value == raw[step - 1] for step, value in trial.intermediate_values.items())
        study.close()
        return trials


@pytest.mark.slow
@pytest.mark.parametrize("stopping", STOPPING, ids=IDS)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(curves=CURVES, goal=st.sampled_from(["minimize", "maximize"]))
def test_the_best_value_searches_as_an_objective_that_reports_its_best(
    stopping: dict[str, Any], curves: list[list[float]], goal: str
) -> None:
    fields: dict[str, Any] = {
        "goal": goal,
        "budget": {"trials": 12},
        "early_stopping": stopping,
        "baseline": {"x": 0.5},
        "search": {"sampler": "tpe", "seed": 1, "n_startup_trials": 3},
        "confirm": {"top": 2, "seeds": 2},
    }
    best = [running_best(curve, goal) for curve in curves]
    found = searched(small(**fields, value="best"), curves, [curve[-1] for curve in curves])
    expected = searched(small(**fields), best, [curve[-1] for curve in best])
    assert found == expected


def test_a_better_returned_value_is_the_trials(study: DrivenStudy, make_spec: Any) -> None:
    driver = study.driver(make_spec(value="best", goal="maximize"))
    asked(driver)
    driver.report(0, 0.9, 0, {})  # before any training
    driver.report(0, 0.5, 1, {})
    driver.report(0, 0.2, 2, {})
    driver.complete(0, 0.7)
    asked(driver)
    driver.report(1, 0.5, 1, {})
    driver.complete(1, 0.3)
    assert [trial.value for trial in study.trials()] == [0.7, 0.5]
    assert study.trials()[0].intermediate_values == {0: 0.9, 1: 0.5, 2: 0.2}


@pytest.mark.parametrize(
    ("value", "returned", "expected"),
    [("last", NAN, 0.5), ("best", NAN, 0.3), ("last", 0.4, 0.4), ("best", math.inf, 0.3)],
)
def test_what_is_not_finite_is_left_out(
    study: DrivenStudy, make_spec: Any, value: str, returned: float, expected: float
) -> None:
    driver = study.driver(make_spec(nan="ignore", value=value))
    asked(driver)
    assert [driver.report(0, each, step, {}) for step, each in enumerate([NAN, 0.3, 0.5, NAN])] == [None] * 4
    assert driver.consumed == 3
    driver.complete(0, returned)
    (trial,) = study.trials()
    assert (trial.state.name, trial.value) == ("COMPLETE", expected)
    assert trial.intermediate_values == {1: 0.3, 2: 0.5}
    asked(driver)
    driver.report(1, NAN, 1, {})
    said = [message for message in study.watcher.said if "left out" in message]
    assert said == ["trial 0: loss was nan at step 0, which is left out"]


def test_a_trial_without_any_finite_value_diverged(study: DrivenStudy, make_spec: Any) -> None:
    driver = study.driver(make_spec(nan="ignore"))
    asked(driver)
    driver.report(0, 1.0, 0, {})
    driver.report(0, NAN, 1, {})
    driver.complete(0, -math.inf)
    (trial,) = study.trials()
    assert trial.state.name == "PRUNED"
    assert trial.user_attrs["reason"].startswith("diverged: loss was never finite")


def test_a_step_without_a_value_counts_after_a_stop(study: DrivenStudy, make_spec: Any) -> None:
    spec = make_spec(nan="ignore")
    driver = study.driver(spec)
    save_checkpoint(asked(driver))
    driver.report(0, 0.5, 3, {})
    driver.request_stop("a test")
    assert driver.report(0, NAN, 7, {}) == "the search is stopping"
    driver.close()
    again = study.driver(spec)
    assert again.consumed == 7
    assert asked(again).reported == 3
    assert again.report(0, 0.25, 8, {}) is None
    assert again.consumed == 8


@given(
    st.dictionaries(st.integers(0, 5), st.one_of(VALUES, st.sampled_from([NAN, math.inf, -math.inf]))),
    st.one_of(VALUES, st.just(NAN)),
    st.builds(Judge, st.booleans(), st.booleans(), st.booleans()),
)
def test_a_value_is_finite_or_none(reports: dict[int, float], returned: float, judge: Judge) -> None:
    value = judge.at_end(reports, returned)
    trained = [each for step, each in reports.items() if step > 0 and math.isfinite(each)]
    if math.isfinite(returned):
        trained.append(returned)
        assert judge.best or value == returned
    elif not judge.ignores or not trained:
        assert not math.isfinite(value)
        return
    assert value in trained
    if judge.best:
        assert value == (max if judge.maximize else min)(trained)


def test_defaults_are_left_out_of_what_is_stored(make_spec: Any) -> None:
    spec = make_spec()
    assert {"value", "nan"}.isdisjoint(spec.to_json())
    assert make_spec(value="last", nan="diverged").fingerprint() == spec.fingerprint()
    other = make_spec(value="best", nan="ignore")
    assert (other.to_json()["value"], other.to_json()["nan"]) == ("best", "ignore")
    assert Spec.from_json(other.to_json()) == other != spec
    assert other.fingerprint() != spec.fingerprint()


@pytest.mark.parametrize("field", [{"value": "best"}, {"nan": "ignore"}])
def test_what_ships_decides_itself(make_spec: Any, field: dict[str, str]) -> None:
    with pytest.raises(SpaceError, match="is for your own functions and commands"):
        make_spec(objective="sklearn", **field)
