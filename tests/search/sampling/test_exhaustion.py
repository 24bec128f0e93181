"""A search whose space has no configuration left, or none that its constraints allow."""

from __future__ import annotations

from typing import Any

import pytest

from hpsearch.search.cli.run import _finished
from hpsearch.search.errors import SearchError
from hpsearch.search.results.report import study_report

from ...support.driving import DrivenStudy, trained


def test_impossible_constraints_end_the_search_and_make_no_further_trial(
    study: DrivenStudy, make_spec: Any
) -> None:
    spec = make_spec(constraints=["x > 0.25", "x * 1e9 < 1 or x == 0.5"])
    for _ in range(2):
        driver = study.driver(spec)
        with pytest.raises(SearchError, match=r"1000 proposals in a row were refused, .* of: x "):
            driver.ask()
        driver.close()
    assert study.states() == ["WAITING"]


@pytest.mark.parametrize("sampler", ["tpe", "random", "rung_gp", "cmaes"])
def test_no_configuration_is_tried_twice_and_a_search_ends_with_the_last(
    study: DrivenStudy, make_spec: Any, sampler: str
) -> None:
    parameters = {"x": {"min": 1, "max": 6}, "kind": ["a", ["b"]], "y": 3}
    constraints = ["x < 6"]
    driver = study.driver(
        make_spec(
            parameters=parameters,
            constraints=constraints,
            budget={"trials": 30},
            search={"sampler": sampler, "seed": 0},
            confirm={"top": 0},
        )
    )
    while (given := driver.ask()) is not None:
        driver.complete(given.number, float(given.params["x"]))
    tried = [tuple(sorted(t.params.items())) for t in study.trials()]
    assert len(tried) == len(set(tried)) == 10
    assert driver.ask() is None
    assert study.watcher.said.count("every configuration of the space has been tried") == 1
    driver.close()
    result = study.result()
    assert study_report(result).exhausted
    assert (
        _finished(result) == 'the study "study" is finished: every configuration of its space has been tried'
    )


@pytest.mark.parametrize(("sampler", "seed"), [("tpe", 3), ("rung_gp", 4)])
def test_what_constraints_leave_of_a_small_space_is_found(
    study: DrivenStudy, make_spec: Any, sampler: str, seed: int
) -> None:
    """Of 900 configurations one, which the thousand proposals of these seeds miss."""
    each = {"min": 1, "max": 30}
    search = {"sampler": sampler, "seed": seed}
    constraints = ["x == 7", "y == 8"]
    driver = study.driver(
        make_spec(parameters={"x": each, "y": each}, constraints=constraints, search=search)
    )
    assert trained(driver, 1.0).params == {"x": 7, "y": 8}
    assert driver.ask() is None
