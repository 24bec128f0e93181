"""Who has reached which rung, who waits there, and how the best value came about."""

from __future__ import annotations

import pytest

from hpsearch.search.operations.show import ladder
from hpsearch.search.operations.watch import improvements

from ...support.driving import PROMOTION, DrivenStudy, to_rung, trained
from ...support.spaces import small


@pytest.mark.any_storage
def test_a_ladder_has_those_that_wait_and_those_that_went_on(study: DrivenStudy) -> None:
    driver = study.driver(small(early_stopping=PROMOTION))
    for value in (5.0, 6.0, 4.0):
        number, _ = to_rung(driver, 1, value)
    driver.report(number, 3.0, 9, {})
    driver.complete(number, 3.0)
    found = ladder(workspace=study.result().workspace, study="study")
    assert (found.promotion, found.eta, found.last, found.resource) == (True, 3, 9, "steps")
    (bracket,) = found.brackets
    assert bracket.rungs == (1, 3)
    assert [(each.trial, each.state, each.values, each.end) for each in bracket.trials] == [
        (0, "paused", (5.0,), None),
        (1, "paused", (6.0,), None),
        (2, "complete", (4.0, 3.0), 3.0),
    ]


@pytest.mark.any_storage
@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_improvements_are_the_trials_that_were_the_best_at_their_end(study: DrivenStudy, goal: str) -> None:
    driver = study.driver(small(goal=goal, early_stopping={"method": "none", "max": 9}))
    values = (3.0, 5.0, 2.0, 2.0)
    for value in values if goal == "minimize" else [-value for value in values]:
        trained(driver, value)
    found = improvements(workspace=study.result().workspace, study="study")
    assert [(each.trial, abs(each.value), each.complete) for each in found.found] == [
        (0, 3.0, 1),
        (2, 2.0, 3),
    ]
    assert (found.complete, found.goal) == (4, goal)
