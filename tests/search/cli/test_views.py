"""What tables of trials say."""

from __future__ import annotations

from rich.console import Console

from hpsearch.search.cli.views import _endings
from hpsearch.search.results.trials import Ending


def test_the_rest_of_a_reason_follows_what_trials_share() -> None:
    console = Console(width=100)
    script = "sh exited with code 3"
    with console.capture() as drawn:
        console.print(
            _endings(
                [
                    Ending("failed", script, "fail", [0, 1], f"{script}; its output is in x"),
                    Ending("failed", script, "fail", [2], script),
                    Ending("failed", "ValueError", "fail", [3], "ValueError: no"),
                ]
            )
        )
    lines = [line.rstrip() for line in drawn.get().splitlines()]
    assert [line.partition("trial")[2] for line in lines] == ["s 0, 1: its output is in x", " 2", " 3: no"]
