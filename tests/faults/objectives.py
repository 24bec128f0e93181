"""Objectives that meet with a fault in the middle of a trial; run by workers, which import this file by its path."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from hpsearch.objectives import Trial

LAST = 9


def note(trial: Trial, **what: Any) -> None:
    """Tell the test something, past the driver: a line in a file of the trial's own."""
    with (Path(trial.params["folder"]) / f"{trial.number}.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(what) + "\n")


def faulty(trial: Trial) -> float:
    """Nine reports with a checkpoint at each; trial 1 meets with its fault once, after the fourth.

    It takes too much memory at each attempt: where its worker had another trial before, the first one is not
    held against it.
    """
    done = int((trial.resume_from / "step").read_text()) if trial.resume_from else 0
    note(trial, begins=done, pid=os.getpid())
    for step in range(done + 1, LAST + 1):
        hurry = (Path(trial.params["folder"]) / "hurry").exists()
        time.sleep(0.01 if hurry else trial.params["pause"])
        _save(trial.checkpoint / "step", str(step))
        note(trial, step=step)
        trial.report(trial.params["x"] + 1 / step, step=step)
        met = done > 0 and trial.params["fault"] != "memory"
        if trial.number == 1 and step == max(4, done + 1) and not met:
            _meet(trial.params["fault"])
    return float(trial.params["x"])


def _save(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    os.replace(part, path)


def _meet(fault: str) -> None:
    match fault:
        case "SIGKILL" | "SIGSTOP":
            os.kill(os.getpid(), getattr(signal, fault))
            time.sleep(600)
        case "segfault":
            ctypes.string_at(0)
        case "exception":
            raise ValueError("bad luck")
        case "_exit":
            if os.fork() == 0:  # and leaves a child, which has all that it had open
                time.sleep(600)
            os._exit(0)
        case "exit":
            sys.exit(0)
        case "hang":
            time.sleep(600)
        case "flood":
            line = b"x" * 1023 + b"\n"
            for _ in range(64):
                os.write(1, line * 1024)
                time.sleep(0.02)
            os.write(1, b"the last words\n")
        case "oom killer":
            grown = []
            while True:
                grown.append(b"x" * (8 << 20))
        case "memory":
            kept = b"x" * (512 << 20)
            time.sleep(600)
            del kept
        case "full disk":
            with Path("full/filler").open("wb") as stream:
                while True:
                    stream.write(b"x" * 4096)
                    stream.flush()


def haunted(trial: Trial) -> float:
    """Leaves a daemon: a process of another session, whose parent is gone."""
    if os.fork() == 0:
        os.setsid()
        if (daemon := os.fork()) == 0:
            time.sleep(600)
        note(trial, daemon=daemon)
        os._exit(0)
    os.wait()
    return float(trial.params["x"])


def torn(trial: Trial) -> float:
    """Its first attempt dies while it writes its checkpoint, which is no number then."""
    path = trial.checkpoint / "step"
    done = int(path.read_text()) if trial.resume_from else 0
    note(trial, begins=done)
    for step in range(done + 1, LAST + 1):
        first = not (Path(trial.params["folder"]) / "torn").exists()
        if step == 4 and first:
            (Path(trial.params["folder"]) / "torn").touch()
            path.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)
        path.write_text(str(step))
        trial.report(trial.params["x"] + 1 / step, step=step)
    return float(trial.params["x"])


def alike(trial: Trial) -> float:
    """Every trial loses its worker in the same way."""
    os.kill(os.getpid(), signal.SIGKILL)
    return 1.0


def confined(trial: Trial) -> float:
    """As `faulty`, in a control group that has 192 MiB of memory."""
    Path(trial.params["group"], "cgroup.procs").write_text(str(os.getpid()))
    return faulty(trial)


def failing(trial: Trial) -> float:
    """Fails until the file `mended` is there."""
    trial.report(1.0, step=1)
    if trial.number < 2 and not (Path(trial.params["folder"]) / "mended").exists():
        raise ValueError(f"the data of trial {trial.number} is missing")
    return 1.0


def between(trial: Trial) -> float:
    """The worker of trial 1 dies once between a checkpoint and the report that belongs to it."""
    done = int((trial.resume_from / "step").read_text()) if trial.resume_from else 0
    for step in range(done + 1, LAST + 1):
        (trial.checkpoint / "step").write_text(str(step))
        died = Path(trial.params["folder"]) / "died"
        if trial.number == 1 and step == 5 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        note(trial, step=step)
        trial.report(trial.params["x"] + 1 / step, step=step)
    return float(trial.params["x"])


def forgetful(trial: Trial) -> float:
    """Cannot read the checkpoint that it wrote."""
    note(trial, begins=trial.resume_from is not None)
    if trial.resume_from is not None:
        raise ValueError("a checkpoint of another version")
    for step in range(1, LAST + 1):
        (trial.checkpoint / "step").write_text(str(step))
        trial.report(trial.params["x"] + 1 / step, step=step)
        first = not (Path(trial.params["folder"]) / "died").exists()
        if step == 4 and first:
            (Path(trial.params["folder"]) / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return float(trial.params["x"])


def nosy(trial: Trial) -> float:
    """Leaves processes to the worker, and a handler that raises as they end: torch's, of a DataLoader."""

    def raises(number: int, frame: Any) -> None:
        raise RuntimeError("DataLoader worker is killed by signal: Killed")

    for _ in range(16):
        subprocess.Popen(["sleep", "600"])
    signal.signal(signal.SIGCHLD, raises)
    return float(trial.params["x"])


class Refusing:
    """A stream that does nothing that is asked of it."""

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(name)


def ticking(trial: Trial) -> float:
    """Leaves three timers that run on, with handlers that raise, and a signal that it has blocked."""

    def raises(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    found = {number: signal.getsignal(number) for number in signal.valid_signals()}
    timers = signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF
    running = [timer for timer in timers if any(signal.getitimer(timer))]
    blocked = [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())]
    ours = [int(number) for number, handler in found.items() if getattr(handler, "__name__", "") == "raises"]
    note(trial, running=running, blocked=blocked, ours=ours, pid=os.getpid())
    for number in (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(number, raises)
    for timer in timers:
        signal.setitimer(timer, 5, 0.001)  # not before it returns
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    return float(trial.params["x"])


def blocks(trial: Trial) -> float:
    """The second trial leaves a folder in the place of its output, and fails."""
    if trial.number == 1:
        output = trial.checkpoint.parent / "output.log"
        output.unlink()
        output.mkdir()
        raise RuntimeError("and now try again")
    return float(trial.params["x"])


def closes(trial: Trial) -> float:
    """Closes its streams, takes them apart or away, or puts others in their place."""
    print(f"trial {trial.number} speaks")
    match trial.number:
        case 0:
            sys.stdout.close()
            sys.stderr.close()
        case 1:
            sys.stdout = None
            sys.stderr = object()
        case 2:
            sys.stdout.detach()  # type: ignore[union-attr]
            sys.stderr = Refusing()
        case 3:
            del sys.stdout, sys.stderr
        case 4:
            sys.stdout.flush()
            sys.stdout.buffer.close()
            os.close(2)
    return float(trial.params["x"])
