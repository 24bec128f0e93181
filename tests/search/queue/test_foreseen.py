"""When studies begin and end: promised, by their pace, or unknown."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hpsearch.search.queue.decide import Entry
from hpsearch.search.queue.foreseen import Progress, Rest, foresee, moment_ahead, rest_of
from hpsearch.search.queue.slots import Machine, Need, Slice

from ...support.spaces import small

MACHINE = Machine((0, 1), memory=10)
NOW = 1000.0


def test_a_budget_of_time_is_a_promise() -> None:
    rest = rest_of(small(budget={"time": 600}).to_json(), Progress(elapsed=100.0))
    assert rest is not None and rest.seconds == 500.0 and rest.low == 450.0 and 530.0 <= rest.high <= 540.0


def test_the_pace_tells_the_rest_of_a_number_of_trials() -> None:
    spec = small(budget={"trials": 10}).to_json()
    assert rest_of(spec, Progress(elapsed=10.0, ended=1)) is None, "one trial is no pace"
    rest = rest_of(spec, Progress(elapsed=40.0, ended=4))
    assert rest is not None and rest.seconds == pytest.approx(51.0), "the start is not done again"
    assert 30 < rest.low < 51 < rest.high < 130
    late = rest_of(spec, Progress(elapsed=90.0, ended=9))
    assert late is not None and late.high - late.low < rest.high - rest.low
    both = rest_of(small(budget={"trials": 10, "time": 50}).to_json(), Progress(40.0, 4))
    assert both is not None and both.seconds == 10.0, "whichever comes first"


def test_more_trials_may_pass_the_rungs_than_was_planned() -> None:
    stopping = {"method": "asha", "min": 1, "max": 39, "eta": 3}
    spec = small(early_stopping=stopping, budget={"trials": 30}, confirm={"top": 0}).to_json()
    for elapsed, ended, trained, begun, running, took in (  # of a search that took 89 s with two workers
        (23.0, 10, 94, 12, 2, 89.0),
        (49.0, 13, 201, 15, 2, 89.0),
        (67.0, 25, 281, 27, 2, 89.0),
        (84.0, 25, 352, 30, 2, 89.0),
    ):
        rest = rest_of(spec, Progress(elapsed, ended, trained, begun, running))
        assert rest is not None and rest.low <= took - elapsed <= rest.high
        assert rest.seconds > 2.0, "it does not end now"
        twice = rest_of(spec, Progress(elapsed, ended, trained, begun, running), slots=2)
        assert twice is not None and twice.seconds == pytest.approx(rest.seconds / 2)


def test_what_is_too_far_ahead_is_unknown() -> None:
    for budget in ({"trials": 999_999_999_999}, {"time": 1e9}):
        assert rest_of(small(budget=budget).to_json(), Progress(elapsed=40.0, ended=4)) is None
    broken: list[dict[str, Any]] = [{}, small().to_json() | {"budget": [1]}]
    assert [rest_of(spec, Progress(elapsed=40.0, ended=4)) for spec in broken] == [None, None]
    assert moment_ahead(NOW + 1e12, NOW) is moment_ahead(math.inf, NOW) is None
    at = moment_ahead(NOW + 60, NOW)
    assert at is not None and at.timestamp() == NOW + 60


def waiting(name: str, since: float, priority: int = 1, need: Need | None = None) -> Entry:
    return Entry(name, priority, since, need or Need(2), key=int(since))


def test_a_queue_is_played_to_its_end() -> None:
    runs = Entry("runs", 1, 0, Need(2), holds=Slice((0, 1)), begun=NOW - 10, preemptible=False)
    found = foresee(
        [
            (runs, Rest(50, 40, 60)),
            (waiting("second", 2), Rest(10, 10, 10)),
            (waiting("first", 1), Rest(100, 80, 120)),
            (waiting("never", 3, need=Need(5)), Rest(1, 1, 1)),
        ],
        MACHINE,
        NOW,
    )
    assert found["runs"].begins == NOW - 10 and found["runs"].ends == NOW + 50
    first, second, never = (found[name] for name in ("first", "second", "never"))
    assert (first.begins, first.begins_low, first.begins_high) == (NOW + 50, NOW + 40, NOW + 60)
    assert (first.ends, first.ends_low, first.ends_high) == (NOW + 150, NOW + 120, NOW + 180)
    assert (second.begins, second.ends) == (NOW + 150, NOW + 160)
    assert never.begins is never.ends is None


def test_nothing_is_foreseen_behind_an_unknown_end() -> None:
    runs = Entry("runs", 1, 0, Need(1), holds=Slice((0,)), begun=NOW)
    found = foresee(
        [(runs, None), (waiting("a", 1), Rest(9, 9, 9)), (waiting("b", 2, need=Need(1)), Rest(9, 9, 9))],
        MACHINE,
        NOW,
    )
    assert found["runs"].ends is None and found["a"].begins is None and found["b"].begins is None


def test_a_preempted_study_ends_later_and_the_other_at_once() -> None:
    runs = Entry("low", 2, 0, Need(2), holds=Slice((0, 1)), begun=NOW - 100, between_reports=5.0)
    found = foresee([(runs, Rest(200, 200, 200)), (waiting("high", 1, 0), Rest(60, 60, 60))], MACHINE, NOW)
    assert found["high"].begins == pytest.approx(NOW + 8.0), "once its trials have reported"
    high = found["high"]
    assert (high.begins_low, high.begins_high) == (NOW, NOW + 24.0), "sooner or later"
    low = found["low"]
    assert low.begins == NOW - 100 and low.ends is not None and 260 < low.ends - NOW < 275


def test_a_study_that_leaves_is_expected_to_leave_soon_and_in_time() -> None:
    runs = Entry("low", 2, 0, Need(2), holds=Slice((0, 1)), begun=NOW - 100, leaving=NOW + 9.0)
    high = foresee([(runs, Rest(200, 200, 200)), (waiting("high", 1, 0), None)], MACHINE, NOW)["high"]
    assert (high.begins, high.begins_low, high.begins_high) == (NOW + 3.0, NOW, NOW + 9.0)
