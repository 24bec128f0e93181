"""Trials that another program enqueues in the study: checked, completed, and trained before new ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import optuna
import pytest

from hpsearch.search.cli.console import PlainConsole
from hpsearch.search.cli.run import _conclude
from hpsearch.search.engine.queue import TrialQueue
from hpsearch.search.operations import control
from hpsearch.search.results.report import study_report
from hpsearch.search.trials.configuration import config_of
from hpsearch.storage.workspace import Workspace

from ...support.driving import DrivenStudy, asked

ENQUEUED = {
    "parameters": {
        "x": {"min": 0.0, "max": 1.0},
        "seed": {"min": 0, "max": 2**53},
        "rank": {"min": 2, "max": 32, "factor": 2},
        "drop": {"min": 0.0, "max": 0.2, "step": 0.05},
        "targets": [["q", "v"], "all", None, "1"],
        "kind": ["plain", "warm"],
        "rate": {"min": 1, "max": 4, "when": {"kind": "warm"}},
        "fixed": 3,
        "twice": {"expr": "2 * rank"},
        "inverse": {"expr": "1 / (x - 0.25)"},
    },
    "constraints": ["x < 0.9"],
    "baseline": None,
}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"x": "abc"}, 'x: must be a number in float 0 .. 1, not "abc"'),
        ({"x": 7.5}, "x: 7.5 is outside float 0 .. 1"),
        ({"x": float("nan")}, "x: must be a number in float 0 .. 1, not NaN"),
        ({"x": float("inf")}, "x: inf is outside float 0 .. 1"),
        ({"x": True}, "x: must be a number in float 0 .. 1, not true"),
        ({"x": 10**400}, "x: 1"),
        ({"seed": 2**53 + 1}, "seed: 9007199254740993 is outside int 0 .. 9007199254740992"),
        ({"seed": 2**51 + 0.5}, "seed: 2251799813685248.5 is not a value of int 0 .. 9007199254740992"),
        ({"rank": 7}, "rank: 7 is not a value of int 2 4 8 16 32; the nearest is 8"),
        ({"drop": 0.07}, "drop: 0.07 is not a value of float 0 0.05 0.1 0.15 0.2; the nearest is 0.05"),
        ({"targets": "none"}, 'targets: "none" is none of ["q", "v"], "all", null, "1"'),
        ({"targets": 1}, 'targets: 1 is none of ["q", "v"], "all", null, "1"'),
        ({"x": 0.95}, "breaks the constraint `x < 0.9` (x: 0.95)"),
        ({"kind": "plain", "rate": 2}, 'rate: "rate" does not exist in the trial: its condition is not met'),
        ({"x": 0.25}, "<json> parameters.inverse.expr: `1 / (x - 0.25)` divides by zero where x: 0.25"),
        ({"ranc": 4}, 'ranc: "ranc" is not a parameter; did you mean "rank"?'),
        ({"fixed": 3}, 'fixed: "fixed" is a constant; a trial gives values only to searched parameters'),
        ({"x": 2.0, "rank": 3}, "x: 2 is outside float 0 .. 1; rank: 3 is not a value of"),
    ],
)
def test_a_wrong_enqueued_trial_fails_with_the_reason_and_the_search_continues(
    study: DrivenStudy, make_spec: Any, given: dict[str, Any], reason: str
) -> None:
    spec = make_spec(**ENQUEUED, search={"sampler": "random"}, budget={"trials": 2})
    driver = study.driver(spec)
    driver.study.enqueue_trial(given)
    assert asked(driver).number == 1, "it goes on"
    assert driver.ask() is None, "it counts"
    failed = driver.trials[0]
    assert failed.state.name == "FAIL"
    assert failed.user_attrs["reason"].startswith(f"cannot begin: {reason}")
    driver.complete(1, 0.5)
    driver = study.driver(spec)
    study.command(do="retry", number=0)
    driver.tick()
    assert driver.ask() is None, "nor does it begin when it is tried again"
    assert driver.trials[0].user_attrs["reason"] == failed.user_attrs["reason"]
    driver.close()
    result = study.result()
    console = PlainConsole(record=True, width=200)
    _conclude(console, dataclasses.replace(result, ran=2), ())
    console.print(*(step.operation for step in study_report(result).next_steps))
    assert "1 trial failed (0): cannot begin" in (told := console.export_text())
    assert "hpsearch retry" not in told, "nor is that advised"


@pytest.mark.parametrize(
    ("given", "trained"),
    [
        ({"seed": 2**53}, {"seed": 2**53}),
        ({"seed": 5.0}, {"seed": 5}),
        ({"x": 0}, {"x": 0.0}),
        ({"drop": 0.1 + 0.05}, {"drop": 0.15}),
        ({"targets": ["q", "v"]}, {"targets": ["q", "v"]}),
        ({"targets": '["q","v"]'}, {"targets": ["q", "v"]}),
        ({"targets": None}, {"targets": None}),
        ({"rate": 3}, {"rate": 3, "kind": "warm"}),
    ],
)
@pytest.mark.parametrize("sampler", ["tpe", "rung_gp"])
def test_an_enqueued_trial_is_trained_and_recorded_as_the_space_spells_it(
    study: DrivenStudy, make_spec: Any, given: dict[str, Any], trained: dict[str, Any], sampler: str
) -> None:
    spec = make_spec(**ENQUEUED, search={"sampler": sampler}, budget={"trials": 2})
    driver = study.driver(spec)
    driver.study.enqueue_trial(given)
    first = asked(driver)
    assert first.number == 0
    assert repr({name: first.params[name] for name in trained}) == repr(trained)
    assert repr(config_of(spec, study.trials()[0])) == repr(first.params)


def test_a_whole_trial_that_another_program_adds_is_checked_too(study: DrivenStudy, make_spec: Any) -> None:
    driver = study.driver(make_spec(budget={"trials": 2}))
    wide = optuna.distributions.FloatDistribution(0, 10)
    waits = optuna.trial.TrialState.WAITING
    driver.study.add_trial(
        optuna.trial.create_trial(state=waits, params={"x": 7.5}, distributions={"x": wide})
    )
    assert asked(driver).number == 1
    assert driver.trials[0].user_attrs["reason"] == "cannot begin: x: 7.5 is outside float 0 .. 1"


@pytest.mark.parametrize("sampler", ["tpe", "rung_gp", "grid"])
def test_an_enqueued_part_of_a_configuration_gets_all_that_its_values_call_for(
    study: DrivenStudy, make_spec: Any, sampler: str
) -> None:
    parameters = {
        "kind": ["plain", "warm"],
        "rate": {"min": 1, "max": 4, "factor": 2, "when": {"kind": "warm"}},
    }
    spec = make_spec(parameters=parameters, search={"sampler": sampler}, budget={"trials": 9})
    driver = study.driver(spec)
    for _ in range(2):  # before the first proposal, and after the last that is left
        driver.study.enqueue_trial({"rate": 2})
        driver.study.enqueue_trial({"kind": "plain"})
        while (given := driver.ask()) is not None:
            assert set(given.params) == ({"kind", "rate"} if given.params["kind"] == "warm" else {"kind"})
            assert given.params.get("rate", 1) in (1, 2, 4)
            driver.complete(given.number, 1.0)
    kinds = [trial.params["kind"] for trial in driver.trials]
    assert kinds[:2] == kinds[-2:] == ["warm", "plain"] and len(kinds) >= 6


@pytest.mark.parametrize("sampler", ["tpe", "rung_gp", "grid"])
def test_an_enqueued_part_of_a_configuration_is_completed_within_the_constraints(
    study: DrivenStudy, make_spec: Any, sampler: str
) -> None:
    parameters = {"r": {"min": 2, "max": 64, "factor": 2}, "n": {"min": 1, "max": 9}}
    constraints = ["r * n < 200", "n != 9"]
    fields = {"parameters": parameters, "constraints": constraints, "baseline": None}
    driver = study.driver(make_spec(**fields, search={"sampler": sampler}, budget={"trials": 9}))
    for _ in range(3):
        driver.study.enqueue_trial({"r": 64})
    found = [asked(driver).params for _ in range(3)]
    assert [params["r"] for params in found] == [64] * 3
    assert {params["n"] for params in found} == {1, 2, 3}
    driver.study.enqueue_trial({"r": 64})
    again = asked(driver).params
    assert again["r"] == 64 and again["n"] in {1, 2, 3}, "one that was tried, where no other is left"
    driver.study.enqueue_trial({"n": 9})
    assert asked(driver).number == 5
    assert driver.trials[4].user_attrs["reason"] == "cannot begin: breaks the constraint `n != 9` (n: 9)"


def test_a_trial_that_may_not_resume_is_not_taken_for_a_new_one(
    study: DrivenStudy, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Optuna's `ask` would begin whoever waits first, as if it had reported nothing."""
    driver = study.driver(make_spec(budget={"trials": 9}))
    given = asked(driver)
    driver.report(given.number, 0.5, 3, {})
    driver.requeue(given.number)
    monkeypatch.setattr(TrialQueue, "_may_resume", lambda self, waiting, left: waiting.number != given.number)
    assert asked(driver).number == 1
    driver.study.enqueue_trial({"x": 0.2})
    driver.study.enqueue_trial({"x": 0.3})
    assert [(a.number, a.params["x"]) for a in (asked(driver), asked(driver))] == [(2, 0.2), (3, 0.3)]
    assert study.states() == ["WAITING", "RUNNING", "RUNNING", "RUNNING"]


def test_a_configuration_that_another_process_asks_for_trains_next(
    study: DrivenStudy, make_spec: Any
) -> None:
    driver = study.driver(make_spec(budget={"trials": 2}))
    for _ in range(2):
        study.command(do="try", params={"x": 0.25}, request="a", by="anna")
        driver.tick()
    assert len(driver.trials) == 1, "the same request once"
    for request in ("b", "c"):
        study.command(do="try", params={"x": 0.5}, request=request)
        driver.tick()
    assert driver.spec.budget.trials == 3, "the third is one more than the budget had"
    assert study.result().spec.budget.trials == 3
    given = asked(driver)
    assert given.params["x"] == 0.25
    driver.complete(given.number, 0.5)
    workspace = Workspace.at(str(study.file))
    found = control.try_config(workspace=workspace, study="study", params={"x": 0.25}, request="a")
    assert (found.trial, found.made) == (0, False)
