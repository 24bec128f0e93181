"""Lengths of time and numbers of things, as they are said."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hpsearch.search.formatting import counted, position


@pytest.mark.parametrize(
    ("numbers", "said"),
    [(1, "1 step"), (0, "0 steps"), (1200, "1,200 steps"), ((1,), "1 step"), ((1, 3, 9), "1, 3, 9 steps")],
)
def test_one_is_singular(numbers: int | Sequence[int], said: str) -> None:
    assert counted(numbers, "steps") == said


def test_steps_are_named_and_samples_counted() -> None:
    assert [position(1200, unit) for unit in ("steps", "epochs", "samples")] == [
        "step 1,200",
        "epoch 1,200",
        "1,200 samples",
    ]
