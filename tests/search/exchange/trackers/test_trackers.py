"""The contract of trackers: each has every curve once and whole, whatever happened to its search."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial

from hpsearch.objectives.catalog import Requirements
from hpsearch.search.cli import main
from hpsearch.search.exchange.trackers.base import TrackedRun
from hpsearch.search.exchange.trackers.factory import make_tracker
from hpsearch.search.exchange.trackers.tensorboard import events
from hpsearch.search.exchange.trackers.thread import TrackerThread
from hpsearch.search.preflight import requirements
from hpsearch.search.preflight.requirements import check_extras
from hpsearch.search.trials.reports import Report
from hpsearch.spaces import SpaceError
from hpsearch.spaces.settings import TRACKERS

from ....support.remote import wait_for

# MLflow asks SQLAlchemy for what the next version of it will not have.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
KINDS = [pytest.param(name, marks=pytest.mark.slow if name != "tensorboard" else ()) for name in TRACKERS]
BEGAN = datetime(2026, 11, 23, tzinfo=UTC)


def run(upto: int, state: str = "running", value: float | None = None, **about: Any) -> TrackedRun:
    reports = [Report(step, 1 / step, {"half": 0.5 / step, "loss": 7.0}) for step in range(1, upto + 1)]
    parameters = {"lr": 1e-3, "kind": "a", "modules": ["q", "v"], "on": True, "nothing": None, "odd name?": 1}
    ended = BEGAN if state in ("complete", "pruned", "fail") else None
    return TrackedRun(
        "trial-0003", "loss", parameters, reports, state, value, {"trial": 3, **about}, BEGAN, ended
    )


# Each tracker


@pytest.mark.parametrize("name", KINDS)
def test_a_run_is_there_once_whichever_process_wrote_it(name: str, tmp_path: Path, read: Any) -> None:
    """A second process goes on with it, a third finds nothing to do, a fourth tries it again."""
    for shown in [
        [run(2), run(3), run(3, "paused"), run(4)],
        [run(4), run(40), run(40, "fail", reason="lost"), run(40, "fail", reason="lost")],
        [run(40, "fail", reason="lost")],
        [run(40, "waiting"), run(45), run(50, "complete", 0.25)],
        [run(50, "complete", 0.25)],
    ]:
        writer = make_tracker(name, tmp_path, "study-1")
        for each in shown:
            writer.write(each)
        writer.close()
    other = make_tracker(name, tmp_path, "study-2")
    other.write(replace(run(5, "complete", 0.5), name="trial-0004"))
    other.close()
    found = read(name, tmp_path)
    assert len(found.pop("trial-0004").curve) == 5, "another study has the same folder"
    [(number, seen)] = found.items()
    assert number == "trial-0003"
    assert seen.curve == [(step, pytest.approx(1 / step)) for step in range(1, 51)]
    assert seen.other == {step: pytest.approx(0.5 / step) for step in range(1, 51)}
    assert (seen.final, seen.state) == (0.25, "complete")
    assert float(seen.params["lr"]) == 1e-3 and seen.params["kind"] == "a"
    assert seen.params["modules"] in (["q", "v"], '["q", "v"]')


@pytest.mark.slow
def test_two_processes_may_make_the_file_of_mlflow_at_once_and_one_may_be_killed(tmp_path: Path) -> None:
    code = """
import os, pathlib, sys, time
import mlflow
from hpsearch.search.exchange.trackers.factory import make_tracker
folder = pathlib.Path(sys.argv[1])

def make(word):
    while not (folder / word).exists():
        time.sleep(0.005)
    make_tracker("mlflow", folder, "study-1")
    os._exit(0)

children = [os.fork() or make(word) for word in ("one", "both", "both")]  # it takes seconds to load
print(children[0], flush=True)
print([os.waitpid(child, 0)[1] for child in children])
"""
    words = [sys.executable, "-P", "-W", "ignore", "-c", code, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as parent:
        assert parent.stdout is not None
        try:
            killed = int(parent.stdout.readline())
            (tmp_path / "one").touch()
            wait_for(
                lambda: sum(file.stat().st_size for file in tmp_path.rglob("*.db")) >= 50_000
            )  # most of it
            os.kill(killed, signal.SIGKILL)
        finally:
            (tmp_path / "both").touch()
        told, _ = parent.communicate(timeout=120)
    assert told == "[9, 0, 0]\n"


@pytest.mark.slow
def test_mlflow_has_a_trial_as_it_stands_and_says_no_more_why_an_earlier_attempt_ended(
    tmp_path: Path,
) -> None:
    from mlflow import MlflowClient

    status = {
        "fail": "FAILED",
        "waiting": "SCHEDULED",
        "running": "RUNNING",
        "paused": "SCHEDULED",
        "complete": "FINISHED",
    }
    for shown in (
        [run(2), run(2, "fail", reason="lost")],
        [run(2, "waiting"), run(3), run(3, "paused"), run(4, "complete", 0.25)],
    ):
        writer = make_tracker("mlflow", tmp_path, "study-1")
        for each in shown:
            writer.write(each)
            client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
            [experiment] = client.search_experiments(filter_string="name = 'study-1'")
            [written] = client.search_runs([experiment.experiment_id])
            assert (written.data.tags["state"], written.info.status) == (each.state, status[each.state])
            assert written.data.tags.get("reason") == each.about.get("reason")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that not even root writes into")
def test_wandb_writes_nowhere_else_where_it_cannot_write() -> None:
    with pytest.raises(PermissionError, match="cannot write into /proc/self"):
        make_tracker("wandb", Path("/proc/self"), "study-1").write(run(2, "complete", 0.5))


def test_an_event_file_that_a_kill_cut_off_is_gone_on_with(tmp_path: Path, read: Any) -> None:
    writer = make_tracker("tensorboard", tmp_path, "study-1")
    writer.write(run(3))
    writer.close()
    [file] = tmp_path.rglob("events.*")
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        steps = [event.step for event in events(file) if event.step]
        assert steps == [1, 2, 3][: len(steps)] and len(steps) < 3
    again = make_tracker("tensorboard", tmp_path, "study-1")
    again.write(run(5, "complete", 0.5))
    again.close()
    [seen] = read("tensorboard", tmp_path).values()
    assert [step for step, _ in seen.curve] == [1, 2, 3, 4, 5]


# What keeps them like the study


def test_a_failing_tracker_is_reported_once_and_dropped(tmp_path: Path, read: Any) -> None:
    (tmp_path / "mlflow.db").write_text("no database")
    (tmp_path / "tensorboard").write_text("no folder")
    said: list[str] = []
    trackers = TrackerThread(["tensorboard", "mlflow"], tmp_path, "study-1", said.append)
    for step in range(1, 4):
        trackers.show("3", partial(run, step))
        trackers.report()
    trackers.close()
    failed = sorted(line for line in said if line.startswith("report_to: "))
    assert len(failed) == 2 and all("failed and is dropped" in line for line in failed)
    assert "mlflow" in failed[0] and "tensorboard" in failed[1]
    assert not [line for line in said if line.startswith("to see it")]


def test_the_caller_waits_for_no_tracker(tmp_path: Path, read: Any) -> None:
    """What is shown while a tracker is busy is written as it stands later; the last of it is there at the end."""
    said: list[str] = []
    busy, go_on = threading.Event(), threading.Event()

    def slowly() -> TrackedRun:
        busy.set()
        assert go_on.wait(60)
        return run(1)

    trackers = TrackerThread(["tensorboard"], tmp_path, "study-1", said.append)
    trackers.show("3", slowly)
    assert busy.wait(60)
    for step in range(2, 30):
        trackers.show("3", partial(run, step))
    go_on.set()
    trackers.close()
    [seen] = read("tensorboard", tmp_path).values()
    assert [step for step, _ in seen.curve] == [*range(1, 30)]
    assert said[-1].startswith("to see it: tensorboard --logdir ")


# Searches


def expected(trial: FrozenTrial) -> tuple[Any, ...]:
    complete = trial.state.name == "COMPLETE"
    return (
        [(step, pytest.approx(value, rel=1e-6)) for step, value in sorted(trial.intermediate_values.items())],
        pytest.approx(trial.value, rel=1e-6) if complete else None,
        trial.state.name.lower(),
    )


def assert_all_there(read: Any, root: Path, trials: list[FrozenTrial]) -> None:
    for name in TRACKERS:
        found = read(name, root)
        assert sorted(int(run[6:10]) for run in found) == [trial.number for trial in trials], name
        for trial_name, seen in found.items():
            trial = trials[int(trial_name[6:10])]
            assert (seen.curve, seen.final, seen.state) == expected(trial), (name, trial_name)
            assert float(seen.params["x"]) == pytest.approx(trial.params["x"])
            assert "-confirms-" in trial_name or "confirms" not in trial.user_attrs
            assert trial_name.endswith("-baseline") == ("baseline" in trial.user_attrs)


@pytest.mark.any_backend
@pytest.mark.slow
@pytest.mark.any_storage
def test_a_search_is_in_each_of_them(bench: Any, read: Any) -> None:
    """With trials that pause, go on, are pruned and confirmed, on two workers."""
    result = bench.search(
        parameters={"x": {"min": 0.0, "max": 1.0}, "c": {"value": 5}},
        baseline={"x": 0.75},
        early_stopping={"method": "asha", "min": 1, "max": 9, "eta": 3},
        budget={"trials": 12},
        confirm={"top": 1, "seeds": 2},
        execution={"workers": 2},
        report_to=list(TRACKERS),
    )
    trials = bench.trials()
    assert len(trials) == 16 and "PRUNED" in bench.states()
    assert_all_there(read, bench.folder, trials)
    for name in TRACKERS:
        seen = read(name, bench.folder)["trial-0000-baseline"]
        assert seen.other == {
            step: pytest.approx(v / 2, rel=1e-6) for step, v in trials[0].intermediate_values.items()
        }
    assert result.best_trial is not None


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.any_storage
def test_a_killed_search_continues_in_the_trackers(bench: Any, command: Any, read: Any) -> None:
    search = command(budget={"trials": 8}, early_stopping={"method": "median", "n_startup_trials": 3})
    options = ("--report-to", "tensorboard,wandb", "--report-to", "mlflow")
    process = search.start(*options)
    search.begun(4)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process = search.start(*options)
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 0, output
    assert "to see it: mlflow ui --backend-store-uri sqlite:///mlflow.db" in output
    assert output.count("to see it") == 3 and "INFO" not in output
    trials = bench.trials()
    assert len(trials) == 8
    assert_all_there(read, bench.folder, trials)


def test_nothing_of_them_is_loaded_unless_asked(tmp_path: Path) -> None:
    code = (
        "import sys, hpsearch.search.operations.run, hpsearch.search.training.run, hpsearch.search.exchange.trackers.training\n"
        "assert not {'wandb', 'mlflow', 'tensorboardX'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_missing_package_is_reported_with_its_installation(
    make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert requirements.PACKAGES.keys() >= set(TRACKERS)
    monkeypatch.setitem(requirements.PACKAGES, "mlflow", Requirements(("no_such_package",), "mlflow"))
    with pytest.raises(SpaceError, match=r"report_to: .*no_such_package.*'hpsearch\[mlflow\]'"):
        check_extras(make_spec(report_to=["mlflow"]))


# Trainings

TRAIN = """\
import pathlib

def train(trial):
    start = int((trial.resume_from / "step").read_text()) if trial.resume_from else 0
    for step in range(start + 1, 6):
        (trial.checkpoint / "step").write_text(str(step))
        trial.report(trial.params["x"]["y"] / step, step=step, half=0.5)
        if step == 2 and pathlib.Path("interrupt").exists():
            raise KeyboardInterrupt
        if pathlib.Path("fail").exists():
            raise ValueError("bad luck")
    return 1.5
"""


@pytest.fixture
def cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Train in a folder of the test: the exit code, and the output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("mine.py").write_text(TRAIN)
    content = {
        "objective": "mine.py:train",
        "metric": "loss",
        "parameters": {"x.y": 6.0},
        "report_to": "tensorboard",
    }
    Path("best.yaml").write_text(json.dumps(content))

    def call(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["hpsearch", "train", "best.yaml", "-o", "out/run", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out + told.err

    return call


@pytest.mark.slow
def test_a_training_is_in_each_of_them_also_where_it_was_interrupted(cli: Any, read: Any) -> None:
    every = ("--report-to", ",".join(TRACKERS))
    Path("interrupt").touch()
    assert cli(*every)[0] == 130
    Path("interrupt").unlink()
    code, told = cli(*every)
    assert code == 0 and told.count("to see it: ") == 3
    for name in TRACKERS:
        [seen] = read(name, Path("out")).values()
        assert [step for step, _ in seen.curve] == [1, 2, 3, 4, 5]
        assert (seen.final, seen.state) == (1.5, "complete") and float(seen.params["x.y"]) == 6.0


def test_a_document_names_them_too_and_one_that_begins_anew_is_another_run(cli: Any, read: Any) -> None:
    Path("fail").touch()
    assert cli()[0] == 1
    [failed] = read("tensorboard", Path("out")).values()
    assert failed.state == "fail" and "bad luck" in failed.params["run/reason"]
    assert cli("--report-to", "none")[0] == 1
    Path("fail").unlink()
    assert cli("--force")[0] == 0
    assert sorted(seen.state for seen in read("tensorboard", Path("out")).values()) == ["complete", "fail"]
    code, told = cli("--report-to", "tensorbord")
    assert code == 2 and 'did you mean "tensorboard"' in told
