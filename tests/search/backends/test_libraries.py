"""Functions written for Optuna and Ray Tune, unchanged, on both backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpsearch.search.errors import SearchError
from hpsearch.search.results.report import trial_report
from hpsearch.search.training.run import train
from hpsearch.search.trials.document import load_document
from hpsearch.search.trials.events import events_of
from hpsearch.search.trials.export import document, render
from hpsearch.storage.studies import PROVENANCE

OPTUNA = Path(__file__).with_name("of_optuna.py")
NETWORK = Path(__file__).with_name("of_optuna_network.py")
RAY = Path(__file__).with_name("of_ray.py")
X = {"x": {"min": 0.0, "max": 1.0}}
NESTED = {"model.x": {"min": 0.0, "max": 1.0}}
CONDITIONAL = X | {
    "kind": ["plain", "bent"],
    "bend": {"min": 0.0, "max": 0.5, "step": 0.1, "when": {"kind": "bent"}},
}
ASHA = {"method": "asha", "min": 1, "max": 9, "eta": 3}
PROMOTION = ASHA | {"type": "promotion"}
ONE = {"workers": 1, "retries": 0}  # where two would load the same libraries
TWO = ONE | {"workers": 2}


def search(bench: Any, objective: str, parameters: dict[str, Any], **fields: Any) -> Any:
    usual = {"execution": TWO, "budget": {"trials": 9}}
    return bench.run(bench.make_spec(objective=objective, parameters=parameters, **usual | fields))


def printed(bench: Any, number: int) -> str:
    return Path(bench.folder, "runs", "study", str(number), "output.log").read_text()


def resumed(trial: Any) -> int:
    """How often it was."""
    return sum("resumed" in event for event in events_of(trial, "steps"))


def trained_again(result: Any, folder: Path) -> bool | None:
    """Whether the winner, exported and trained, has its value again bit for bit."""
    about = result.study.user_attrs[PROVENANCE]
    content = document(result.spec, result.best_trial, about, folder=folder)
    (folder / "best.yaml").write_text(render(content, "yaml"))
    return train(load_document(folder / "best.yaml"), folder / "trained").reproduced


@pytest.mark.slow
@pytest.mark.any_storage
def test_an_optuna_objective_gets_the_values_of_the_space_and_is_pruned(bench: Any, tmp_path: Path) -> None:
    result = search(bench, f"optuna:{OPTUNA}:descend", CONDITIONAL, early_stopping=ASHA)
    trials = bench.trials()
    pruned = [trial for trial in trials if trial.state.name == "PRUNED"]
    assert pruned and {trial.state.name for trial in trials} == {"COMPLETE", "PRUNED"}
    assert "this must not run" not in printed(bench, 0)
    for trial in trials:
        bend = trial.params.get("bend", 0.0)
        assert ("bend" in trial.params) is (trial.params["kind"] == "bent")
        reports = {step: trial.params["x"] + bend + 1 / step for step in range(1, trial.last_step + 1)}
        assert trial.intermediate_values == pytest.approx(reports)
        assert trial.user_attrs["kind of it"] == trial.params["kind"]
        if trial in pruned:  # it asked, and ended itself
            assert f"pruned {trial.number} after {trial.last_step}" in printed(bench, trial.number)
        else:
            assert trial.user_attrs["user_reason"] == "it was good"
    report = trial_report(result, pruned[0].number)
    assert report.attributes == {"kind of it": pruned[0].params["kind"]}
    assert trained_again(result, tmp_path)


@pytest.mark.slow
@pytest.mark.any_storage
@pytest.mark.any_backend
def test_an_objective_that_never_asks_whether_to_prune_ends_at_its_next_report(bench: Any) -> None:
    kinds = X | {"kind": ["plain", "bent"]}
    search(bench, f"optuna:{OPTUNA}:never_asks", kinds, early_stopping=ASHA)
    pruned = [trial for trial in bench.trials() if trial.state.name == "PRUNED"]
    assert pruned
    for trial in pruned:
        assert printed(bench, trial.number).count("epoch") == trial.last_step + 1


@pytest.mark.slow
@pytest.mark.any_storage
@pytest.mark.any_backend
def test_an_objective_may_prune_its_own_trial(bench: Any) -> None:
    result = search(bench, f"optuna:{OPTUNA}:gives_up", X, budget={"trials": 4})
    by_number = {trial.number: trial for trial in bench.trials()}
    assert [by_number[n].state.name for n in range(4)] == ["COMPLETE", "PRUNED"] * 2
    assert by_number[1].user_attrs["reason"] == "ended by its objective: too odd"
    assert by_number[1].value == by_number[1].params["x"], "its last report"
    assert result.best is not None


@pytest.mark.slow
@pytest.mark.any_storage
def test_a_space_that_differs_ends_the_search_and_says_both_ranges(bench: Any) -> None:
    with pytest.raises(SearchError) as raised:
        search(bench, f"optuna:{OPTUNA}:other_range", X, budget={"trials": 50})
    said = str(raised.value)
    assert "x: {min: 0.0, max: 2.0}" in said and "x: {min: 0.0, max: 1.0}" in said
    assert {trial.state.name for trial in bench.trials()} == {"FAIL"}
    assert len(bench.trials()) <= 2, "no more than ran at once"


@pytest.mark.slow
@pytest.mark.any_storage
@pytest.mark.any_backend
def test_a_paused_optuna_trial_without_a_checkpoint_is_judged_once(bench: Any) -> None:
    search(bench, f"optuna:{OPTUNA}:descend", CONDITIONAL, early_stopping=PROMOTION)
    ended = [trial for trial in bench.trials() if trial.state.name == "PRUNED"]
    assert ended and all("it left no checkpoint" in trial.user_attrs["reason"] for trial in ended)


@pytest.mark.slow
@pytest.mark.any_storage
@pytest.mark.any_backend
def test_a_network_of_suggested_depth_trains_and_again_to_the_same_bit(bench: Any, tmp_path: Path) -> None:
    units = {
        f"n_units_l{i}": {"min": 4, "max": 16, "log": True} | ({"when": f"n_layers > {i}"} if i else {})
        for i in range(3)
    }
    parameters = {
        "n_layers": {"min": 1, "max": 3},
        **units,
        "optimizer": ["Adam", "SGD"],
        "lr": {"min": 1e-3, "max": 1e-1, "log": True},
    }
    result = search(bench, f"optuna:{NETWORK}:network", parameters, early_stopping=ASHA, execution=ONE)
    assert {trial.state.name for trial in bench.trials()} == {"COMPLETE", "PRUNED"}
    assert trained_again(result, tmp_path)


@pytest.mark.slow
@pytest.mark.any_storage
@pytest.mark.any_backend
def test_a_model_of_scikit_learn_is_searched(bench: Any) -> None:
    parameters = {"C": {"min": 1e-2, "max": 1e2, "log": True}}
    usual: dict[str, Any] = {"goal": "maximize", "budget": {"trials": 3}, "execution": ONE}
    result = search(bench, f"optuna:{OPTUNA}:forest", parameters, **usual)
    assert result.best.value > 0.9


@pytest.mark.slow
@pytest.mark.any_storage
def test_a_function_of_ray_tune_pauses_at_its_reports_and_resumes_there(bench: Any, tmp_path: Path) -> None:
    result = search(bench, f"ray:{RAY}:descend", NESTED, early_stopping=PROMOTION, budget={"trials": 12})
    trials = bench.trials()
    assert {trial.state.name for trial in trials} == {"COMPLETE", "PRUNED"}
    assert "this must not run" not in printed(bench, 0)
    for trial in trials:
        steps = range(1, trial.last_step + 1)
        assert trial.intermediate_values == {n: trial.params["model.x"] + 1 / n for n in steps}
        assert trial.user_attrs["eval/half"] == trial.intermediate_values[trial.last_step] / 2
        begun = printed(bench, trial.number).count("begins after")
        assert begun == 1 + resumed(trial)
        assert printed(bench, trial.number).count("begins after 0") == 1, "it goes on from a checkpoint"
    assert any(map(resumed, trials))
    kept = bench.folder / "runs" / "study" / str(result.best_trial.number) / "checkpoint"
    assert [path.name for path in kept.iterdir()] == ["report-000009"]
    assert trained_again(result, tmp_path)


@pytest.mark.slow
@pytest.mark.any_storage
@pytest.mark.any_backend
@pytest.mark.parametrize("function", ["by_train", "returns", "yields", "given"])
def test_every_way_to_report_to_ray_tune_is_understood(bench: Any, function: str) -> None:
    result = search(bench, f"ray:{RAY}:{function}", NESTED, budget={"trials": 2}, execution=ONE)
    more = {"by_train": 1 / 9, "returns": 0, "yields": 1 / 2, "given": 3}[function]
    for trial in bench.trials():
        assert trial.value == trial.params["model.x"] + more
        assert trial.last_step == {"by_train": 9, "yields": 2}.get(function, 1)
    assert result.best is not None


@pytest.mark.slow
@pytest.mark.any_storage
@pytest.mark.any_backend
def test_a_class_trains_to_the_end_that_the_space_gives(bench: Any, tmp_path: Path) -> None:
    result = search(bench, f"ray:{RAY}:Steps", NESTED, early_stopping=PROMOTION)
    assert result.best_trial.last_step == 9
    trials = bench.trials()
    assert all(printed(bench, trial.number).count("loads") == resumed(trial) for trial in trials)
    assert any(map(resumed, trials))
    assert trained_again(result, tmp_path)


@pytest.mark.slow
@pytest.mark.any_storage
@pytest.mark.any_backend
def test_a_report_without_the_metric_ends_the_search_and_names_what_it_has(bench: Any) -> None:
    with pytest.raises(SearchError, match='was given only los, and the metric of the space is "loss"'):
        search(bench, f"ray:{RAY}:another_key", NESTED, budget={"trials": 50})
    assert len(bench.trials()) <= 2
