"""How a search begins: what it calls its objective, and how often it checks its space."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search import run
from hpsearch.search.cli.options import given_space
from hpsearch.search.errors import UsageError
from hpsearch.search.operations.run import _name_of
from hpsearch.spaces import Spec

from ...support.watchers import Recorder

SPACE = """
version: 1
name: s
objective: obj.py:train
metric: loss
parameters: {x: {min: 0.0, max: 1.0}}
execution: {workers: 1}
"""


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


@pytest.mark.slow
def test_a_space_is_checked_once_and_that_of_the_study_where_it_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(SPACE)
    Path("obj.py").write_text("def train(trial):\n    return trial.params['x']\n")
    check, checks = Spec.check, list[Any]()

    def counted(*given: Any, **more: Any) -> Spec:
        checks.append(given)
        return check(*given, **more)

    monkeypatch.setattr(Spec, "check", counted)
    for trials, expected in ((2, 1), (3, 2)):
        spec = given_space("s.yaml", {"trials": trials, "seed": 5, "confirm": False})
        assert (spec.budget.trials, spec.search.seed, spec.confirm.top) == (trials, 5, 0)
        assert len(run(spec, storage="s.db", watcher=Recorder()).trials) == trials
        assert len(checks) == expected
        checks.clear()
