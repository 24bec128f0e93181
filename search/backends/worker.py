"""A worker process: runs one trial after another for the driver at the other end of its socket.

Started as `python -m hpsearch.search.backends.worker FD`. It never opens the database. It ends when the
driver does: a thread reads the socket, and takes the process and its children down at the end of file.
"""

from __future__ import annotations

import json
import operator
import os
import queue
import socket
import sys
import threading
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ...objectives.base import Objective, ObjectiveError, TrialStopped, resolve
from ...storage.files import CHECKPOINT, METRICS, OUTPUT
from .protocol import Channel, Message, end_session

TRACEBACK_LINES = 30


class WorkerTrial:
    """The trial an objective sees; its reports go to the driver, and wait for the answer."""

    def __init__(self, message: Message, channel: Channel, answers: queue.Queue[Message]) -> None:
        self.number: int = message["number"]
        self.params: dict[str, Any] = message["params"]
        self.seed: int = message["seed"]
        folder = Path(message["folder"])
        self.checkpoint = folder / CHECKPOINT
        self.resume_from = self.checkpoint if _has_files(self.checkpoint) else None
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        self.stopped = False
        self._metrics_file = folder / METRICS
        self._channel = channel
        self._answers = answers
        self._last_step = 0

    def report(self, value: float, *, step: int, **metrics: float) -> None:
        if self.stopped:
            raise TrialStopped
        step = _checked_step(step, self._last_step)
        value = as_number(value, "report() was given")
        numbers = {name: as_number(metric, f"report() was given {name}=") for name, metric in metrics.items()}
        self._last_step = step
        with self._metrics_file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"step": step, "value": value, **numbers}) + "\n")
        self._channel.send({"kind": "report", "step": step, "value": value, "metrics": numbers})
        if self._answers.get()["stop"]:
            self.stopped = True
            raise TrialStopped


def as_number(value: Any, what: str) -> float:
    """A float from a number, a numpy scalar or a tensor of one element; `TypeError` for anything else."""
    if value is None or isinstance(value, (str, bytes, bool)):
        raise TypeError(f"{what} {value!r}; it must be a number")
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{what} {value!r}; it must be a number") from error


def _checked_step(step: Any, last: int) -> int:
    try:
        whole = operator.index(step)
    except TypeError:
        raise TypeError(f"report() was given step={step!r}; it must be a whole number") from None
    if whole <= 0 or whole <= last:
        raise ValueError(f"report() was given step={whole} after step {last}; steps are positive and rise")
    return whole


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def run_trial(objective: Objective, trial: WorkerTrial) -> Message:
    """Run the objective; what became of it, as a message."""
    try:
        value = as_number(objective(trial), "the objective returned")
    except TrialStopped:
        return {"kind": "stopped"}
    except BaseException as error:
        if trial.stopped:  # an objective's own trouble on its way out changes nothing
            return {"kind": "stopped"}
        return {"kind": "failed", "failure": failure_of(error)}
    return {"kind": "stopped"} if trial.stopped else {"kind": "done", "value": value}


def failure_of(error: BaseException) -> dict[str, str]:
    """What the study keeps of an exception. Running out of memory is a kind of its own."""
    lines = traceback.format_exception(error)
    tail = "".join(lines).splitlines()[-TRACEBACK_LINES:]
    name = type(error).__name__
    message = f"{name}: {error}".strip().rstrip(":")
    no_memory = isinstance(error, MemoryError) or name == "OutOfMemoryError"
    no_memory = no_memory or "can't allocate memory" in message  # torch's words on CPU
    if isinstance(error, (ObjectiveError, ChildProcessError)):  # our own sentence says it all
        return {"kind": "error", "message": str(error), "traceback": ""}
    kind = "memory" if no_memory else "error"
    return {"kind": kind, "message": message.splitlines()[0], "traceback": "\n".join(tail)}


def _redirect(stack: ExitStack, path: Path) -> None:
    """Send what the trial prints, from Python or below, to its log file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    log = stack.enter_context(path.open("ab"))
    for descriptor in (1, 2):
        saved = os.dup(descriptor)
        stack.callback(os.close, saved)
        stack.callback(os.dup2, saved, descriptor)
        os.dup2(log.fileno(), descriptor)
    stack.callback(sys.stdout.flush)
    stack.callback(sys.stderr.flush)


def _listen(channel: Channel, incoming: queue.Queue[Message], answers: queue.Queue[Message]) -> None:
    while (messages := channel.receive()) is not None:
        for message in messages:
            (answers if message["kind"] == "answer" else incoming).put(message)
    end_session(os.getpid())
    os._exit(1)  # the driver is gone; nothing this process could still say would be heard


def main(descriptor: int) -> None:
    """Serve the driver until it says `exit` or goes."""
    channel = Channel(socket.socket(fileno=descriptor))
    incoming: queue.Queue[Message] = queue.Queue()
    answers: queue.Queue[Message] = queue.Queue()
    threading.Thread(target=_listen, args=(channel, incoming, answers), daemon=True).start()
    setup = incoming.get()
    objective: Objective | None = None
    while (message := incoming.get())["kind"] != "exit":
        with ExitStack() as stack:
            _redirect(stack, Path(message["folder"]) / OUTPUT)
            try:
                if objective is None:  # loaded inside the first trial, so that its failure is a trial's
                    objective = resolve(setup["objective"], metric=setup["metric"])
                ended = run_trial(objective, WorkerTrial(message, channel, answers))
            except BaseException as error:
                ended = {"kind": "failed", "failure": failure_of(error)}
        channel.send(ended)
    os._exit(0)  # an objective's own threads do not hold the worker back


if __name__ == "__main__":
    main(int(sys.argv[1]))
