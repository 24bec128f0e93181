"""The costs of trainings from their reports, and the time that several take together."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import FrozenTrial, TrialState

from hpsearch.search.engine.costs import COST_ATTR, RECENT_WAITS, Attempt, Cost, TrialCosts, makespan

SECONDS = st.floats(0, 100)


def attempt(
    setup: float, per_unit: float, steps: list[int], begun_at: int = 0, tail: float | None = None
) -> Attempt:
    found = Attempt(begun_at)
    for step in steps:
        found.report(step, setup + per_unit * (step - begun_at))
    if tail is not None:
        found.ended = setup + per_unit * (steps[-1] - begun_at) + tail
    return found


@given(SECONDS, st.floats(0.001, 10), st.integers(0, 50), st.sets(st.integers(51, 500), min_size=2), SECONDS)
def test_two_reports_give_setup_and_pace(
    setup: float, per_unit: float, begun_at: int, steps: set[int], tail: float
) -> None:
    cost = attempt(setup, per_unit, sorted(steps), begun_at, tail).cost
    assert cost is not None and cost.seen is None
    assert cost.setup == pytest.approx(setup + tail, rel=1e-3, abs=1e-3)
    assert cost.per_unit == pytest.approx(per_unit, rel=1e-3, abs=1e-6)


def test_one_report_gives_their_sum_and_no_report_the_total() -> None:
    assert attempt(1.0, 0.5, [4]).cost == Cost(0.0, 0.75, seen=4)
    assert Attempt(ended=3.0).cost == Cost(3.0, 0.0)
    assert Attempt().cost is None


def test_the_mean_interval_between_reports() -> None:
    assert Attempt().seconds_per_report is None
    assert attempt(1.0, 0.5, [4]).seconds_per_report == 3.0
    assert attempt(1.0, 0.5, [4, 6, 8]).seconds_per_report == 1.0


@given(st.lists(SECONDS, min_size=1, max_size=20), st.integers(1, 6))
def test_trainings_share_slots(trainings: list[float], slots: int) -> None:
    together = makespan(trainings, slots)
    assert max(max(trainings), sum(trainings) / slots) <= together * (1 + 1e-9) + 1e-9
    assert together <= sum(trainings) * (1 + 1e-9)
    assert makespan(trainings, slots, busy=[5.0]) >= together * (1 - 1e-9)
    assert makespan([], slots, busy=[2.0, 1.0]) == (2.0 if slots > 0 else 0)


def trial(number: int, cost: Cost | None, state: TrialState, last: int) -> FrozenTrial:
    attrs: dict[str, Any] = {} if cost is None else {COST_ATTR: cost.to_json()}
    value = 1.0 if state == TrialState.COMPLETE else None
    found = optuna.trial.create_trial(
        state=state, value=value, intermediate_values={last: 1.0} if last else {}, system_attrs=attrs
    )
    found.number = number
    return found


def test_a_resumed_search_knows_the_costs_in_its_study() -> None:
    trials = [
        trial(0, Cost(1.0, 0.5), TrialState.COMPLETE, 10),
        trial(1, Cost(1.0, 1.5), TrialState.PRUNED, 3),
        trial(2, Cost(0.0, 2.0, seen=1), TrialState.PRUNED, 1),
        trial(3, None, TrialState.PRUNED, 1),
    ]
    pace = TrialCosts(10, trials, slots=2)
    assert (pace.seconds_of(0), pace.seconds_of(1)) == (6.0, 16.0)
    assert pace.seconds_of(2) == 11.0, "other trials give the setup in a single report"
    assert pace.seconds_of(3) == pace.full_training_seconds == 11.0
    assert pace.seconds_until(0, 5, None) == 3.5, "it takes its setup again"
    assert pace.seconds_until(0, 5, None, begins=False) == 2.5
    assert pace.seconds_until(None, 0, 5) == 6.0
    assert pace.trainings_in(22.0) == 4.0


def test_a_slot_whose_worker_has_not_started_takes_no_training() -> None:
    pace = TrialCosts(10, [], slots=4)
    assert pace.makespan([1.0] * 4) == 1.0
    pace.set_busy_slots(1)
    assert pace.makespan([1.0] * 4) == 4.0
    pace.set_busy_slots(8)
    pace.set_busy_slots(2)
    assert pace.makespan([1.0] * 4, busy=[3.0]) == 3.0


def test_a_single_report_is_split_by_the_setup_of_other_trials() -> None:
    pace = TrialCosts(27, [])
    pace.learn(1, Cost(0.0, 1.75, seen=1))
    assert pace.full_training_seconds == 27 * 1.75
    pace.learn(0, Cost(1.5, 0.5))
    assert (pace.seconds_of(0), pace.seconds_of(1)) == (1.5 + 27 * 0.5, 1.5 + 27 * 0.25)
    assert pace.seconds_until(None, 0, 1) == 1.5 + 0.375
    pace.learn(0, Cost(0.0, 9.0, seen=3))
    assert pace.seconds_of(0) == 15.0, "a single report of a later attempt says less than is known"
    pace.learn(2, Cost(0.0, 1.0, seen=1))
    assert pace.seconds_of(2) == 1.0, "it began faster than others"


def test_without_a_known_length_only_complete_trials_count() -> None:
    trials = [trial(0, Cost(1.0, 0.5), TrialState.COMPLETE, 4), trial(1, Cost(1, 7), TrialState.PRUNED, 4)]
    assert TrialCosts(None, trials).full_training_seconds == 3.0
    assert TrialCosts(None, []).full_training_seconds is None
    assert (
        TrialCosts(None, [trial(0, Cost(2.0, 0.0), TrialState.COMPLETE, 0)]).full_training_seconds == 2.0
    ), "without a report"


def test_the_wait_for_a_worker_counts_as_training_time() -> None:
    pace = TrialCosts(10, [trial(0, Cost(1.0, 0.5), TrialState.COMPLETE, 10)], slots=2)
    pace.waited(1, 9.0)
    pace.waited(2, 8.0)
    for number in (3, 4, 5, 6):
        pace.waited(number, 2.0)
    pace.waited(1, 9.5)
    assert pace.queue_seconds == 2.0, "the first trial of each slot waits for a new worker"
    assert (pace.full_training_seconds, pace.seconds_of(0), pace.seconds_of(7)) == (8.0, 8.0, 8.0)
    assert pace.seconds_until(0, 5, None) == 5.5
    assert pace.trainings_in(16.0) == 4.0
    for number in range(7, 7 + RECENT_WAITS):
        pace.waited(number, 3.0)
        pace.waited(number, 4.0)
    assert pace.queue_seconds == 4.0, "the last report counts, and old ones are forgotten"


def test_one_long_wait_predicts_nothing_for_other_trials() -> None:
    pace = TrialCosts(10, [trial(0, Cost(1.0, 0.5), TrialState.COMPLETE, 10)])
    pace.waited(1, 9.0)
    pace.waited(2, 60.0)
    assert (pace.queue_seconds, pace.full_training_seconds) == (0.0, 6.0)
    assert TrialCosts(10, []).full_training_seconds is None, "no cost is known"
    assert TrialCosts(10, []).seconds_until(None, 0, None) == 0.0
