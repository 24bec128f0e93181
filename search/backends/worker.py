"""A worker process: runs one trial after another for the driver at the other end of its socket.

Started as `python -m hpsearch.search.backends.worker FD`. It never opens the database. It ends when the
driver does: a thread reads the socket, and takes the process and its children down at the end of file.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from ...objectives.base import Objective, TrialStopped, is_built_in, reports_again, resolve
from ...storage.files import OUTPUT
from ..trial import FolderTrial, Report, as_number, failure_of
from .protocol import Channel, Message, end_session

BEAT_SECONDS = 5.0  # between two signs of life


class WorkerTrial(FolderTrial):
    """The trial an objective sees; its reports go to the driver, and wait for the answer."""

    def __init__(
        self, message: Message, channel: Channel, answers: queue.Queue[Message], *, sealed: bool
    ) -> None:
        super().__init__(
            number=message["number"],
            params=message["params"],
            seed=message["seed"],
            folder=Path(message["folder"]),
            sealed=sealed,
        )
        self._channel = channel
        self._answers = answers

    def _ends(self, report: Report) -> bool:
        self._channel.send({"kind": "report", "number": self.number, **asdict(report)})
        while True:
            answer = self._answers.get()
            if (answer["number"], answer["step"]) == (self.number, report.step):  # to no other's report
                return bool(answer["stop"])


def run_trial(objective: Objective, trial: WorkerTrial, reported: int) -> Message:
    """Run the objective; what became of it, as a message. `reported` is the last step the study has."""
    try:
        trial.catch_up(reported)
        value = as_number(objective(trial), "the objective returned")
        return {"kind": "stopped"} if trial.stopped else {"kind": "done", "value": value}
    except TrialStopped:
        return {"kind": "stopped"}
    except BaseException as error:
        if trial.stopped:  # an objective's own trouble on its way out changes nothing
            return {"kind": "stopped"}
        failure = failure_of(error)
        if failure["kind"] == "error" and trial.stuck:
            failure["kind"] = "checkpoint"
        return {"kind": "failed", "failure": failure}
    finally:
        trial.stopped = True  # a thread of the objective's that goes on reports to nobody


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
    _leave(1)  # the driver is gone; nothing this process could still say would be heard


def _beat(channel: Channel) -> None:
    """Show the driver that this process is not frozen."""
    while True:
        time.sleep(BEAT_SECONDS)
        try:
            channel.send({"kind": "alive"})
        except OSError:
            return  # the driver is gone, which `_listen` deals with


def main(descriptor: int) -> None:
    """Serve the driver until it says `exit` or goes."""
    channel = Channel(socket.socket(fileno=descriptor))
    incoming: queue.Queue[Message] = queue.Queue()
    answers: queue.Queue[Message] = queue.Queue()
    threading.Thread(target=_listen, args=(channel, incoming, answers), daemon=True).start()
    threading.Thread(target=_beat, args=(channel,), daemon=True).start()
    setup = incoming.get()
    objective: Objective | None = None
    if is_built_in(setup["objective"]):  # torch takes seconds to load, and the first trial is not here yet
        with suppress(Exception):  # it will fail again in that trial, and count as its failure
            objective = resolve(setup["objective"], metric=setup["metric"])
    while (message := incoming.get())["kind"] != "exit":
        with ExitStack() as stack:
            _redirect(stack, Path(message["folder"]) / OUTPUT)
            try:
                if objective is None:  # loaded inside the first trial, so that its failure is a trial's
                    objective = resolve(setup["objective"], metric=setup["metric"])
                sealed = not reports_again(setup["objective"])
                trial = WorkerTrial(message, channel, answers, sealed=sealed)
                ended = run_trial(objective, trial, message["reported"])
            except BaseException as error:
                ended = {"kind": "failed", "failure": failure_of(error)}
        try:
            channel.send(ended)
        except OSError:
            _leave(1)  # the driver is gone
    _leave(0)


def _leave(code: int) -> NoReturn:
    """End this process at once, whatever threads an objective left, and with it what it started."""
    end_session(os.getpid())
    os._exit(code)


if __name__ == "__main__":
    main(int(sys.argv[1]))
