"""Searches that end early: the real command line, real signals, and the same command again."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.slow

SCRIPT = """\
import json, os, signal, subprocess, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder = Path(os.environ["HPSEARCH_CHECKPOINT"])
resumed = os.environ["HPSEARCH_RESUME_FROM"]
done = int((folder / "step").read_text()) if resumed and (folder / "step").exists() else 0
child = subprocess.Popen(["sleep", "600"])
with open("pids", "a") as stream:
    stream.write(f"{os.getpid()} {child.pid}\\n")
with open(os.environ["HPSEARCH_TRIAL"] + ".jsonl", "a") as stream:
    stream.write(json.dumps({"begins": done, "arguments": sys.argv[1:]}) + "\\n")
for step in range(max(done, 1), 10):  # its checkpoint's step again: a kill may have come before the report
    time.sleep(0.1 if Path("hurry").exists() else 2)
    (folder / "part").write_text(str(step))
    (folder / "part").rename(folder / "step")
    print(json.dumps({"step": step, "loss": 1 / step}), flush=True)
"""


def gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("backend_name", "storage_name", "number"),
    [
        ("optuna", "sqlite", signal.SIGINT),
        pytest.param("optuna", "postgres", signal.SIGTERM, marks=pytest.mark.postgres),
        pytest.param("ray", "sqlite", signal.SIGINT, marks=pytest.mark.ray),
    ],
)
def test_a_signal_leaves_a_study_that_the_same_command_finishes(
    command: Any, bench: Any, number: signal.Signals
) -> None:
    search = command(budget={"trials": 8}, execution={"workers": 2, "retries": 0})
    process = search.start()
    search.begun(1)
    process.send_signal(number)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert f"interrupted by {number.name}" in output
    assert "continue with: hpsearch run space.yaml --plain" in output
    states = bench.states()
    assert "RUNNING" not in states and "WAITING" in states
    process = search.start()
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert bench.states() == ["COMPLETE"] * 8
    assert [t.number for t in bench.trials()] == list(range(8))
    for trial in bench.trials():
        assert list(trial.intermediate_values) == list(range(1, 10))
        attempts = [n for n in bench.notes(trial.number) if "begins" in n]
        assert len({(a["x"], a["seed"]) for a in attempts}) == 1
        assert all(a["begins"] > 0 for a in attempts[1:]), "taken up from the checkpoint"


def test_a_second_signal_ends_it_now(command: Any, bench: Any) -> None:
    search = command("hangs", budget={"trials": 2}, execution={"workers": 2, "retries": 0})
    process = search.start()
    search.begun(1)
    process.send_signal(signal.SIGINT)
    for _ in range(3):  # a signal that comes before the first is taken counts as none
        time.sleep(1)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)  # less than a worker has for its next report
    # One that comes after the last line ends Python by itself, which a shell calls 130 too.
    assert process.returncode in (130, -signal.SIGINT), output
    assert "RUNNING" not in bench.states()


@pytest.mark.any_backend
def test_kill_ends_workers_and_scripts_too_and_the_same_command_continues(command: Any, bench: Any) -> None:
    """Scripts are their worker's affair; that none is left on Ray is among the faults of a driver."""
    (bench.folder / "script.py").write_text(SCRIPT)
    search = command(
        objective={"command": ["python", "script.py", "${args}"]},
        budget={"trials": 4},
        execution={"workers": 2, "retries": 0},
    )
    process = search.start()
    search.begun(0)
    search.begun(1)
    children = psutil.Process(process.pid).children(recursive=True)
    workers = [child.pid for child in children if "hpsearch.search.backends.worker" in child.cmdline()]
    scripts = [int(pid) for pid in (bench.folder / "pids").read_text().split()]
    assert len(workers) == 2 and len(scripts) == 4
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    search.wait_for(lambda: all(map(gone, [*workers, *scripts])))
    search.wait_for(lambda: "RUNNING" not in bench.states())
    (bench.folder / "hurry").touch()
    process = search.start()
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert bench.states() == ["COMPLETE"] * 4
    assert [t.number for t in bench.trials()] == [0, 1, 2, 3]
    for number in (0, 1):
        first, second = bench.notes(number)
        assert first["begins"] == 0 and second["begins"] > 0
        assert first["arguments"] == second["arguments"]
    for trial in bench.trials():
        assert list(trial.intermediate_values) == list(range(1, 10))
    scripts = [int(pid) for pid in (bench.folder / "pids").read_text().split()]
    search.wait_for(lambda: all(map(gone, scripts)))


@pytest.mark.any_backend
@pytest.mark.any_storage
def test_a_search_killed_again_and_again_is_the_uninterrupted_one(command: Any, bench: Any) -> None:
    fields: dict[str, Any] = {"budget": {"trials": 5}, "execution": {"workers": 1, "retries": 0}}
    fields["search"] = {"sampler": "tpe", "n_startup_trials": 2}
    search = command(**fields)
    for number in (0, 3):
        process = search.start()
        search.begun(number)
        process.kill()
        process.communicate()
    bench.search("steady", **fields)
    found = [(t.params, t.value) for t in bench.trials()]
    assert len(found) == 5
    name = "whole"
    bench.search("steady", name=name, **fields)
    assert [(t.params, t.value) for t in bench.trials(name)] == found
