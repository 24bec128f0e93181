"""What the driver stores of a trial, when, and how often it tries one again."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from hpsearch.search.trials.configuration import config_of
from hpsearch.search.trials.export import document, render
from hpsearch.spaces import Spec
from hpsearch.spaces.document import read
from hpsearch.storage.files import CHECKPOINT, CONFIG, METRICS, trial_folder
from hpsearch.storage.studies import SPEC

from ...support.driving import ERROR, DrivenStudy, asked


def test_an_assignment_is_in_the_database_before_it_is_given(study: DrivenStudy, make_spec: Any) -> None:
    driver = study.driver(make_spec())
    given = asked(driver)
    (trial,) = study.trials()
    assert trial.state.name == "RUNNING"
    assert given.params == trial.params
    assert given.folder == trial_folder(study.runs, "study", 0)
    assert (given.folder / CONFIG).is_file()


def test_a_new_trial_takes_nothing_from_files_that_its_number_has(study: DrivenStudy, make_spec: Any) -> None:
    """Its database was put back from a backup, and its folder is of the trial that is lost."""
    folder = trial_folder(study.runs, "study", 0)
    (folder / CHECKPOINT).mkdir(parents=True)
    (folder / CHECKPOINT / "state.pt").touch()
    (folder / METRICS).write_text('{"step": 1, "value": 777.0}\n')
    assert asked(study.driver(make_spec())).folder == folder
    assert [path.name for path in folder.iterdir()] == [CONFIG]


def test_a_report_is_in_the_database_before_it_is_answered(study: DrivenStudy, make_spec: Any) -> None:
    driver = study.driver(make_spec())
    asked(driver)
    assert driver.report(0, 0.5, 3, {"accuracy": 0.25}) is None
    assert study.trials()[0].intermediate_values == {3: 0.5}
    driver.complete(0, 0.4)
    assert (study.trials()[0].value, study.trials()[0].user_attrs["accuracy"]) == (0.4, 0.25)
    assert [trial.number for trial in study.watcher.ended] == [0]


def test_a_metric_does_not_overwrite_what_the_driver_says_of_a_trial(
    study: DrivenStudy, make_spec: Any
) -> None:
    """`error` is a usual metric, and `reason` and `baseline` could be."""
    driver = study.driver(make_spec(parameters={"x": {"min": 0.0, "max": 1.0}, "lr": 0.5}))
    metrics = {"error": 0.1, "reason": 0.2, "baseline": 1.0, "retries": 3.0, "traceback": 1.0, "lr": 7.0}
    asked(driver)
    driver.report(0, 0.5, 1, metrics | {"accuracy": 0.25})
    driver.fail(0, ERROR)
    asked(driver)
    driver.report(1, 0.5, 1, metrics)
    driver.complete(1, 0.5)
    failed, complete = study.trials()
    assert failed.user_attrs == {
        "error": ERROR.message,
        "reason": ERROR.message,
        "traceback": ERROR.traceback,
        "accuracy": 0.25,
        **{f"last_{name}": value for name, value in metrics.items()},
    }
    assert complete.user_attrs == {f"last_{name}": value for name, value in metrics.items()}


def test_the_trials_of_a_dead_driver_are_resumed_in_place(study: DrivenStudy, make_spec: Any) -> None:
    spec = make_spec()
    dead = study.driver(spec)
    first = [asked(dead) for _ in range(2)]
    dead.report(1, 0.5, 3, {})
    driver = study.driver(spec)
    assert study.states() == ["WAITING", "WAITING"]
    again = [asked(driver) for _ in range(2)]
    assert [(a.number, a.params, a.seed, a.folder) for a in again] == [
        (a.number, a.params, a.seed, a.folder) for a in first
    ]
    assert driver.report(1, 99.0, 2, {}) is None, "what it reports again is known"
    assert driver.report(1, 0.25, 4, {}) is None
    assert study.trials()[1].intermediate_values == {3: 0.5, 4: 0.25}
    assert asked(driver).number == 2


@pytest.mark.parametrize(
    "parameters",
    [
        {"x": {"min": 0.0, "max": 1.0}},
        {"n": 1, "x": {"min": 0.0, "max": 1.0, "when": "n > 5"}},
    ],
)
def test_a_trial_is_retried_as_often_as_the_space_says(
    study: DrivenStudy, make_spec: Any, parameters: dict[str, Any]
) -> None:
    """Also one that has no parameters in the study, because no condition is met."""
    driver = study.driver(make_spec(parameters=parameters, execution={"workers": 1, "retries": 2}))
    for attempt in range(3):
        assert asked(driver).number == 0
        driver.report(0, 0.5, 1, {})
        driver.report(0, 0.5, 2 + attempt, {})
        driver.fail(0, ERROR)
    assert study.states() == ["FAIL"]
    assert study.trials()[0].user_attrs["retries"] == 2
    assert list(study.trials()[0].intermediate_values) == [1, 2, 3, 4]


def test_attempts_are_counted_over_resumes(study: DrivenStudy, make_spec: Any) -> None:
    spec = make_spec(execution={"workers": 1, "retries": 1})
    driver = study.driver(spec)
    asked(driver)
    driver.fail(0, ERROR)
    driver = study.driver(spec)
    asked(driver)
    driver.fail(0, ERROR)
    assert study.states() == ["FAIL"]


def test_a_checkpoint_is_not_blamed_where_a_trial_fails_without_one_too(
    study: DrivenStudy, make_spec: Any
) -> None:
    """A trial that fails right after it was taken up starts over; once it is known why it fails, none does."""
    driver = study.driver(make_spec(execution={"workers": 1, "retries": 0}))
    blamed = dataclasses.replace(ERROR, kind="checkpoint")
    asked(driver)
    driver.fail(0, blamed)
    assert study.states() == ["WAITING"]
    assert asked(driver).number == 0
    driver.fail(0, ERROR)
    asked(driver)
    driver.fail(1, blamed)
    asked(driver)
    driver.fail(2, dataclasses.replace(blamed, message="EOFError: no more of it"))
    assert study.states() == ["FAIL", "FAIL", "WAITING"]


def test_a_failure_without_an_error_is_no_failure_alike(study: DrivenStudy, make_spec: Any) -> None:
    """As the dashboard's button makes them."""
    spec = make_spec(budget={"trials": 9})
    driver = study.driver(spec)
    for _ in range(3):
        asked(driver)
    driver.close()
    with closing(sqlite3.connect(study.file)) as connection:
        connection.execute("UPDATE trials SET state = 'FAIL'")
        connection.commit()
    driver = study.driver(spec)
    asked(driver)
    driver.fail(3, ERROR)
    assert driver.fatal is None


def test_three_failures_alike_are_fatal(study: DrivenStudy, make_spec: Any) -> None:
    driver = study.driver(make_spec(budget={"trials": 9}))
    for number in range(3):
        assert driver.fatal is None
        asked(driver)
        driver.fail(number, ERROR)
    assert driver.fatal == "the first 3 trials all failed the same way: ValueError: no"
    assert driver.ask() is None


def test_the_checkpoints_of_the_best_stay(study: DrivenStudy, make_spec: Any) -> None:
    execution = {"workers": 1, "retries": 0, "keep": 2}
    driver = study.driver(make_spec(budget={"trials": 9}, execution=execution))
    for number, value in enumerate([0.5, 0.9, 0.7, 0.6, 0.1]):
        (asked(driver).folder / CHECKPOINT).mkdir()
        driver.complete(number, value)
    (asked(driver).folder / CHECKPOINT).mkdir()
    driver.report(5, float("nan"), 1, {})
    (asked(driver).folder / CHECKPOINT).mkdir()
    driver.fail(6, ERROR)
    kept = [n for n in range(7) if (trial_folder(study.runs, "study", n) / CHECKPOINT).exists()]
    assert kept == [0, 4, 6], "the best, and one that may be tried again"


def test_the_artifacts_of_a_trial_are_named_in_it(study: DrivenStudy, make_spec: Any) -> None:
    driver = study.driver(make_spec())
    (asked(driver).folder / METRICS).write_text("{}\n")
    driver.complete(0, 1.0)
    names = [key for key in study.trials()[0].system_attrs if key.startswith("artifacts:")]
    assert len(names) == 2, "the reports and the configuration"


def test_the_spec_of_a_study_reads_back(study: DrivenStudy, make_spec: Callable[..., Spec]) -> None:
    spec = make_spec()
    driver = study.driver(spec)
    assert Spec.from_json(driver.study.user_attrs[SPEC]) == spec


@pytest.mark.parametrize("sampler", ["tpe", "random", "gp", "cmaes", "qmc", "nsgaii", "rung_gp"])
def test_large_integers_are_recorded_and_exported_as_they_were_trained(
    study: DrivenStudy, make_spec: Any, sampler: str
) -> None:
    parameters = {
        "near": {"min": 2**53 - 5, "max": 2**53},
        "wide": {"min": -(2**53), "max": 2**53},
        "log": {"min": 1, "max": 2**53, "log": True},
        "listed": [2**53 + 1, 2**53 + 2, 2**63 - 1],
        "fixed": 2**62 + 1,
        "derived": {"expr": "2 * near + 1"},
    }
    spec = make_spec(parameters=parameters, baseline=None, search={"sampler": sampler}, budget={"trials": 9})
    driver = study.driver(spec)
    for number in range(9):
        trained = asked(driver).params
        driver.complete(number, float(number))
        stored = study.trials()[number]
        assert repr(config_of(spec, stored)) == repr(trained), "retrained and confirmed by the same"
        content = document(spec, stored, {})
        assert json.loads(render(content, "json"))["parameters"] == trained
        assert read(render(content, "yaml"), "a.yaml")[0]["parameters"] == trained
        assert f"--derived={2 * trained['near'] + 1}" in render(content, "flags")
        assert stored.user_attrs["derived"] == 2 * trained["near"] + 1
