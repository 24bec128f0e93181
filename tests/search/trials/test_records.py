"""The trials of a study by role, and in losses."""

from __future__ import annotations

from typing import Any

import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from hpsearch.search.trials.records import StudyRecords

from ...support.spaces import small


def made(*rows: dict[str, Any]) -> list[FrozenTrial]:
    """Trials of these fields, numbered; complete ones where they have a value."""
    trials = []
    for number, fields in enumerate(rows):
        usual: dict[str, Any] = {"params": {"x": 0.5}, "distributions": {"x": FloatDistribution(0, 1)}}
        state = TrialState.COMPLETE if fields.get("value") is not None else TrialState.PRUNED
        trials.append(create_trial(**({"state": state} | usual | fields)))
        trials[-1].number = number
    return trials


def again(of: int, seed: int, value: float | None = None, **fields: Any) -> dict[str, Any]:
    """The fields of a confirmation run."""
    return {"value": value, "user_attrs": {"confirms": of, "confirms_seed": seed}} | fields


@pytest.mark.parametrize(("goal", "best"), [("minimize", [1, 0]), ("maximize", [2, 0])])
def test_the_best_are_those_of_the_least_loss(goal: str, best: list[int]) -> None:
    trials = made(
        {"value": 0.2}, {"value": 0.1}, {"value": 0.3}, again(0, 0, -9.0 if goal == "minimize" else 9.0)
    )
    records = StudyRecords(small(goal=goal), trials)
    assert [record.number for record in records.best(2)] == best
    assert [record.loss for record in records.best(9)] == sorted(
        record.loss or 0 for record in records.search
    )


def test_roles() -> None:
    trials = made({"value": 0.2, "user_attrs": {"baseline": True}}, {"value": 0.1}, again(1, 0, 0.4), {})
    records = StudyRecords(small(), trials)
    assert [record.number for record in records.search] == [0, 1, 3]
    assert [record.number for record in records.confirmations] == [2]
    assert [record.number for record in records.complete] == [0, 1]
    assert records.baseline is not None and records.baseline.number == 0
    assert records.by_number[2].confirms == 1 and records.by_number[2].seed == 0


@pytest.mark.parametrize(("goal", "target", "reached"), [("minimize", 0.1, True), ("maximize", 0.4, False)])
def test_the_target(goal: str, target: float, reached: bool) -> None:
    records = StudyRecords(
        small(goal=goal, budget={"trials": 9, "target": target}), made({"value": 0.2}, {"value": 0.1})
    )
    assert (records.at_target is not None) is reached


def test_the_losses_of_new_seeds_are_those_that_all_have() -> None:
    diverged: dict[str, Any] = {"state": TrialState.PRUNED, "system_attrs": {"constraints:diverged": 1.0}}
    rows = [again(0, 0, 0.3), again(0, 1, 0.4), again(0, 2, 0.5), again(1, 0, 0.6), again(1, 2, **diverged)]
    spec, searched = small(goal="maximize"), [{"value": 0.2}, {"value": 0.1}]
    records = StudyRecords(spec, made(*searched, *rows))
    assert records.confirming_losses == {0: [-0.3, -0.5], 1: [-0.6, float("inf")]}
    assert list(records.unconfirmable) == [1]
    cut = again(1, 1)  # for lack of time
    assert StudyRecords(spec, made(*searched, *rows[:4], cut)).confirming_losses == {0: [-0.3, -0.4, -0.5]}


def test_a_trial_that_has_not_begun_has_no_configuration() -> None:
    waiting, whole = made({"state": TrialState.WAITING, "params": {}, "distributions": {}}, {"value": 1.0})
    records = StudyRecords(small(), [waiting, whole])
    assert records.by_number[0].config is None and records.by_number[1].config == {"x": 0.5}
