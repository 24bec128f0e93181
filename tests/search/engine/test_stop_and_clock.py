"""What a stop leaves of the trials that run or wait, and which seconds count as time of the search."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hpsearch.search.engine import lifecycle
from hpsearch.storage.files import CONFIG, trial_folder
from hpsearch.storage.studies import ELAPSED

from ...support.driving import ERROR, HYPERBAND, DrivenStudy, asked


def test_a_trial_that_fails_while_the_search_is_stopping_keeps_its_retry(
    study: DrivenStudy, make_spec: Any
) -> None:
    driver = study.driver(make_spec(execution={"workers": 1, "retries": 1}))
    asked(driver)
    driver.request_stop("interrupted")
    driver.fail(0, ERROR)
    assert study.states() == ["WAITING"]


def test_no_trial_waits_in_a_search_whose_budget_is_spent(study: DrivenStudy, make_spec: Any) -> None:
    driver = study.driver(make_spec(execution={"workers": 1, "retries": 1}))
    asked(driver)
    driver.stop("the budget is spent")
    driver.fail(0, ERROR)
    assert study.states() == ["FAIL"]


def test_no_trial_waits_for_its_retry_in_a_search_that_is_over(study: DrivenStudy, make_spec: Any) -> None:
    budget = {"trials": 9, "target": 1.0}
    driver = study.driver(make_spec(budget=budget, execution={"workers": 2, "retries": 1}))
    asked(driver), asked(driver)
    driver.fail(1, ERROR)
    assert study.states() == ["RUNNING", "WAITING"]
    driver.complete(0, 0.5)
    assert driver.ask() is None
    driver.finish()
    assert study.states() == ["COMPLETE", "FAIL"]
    assert study.trials()[1].user_attrs["reason"] == ERROR.message


def test_a_stop_ends_trials_at_their_next_report_and_a_request_requeues_them(
    study: DrivenStudy, make_spec: Any
) -> None:
    driver = study.driver(make_spec())
    asked(driver), asked(driver)
    driver.stop("enough")
    assert driver.report(0, 0.5, 1, {}) == "enough"
    driver.request_stop("interrupted")
    assert driver.report(1, 0.5, 1, {}) == "the search is stopping"
    assert driver.ask() is None
    assert study.states() == ["PRUNED", "WAITING"]
    assert study.trials()[0].user_attrs["reason"] == "enough"
    assert driver.stop_reason == "enough"


@pytest.mark.parametrize("pauses", [False, True])
def test_a_trial_at_its_last_step_returns_though_the_search_is_stopping(
    study: DrivenStudy, make_spec: Any, pauses: bool
) -> None:
    """Put back, it would go on from a checkpoint that leaves nothing to train."""
    driver = study.driver(make_spec(early_stopping=HYPERBAND))
    asked(driver)
    if pauses:
        driver.pause()
    else:
        driver.request_stop("interrupted")
    assert driver.report(0, 0.5, 9, {}) is None
    driver.complete(0, 0.5)
    assert study.states() == ["COMPLETE"]


def test_closing_leaves_nothing_running(
    study: DrivenStudy, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = study.driver(make_spec())
    asked(driver)

    def interrupted(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(lifecycle, "document", interrupted)  # in the middle of the next one's beginning
        driver.ask()
    driver.close()
    assert study.states() == ["WAITING", "WAITING"]
    driver = study.driver(make_spec())
    for number in range(4):
        assert asked(driver).number == number
        assert (trial_folder(study.runs, "study", number) / CONFIG).exists()
        driver.complete(number, 1.0)
    assert driver.ask() is None


def test_a_stop_of_an_earlier_search_is_over(study: DrivenStudy, make_spec: Any) -> None:
    driver = study.driver(make_spec())
    study.command(do="stop")
    driver.tick()
    assert driver.stop_reason == "asked by hpsearch stop"
    assert study.driver(make_spec()).ask() is not None


def test_the_time_of_earlier_searches_counts(study: DrivenStudy, make_spec: Any) -> None:
    spec = make_spec(budget={"trials": 9, "time": 100})
    driver = study.driver(spec, begun=time.monotonic() - 60)
    asked(driver)
    driver.tick()
    driver.close()
    assert 60 <= study.driver(spec).elapsed < 90
    driver = study.driver(spec, begun=time.monotonic() - 60)
    driver.tick()
    assert driver.stop_reason == "the time budget of 100 s is spent"


def test_the_clock_is_written_every_five_seconds_and_never_back(study: DrivenStudy, make_spec: Any) -> None:
    now = 100.0
    driver = study.driver(make_spec(), clock=lambda: now)
    asked(driver)
    seen = []
    for now in (100.0, 102.0, 104.9, 105.1, 107.0, 110.0, 110.3):  # noqa: B007  # the clock above
        driver.tick()
        seen.append(float(driver.study.user_attrs.get(ELAPSED, 0.0)))
    assert seen == [0, 0, 0, 5.1, 5.1, 5.1, 10.3]


def test_a_command_that_finds_nothing_to_do_takes_no_time_of_the_search(
    study: DrivenStudy, make_spec: Any
) -> None:
    spec, times = make_spec(budget={"trials": 1}, confirm={"top": 0}), [100.0]
    for begun in (100.0, 200.0):
        driver = study.driver(spec, clock=lambda: times[-1])
        times.append(begun + 7.0)
        while driver.ask() is not None:
            driver.complete(0, 0.5)
        driver.tick()
        driver.close()
        assert driver.study.user_attrs[ELAPSED] == 7.0
