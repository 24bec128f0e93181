"""Messages to an objective that is written for another tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search.trials.trial import LocalTrial


@pytest.mark.parametrize(
    ("objective", "error", "said"),
    [
        (lambda trial: trial.suggest_float("x", 0, 1), AttributeError, 'no "suggest_float"; .* for Optuna'),
        (lambda trial: trial.set_user_attr("a", 1), AttributeError, 'no "set_user_attr"; .* for Optuna'),
        (lambda config: config["lr"], TypeError, r'as Ray Tune.*trial.params\["lr"\]'),
        (lambda config: config.lr, AttributeError, 'no "lr"; parameters are in trial.params'),
    ],
)
def test_objectives_of_other_tools_get_a_message_that_says_what_to_write(
    tmp_path: Path, objective: Callable[[Any], Any], error: type[Exception], said: str
) -> None:
    trial = LocalTrial(
        params={"lr": 1.0},
        seed=0,
        folder=tmp_path,
        sealed=False,
        on_report=lambda report: None,
        say=print,
    )
    with pytest.raises(error, match=said):
        objective(trial)
