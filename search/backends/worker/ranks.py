"""Trials of several processes: each runs the objective, as if torchrun had started it.

    driver <--- socket ---> worker: rank 0 <--- sockets ---> siblings: ranks 1, 2, ...

Rank 0 is the worker itself. It alone talks to the driver, and its siblings live as long as it does: a trial
does not pay for their start.

| what happens | what follows |
|---|---|
| a report of rank 0 ends the trial | all ranks hear it at this report, and leave |
| a rank raises, dies or freezes | the worker says so and ends, and all ranks with it |
| the worker dies | its siblings see the end of their sockets, and end |

A rank that waits for another one in a collective hears nothing, so there is no milder end for a failure.
"""

from __future__ import annotations

import os
import queue
import selectors
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from ....objectives.base import Objective, Trial, TrialStopped
from ....objectives.catalog import is_built_in
from ....objectives.processes import rendezvous, strategy_variables
from ...trials.failures import failure_of
from .channel import Channel, Message
from .process import SILENCE_SECONDS, how_it_ended
from .server import Server, WorkerTrial, blamed, leave, printing_to

LOOK_SECONDS = 1.0  # between two looks at who is silent
SETTLE_SECONDS = 1.0  # after a failure, in which others may tell its cause
LEAVE_SECONDS = 20.0  # for siblings to return once their trial is stopped; less than a worker has


Failed = tuple[bool, int, dict[str, str]]  # whether the rank lives, how many failed before it, what to say


class RankedServer(Server):
    """Runs trials of several processes, of which it is rank 0."""

    def __init__(self, channel: Channel, setup: Message) -> None:
        super().__init__(channel, setup)
        self._ranks = Ranks(channel, setup)

    def _load(self) -> Objective:
        objective = super()._load()
        return lambda trial: self._ranks.run(objective, trial)

    def _tell(self, message: Message) -> None:
        if message["kind"] == "failed":
            self._ranks.fail(message["failure"])
            threading.Event().wait()  # for the end of this process
        super()._tell(message)


class SiblingServer(Server):
    """Runs trials as another rank than 0; the worker is its driver."""

    def _run(self, message: Message) -> Message:
        _leave_group()  # where the last trial failed
        os.environ.update(message["environment"])
        trial = SiblingTrial(message, self._answers)
        with printing_to(trial.checkpoint.parent):
            try:
                self._load()(trial)
            except BaseException as error:
                if not (trial.stopped or isinstance(error, TrialStopped)):
                    return {"kind": "failed", "failure": failure_of(error)}
            _leave_group()
        return {"kind": "ended"}


class SiblingTrial:
    """A trial as other ranks than 0 see it: a report waits for the answer to that of rank 0."""

    def __init__(self, message: Message, answers: queue.Queue[Message]) -> None:
        self.number: int = message["number"]
        self.params: dict[str, Any] = message["params"]
        self.seed: int = message["seed"]
        self.checkpoint = Path(message["checkpoint"])
        self.resume_from = self.checkpoint if message["resumes"] else None
        self.stopped = False
        self.trained = 0
        self._last_step: int | None = None
        self._attempt = message["attempt"]
        self._answers = answers

    def report(self, value: float, step: int, **metrics: float) -> None:
        """Go on, or end, as rank 0 does at its report of this step; the value is rank 0's to tell."""
        if not self.stopped and step == self._last_step:
            return  # rank 0 leaves it out
        self._last_step = step
        if not self.stopped:
            answer = self._answer()
            self.stopped = answer["stop"]
            if not self.stopped and answer["step"] != step:
                there = "has returned" if answer["step"] is None else f"is at its report of {answer['step']}"
                raise RuntimeError(
                    f"report() was given step={step}, but rank 0 {there}: reports are made by all"
                )
        if self.stopped:
            raise TrialStopped

    def remark(self, kind: str, text: str) -> None:
        """Rank 0 makes the same one."""

    def _answer(self) -> Message:
        while (answer := self._answers.get())["attempt"] != self._attempt:
            pass  # to a rank that did not report
        return answer


class Sibling:
    """A process of the worker's session."""

    def __init__(self, rank: int, setup: Message) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "hpsearch.search.backends.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self.rank = rank
        self.channel = Channel(ours)
        self.heard = time.monotonic()  # when it last gave a sign of life
        self.busy = False  # with a trial
        self.send({**setup, "rank": rank})

    def fileno(self) -> int:
        return self.channel.fileno()

    def send(self, message: Message) -> None:
        """Tell it something; of its death the listening thread hears."""
        with suppress(OSError):
            self.channel.send(message)


class Ranks:
    """The siblings of a worker, and the trial that they run together."""

    def __init__(self, channel: Channel, setup: Message) -> None:
        self._driver = channel
        self._count: int = setup["processes"]
        built_in = is_built_in(setup["objective"].get("name", []))
        self._sharing = strategy_variables(**setup["sharing"]) if built_in else {}
        self._attempt = 0
        self._trial: WorkerTrial | None = None
        self._failures: list[Failed] = []
        self._changed = threading.Condition()
        self._siblings = [Sibling(rank, setup) for rank in range(1, self._count)]
        threading.Thread(target=self._listen, daemon=True).start()

    def run(self, objective: Objective, trial: Trial) -> float:
        """Run a trial in all ranks; what rank 0 returns."""
        assert isinstance(trial, WorkerTrial)
        with rendezvous(self._count) as variables:
            self._begin(trial, variables)
            trial.on_answer = self._answer
            try:
                value = objective(trial)
            except BaseException as error:
                if not (trial.stopped or isinstance(error, TrialStopped)):
                    raise
                self._answer(None, True)
                _leave_group()
                if not self._all_left(LEAVE_SECONDS):
                    leave(1)
                raise
            self._answer(None, False)
            _leave_group()
            self._all_left(None)
        return value

    def fail(self, failure: dict[str, str], *, died: bool = False) -> None:
        """End the trial with the failure of a rank, or with what others tell of in a moment, and all ranks.

        One that died is the cause: the others fail by waiting for it.
        """
        with self._changed:
            self._failures.append((not died, len(self._failures), failure))
            if len(self._failures) == 1:
                threading.Timer(SETTLE_SECONDS, self._give_up).start()

    def _give_up(self) -> NoReturn:
        with self._changed:
            *_, failure = min(self._failures)
        with suppress(OSError):
            self._driver.send({"kind": "lost", "failure": failure})
        leave(1)

    def _begin(self, trial: WorkerTrial, variables: list[dict[str, str]]) -> None:
        self._attempt += 1
        self._trial = trial
        os.environ.update(variables[0] | self._sharing)
        message = {
            "kind": "trial",
            "attempt": self._attempt,
            "number": trial.number,
            "params": trial.params,
            "seed": trial.seed,
            "checkpoint": str(trial.checkpoint),
            "resumes": trial.resume_from is not None,
        }
        for sibling in self._siblings:
            sibling.busy = True
            sibling.send({**message, "environment": variables[sibling.rank] | self._sharing})

    def _answer(self, step: int | None, stop: bool) -> None:
        """Let all ranks hear what rank 0 heard at a report; no step: there is no further one."""
        for sibling in self._siblings:
            sibling.send({"kind": "answer", "attempt": self._attempt, "step": step, "stop": stop})

    def _all_left(self, seconds: float | None) -> bool:
        """Wait until all siblings have returned from the trial; False where that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not any(each.busy for each in self._siblings), seconds)

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            for sibling in self._siblings:
                selector.register(sibling, selectors.EVENT_READ, sibling)
            while True:
                for key, _ in selector.select(LOOK_SECONDS):
                    if not self._hear(key.data):
                        selector.unregister(key.data)
                for sibling in self._siblings:
                    if sibling.process.poll() is not None and not sibling.channel.has_news():
                        self._lost(sibling)  # what it forked keeps its socket open
                    if time.monotonic() - sibling.heard > SILENCE_SECONDS:
                        what = f"rank {sibling.rank} gave no sign of life for {SILENCE_SECONDS:g} s"
                        self.fail({"kind": "lost", "message": what}, died=True)

    def _hear(self, sibling: Sibling) -> bool:
        """Take in what a sibling says; False where these were its last words."""
        messages = sibling.channel.receive()
        sibling.heard = time.monotonic()
        if messages is None:
            self._lost(sibling)
            return False
        trial = self._trial
        for message in messages:
            if message["kind"] == "failed" and trial is not None and not trial.stopped:
                failure = blamed(message["failure"], trial)
                self.fail(failure | {"message": f"rank {sibling.rank}: {failure['message']}"})
            elif message["kind"] != "alive":  # a rank that fails because rank 0 was stopped has ended too
                with self._changed:
                    sibling.busy = False
                    self._changed.notify_all()
        return True

    def _lost(self, sibling: Sibling) -> None:
        what = how_it_ended(f"rank {sibling.rank}", sibling.process.wait())
        self.fail({"kind": "lost", "message": what}, died=True)


def _leave_group() -> None:
    """Leave torch's process group where the objective has not: the next trial meets at another place.

    DeepSpeed and Accelerate remember for as long as a process lives that it is in one; they are told.
    """
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_initialized():
        deepspeed: Any = sys.modules.get("deepspeed.comm.comm")
        knows = deepspeed is not None and deepspeed.is_initialized()
        (deepspeed if knows else distributed).destroy_process_group()
    accelerate: Any = sys.modules.get("accelerate.state")
    if accelerate is not None:
        accelerate.AcceleratorState._reset_state(reset_partial_state=True)
