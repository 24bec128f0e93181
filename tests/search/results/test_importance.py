"""Importance with its uncertainty, on studies whose truth is known."""

import dataclasses
import random
import warnings
from pathlib import Path

import optuna
import pytest

from hpsearch.search.results import importance
from hpsearch.search.results.importance import FEWEST, Importance, importances_of
from hpsearch.search.results.study import StudyResult
from hpsearch.spaces import loads
from hpsearch.storage.trial_attrs import CONFIRMS, CONFIRMS_SEED
from hpsearch.storage.workspace import Workspace

SPACE = """
version: 1
name: shares
objective: "m:f"
metric: val_loss
parameters:
  matters: {min: 0.0, max: 1.0}
  nothing: {min: 0.0, max: 1.0}
early_stopping: {method: asha, min: 3, max: 9, eta: 3}
budget: {trials: 100}
"""
ENDED, PRUNED = optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED
UNIT = optuna.distributions.FloatDistribution(0, 1)


def study(trials: int, *, complete: int, seed: int = 0) -> StudyResult:
    """So many trials, of which the first are complete, and the others were pruned at their first rung."""
    found, rng = optuna.create_study(), random.Random(seed)
    for number in range(trials):
        params = {"matters": rng.random(), "nothing": rng.random()}
        value = params["matters"]
        steps = {3: value, 9: value} if number < complete else {3: value}
        found.add_trial(
            optuna.trial.create_trial(
                state=ENDED if number < complete else PRUNED,
                value=value,
                params=params,
                distributions=dict.fromkeys(params, UNIT),
                intermediate_values=steps,
            )
        )
    return StudyResult("shares", found, loads(SPACE), Workspace("sqlite:///none.db", Path("runs")))


def interval(found: Importance) -> tuple[float, float]:
    assert found.low is not None and found.high is not None
    return found.low, found.high


def test_it_is_optunas_with_an_interval_that_tells_the_parameters_apart() -> None:
    result = study(60, complete=60)
    found, said = importances_of(result)
    with warnings.catch_warnings(action="ignore"):
        wanted = optuna.importance.get_param_importances(result.study)
    assert {name: one.share for name, one in found.items()} == wanted
    assert said == "importance: PED-ANOVA over 60 complete trials, 90 % interval by bootstrap"
    for one in found.values():
        low, high = interval(one)
        assert 0 <= low <= one.middle <= high <= 1
    assert interval(found["matters"])[0] > interval(found["nothing"])[1]
    assert importances_of(result)[0] == found, "the draws are seeded"


def test_values_that_are_all_the_same_tell_nothing() -> None:
    result = study(20, complete=20)
    alike = optuna.create_study()
    for trial in result.study.get_trials():
        trial.value = 0.5
        alike.add_trial(trial)
    told = importances_of(dataclasses.replace(result, study=alike))
    assert told == ({}, "importance: the values of 20 trials are all the same")


def test_fewer_trials_are_less_sure() -> None:
    few, many = (importances_of(study(n, complete=n))[0]["matters"] for n in (12, 90))
    (few_low, few_high), (many_low, many_high) = interval(few), interval(many)
    assert few_high - few_low > many_high - many_low


def test_a_share_is_within_its_interval() -> None:
    found, _ = importances_of(study(11, complete=11, seed=11))
    for one in found.values():
        low, high = interval(one)
        assert low <= one.share <= high
    assert interval(found["matters"])[1] == found["matters"].share, "no resample has more"


def test_where_an_interval_would_take_too_long_the_share_stands_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = study(60, complete=60)
    whole, _ = importances_of(result)
    monkeypatch.setattr(importance, "MOST_VALUES", importance.LEAST_RESAMPLES * 2 * 660 - 1)
    found, said = importances_of(result)
    assert said == (
        "importance: PED-ANOVA over 60 complete trials; of 2 parameters an interval would take too long"
    )
    assert found == {name: Importance(i.share, None, i.share, None) for name, i in whole.items()}


def test_where_few_are_complete_those_at_a_rung_tell() -> None:
    found, said = importances_of(study(40, complete=FEWEST - 1))
    assert found and said is not None and "over 40 trials at step 3" in said and "a rough guess" in said
    found, said = importances_of(study(FEWEST - 1, complete=2))
    assert (found, said) == ({}, "importance needs 10 trials that compare, there are 9")


@pytest.mark.parametrize("confirming", [0, 30])
def test_confirmations_do_not_count(confirming: int) -> None:
    result = study(20, complete=20)
    for seed in range(confirming):
        again = result.study.trials[0]
        again.set_user_attr(CONFIRMS, 0)
        again.set_user_attr(CONFIRMS_SEED, seed)
        result.study.add_trial(again)
    assert importances_of(result) == importances_of(study(20, complete=20))
