"""`hpsearch plan` foresees a search, and `hpsearch run --time` ends one with a winner that is confirmed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hpsearch.search.cli import main
from hpsearch.search.cli.app import app
from hpsearch.search.cli.options import given_space

from ...support.bench import HPSEARCH
from ...support.outputs import check_output

SECONDS = {"broken": "60", "silent": "2", "starts": "20", "diverges": "60"}  # of the measurement, at most
FUNCTION = """
import time


def train(trial):
    for step in range(1, 10):
        time.sleep(0.02)
        trial.report((trial.params["x"] - 0.3) ** 2 + 1 / step, step=step)
    return (trial.params["x"] - 0.3) ** 2


def silent(trial):
    time.sleep(600)


def starts(trial):
    trial.report(1.0, step=1)
    time.sleep(600)


def mute(trial):
    time.sleep(0.05)
    return trial.params["x"]


def late(trial):
    time.sleep(0.05)
    trial.report(trial.params["x"], step=9)
    return trial.params["x"]


def short(trial):
    for step in range(1, 6):
        time.sleep(0.05)
        trial.report(trial.params["x"], step=step)
    return trial.params["x"]


def sparse(trial):
    for step in range(1, 10):
        time.sleep(0.05)
        if step % 4 == 0:
            if trial.params["keeps"]:
                (trial.checkpoint / "step").write_text(str(step))
            trial.report(trial.params["x"], step=step)
    return trial.params["x"]


def diverges(trial):
    trial.report(float("nan"), step=1)


def broken(trial):
    raise ValueError("no such file")
"""
SPACE: dict[str, Any] = {
    "version": 1,
    "name": "small",
    "objective": "function.py:train",
    "metric": "loss",
    "parameters": {"x": {"min": 0.0, "max": 1.0}},
    "baseline": {"x": 0.9},
    "search": {"sampler": "random"},
    "early_stopping": {"method": "asha", "min": 1, "max": 9, "eta": 3},
    "budget": {"trials": 30},
    "execution": {"workers": 1},
}


def write(folder: Path, fields: dict[str, Any]) -> None:
    (folder / "function.py").write_text(FUNCTION)
    (folder / "space.yaml").write_text(json.dumps(SPACE | fields))


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command in this process, which has loaded all of it: its exit code, its output, its errors."""

    def run(*words: str, **fields: Any) -> tuple[int, str, str]:
        write(tmp_path, fields)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["hpsearch", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


def predicted(folder: Path, *options: str, **fields: Any) -> Any:
    """What `hpsearch plan --json` prints, called in this process, which has loaded all of it."""
    write(folder, fields)
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, ["plan", "space.yaml", "--measure", "60", "--json", *options])
    assert done.exception is None, done.exception
    found = json.loads(done.stdout)
    check_output("plan", found)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_plan_that_is_ended_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "function.py").write_text(FUNCTION)
    (tmp_path / "space.yaml").write_text(json.dumps(SPACE | {"objective": "function.py:silent"}))
    aside = tmp_path / "aside"
    aside.mkdir()
    planning = subprocess.Popen(
        [HPSEARCH, "plan", "space.yaml"], cwd=tmp_path, env=os.environ | {"TMPDIR": str(aside)}
    )
    while not any(path.is_dir() for path in aside.iterdir()):  # Python tries the folder with a file, earlier
        assert planning.poll() is None
        time.sleep(0.05)
    planning.send_signal(number)
    assert planning.wait(60) == 130
    assert not any(aside.iterdir())


@pytest.mark.slow
def test_a_search_is_foreseen(tmp_path: Path, command: Any) -> None:
    code, shown, errors = command("plan", "space.yaml", "--measure", "60", audit=1.0)
    assert code == 0, errors
    words = ("small  30 trials", "a training", "memory", "the end of a training", "audit   ", "the budget")
    for word in words:
        assert word in shown
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"function.py", "space.yaml"}
    found = predicted(tmp_path, "--trials", "9")
    assert [each["step"] for each in found["rungs"]] == [1, 3, 9]
    assert (found["trials"], found["workers"], found["ends_by"]) == (9, 1, "trials")
    assert found["ends"][0] <= found["end"] <= found["ends"][1]
    assert found["measured"]["training"] > 0.18, "nine times 0.02 seconds of sleep"
    assert found["measured"]["memory"] > 10_000_000, "a process of Python"
    assert any("too small to confirm" in remark for remark in found["remarks"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "message"),
    [("broken", "every configuration that was tried failed: ValueError: no such file"),
     ("silent", "could not estimate the time of a training: none reported within 2 s"),
     ("starts", "none reported twice within 16 s"),
     ("diverges", "every configuration that was tried failed: diverged: loss at 1 was nan")],
)  # fmt: skip
def test_what_cannot_be_measured_is_said(command: Any, function: str, message: str) -> None:
    objective = f"function.py:{function}"
    code, _, errors = command("plan", "space.yaml", "--measure", SECONDS[function], objective=objective)
    assert code == 1
    assert message in errors


@pytest.mark.parametrize("function", ["mute", "late"])
def test_early_stopping_of_what_reports_nothing_is_foreseen(tmp_path: Path, function: str) -> None:
    found = predicted(tmp_path, "--audit", objective=f"function.py:{function}")
    assert found["complete"] == found["trials"] == 30
    assert found["remarks"][0] == (
        "the objective reports nothing before its end, so early stopping has nothing to go by"
    )


def test_trainings_that_end_sooner_than_their_space_says_are_foreseen_so(tmp_path: Path) -> None:
    found = predicted(tmp_path, objective="function.py:short")
    assert [each["step"] for each in found["rungs"]] == [1, 3, 5]
    assert found["measured"]["training"] > 0.25, "five times 0.05 seconds"
    assert "trainings end at step 5, but early_stopping.max is 9" in found["remarks"]


@pytest.mark.parametrize("keeps", [True, False])
def test_reports_sparser_than_rungs_and_trials_without_checkpoints_are_foreseen(
    tmp_path: Path, keeps: bool
) -> None:
    found = predicted(
        tmp_path,
        objective="function.py:sparse",
        parameters=SPACE["parameters"] | {"keeps": keeps},
        early_stopping=SPACE["early_stopping"] | {"type": "promotion"},
    )
    assert [each["trials"] for each in found["rungs"][:2]] == [30, 30], "one report brings them to both"
    once = (
        "trials leave no checkpoint with their reports, so they cannot pause: each is stopped or kept once, "
    )
    assert (once + "as with type: stopping" in found["remarks"]) is not keeps


def test_the_budget_that_binds_is_the_one_to_raise(tmp_path: Path) -> None:
    words = ("--samples", "5", "--trials", "50")
    remarks = predicted(tmp_path, *words)["remarks"]
    assert "only one trial finishes, so there is nothing to compare it with: --samples 90" in remarks
    remarks = predicted(tmp_path, *words, "--confirm")["remarks"]
    alone = next(remark for remark in remarks if "only one trial finishes" in remark)
    assert alone.endswith("--samples 198"), "and twelve trainings that confirm"


@pytest.mark.slow
def test_a_search_of_some_time_confirms_its_winner(tmp_path: Path) -> None:
    """Its time begins with its process."""
    write(tmp_path, {})
    words: list[str | Path] = [HPSEARCH, "run", "space.yaml", "--plain", "--time", "20s", "--trials", "5000"]
    told = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    assert "stopped: the time budget of 20 s is spent; the rest is for the confirmation" in told.stdout
    assert "trains trial 0 again" in told.stdout


@pytest.mark.slow
def test_a_confirmation_is_done_where_it_is_asked_for(command: Any) -> None:
    """Whatever the space says, and however short the search is."""
    fields = {"budget": {"trials": 2}, "confirm": {"top": 0}, "early_stopping": {"method": "none"}}
    code, shown, errors = command("run", "space.yaml", "--confirm", "--plain", **fields)
    assert code == 0, errors
    assert "trained again with 3 new seeds" in shown
    assert "no seed changed a value" in shown


def test_when_a_process_began_is_known_to_a_tick() -> None:
    """Also where the time of the boot is known in whole seconds alone."""
    told = "from hpsearch.search.cli.options import process_began; print(process_began())"
    before = time.monotonic()
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert before - 0.02 <= float(done.stdout) <= time.monotonic()


@pytest.mark.parametrize(
    ("top", "audit", "asked", "changed"),
    [
        (0, 0.0, True, (3, 0.03)),
        (None, None, True, (3, 0.03)),
        (5, 0.1, True, (5, 0.1)),
        (5, 0.1, False, (0, 0.0)),
        (None, None, None, (None, None)),
    ],
)
def test_options_ask_for_a_confirmation_and_an_audit(
    tmp_path: Path, top: int | None, audit: float | None, asked: bool | None, changed: tuple[Any, Any]
) -> None:
    space = tmp_path / "s.yaml"
    space.write_text(json.dumps(SPACE | {"confirm": {"top": top, "seeds": 2}, "audit": audit}))
    spec = given_space(str(space), {"confirm": asked, "audit": asked})
    assert (spec.confirm.top, spec.audit) == changed
    assert spec.confirm.seeds == 2
