"""Budgets of a target and of the resource: what counts, what is reserved, and when a search ends by them."""

from __future__ import annotations

from typing import Any

import pytest

from hpsearch.search.results.report import study_report

from ...support.driving import ERROR, DrivenStudy, asked, trained


def test_a_target_that_is_reached_stays_reached(study: DrivenStudy, make_spec: Any) -> None:
    spec = make_spec(budget={"trials": 9, "target": 0.5}, goal="maximize")
    driver = study.driver(spec)
    asked(driver)
    driver.complete(0, 0.25)
    assert driver.stop_reason is None
    asked(driver)
    driver.complete(1, 0.75)
    assert driver.stop_reason == "trial 1 reached the target 0.5"
    assert study.driver(spec).ask() is None
    assert study.driver(make_spec(budget={"trials": 9, "target": 0.8}, goal="maximize")).ask() is not None


def test_a_budget_of_the_resource_counts_each_step_once_over_attempts_and_resumes(
    study: DrivenStudy, make_spec: Any
) -> None:
    spec = make_spec(budget={"samples": 9}, execution={"workers": 2, "retries": 1})
    driver = study.driver(spec)
    for _ in range(2):
        asked(driver)
    driver.report(0, 0.5, 2, {})
    driver.report(1, 0.5, 1, {})
    driver.report(1, 0.4, 3, {})
    driver.fail(0, ERROR)
    assert asked(driver).number == 0
    driver.report(0, 0.5, 2, {})
    assert driver.consumed == 5
    driver = study.driver(spec)
    assert driver.consumed == 5
    for _ in range(2):
        asked(driver)
    assert driver.report(1, 0.3, 3, {}) is None
    assert driver.report(0, 0.3, 5, {}) is None
    assert driver.consumed == sum(t.last_step or 0 for t in study.trials()) == 8
    assert driver.report(1, 0.3, 4, {}) == "the budget of 9 steps is spent"
    assert driver.ask() is None


def test_a_trial_that_reports_nothing_costs_a_whole_training(study: DrivenStudy, make_spec: Any) -> None:
    spec = make_spec(budget={"samples": 20}, early_stopping={"method": "none", "max": 9})
    driver = study.driver(spec)
    for given in (asked(driver), asked(driver)):
        driver.complete(given.number, 0.5)
    assert driver.consumed == 18
    driver.close()
    driver = study.driver(spec)
    assert driver.consumed == 18
    driver.complete(asked(driver).number, 0.4)
    assert driver.ask() is None
    assert driver.stop_reason == "the budget of 20 steps is spent"
    driver.close()
    report = study_report(study.result())
    assert (report.consumed.used, report.without_stopping) == (27, 27)


def test_a_budget_of_samples_reserves_the_confirmation(study: DrivenStudy, make_spec: Any) -> None:
    """Of 90 samples 4 trainings of 9 are kept, so the search ends after 6."""
    stopping = {"method": "none", "max": 9, "resource": "samples"}
    spec = make_spec(
        budget={"samples": 90}, early_stopping=stopping, confirm={"top": 2, "seeds": 2}, baseline=None
    )
    driver = study.driver(spec)
    first = [trained(driver, 0.1 * n) for n in range(6)]
    again = [trained(driver, 0.1) for _ in range(4)]
    assert driver.ask() is None
    assert [t.user_attrs.get("confirms") for t in study.trials()] == [None] * 6 + [0, 1, 0, 1]
    assert driver.consumed == 90 and len(first) + len(again) == 10
    assert driver.stop_reason == "the budget of 90 samples is spent; the rest is for the confirmation"
    driver.close()
    report = study_report(study.result())
    assert (report.states, report.confirming, report.trials.used) == ({"complete": 10}, 4, 6)
    assert report.without_stopping == report.consumed.used, "what confirms is in both"


@pytest.mark.parametrize(
    ("samples", "found", "confirmed"),
    [
        (99, [], []),  # two trainings are kept back for a further winner
        (126, [0.9, 0.8], []),
        (126, [0.9, -0.1], [11, 11]),
        (126, [-0.1, -0.2], [11, 11]),  # of two new ones the better, as there is no room for both
        (162, [0.9, 0.8, -0.1, -0.2], [13, 12, 13, 12]),
    ],
)
def test_a_budget_of_samples_that_is_extended_has_the_rest_for_its_search_and_for_a_new_winner(
    study: DrivenStudy, make_spec: Any, samples: int, found: list[float], confirmed: list[int]
) -> None:
    stopping = {"method": "none", "max": 9, "resource": "samples"}
    fields: dict[str, Any] = {"early_stopping": stopping, "confirm": {"top": 2, "seeds": 2}, "baseline": None}
    driver = study.driver(make_spec(budget={"samples": 90}, **fields))
    for number in range(10):
        trained(driver, 0.1 * number)
    assert driver.ask() is None
    driver.close()
    values = iter(found)
    for _ in range(2):  # the second time there is nothing left to do
        driver = study.driver(make_spec(budget={"samples": samples}, **fields))
        while (given := driver.ask()) is not None:
            confirms = "confirms" in driver.trials[given.number].user_attrs
            value = 0.0 if confirms else next(values)
            driver.report(given.number, value, 9, {})
            driver.complete(given.number, value)
        driver.close()
    added = study.trials()[10:]
    assert [t.value for t in added if "confirms" not in t.user_attrs] == found
    assert [t.user_attrs["confirms"] for t in added if "confirms" in t.user_attrs] == confirmed
    assert driver.consumed <= samples
