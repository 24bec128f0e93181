"""Searches that end early: the real command line, real signals, and the same command again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.slow

HPSEARCH = Path(sys.executable).with_name("hpsearch")
SCRIPT = """\
import json, os, signal, subprocess, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder = Path(os.environ["HPSEARCH_CHECKPOINT"])
resumed = os.environ["HPSEARCH_RESUME_FROM"]
done = int((folder / "step").read_text()) if resumed else 0
child = subprocess.Popen(["sleep", "600"])
with open("pids", "a") as stream:
    stream.write(f"{os.getpid()} {child.pid}\\n")
with open(os.environ["HPSEARCH_TRIAL"] + ".jsonl", "a") as stream:
    stream.write(json.dumps({"begins": done, "arguments": sys.argv[1:]}) + "\\n")
for step in range(done + 1, 10):
    time.sleep(0.1)
    (folder / "step").write_text(str(step))
    print(json.dumps({"step": step, "loss": 1 / step}), flush=True)
"""


class Command:
    """`hpsearch run` in a folder of its own."""

    def __init__(self, bench: Any, space: dict[str, Any]) -> None:
        self.bench = bench
        (bench.folder / "space.yaml").write_text(json.dumps(space))
        self.started: list[subprocess.Popen[str]] = []

    def start(self) -> subprocess.Popen[str]:
        words = [HPSEARCH, "run", "space.yaml", "--plain", "--backend", self.bench.backend]
        process = subprocess.Popen(
            [*words, "--storage", "studies.db"],
            cwd=self.bench.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def begun(self, number: int) -> None:
        """Wait until a trial has begun and reported."""
        metrics = self.bench.folder / "runs" / "study" / str(number) / "metrics.jsonl"
        wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0)


@pytest.fixture
def command(bench: Any) -> Iterator[Callable[..., Command]]:
    """Write a space and run it from the command line; nothing outlives the test."""
    commands: list[Command] = []

    def make(function: str = "steady", **fields: Any) -> Command:
        spec = bench.spec(function).to_json()
        space = {k: v for k, v in spec.items() if v is not None} | fields
        commands.append(Command(bench, space))
        return commands[-1]

    yield make
    for process in [p for c in commands for p in c.started]:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_study_that_the_same_command_finishes(
    command: Any, bench: Any, number: signal.Signals
) -> None:
    search = command(budget={"trials": 4}, execution={"workers": 2, "retries": 0})
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
    assert bench.states() == ["COMPLETE"] * 4
    assert [t.number for t in bench.trials()] == [0, 1, 2, 3]
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
    assert process.returncode == 130, output
    assert "RUNNING" not in bench.states()


def test_kill_takes_workers_and_scripts_along_and_the_same_command_goes_on(command: Any, bench: Any) -> None:
    (bench.folder / "script.py").write_text(SCRIPT)
    search = command(
        objective={"command": ["python", "script.py", "${args}"]},
        budget={"trials": 4},
        execution={"workers": 2, "retries": 0},
    )
    process = search.start()
    search.begun(0)
    search.begun(1)
    workers = [child.pid for child in psutil.Process(process.pid).children()]
    scripts = [int(pid) for pid in (bench.folder / "pids").read_text().split()]
    assert len(workers) == 2 and len(scripts) == 4
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: all(map(gone, [*workers, *scripts])), 30)
    assert "RUNNING" in bench.states()
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
    wait_for(lambda: all(map(gone, scripts)), 30)


def test_a_search_killed_again_and_again_is_the_uninterrupted_one(command: Any, bench: Any) -> None:
    fields: dict[str, Any] = {"budget": {"trials": 5}, "execution": {"workers": 1, "retries": 0}}
    fields["search"] = {"sampler": "tpe", "n_startup_trials": 2}
    search = command(**fields)
    for number in (0, 1, 3):
        process = search.start()
        search.begun(number)
        process.kill()
        process.communicate()
    output, _ = search.start().communicate(timeout=120)
    found = [(t.params, t.value) for t in bench.trials()]
    assert len(found) == 5, output
    name = "whole"
    bench.search("steady", name=name, **fields)
    assert [(t.params, t.value) for t in bench.trials(name)] == found
