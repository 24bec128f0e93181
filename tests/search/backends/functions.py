"""The objectives of the contract: run by workers, which import this file by its path."""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from hpsearch.objectives import Trial, TrialStopped

LAST = 9


def note(trial: Trial, **what: Any) -> None:
    """Tell the test something, past the driver: a line in a file of the trial's own."""
    with (Path(trial.params["folder"]) / f"{trial.number}.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(what) + "\n")


def descend(trial: Trial) -> float:
    """Nine reports, and the value of x."""
    x: float = trial.params["x"]
    for step in range(1, LAST + 1):
        value = x + 1 / step
        note(trial, step=step, value=value)
        trial.report(value, step=step, half=value / 2)
    return x


def steady(trial: Trial) -> float:
    """Nine slow reports, with a checkpoint at each; goes on where an earlier attempt stopped."""
    return _with_checkpoints(trial, 0.1)


def swift(trial: Trial) -> float:
    """As `steady`, without a pause."""
    return _with_checkpoints(trial, 0.0)


def _with_checkpoints(trial: Trial, pause: float) -> float:
    done = int((trial.resume_from / "step").read_text()) if trial.resume_from else 0
    note(trial, begins=done, x=trial.params["x"], seed=trial.seed)
    for step in range(done + 1, LAST + 1):
        time.sleep(pause)
        (trial.checkpoint / "step").write_text(str(step))
        note(trial, step=step)
        trial.report(trial.params["x"] + 1 / step, step=step)
    return float(trial.params["x"])


def slow_to_report(trial: Trial) -> float:
    """Takes longer from one report to the next than Ray gives a process that got a signal."""
    for step in (1, 2):
        trial.report(1.0 / step, step=step)
        time.sleep(5)
    return 1.0


def flaky(trial: Trial) -> float:
    """Fails in the middle of its first attempt."""
    note(trial, resumed=trial.resume_from is not None, x=trial.params["x"], seed=trial.seed)
    for step in (1, 2, 3, 4):
        (trial.checkpoint / "step").write_text(str(step))
        trial.report(float(step), step=step)
        if step == 2 and trial.resume_from is None:
            raise ConnectionError("the disk went away")
    return 4.0


def trial_one_fails(trial: Trial) -> float:
    note(trial, attempt=True)
    trial.report(1.0, step=1)
    if trial.number == 1:
        raise ValueError("bad luck\nin two lines")
    return 1.0


def all_fail(trial: Trial) -> float:
    note(trial, attempt=True)
    raise ValueError("no such file")


def fail_differently(trial: Trial) -> float:
    raise ValueError(f"no such file: {trial.number}")


def reports_on(trial: Trial) -> float:
    """Keeps whatever stops it, goes on reporting, and returns as if nothing had been."""
    for step in range(1, LAST + 1):
        try:
            trial.report(float(step), step=step)
        except BaseException as error:
            note(trial, caught=type(error).__name__, step=step)
    return -1.0


def raises_on(trial: Trial) -> float:
    """Fails on its way out."""
    try:
        trial.report(1.0, step=1)
    finally:
        raise RuntimeError("could not clean up")


def endless(trial: Trial) -> float:
    """Keeps whatever stops it, and never comes back."""
    step = 0
    while trial.number == 1:
        step += 1
        try:
            trial.report(float(step), step=step)
        except BaseException:
            time.sleep(0.01)
    trial.report(0.5, step=1)
    return 0.5


def forks(trial: Trial) -> float:
    """Trial 0 goes on twice, in two processes that share their line to the driver."""
    if trial.number == 0 and os.fork() == 0:
        try:
            trial.report(0.25, step=1)
        finally:
            os._exit(0)
    for step in (1, 2, 3):
        trial.report(1.0 / step, step=step)
        time.sleep(0.1)
    return 1.0


def leaves_a_program(trial: Trial) -> float:
    """Starts a program and forgets it."""
    program = subprocess.Popen(["sleep", "600"])
    note(trial, pid=program.pid)
    trial.report(1.0, step=1)
    return 1.0


def slow_to_leave(trial: Trial) -> float:
    """Takes its time to clean up."""
    note(trial, pid=os.getpid())
    try:
        trial.report(1.0, step=1)
        return 1.0
    finally:
        time.sleep(2.5)
        note(trial, left=True)


def leaves_a_thread(trial: Trial) -> float:
    """Returns, while a thread of it goes on to report."""
    trial.report(1.0, step=1)
    if trial.number == 0:
        threading.Timer(0.3, trial.report, [2.0], {"step": 2}).start()
    else:
        _wait_for(Path(trial.params["folder"]) / f"{1 - trial.number}.jsonl", 1.0)
    return 1.0


def stops_itself(trial: Trial) -> float:
    raise TrialStopped


def unusable(trial: Trial) -> float:
    """Ends in the way that the parameter `how` names."""
    how: str = trial.params["how"]
    trial.report(0.5, step=1)
    if how.startswith("report"):
        trial.report(float(how.split()[1]), step=2)
    if how == "MemoryError":
        raise MemoryError("so big")
    if how == "torch":
        import torch

        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
    return float(how.split()[1])


def lost(trial: Trial) -> float:
    """Takes its worker down in the way that the parameter `how` names, where that is no number."""
    note(trial, pid=os.getpid())
    trial.report(1.0, step=1)
    how: str = trial.params["how"]
    if not how.isdecimal():
        if how == "exit":
            os._exit(3)
        if how == "segfault":
            ctypes.string_at(0)
        os.kill(os.getpid(), getattr(signal, how))
        signal.pause()
    return 1.0


def hungry(trial: Trial) -> float:
    """Trial 1 takes half a gibibyte, and keeps it."""
    trial.report(1.0, step=1)
    if trial.number == 1:
        kept = bytearray(512 << 20)
        kept[:: os.sysconf("SC_PAGE_SIZE")] = b"x" * len(kept[:: os.sysconf("SC_PAGE_SIZE")])
        time.sleep(600)
    return 1.0


HOARD: list[bytes] = []


def hoards(trial: Trial) -> float:
    """Each trial takes 160 MiB, and leaves them to the worker; who finds some there waits for its end."""
    HOARD.append(b"x" * (160 << 20))
    trial.report(float(len(HOARD)), step=1)
    if len(HOARD) > 1:
        time.sleep(600)
    return float(len(HOARD))


def hungry_once(trial: Trial) -> float:
    """The first attempt of trial 1 takes the machine's memory, a quarter of a gibibyte at a time."""
    (trial.checkpoint / "tried").touch()
    trial.report(1.0, step=1)
    if trial.number == 1 and trial.resume_from is None:
        kept = []
        while psutil.virtual_memory().available > 1 << 30:
            kept.append(b"x" * (256 << 20))
            time.sleep(0.05)
        time.sleep(60)
    return 1.0


def hangs(trial: Trial) -> float:
    trial.report(1.0, step=1)
    if trial.number == 1:
        time.sleep(600)
    return 1.0


def returns(trial: Trial) -> Any:
    """Returns what the parameter `what` describes."""
    what: str = trial.params["what"]
    if what == "numpy":
        import numpy

        return numpy.float32(0.5)
    if what == "tensor":
        import torch

        return torch.tensor([0.5])
    return {"None": None, "text": "0.5", "int": 1, "pair": (1.0, 2.0)}[what]


def reports(trial: Trial) -> float:
    """Reports what the parameter `what` describes."""
    trial.report(1.0, step=3)
    match trial.params["what"]:
        case "text":
            trial.report("0.5", step=4)  # type: ignore[arg-type]
        case "float step":
            trial.report(0.5, step=4.5)  # type: ignore[arg-type]
        case "same step":
            trial.report(0.5, step=3)
        case "falling step":
            trial.report(0.5, step=2)
        case "metric":
            trial.report(0.5, step=4, accuracy="high")  # type: ignore[arg-type]
    return 1.0


def device(trial: Trial) -> float:
    """Says which device its worker has; trial 0 loses its worker, and trial 1 stays until 2 is there."""
    note(trial, device=os.environ["CUDA_VISIBLE_DEVICES"])
    folder = Path(trial.params["folder"])
    if trial.number == 0:
        _wait_for(folder / "1.jsonl")
        os._exit(1)
    _wait_for(folder / "2.jsonl")
    return 1.0


def one_device(trial: Trial) -> float:
    """Runs while another trial does."""
    note(trial, device=os.environ["CUDA_VISIBLE_DEVICES"], pid=os.getpid())
    _wait_for(Path(trial.params["folder"]) / f"{trial.number ^ 1}.jsonl")
    return 1.0


def params(trial: Trial) -> float:
    note(trial, params=trial.params)
    trial.report(1.0, step=1, accuracy=0.25)
    print("a word from Python")
    os.system("echo a word from below")
    return 1.0


def module_paths(trial: Trial) -> float:
    note(trial, path=sys.path, cwd=os.getcwd())
    return math.pi


def _wait_for(path: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)


_begun: list[int] = []  # trials of this process


def leaves_state(trial: Trial) -> float:
    """Leaves global state behind, and fails in its first attempt."""
    _begun.append(trial.number)
    note(trial, pid=os.getpid(), begun=len(_begun), rank=int(os.environ.get("RANK", "0")))
    first = trial.resume_from is None
    (trial.checkpoint / "begun").write_text("1")
    trial.report(float(trial.params["x"]), step=1)
    if first and trial.number == 1:
        raise ConnectionError("the disk went away")
    time.sleep(1.5 if trial.number == 0 else 0)
    return float(trial.params["x"])
