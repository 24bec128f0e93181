"""What a search looks like while it runs."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpsearch.search.cli.console import PlainConsole
from hpsearch.search.cli.progress import LineProgress, ending_line, picture, sparkline
from hpsearch.search.engine.driver import Driver
from hpsearch.search.engine.watcher import SearchView
from hpsearch.search.formatting import ENDING
from hpsearch.search.service.client.following import FollowedSearch
from hpsearch.spaces import Spec

from ...support.driving import DrivenStudy

WIDE = {f"a_parameter_with_a_long_name_{i}": {"min": 0.0, "max": 1.0} for i in range(4)}


@pytest.fixture
def lines() -> LineProgress:
    return LineProgress(PlainConsole(file=io.StringIO(), width=60))


@pytest.fixture
def driver(make_spec: Callable[..., Spec], lines: LineProgress, tmp_path: Path) -> Iterator[Driver]:
    """A search of wide configurations, with one trial ended and one running."""
    spec = make_spec(parameters=WIDE, early_stopping={"method": "none", "max": 1800})
    study = DrivenStudy(tmp_path, lines)
    driver = study.driver(spec)
    for _ in range(2):
        assert driver.ask() is not None
    driver.complete(0, 1.25)
    for step, value in ((600, 3.0), (1200, 2.0)):
        assert driver.report(1, value, step, {}) is None
    yield driver
    study.close()


def drawn(search: SearchView, width: int) -> list[str]:
    console = PlainConsole(file=io.StringIO(), width=width)
    console.print(picture(search))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [50, 80, 120])
def test_a_narrow_terminal_shortens_parameters_alone(driver: Driver, width: int) -> None:
    shown = drawn(driver, width)
    assert all(len(line) <= width for line in shown)
    assert shown[-3].split()[:4] == ["trial", "at", "last", "curve"]
    assert shown[-2].split()[:4] == ["1", "1,200/1,800", "2.0000", "█▁"]
    assert shown[-1] == "", "the ^C of a terminal lands on the last line"
    assert "1 running" in shown[0]
    assert "1.2500 by trial 0" in shown[2]


def test_the_time_left_is_not_told_by_trials_that_are_over(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the best train again."""
    monkeypatch.setattr(Driver, "elapsed", 60.0)
    assert "1/4  1:00 elapsed  1.0 trials/min  about 3:00 left" in drawn(driver, 120)[1]
    driver.complete(1, 2.0)
    for number in (2, 3):
        assert driver.ask() is not None
        driver.complete(number, 3.0)
    assert "4/4  1:00 elapsed  4.0 trials/min" in drawn(driver, 120)[1]
    assert "left" not in drawn(driver, 120)[1]


def test_a_stop_is_said_and_what_ctrl_c_does_then(driver: Driver) -> None:
    followed = FollowedSearch("study", driver.spec)
    searches: tuple[Driver | FollowedSearch, ...] = (driver, followed)
    for search in searches:
        search.stop_reason = "stopped by anna"
        assert "stopping stopped by anna" in [" ".join(line.split()) for line in drawn(search, 120)]
    driver.request_stop("interrupted by SIGINT")
    assert "; Ctrl-C ends them now" in " ".join(drawn(driver, 120))


def test_a_trial_that_ended_is_a_line(driver: Driver, lines: LineProgress) -> None:
    assert isinstance(lines.console.file, io.StringIO)
    line = lines.console.file.getvalue()
    assert line == "trial 0   complete    1.2500  best so far  [1/4]\n"
    assert ENDING.match(line)
    assert ending_line(driver, driver.trials[0]).plain == "trial 0   complete    1.2500  best so far  [1/4]"


def test_the_same_is_not_said_again_at_once(lines: LineProgress) -> None:
    for _ in range(3):
        lines.say("the database is away")
    lines.say("it is back")
    assert isinstance(lines.console.file, io.StringIO)
    assert lines.console.file.getvalue().splitlines() == ["the database is away", "it is back"]


def test_sparklines() -> None:
    assert sparkline([]) == ""
    assert sparkline([2.0]) == "▁"
    assert sparkline([1.0, 1.0]) == "▁▁"
    assert sparkline([0.0, 7.0, 3.0]) == "▁█▄"


def test_what_is_no_number_leaves_a_gap_in_a_row_of_bars() -> None:
    assert sparkline([1.0, float("nan"), 2.0, float("inf"), float("-inf")]) == "▁ █  "
    assert sparkline([float("nan")]) == " "
