"""The callbacks of libraries' training loops: in functions, in commands, and outside a search."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpsearch.objectives.base import TrialStopped
from hpsearch.objectives.user.command import CommandObjective

from ..hand_trial import HandTrial
from . import programs

STEPS, EPOCHS = programs.STEPS, programs.EPOCHS
own_warnings = pytest.mark.filterwarnings("default")  # Lightning's, of its own code and of a small program's
LIBRARIES = [
    pytest.param("transformers", STEPS, marks=pytest.mark.extras("transformers")),
    pytest.param("lightning", 1, marks=[pytest.mark.extras("lightning", "pytorch_lightning"), own_warnings]),
    pytest.param("keras", 1, marks=pytest.mark.slow),
]
each_library = pytest.mark.parametrize(("library", "unit"), LIBRARIES)


def train(library: str, folder: Path, stop_at: int | None = None, **options: Any) -> HandTrial:
    trial = HandTrial({}, folder, stop_at=stop_at)
    try:
        getattr(programs, library)(folder, trial, **options)
    except TrialStopped:
        assert trial.reports[-1][0] == stop_at
    else:
        assert stop_at is None
    return trial


@each_library
def test_a_function_reports_what_is_saved_and_ends_where_the_search_ends_it(
    library: str, unit: int, tmp_path: Path
) -> None:
    whole = train(library, tmp_path / "whole")
    begun = train(library, tmp_path / "begun", stop_at=3 * unit)
    resumed = train(library, tmp_path / "begun")
    assert [step for step, _ in whole.reports] == [unit * n for n in range(1, EPOCHS + 1)]
    assert whole.reports[-1][1] < whole.reports[0][1]
    assert begun.reports == whole.reports[:3]
    # The checkpoint of a report is saved before it: nothing is trained twice.
    assert [step for step, _ in resumed.reports] == [step for step, _ in whole.reports[3:]]
    losses = [[value for _, value in each.reports] for each in (resumed, whole)]
    assert losses[0] == pytest.approx(losses[1][3:], rel=0.2)  # Keras shuffles anew
    assert all("loss" in metrics for metrics in whole.metrics)


@each_library
def test_a_command_reports_and_ends_in_its_loop(library: str, unit: int, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    command = ["python", programs.__file__, library, "${checkpoint}"]
    trial = HandTrial({}, folder, stop_at=2 * unit)
    with pytest.raises(TrialStopped):
        CommandObjective(command, "whatever")(trial)
    assert [step for step, _ in trial.reports] == [unit, 2 * unit]
    assert (folder / "ended").read_text() == "None"  # by an exception: `finally` ran
    resumed = HandTrial({}, folder)
    value = CommandObjective(command, "whatever")(resumed)
    assert resumed.reports[-1] == (unit * EPOCHS, value)
    assert resumed.reports[0][0] > unit


@each_library
def test_outside_a_search_nothing_is_reported(
    library: str,
    unit: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in [name for name in os.environ if name.startswith("HPSEARCH")]:
        monkeypatch.delenv(name)
    assert getattr(programs, library)(tmp_path) < 3
    assert '"hpsearch"' not in capfd.readouterr().out


@each_library
def test_a_metric_that_is_never_logged_is_told_with_what_is(library: str, unit: int, tmp_path: Path) -> None:
    option = "metric" if library == "transformers" else "monitor"
    with pytest.raises(
        ValueError, match=r'does not log "(val|eval)_los", did you mean "(val|eval)_loss"\?; it'
    ):
        train(library, tmp_path, None, **{option: "eval_los" if library == "transformers" else "val_los"})


@pytest.mark.extras("transformers")
def test_a_trainer_that_evaluates_once_at_its_end_reports_once(tmp_path: Path) -> None:
    trial = train("transformers", tmp_path, when="no")
    assert [step for step, _ in trial.reports] == [EPOCHS * STEPS]


@pytest.mark.extras("transformers")
def test_a_trainer_reports_its_training_loss_and_counts_epochs(tmp_path: Path) -> None:
    losses = train("transformers", tmp_path / "loss", metric="loss", unit="epochs", when="no")
    assert [step for step, _ in losses.reports] == [*range(1, EPOCHS + 1)]
    begun = train("transformers", tmp_path / "steps", unit="epochs", when="steps", save="steps", stop_at=2)
    assert [step for step, _ in begun.reports] == [1, 2]


@pytest.mark.extras("lightning", "pytorch_lightning")
@own_warnings
def test_lightning_reports_each_value_once(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for options, steps in (
        ({"monitor": "loss"}, [*range(1, EPOCHS + 1)]),
        ({"unit": "steps"}, [STEPS * n for n in range(1, EPOCHS + 1)]),
        ({"package": "pytorch_lightning"}, [*range(1, EPOCHS + 1)]),
    ):
        with subtests.test(options=options):
            trial = train("lightning", tmp_path / str(options), None, **options)
            assert [step for step, _ in trial.reports] == steps


def test_a_missing_library_is_named() -> None:
    code = """
import sys
for name in ("transformers", "keras", "lightning", "pytorch_lightning"):
    sys.modules[name] = None
from hpsearch.objectives import callbacks
for name in callbacks.__all__:
    try:
        getattr(callbacks, name)
    except ImportError as error:
        print(error)
try:
    callbacks.Other
except AttributeError as error:
    print(error)
"""
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert [line.rpartition(": ")[2] for line in printed.splitlines()][:3] == [
        "pip install keras",
        "pip install lightning",
        "pip install transformers",
    ]
    assert "has no attribute 'Other'" in printed


def test_what_is_no_trial_is_refused() -> None:
    from hpsearch.objectives.callbacks.reporter import Reporter

    with pytest.raises(
        TypeError, match="the first argument of a callback is the trial of a function, not 'val_loss'"
    ):
        Reporter("val_loss")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unit is 'step'; allowed: steps, epochs"):
        Reporter(None, "step")


def test_reports_go_on_a_line_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hpsearch.objectives.callbacks.reporter import Reporter

    monkeypatch.setenv("HPSEARCH_TRIAL", "3")
    reporter = Reporter(None)
    reporter.see({"loss": 0.5, "step": 7, "name": "text", "": 1.0, "best": True})
    reporter.note("loss", 0.5, 1)
    reporter.note("loss", 0.25, 2)
    for _ in range(2):
        reporter.flush()
    reporter.note("loss", 0.125, 2)  # again
    reporter.flush()
    reporter.note("loss", 0.125, 3)
    reporter.flush(leads=False)  # another process of the same training
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line]
    assert printed == [{"hpsearch": "report", "step": 2, "value": 0.25}]
