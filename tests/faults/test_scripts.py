"""Scripts as people have them, run by the real command in the environment of a plain shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial

LOOP = """\
import json, sys, time
x = float(sys.argv[1])
for step in range(1, 10):
    time.sleep(0.15)
    print(json.dumps({"step": step, "val_loss": x + 1 / step}))
"""
IN_A_BUFFER = "import sys\nsys.stdout = open(1, 'w', buffering=1 << 20)\n" + LOOP  # as C programs print


class Shell:
    """A plain shell in a folder: PATH and HOME are all that it sets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def search(self, script: str, **fields: Any) -> subprocess.CompletedProcess[str]:
        """Search over a script that gets one parameter as its argument."""
        (self.folder / "script.py").write_text(script)
        space = {
            "version": 1,
            "name": "study",
            "objective": {"command": ["python", "script.py", "${x}"]},
            "metric": "val_loss",
            "parameters": {"x": {"min": 0.0, "max": 1.0}},
            "early_stopping": {"method": "asha", "min": 1, "max": 9, "eta": 3},
            "budget": {"trials": 4},
            "execution": {"workers": 1},
            **fields,
        }
        (self.folder / "space.yaml").write_text(json.dumps(space))
        return self.run("run", "space.yaml", "--no-confirm")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of hpsearch."""
        environment = {name: os.environ[name] for name in ("PATH", "HOME")}
        return subprocess.run(
            [sys.executable, "-m", "hpsearch.search.cli", *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            encoding="utf-8",
        )

    @property
    def trials(self) -> list[FrozenTrial]:
        storage = optuna.storages.RDBStorage(f"sqlite:///{self.folder / 'hpsearch.db'}")
        try:
            return optuna.load_study(study_name="study", storage=storage).trials
        finally:
            storage.engine.dispose()

    def told(self, *words: str) -> Any:
        """What a command tells as JSON."""
        return json.loads(self.run(*words, "--json").stdout)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.slow
def test_a_script_that_does_not_flush_is_stopped_early(shell: Shell) -> None:
    ended = shell.search(LOOP)
    assert ended.returncode == 0, ended.stderr
    assert "in a buffer" not in ended.stdout
    assert "PRUNED" in [trial.state.name for trial in shell.trials]
    report = shell.told("show", "study")
    assert report["consumed"]["used"] == sum(trial.last_step or 0 for trial in shell.trials) < 36


@pytest.mark.slow
def test_what_was_trained_before_its_reports_were_heard_is_counted(shell: Shell) -> None:
    ended = shell.search(IN_A_BUFFER)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("its output is buffered; flush it after each report") == 1
    report = shell.told("show", "study")
    assert report["consumed"]["used"] == report["without_stopping"] == 36, "nothing was saved"
    assert [row["trained"] for row in shell.told("trials", "study")] == [9] * 4
    assert min(row["last_step"] for row in shell.told("trials", "study")) < 9
    assert "without early stopping" not in shell.run("show", "study").stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("print('epoch 3 best val_loss 0.41')", 'another quantity: "epoch 3 best val_loss 0.41"'),
        (
            "print('{\"eval_loss\": 0.4}')",
            "a line looks like a report of eval_loss; the space says val_loss (line 1 of output.log, ",
        ),
        ("import sys; print('no data', file=sys.stderr)", 'standard error ends with "no data"'),
    ],
)
def test_one_training_tells_that_a_script_reports_nothing(shell: Shell, script: str, said: str) -> None:
    ended = shell.search(f"{script}\nopen('begun', 'a').write('.')")
    assert ended.returncode == 1
    assert (shell.folder / "begun").read_text() == "."
    log = shell.folder / "runs" / "study" / "0" / "output.log"
    for each in ('without reporting "val_loss"', said, str(log)):
        assert each in " ".join(ended.stderr.split()), ended.stderr
    assert log.exists()
    assert [trial.state.name for trial in shell.trials] == ["FAIL"]


@pytest.mark.slow
def test_a_script_that_fails_is_quoted(shell: Shell) -> None:
    ended = shell.search(
        "raise SystemExit('usage: x\\nx: error: no --y')", execution={"workers": 1, "retries": 0}
    )
    assert ended.returncode == 1
    said = " ".join(ended.stderr.split())
    assert 'python exited with code 1; standard error ends with "usage: x" / "x: error: no --y"' in said
    assert str(shell.folder / "runs" / "study" / "2" / "output.log") in said


@pytest.mark.slow
def test_a_report_too_many_costs_no_training(shell: Shell) -> None:
    ended = shell.search(LOOP + "print(json.dumps({'step': step, 'val_loss': 7.0}))\n", budget={"trials": 2})
    assert ended.returncode == 0, ended.stderr
    first, _ = shell.trials
    assert (first.state.name, first.last_step, first.value) == ("COMPLETE", 9, first.intermediate_values[9])
    assert ended.stdout.count("which is left out") == 1
    assert "retries" not in first.user_attrs


@pytest.mark.slow
def test_steps_may_begin_at_0(shell: Shell) -> None:
    ended = shell.search(LOOP.replace("range(1, 10)", "range(9)").replace("/ step", "/ (step + 1)"))
    assert ended.returncode == 0, ended.stderr
    assert all(min(trial.intermediate_values) == 0 for trial in shell.trials)
    assert list(shell.trials[0].intermediate_values) == list(range(9))


FAST = """
import os, pathlib, sys
folder = pathlib.Path(os.environ["HPSEARCH_CHECKPOINT"])
with open(folder.parent / "begun", "a") as begun:
    begun.write("x")
x = float(sys.argv[1])
(folder / "state").write_text("done")
print("".join(f"epoch {epoch} val_loss {x + 1 / epoch}\\n" for epoch in range(1, 11)))
"""


@pytest.mark.slow
def test_a_program_faster_than_its_pauses_is_trained_once(shell: Shell) -> None:
    stopping = {"method": "asha", "type": "promotion", "min": 1, "max": 10, "eta": 2}
    ended = shell.search(FAST, budget={"trials": 6}, early_stopping=stopping, confirm={"top": 0})
    assert ended.returncode == 0, ended.stderr
    steps = [list(trial.intermediate_values) for trial in shell.trials]
    assert list(range(1, 11)) in steps and [1] in steps
    for trial in shell.trials:
        assert "retries" not in trial.user_attrs
        assert (shell.folder / "runs" / "study" / str(trial.number) / "begun").read_text() == "x"
