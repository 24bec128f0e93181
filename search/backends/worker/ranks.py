"""Trials of several processes, each of which runs the objective as if torchrun had started it.

    driver <--- socket ---> worker: rank 0 <--- sockets ---> siblings: ranks 1, 2, ...

Rank 0 is the worker itself. It alone talks to the driver. Its siblings live as long as it does, so that a
trial does not wait for them to start.

| what happens | what follows |
|---|---|
| a report of rank 0 ends the trial | all ranks get the same answer at this report, and return |
| a rank raises, dies or freezes | the worker reports it and ends, and all ranks with it |
| the worker dies | its siblings see the end of their sockets, and end |

A rank that waits for another in a collective cannot be interrupted, so a failure has to end all of them.
"""

from __future__ import annotations

import os
import queue
import selectors
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from ....objectives.base import Objective, Trial, TrialEnded, TrialStopped
from ....objectives.info import ObjectiveInfo
from ....objectives.processes import rendezvous, strategy_variables
from ...trials.failures import failure_of
from .channel import Channel, Message
from .process import SILENCE_SECONDS, exit_message, start_process
from .server import Server, WorkerTrial, blamed, leave, printing_to

SILENCE_CHECK_SECONDS = 1.0  # between two checks for silent ranks
CAUSE_SECONDS = 1.0  # after a failure, for other ranks to report its cause
SIBLING_EXIT_SECONDS = 20.0  # for siblings to return after their trial is stopped; less than a worker has


RankFailure = tuple[bool, int, dict[str, str]]  # whether the rank lives, failures before it, and the failure


class RankedServer(Server):
    """Runs trials of several processes, as their rank 0."""

    def __init__(self, channel: Channel, setup: Message) -> None:
        super().__init__(channel, setup)
        self._ranks = RankGroup(channel, setup)

    def _load(self) -> Objective:
        objective = super()._load()
        return lambda trial: self._ranks.run(objective, trial)

    def _tell(self, message: Message) -> None:
        if message["kind"] == "failed":
            self._ranks.fail(message["failure"])
            threading.Event().wait()  # until this process ends
        super()._tell(message)


class SiblingServer(Server):
    """Runs trials as a rank other than 0; the worker is its driver."""

    def _run(self, message: Message) -> Message:
        _leave_group()  # in case the last trial failed
        os.environ.update(message["environment"])
        trial = SiblingTrial(message, self._answers)
        with printing_to(trial.checkpoint.parent):
            try:
                self._load()(trial)
            except BaseException as error:
                if not (trial.stopped or isinstance(error, TrialStopped | TrialEnded)):
                    return {"kind": "failed", "failure": failure_of(error)}
            _leave_group()
        return {"kind": "ended"}


class SiblingTrial:
    """A trial as seen by ranks other than 0: a report waits for the answer to that of rank 0."""

    def __init__(self, message: Message, answers: queue.Queue[Message]) -> None:
        self.number: int = message["number"]
        self.params: dict[str, Any] = message["params"]
        self.seed: int = message["seed"]
        self.checkpoint = Path(message["checkpoint"])
        self.resume_from = self.checkpoint if message["resumes"] else None
        self.reported: int = message["reported"]
        self.last_value: float | None = message["last_value"]
        self.stopped = False
        self.trained = 0
        self._last_step: int | None = None
        self._attempt = message["attempt"]
        self._answers = answers

    def report(self, value: float, step: int, **metrics: float) -> None:
        """Continue or end as rank 0 does at its report of this step; only rank 0 reports a value."""
        if not self.stopped and step == self._last_step:
            return  # rank 0 skips it too
        self._last_step = step
        if not self.stopped:
            answer = self._answer()
            self.stopped = answer["stop"]
            if not self.stopped and answer["step"] != step:
                there = "has returned" if answer["step"] is None else f"reports step {answer['step']}"
                raise RuntimeError(
                    f"report() was given step={step}, but rank 0 {there}: reports are made by all"
                )
        if self.stopped:
            raise TrialStopped

    def remark(self, kind: str, text: str) -> None:
        """Rank 0 makes the same remark."""

    def set_attribute(self, name: str, value: Any) -> None:
        """Rank 0 sets the same attribute."""

    def _answer(self) -> Message:
        while (answer := self._answers.get())["attempt"] != self._attempt:
            pass  # to an attempt in which this rank did not report
        return answer


class Sibling:
    """Another process of the worker's session, with a rank of its own."""

    def __init__(self, rank: int, setup: Message) -> None:
        self.channel, self.process = start_process()
        self.rank = rank
        self.heard = time.monotonic()  # when it last gave a sign of life
        self.busy = False  # whether it runs a trial
        self.send({**setup, "rank": rank})

    def fileno(self) -> int:
        return self.channel.fileno()

    def send(self, message: Message) -> None:
        """Send a message; the listening thread notices where the sibling is dead."""
        with suppress(OSError):
            self.channel.send(message)


class RankGroup:
    """The siblings of a worker, and the trial that they run together."""

    def __init__(self, channel: Channel, setup: Message) -> None:
        self._driver = channel
        self._count: int = setup["processes"]
        built_in = ObjectiveInfo(setup["objective"].get("name", [])).is_built_in
        self._sharing = strategy_variables(**setup["sharing"]) if built_in else {}
        self._attempt = 0
        self._trial: WorkerTrial | None = None
        self._failures: list[RankFailure] = []
        self._changed = threading.Condition()
        self._siblings = [Sibling(rank, setup) for rank in range(1, self._count)]
        threading.Thread(target=self._listen, daemon=True).start()

    def run(self, objective: Objective, trial: Trial) -> float:
        """Run a trial in all ranks, and return the value of rank 0."""
        assert isinstance(trial, WorkerTrial)
        with rendezvous(self._count) as variables:
            self._begin(trial, variables)
            trial.on_answer = self._answer
            try:
                value = objective(trial)
            except BaseException as error:
                if not (trial.stopped or isinstance(error, TrialStopped | TrialEnded)):
                    raise
                self._answer(None, True)
                _leave_group()
                if not self._all_left(SIBLING_EXIT_SECONDS):
                    leave(1)
                raise
            self._answer(None, False)
            _leave_group()
            self._all_left(None)
        return value

    def fail(self, failure: dict[str, str], *, died: bool = False) -> None:
        """End the trial and all ranks, with the failure of one rank: of those in a moment, the likely cause.

        A rank that died is the cause: the others fail because they wait for it.
        """
        with self._changed:
            self._failures.append((not died, len(self._failures), failure))
            if len(self._failures) == 1:
                threading.Timer(CAUSE_SECONDS, self._give_up).start()

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
            "reported": trial.reported,
            "last_value": trial.last_value,
        }
        for sibling in self._siblings:
            sibling.busy = True
            sibling.send({**message, "environment": variables[sibling.rank] | self._sharing})

    def _answer(self, step: int | None, stop: bool) -> None:
        """Pass rank 0's answer to a report on to all ranks; `step` is None where no more reports follow."""
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
                for key, _ in selector.select(SILENCE_CHECK_SECONDS):
                    if not self._hear(key.data):
                        selector.unregister(key.data)
                for sibling in self._siblings:
                    if sibling.process.poll() is not None and not sibling.channel.has_news():
                        self._lost(sibling)  # processes it forked may keep its socket open
                    if time.monotonic() - sibling.heard > SILENCE_SECONDS:
                        what = f"rank {sibling.rank} gave no sign of life for {SILENCE_SECONDS:g} s"
                        self.fail({"kind": "lost", "message": what}, died=True)

    def _hear(self, sibling: Sibling) -> bool:
        """Handle the messages of a sibling; False where there will be no more."""
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
            elif message["kind"] != "alive":  # a rank may also fail because rank 0 was stopped
                with self._changed:
                    sibling.busy = False
                    self._changed.notify_all()
        return True

    def _lost(self, sibling: Sibling) -> None:
        what = exit_message(f"rank {sibling.rank}", sibling.process.wait())
        self.fail({"kind": "lost", "message": what}, died=True)


def _leave_group() -> None:
    """Leave torch's process group if the objective has not: the next trial meets at another address.

    DeepSpeed and Accelerate keep the group as long as a process lives, so their state is reset too.
    """
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_initialized():
        deepspeed: Any = sys.modules.get("deepspeed.comm.comm")
        knows = deepspeed is not None and deepspeed.is_initialized()
        (deepspeed if knows else distributed).destroy_process_group()
    accelerate: Any = sys.modules.get("accelerate.state")
    if accelerate is not None:
        accelerate.AcceleratorState._reset_state(reset_partial_state=True)
