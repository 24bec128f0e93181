"""The trial that an Optuna objective gets: the space's values, Optuna's methods, and words for what differs."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.objectives.base import ObjectiveError, SpaceMismatch, TrialEnded, TrialStopped
from hpsearch.objectives.info import ObjectiveInfo
from hpsearch.objectives.resolve import check_name
from hpsearch.objectives.user.optuna_function import OptunaObjective, OptunaTrial

from ..hand_trial import HandTrial


class Heard(HandTrial):
    """A trial that keeps its remarks and attributes."""

    def __init__(self, params: dict[str, Any], folder: Path = Path(), stop_at: int | None = None) -> None:
        self.remarks: list[str] = []
        self.attributes: dict[str, Any] = {}
        super().__init__(params, folder, stop_at)

    def remark(self, kind: str, text: str) -> None:
        self.remarks.append(text)

    def set_attribute(self, name: str, value: Any) -> None:
        self.attributes[name] = value


def trial_of(params: dict[str, Any], space: dict[str, Any] | None = None) -> OptunaTrial:
    return OptunaTrial(Heard(params), {} if space is None else {"space": space})


LR = {"min": 1e-5, "max": 0.1, "log": True, "step": None, "factor": None, "when": ""}
SPACE = {
    "lr": LR,
    "layers": {"min": 1, "max": 9, "log": False, "step": 2},
    "width": {"min": 8, "max": 128, "log": False, "step": None, "factor": 2},
    "shape": {"choices": ["a", [1, 2], True, None]},
    "fixed": {"when": ""},
    "momentum": {"min": 0.0, "max": 0.9, "when": "when opt is sgd"},
    "helper": {"min": 0, "max": 3},
    "model.depth": {"min": 1, "max": 3},
}
PARAMS = {"lr": 0.01, "layers": 3, "width": 16, "shape": [1, 2], "fixed": 4, "model": {"depth": 2}}


@pytest.mark.parametrize(
    ("asks", "value"),
    [
        (lambda t: t.suggest_float("lr", 1e-5, 0.1, log=True), 0.01),
        (lambda t: t.suggest_loguniform("lr", 1e-5, 1e-1), 0.01),
        (lambda t: t.suggest_int("layers", 1, 9, step=2), 3),
        (lambda t: t.suggest_int("layers", 1, 9, 2), 3),
        (lambda t: t.suggest_int("width", 8, 128, log=True), 16),
        (lambda t: t.suggest_categorical("shape", ["a", (1, 2), True, None]), (1, 2)),
        (lambda t: t.suggest_categorical("shape", [None, True, (1, 2), "a"]), (1, 2)),
        (lambda t: t.suggest_float("fixed", 0, 10), 4.0),
        (lambda t: t.suggest_int("fixed", 4, 4), 4),
        (lambda t: t.suggest_int("model.depth", 1, 3), 2),
    ],
)
def test_a_suggestion_is_answered_with_the_value_of_the_space(asks: Any, value: Any) -> None:
    trial = trial_of(PARAMS, SPACE)
    answer = asks(trial)
    assert answer == value and type(answer) is type(value)
    assert asks(trial) == value, "as often as it is asked for"
    assert list(trial.params.values()) == [value]


@pytest.mark.parametrize(
    ("asks", "told"),
    [
        (
            lambda t: t.suggest_float("lr", 1e-5, 0.2, log=True),
            "asks for lr: {min: 1e-05, max: 0.2, log: true}, and the space says "
            "lr: {min: 1e-05, max: 0.1, log: true}",
        ),
        (lambda t: t.suggest_float("lr", 1e-5, 0.1), "asks for lr: {min: 1e-05, max: 0.1}, and the space"),
        (lambda t: t.suggest_int("lr", 1, 3), "asks for lr: {min: 1, max: 3}, and the space says lr:"),
        (lambda t: t.suggest_int("layers", 1, 9), "says layers: {min: 1, max: 9, step: 2}"),
        (lambda t: t.suggest_int("width", 8, 128), "says width: {min: 8, max: 128, factor: 2}"),
        (lambda t: t.suggest_categorical("shape", ["a", (1, 2), True]), 'shape: ["a", [1, 2], true, null]'),
        (lambda t: t.suggest_categorical("shape", ["a", (1, 2), 1, None]), '["a", [1, 2], 1, null]'),
        (lambda t: t.suggest_categorical("lr", [0.01, 0.1]), "asks for lr: [0.01, 0.1], and the space"),
        (lambda t: t.suggest_float("fixed", 0, 1), "and the value is 4, which is none of these"),
        (
            lambda t: t.suggest_float("lrr", 0, 1),
            'no such parameter; did the script mean "lr"?; it needs lrr:',
        ),
        (lambda t: t.suggest_float("momentum", 0, 0.9), "has momentum only when opt is sgd, and this trial"),
        (lambda t: t.suggest_int("helper", 0, 3), "with pass: false"),
    ],
)
def test_what_differs_is_told_with_both_and_an_objective_cannot_catch_it(asks: Any, told: str) -> None:
    def objective(trial: Any) -> float:
        with suppress(Exception):
            asks(trial)
        return 1.0

    with pytest.raises(SpaceMismatch) as raised:
        OptunaObjective(objective, {"space": SPACE})(Heard(PARAMS))
    assert told in str(raised.value)


@given(data=st.data())
def test_the_same_range_always_fits_and_another_never(data: st.DataObject) -> None:
    low, high, other = data.draw(
        st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=3, max_size=3, unique=True)
    )
    low, high = min(low, high), max(low, high)
    says = {"min": low, "max": high, "log": False, "step": None}
    value = data.draw(st.floats(low, high))
    trial = trial_of({"x": value}, {"x": says})
    assert trial.suggest_float("x", low, high) == value
    with pytest.raises(SpaceMismatch):
        trial.suggest_float("x", min(low, other), max(high, other) + 1)


def test_without_a_space_a_value_outside_is_remarked_as_the_user_set_it(tmp_path: Path) -> None:
    heard = Heard({"lr": 3, "opt": "sgd"}, tmp_path)
    trial = OptunaTrial(heard, {})
    assert trial.suggest_float("lr", 0.0, 1.0) == 3.0
    assert heard.remarks == ['suggest_float("lr", ...) asks for lr: {min: 0.0, max: 1.0}, and the value is 3']
    with pytest.raises(SpaceMismatch, match="none of these"):
        trial.suggest_categorical("opt", ["adam"])
    with pytest.raises(SpaceMismatch, match="the configuration has no such parameter"):
        trial_of({"lr": 3}).suggest_float("momentum", 0.0, 1.0)


def test_report_returns_at_the_stop_and_raises_at_the_next_report(tmp_path: Path) -> None:
    heard = Heard({}, tmp_path / "a", stop_at=2)
    trial = OptunaTrial(heard, {})
    trial.report(1.0, 1)
    assert not trial.should_prune()
    trial.report(0.5, 2)
    assert trial.should_prune() and trial.should_prune()
    with pytest.raises(AssertionError):  # of the trial by hand, which takes no report after the stop
        trial.report(0.4, 2)
    assert heard.reports == [(1, 1.0), (2, 0.5)]


def test_a_report_is_converted_as_optuna_does(tmp_path: Path) -> None:
    heard = Heard({}, tmp_path)
    trial, its = OptunaTrial(heard, {}), optuna.create_study().ask()
    for value, step in (("0.5", 7), (True, 8), (1, 9.0), ("nan", "10")):
        trial.report(value, step)  # type: ignore[arg-type]
        its.report(value, step)  # type: ignore[arg-type]
    kept = its.storage.get_trial(its._trial_id).intermediate_values
    assert repr(heard.reports) == repr(list(kept.items()))
    wrong: list[tuple[Any, Any]] = [("low", 11), (None, 11), (1.0, "x")]
    for number, at in wrong:
        for each in (trial, its):
            with pytest.raises(TypeError):
                each.report(number, at)


def test_the_end_of_an_objective_says_who_ended_it(tmp_path: Path) -> None:
    def pruned(trial: Any) -> float:
        trial.report(1.0, 1)
        if trial.should_prune() or trial.params.get("own"):
            raise optuna.TrialPruned("enough")
        raise optuna.exceptions.TrialPruned

    with pytest.raises(TrialStopped):
        OptunaObjective(pruned, {})(Heard({}, tmp_path / "a", stop_at=1))
    with pytest.raises(TrialEnded):
        OptunaObjective(pruned, {})(Heard({}, tmp_path / "b"))


@pytest.mark.parametrize("returned", [(1.0, 2.0), [1.0], [1.0, 2.0, 3.0]])
def test_several_values_are_refused_with_words(returned: Any, tmp_path: Path) -> None:
    objective = OptunaObjective(lambda trial: returned, {})
    with pytest.raises(SpaceMismatch, match="a search has one metric"):
        objective(Heard({}, tmp_path))


def test_a_parameter_that_is_never_asked_for_is_remarked(tmp_path: Path) -> None:
    heard = Heard(PARAMS, tmp_path)
    OptunaObjective(lambda trial: trial.suggest_float("lr", 1e-5, 0.1, log=True), {"space": SPACE})(heard)
    assert heard.remarks == [
        "the objective never suggested layers, width, shape, model.depth, which the space has"
    ]


def test_what_a_trial_of_optuna_has(tmp_path: Path) -> None:
    heard = Heard({"x": 1}, tmp_path)
    trial = OptunaTrial(heard, {"study": "mine", "goal": "maximize"})
    assert isinstance(trial, optuna.trial.BaseTrial)
    trial.set_user_attr("notes", {"a": [1, 2]})
    assert trial.user_attrs == heard.attributes == {"notes": {"a": [1, 2]}}
    with pytest.raises(TypeError, match="JSON serializable"):
        trial.set_user_attr("object", object())
    assert trial.number == trial._trial_id == 0
    assert trial.study.direction == optuna.study.StudyDirection.MAXIMIZE
    assert trial.study.study_name == "mine"
    assert trial.datetime_start is not None and trial.relative_params == trial.system_attrs == {}
    trial.suggest_int("x", 0, 3)
    assert trial.distributions == {"x": optuna.distributions.IntDistribution(0, 3)}
    with pytest.raises(AttributeError, match='no "best_value" here: the search owns the study'):
        _ = trial.study.best_value
    with pytest.raises(AttributeError, match='no "storage" of Optuna'):
        _ = trial.storage
    with pytest.raises(ObjectiveError, match="under constraints: in the space"):
        trial.set_constraint("c", 1.0)


def test_the_trial_is_told_in_variables_only_while_it_runs(tmp_path: Path) -> None:
    def objective(trial: Any) -> float:
        assert os.environ["HPSEARCH_CHECKPOINT"] == str(tmp_path)
        return float(os.environ["HPSEARCH_SEED"])

    assert OptunaObjective(objective, {})(Heard({}, tmp_path)) == 7
    assert "HPSEARCH_SEED" not in os.environ


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("lora", "built_in"),
        ("train.py:train", "function"),
        ("optuna:train.py:objective", "optuna"),
        ("optuna:a.b:objective", "optuna"),
        ("ray:train.py:f", "ray"),
        (["python", "optuna:x"], "command"),
    ],
)
def test_the_kind_of_an_objective(name: Any, kind: str) -> None:
    assert ObjectiveInfo(name).kind == kind
    assert ObjectiveInfo(name).is_built_in is (kind == "built_in")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("optuan:train.py:objective", 'did you mean "optuna:train.py:objective"?'),
        ("Ray:train.py:f", 'did you mean "ray:train.py:f"?'),
        ("optuna:train", 'write "optuna:module:function" or "optuna:path/to/file.py:function"'),
        ("ray:none.py:f", "there is no file"),
        ("optuna:no.such.module:f", 'there is no module "no.such.module"'),
        ("optuna", "one of Optuna or Ray Tune"),
    ],
)
def test_a_name_that_is_none_is_told_what_was_meant(name: str, told: str) -> None:
    with pytest.raises(ObjectiveError) as raised:
        check_name(name)
    assert told in str(raised.value)
