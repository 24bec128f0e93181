"""What a study calls an objective that is handed over as it is."""

from __future__ import annotations

import functools
import threading
from typing import Any

import pytest

from hpsearch.search.errors import UsageError
from hpsearch.search.operations.run import _name_of


def train(factor: float, trial: Any) -> float:
    return factor * float(trial.params["x"])


class Training:
    def __call__(self, trial: Any) -> float:
        return float(trial.params["x"])


@pytest.mark.parametrize(
    ("objective", "name"),
    [(train, "train"), (functools.partial(train, 2.0), "train"), (Training(), "Training")],
)
def test_what_can_be_called_has_a_name(objective: Any, name: str) -> None:
    assert _name_of(objective) == f"{__name__}:{name}"


@pytest.mark.parametrize("objective", [threading.Lock(), {"a": 1}, 5])
def test_what_cannot_be_called_is_refused(objective: Any) -> None:
    with pytest.raises(UsageError, match="it must be a function that takes a trial"):
        _name_of(objective)
