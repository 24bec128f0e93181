"""A trial as ranks other than 0 see it."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import pytest

from hpsearch.objectives import TrialStopped
from hpsearch.search.backends.worker.ranks import SiblingTrial


def test_a_step_again_is_left_out_as_by_rank_0(tmp_path: Path) -> None:
    """Which tells nobody of it: whoever waited for its word would wait for ever."""
    answers: queue.Queue[Any] = queue.Queue()
    message = {
        "number": 0,
        "params": {},
        "seed": 1,
        "checkpoint": str(tmp_path),
        "resumes": False,
        "reported": 0,
        "last_value": None,
    }
    trial = SiblingTrial({**message, "attempt": 1}, answers)
    answers.put({"attempt": 1, "step": 3, "stop": False})
    trial.report(1.0, step=3)
    trial.report(0.5, step=3)
    answers.put({"attempt": 1, "step": 4, "stop": True})
    with pytest.raises(TrialStopped):
        trial.report(0.5, step=4)
