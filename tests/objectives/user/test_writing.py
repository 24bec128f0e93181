"""What a script writes when it has to end: its launcher, and the other processes below it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hpsearch.objectives import TrialStopped
from hpsearch.objectives.user import command, output, writing
from hpsearch.objectives.user.command import CommandObjective

from ..hand_trial import HandTrial

# Like torchrun: it starts the training in a session of its own, and passes SIGTERM on, but not at once.
LAUNCHER = """
import os, pathlib, signal, subprocess, sys, time
folder = pathlib.Path(__file__).parent
child = subprocess.Popen([sys.executable, folder / "train.py"], start_new_session=True)
(folder / "pid").write_text(str(child.pid))
def counted():
    return (folder / "count").stat().st_size
def terminate(number, frame):
    before = counted()
    time.sleep(0.2)
    (folder / "trained").write_text(str(counted() - before))
    child.terminate()
    os.waitpid(child.pid, 0)
    os._exit(0)
signal.signal(signal.SIGTERM, HANDLER)
child.wait()
"""
TRAIN = """
import pathlib, time
print('{"step": 1, "loss": 0.5}', flush=True)
with open(pathlib.Path(__file__).parent / "count", "wb", buffering=0) as count:
    while True:
        count.write(b".")
        time.sleep(0.002)
"""


@pytest.fixture(autouse=True)
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "BETWEEN_SECONDS", 0.4)


def launched(folder: Path, handler: str) -> int:
    """Train until the first report. Returns the process id of the training."""
    (folder / "launch.py").write_text(LAUNCHER.replace("HANDLER", handler))
    (folder / "train.py").write_text(TRAIN)
    trial = HandTrial({}, folder / "checkpoint", stop_at=1)
    with pytest.raises(TrialStopped):
        CommandObjective(["python", str(folder / "launch.py")], "loss")(trial)
    return int((folder / "pid").read_text())


def test_nothing_is_trained_until_the_launcher_has_passed_sigterm_on(tmp_path: Path) -> None:
    """What trained further would begin its next checkpoint, and be ended in the middle of it."""
    pid = launched(tmp_path, "terminate")
    assert (tmp_path / "trained").read_text() == "0"
    assert not psutil.pid_exists(pid)


def test_what_a_launcher_leaves_behind_when_it_is_killed_is_killed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "TERM_SECONDS", 0.1)
    monkeypatch.setattr(writing, "TOLD_SECONDS", 0.1)
    pid = launched(tmp_path, "signal.SIG_IGN")
    until = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.01)


FAST = """
import pathlib, sys, time
weights, epoch = (pathlib.Path(sys.argv[1], name) for name in ("weights.h5", "epoch.json"))
for number in (1, 2):
    weights.write_text(str(number))
    if number == 2:
        time.sleep(0.1)
    epoch.write_text(str(number))
    print("a report", flush=True)
time.sleep(600)
"""


def test_what_is_saved_after_a_report_that_came_meanwhile_is_waited_for(tmp_path: Path) -> None:
    """Since the report at which it was told to pause, a fast script has saved all files, and some again."""
    times = [time.time_ns() - 1, time.time_ns()]

    def heard() -> list[int]:
        if printed.take_drained().chunks:
            times.append(time.time_ns())
        return times[-2:]

    with subprocess.Popen(
        [sys.executable, "-c", FAST, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    ) as process:
        try:
            weights = tmp_path / "weights.h5"
            while not weights.exists() or weights.read_text() != "2":
                time.sleep(0.001)
            with output.Output([process]) as printed:
                writing.let_write([process], tmp_path, printed, heard)
            assert {path.read_text() for path in tmp_path.iterdir()} == {"2"}
        finally:
            writing.kill([process])
