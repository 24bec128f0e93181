"""What a search that is over says: how to extend it, and how to confirm its winner."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hpsearch.search.cli.commands import words_of
from hpsearch.search.cli.console import PlainConsole
from hpsearch.search.cli.run import _conclude, _finished
from hpsearch.search.results.report import study_report
from hpsearch.search.results.study import StudyResult
from hpsearch.storage.studies import ELAPSED

from ...support.driving import DrivenStudy, asked, trained


def extension_of(result: StudyResult) -> list[str]:
    """What `show` adds to the search's command, as options."""
    last = study_report(result).next_steps[-1]
    assert last.operation == "run" and last.arguments["space"] is None
    return words_of({n: v for n, v in last.arguments.items() if n not in ("space", "name", "backend")})


@pytest.mark.parametrize(
    ("budget", "options"),
    [
        ({"trials": 2}, "--trials 4"),
        ({"trials": 9, "samples": 18}, "--trials 18 --samples 36"),
        ({"trials": 9, "time": 90.0, "target": 0.5}, "--target VALUE"),
    ],
)
def test_a_finished_search_says_what_extends_it(
    study: DrivenStudy, make_spec: Any, budget: dict[str, Any], options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What time or samples end seldom uses all of them; nothing of it waits."""
    stopping = {"method": "none", "max": 9, "resource": "samples"}
    driver = study.driver(make_spec(budget=budget, early_stopping=stopping, confirm={"top": 0}))
    trained(driver, 0.9)
    given = asked(driver)
    assert driver.report(given.number, 0.4, 8, {}) is None
    driver.complete(given.number, 0.4)
    driver.close()
    result = study.result()
    assert extension_of(result) == options.split()
    monkeypatch.setattr(
        "sys.argv", ["hpsearch", "run", "a.yaml", "--trials=9", "--time", "90s", "--seed", "18"]
    )
    kept = [*["--trials=9"] * ("--trials" not in options), *["--time 90s"] * ("--time" not in options)]
    again = " ".join(["hpsearch run a.yaml", *kept, "--seed 18", options])
    assert _finished(result).endswith(f" To extend it: {again}"), "with another seed it would be refused"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"budget": {"trials": 2}}, ["to confirm it: hpsearch run a.yaml --seed 5 --confirm"]),
        (
            {"budget": {"trials": 2, "time": 90.0}},
            ["to confirm it: hpsearch run a.yaml --seed 5 --time 3m --confirm"],
        ),
        ({"budget": {"trials": 1}, "baseline": {"x": 0.5}}, []),
        ({"budget": {"trials": 2}, "confirm": {"top": 0}}, []),
        ({"budget": {"trials": 2}, "confirm": {"top": 1, "seeds": 2}}, []),
        (
            {
                "budget": {"samples": 18},
                "confirm": {"top": 1, "seeds": 2},
                "early_stopping": {"method": "none", "max": 9},
            },
            ["to confirm it: hpsearch run a.yaml --seed 5 --samples 36 --confirm"],
        ),
        (
            {"budget": {"samples": 36}, "early_stopping": {"method": "none", "max": 9}},
            ["to confirm it: hpsearch run a.yaml --seed 5 --samples 117 --confirm"],
        ),
        (
            {"budget": {"trials": 2, "time": 41.0}, "confirm": {"top": 1, "seeds": 2}},
            ["to confirm it: hpsearch run a.yaml --seed 5 --time 90s --confirm"],
        ),
        ({"budget": {"trials": 2, "time": 41.0}, "confirm": {"top": 0}}, []),
    ],
    ids=["trials", "time", "nobody", "not wished", "done", "samples", "used up", "late", "not in time"],
)
def test_a_finished_search_says_how_to_confirm_its_winner_where_the_budget_had_no_room(
    study: DrivenStudy,
    make_spec: Any,
    fields: dict[str, Any],
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same command: with another seed it would be refused, and with other budgets search on."""
    typed = ["--time", "90s", "--seed", "5"] if "time" in fields["budget"] else ["--seed", "5"]
    monkeypatch.setattr("sys.argv", ["hpsearch", "run", "a.yaml", *typed])
    driver = study.driver(make_spec(**{"confirm": {}} | fields))
    while (given := driver.ask()) is not None:
        driver.complete(given.number, 0.5, 40.0)
    driver.close()
    result = study.result()
    console = PlainConsole(record=True, width=200)
    _conclude(console, dataclasses.replace(result, ran=2), ())
    assert [line for line in console.export_text().splitlines() if "to confirm" in line] == told


def test_a_finished_search_counts_the_trials_that_wait_for_more_budget(
    study: DrivenStudy, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that was put back goes on where it stood, when the search is extended."""
    monkeypatch.setattr("sys.argv", ["hpsearch", "run", "a.yaml", "--time", "10s"])
    stopping = {"method": "none", "max": 9, "resource": "samples"}
    spec = make_spec(budget={"time": 10.0}, early_stopping=stopping, confirm={"top": 0})
    driver = study.driver(spec)
    trained(driver, 0.9)
    given = asked(driver)
    driver.request_stop("interrupted")
    driver.requeue(given.number)
    driver.close()
    study.result().study.set_user_attr(ELAPSED, 30.0)
    driver = study.driver(spec)
    assert driver.ask() is None
    driver.finish()
    driver.close()
    result = study.result()
    assert _finished(result).endswith(
        "1 trial waits to be resumed. To extend it: hpsearch run a.yaml --time 40s"
    )


def test_a_budget_below_what_has_run_is_extended_beyond_that(study: DrivenStudy, make_spec: Any) -> None:
    stopping = {"method": "none", "max": 9, "resource": "samples"}
    fields = {"early_stopping": stopping, "confirm": {"top": 0}}
    driver = study.driver(make_spec(**fields, budget={"trials": 3}))
    for value in (0.9, 0.4, 0.5):
        trained(driver, value)
    driver.close()
    result = study.result()
    for budget, options in (
        ({"trials": 1}, "--trials 4"),
        ({"trials": 2, "samples": 13}, "--trials 4 --samples 52"),
    ):
        less = dataclasses.replace(result, spec=make_spec(**fields, budget=budget))
        assert extension_of(less) == options.split()


def test_a_search_whose_time_is_over_says_what_extends_it_though_a_trial_waits(
    study: DrivenStudy, make_spec: Any
) -> None:
    now = 100.0
    driver = study.driver(make_spec(budget={"time": 60.0}), clock=lambda: now)
    asked(driver)
    for now, options in ((130.0, []), (170.0, ["--time", "2m"])):  # noqa: B007  # the clock above
        driver.close()
        result = study.result()
        assert extension_of(result) == options
