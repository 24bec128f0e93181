"""What a worker process does with the trials that the driver gives it: one at a time, or several at once."""

from __future__ import annotations

import fcntl
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from ....objectives.base import Objective, TrialStopped
from ....objectives.catalog import PackedObjective, is_built_in, packed
from ....objectives.resolve import reports_again, resolve
from ....objectives.user.output import POLL_SECONDS
from ....storage.files import OUTPUT, make_folder, opened
from ....storage.locks import locked
from ...trials.failures import failure_of
from ...trials.reports import Report
from ...trials.trial import FolderTrial, as_number
from .channel import Channel, Message, end_session

RAYS = {"ray.tune", "ray.train", "ray.air"}  # modules by which a function of Ray Tune's reports
_saved: set[int] = set()  # the driver's output, which no process that a trial forks is to keep open
EVERY = signal.valid_signals()  # at hand: to ask takes longer than a fast timer leaves
TIMERS = {  # and the signals that they send
    signal.ITIMER_REAL: signal.SIGALRM,
    signal.ITIMER_VIRTUAL: signal.SIGVTALRM,
    signal.ITIMER_PROF: signal.SIGPROF,
}
ROUNDS = 1000  # of putting signals back, each of which a handler may have broken off
LEFT_SECONDS = 60.0  # for an attempt that was told to end to do so: a script has 10 s to save, and 10 more


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
        self._begun = time.monotonic()
        self._remarks: list[tuple[str, str]] = []  # which go with the next message
        self.on_answer: Callable[[int, bool], None] = lambda step, stop: None  # is told of the answers

    @property
    def seconds(self) -> float:
        """Since it began here: its worker was ready, and the objective loaded."""
        return time.monotonic() - self._begun

    def _remark(self, kind: str, text: str) -> None:
        self._remarks.append((kind, text))

    def take_remarks(self) -> list[tuple[str, str]]:
        """Those that the driver has not been told."""
        remarks, self._remarks = self._remarks, []
        return remarks

    def _ends(self, report: Report) -> bool:
        told = {"kind": "report", "number": self.number, "seconds": self.seconds, "trained": self.trained}
        self._channel.send(told | asdict(report) | {"remarks": self.take_remarks()})
        while True:
            answer = self._answers.get()
            if (answer["number"], answer["step"]) == (self.number, report.step):  # to no other's report
                self.on_answer(report.step, answer["stop"])
                return bool(answer["stop"])


def run_trial(objective: Objective, trial: WorkerTrial, reported: int) -> Message:
    """Run the objective; what became of it, as a message. `reported` is the last step the study has."""
    try:
        trial.catch_up(reported)
        value = objective(trial)
        if value is None and not RAYS.isdisjoint(sys.modules):
            raise TypeError(
                "the objective returned None, and hpsearch does not hear tune.report() of Ray Tune: "
                "trial.report(value, step=...) reports, and the last value is returned"
            )
        return how_it_ended(trial, as_number(value, "the objective returned"))
    except BaseException as error:
        return how_it_ended(trial, error)


def how_it_ended(trial: WorkerTrial, outcome: float | BaseException) -> Message:
    """The end of a trial, by its value or what it raised, as a message."""
    stopped = trial.stopped or isinstance(outcome, TrialStopped)
    trial.stopped = True  # a thread of the objective's that goes on reports to nobody
    if stopped:  # an objective's own trouble on its way out changes nothing
        return {"kind": "stopped", "number": trial.number}
    told = {"number": trial.number, "remarks": trial.take_remarks()}
    if not isinstance(outcome, BaseException):
        return {"kind": "done", **told, "value": outcome, "seconds": trial.seconds}
    return {"kind": "failed", **told, "failure": blamed(failure_of(outcome), trial)}


def blamed(failure: dict[str, str], trial: WorkerTrial) -> dict[str, str]:
    """The failure of a trial, with its checkpoint to blame where the trial did not go on from it."""
    return failure | (
        {"kind": "checkpoint"} if failure["kind"] in ("error", "silent") and trial.stuck else {}
    )


@contextmanager
def printing_to(folder: Path) -> Iterator[None]:
    """Send what a trial prints, from Python or below, to the log file in its folder.

    Whatever the trial makes of its streams, and if it closes them: the next one finds them as they were.
    """
    make_folder(folder)
    ours = {"stdout": sys.stdout, "stderr": sys.stderr}
    with ExitStack() as stack:
        log = stack.enter_context(_output_of(folder))
        for descriptor, (name, stream) in enumerate(ours.items(), start=1):
            saved = os.dup(descriptor)
            _saved.add(saved)
            stack.callback(_let_go, saved)
            stack.callback(_set_stream, name, stream, descriptor)
            stack.callback(os.dup2, saved, descriptor)
            os.dup2(log.fileno(), descriptor)
        stack.callback(_flush, *ours.values())
        try:
            yield
        finally:
            # What the trial may have put there, or taken away.
            _flush(getattr(sys, "stdout", None), getattr(sys, "stderr", None))


def _let_go(saved: int) -> None:
    _saved.discard(saved)
    os.close(saved)


def _let_all_go() -> None:
    while _saved:
        with suppress(OSError):  # closed by the trial
            os.close(_saved.pop())


os.register_at_fork(after_in_child=_let_all_go)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Begin when an earlier attempt has left the folder, which it may still write its checkpoint into.

    On Ray another worker goes on with a trial that has just paused. Who does not leave is not waited for.
    """
    with _output_of(folder) as held:
        until = time.monotonic() + LEFT_SECONDS
        while not locked(held.fileno()) and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            fcntl.flock(held.fileno(), fcntl.LOCK_UN)  # a process that the objective forked has it too


def _output_of(folder: Path) -> BinaryIO:
    return open(opened(folder / OUTPUT, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def _flush(*streams: Any) -> None:
    """Write what streams still hold; a trial may have closed them, or have anything else in their place."""
    for stream in streams:
        with suppress(Exception):  # no room: that the next checkpoint says
            stream.flush()


def _set_stream(name: str, stream: Any, descriptor: int) -> None:
    """Make a stream what it was before a trial; one that it closed, or took apart, is opened anew."""
    try:
        usable = not stream.closed
    except ValueError:  # it is detached
        usable = False
    if not usable:
        stream = open(descriptor, "w", closefd=False)  # noqa: SIM115 - it stays open
    setattr(sys, name, stream)


class Server:
    """Runs the trials that the driver gives this worker, one at a time."""

    def __init__(self, channel: Channel, setup: Message) -> None:
        self._channel = channel
        self._setup = setup
        self._answers: queue.Queue[Message] = queue.Queue()
        self._incoming: queue.Queue[Message] = queue.Queue()
        self._objective: Objective | None = None

    def hear(self, message: Message) -> None:
        """Take in what the driver says; called from another thread."""
        (self._answers if message["kind"] == "answer" else self._incoming).put(message)

    def serve(self) -> None:
        """Run trials until the driver says `exit`."""
        self._load_early()
        while (message := self._incoming.get())["kind"] != "exit":
            if message["kind"] == "trial":
                self._tell(self._run(message))

    def _run(self, message: Message) -> Message:
        folder = Path(message["folder"])
        try:  # whatever fails here, its output too, is the trial's failure
            with printing_to(folder), alone_in(folder):
                return run_trial(self._load(), self._trial(message), message["reported"])
        except BaseException as error:
            return {"kind": "failed", "number": message["number"], "failure": failure_of(error)}

    def _load_early(self) -> None:
        """Load what is hpsearch's own: torch takes seconds, and the first trial is not here yet."""
        if is_built_in(self._setup["objective"].get("name", [])):
            with suppress(Exception):  # it will fail again in that trial, and count as its failure
                self._load()

    def _load(self) -> Objective:
        if self._objective is None:
            setup = self._setup
            self._objective = with_signals_of_its_own(
                lambda: resolve(setup["objective"], metric=setup["metric"], processes=setup["processes"])
            )
        return self._objective

    def _trial(self, message: Message) -> WorkerTrial:
        sealed = not reports_again(self._setup["objective"])
        return WorkerTrial(message, self._channel, self._answers, sealed=sealed)

    def _tell(self, message: Message) -> None:
        try:
            self._channel.send(message)
        except OSError:
            leave(1)  # the driver is gone


class PackServer(Server):
    """Runs several trials at once, of an objective that can."""

    def __init__(self, channel: Channel, setup: Message) -> None:
        super().__init__(channel, setup)
        self._trials: dict[int, WorkerTrial] = {}

    def serve(self) -> None:
        self._load_early()
        pack = packed(self._setup["objective"]["name"], lambda trial: printing_to(trial.checkpoint.parent))
        while True:
            while not self._incoming.empty() or not pack.busy:
                message = self._incoming.get()
                match message["kind"]:
                    case "exit":
                        return
                    case "trial":
                        self._begin(pack, message)
                    case "drop" if message["number"] in self._trials:
                        trial = self._trials.pop(message["number"])
                        trial.stopped = True
                        pack.leave(trial)
                        self._tell({"kind": "stopped", "number": trial.number})
            for ended, outcome in pack.advance():
                trial = self._trials.pop(ended.number)
                self._tell(how_it_ended(trial, outcome))

    def _begin(self, pack: PackedObjective, message: Message) -> None:
        folder = Path(message["folder"])
        try:
            with printing_to(folder):
                trial = self._trial(message)
        except BaseException as error:
            self._tell({"kind": "failed", "number": message["number"], "failure": failure_of(error)})
            return
        self._trials[trial.number] = trial
        try:
            with printing_to(folder):
                trial.catch_up(message["reported"])
            pack.join(trial)
        except BaseException as error:
            del self._trials[trial.number]
            self._tell(how_it_ended(trial, error))


def with_signals_of_its_own(load: Callable[[], Objective]) -> Objective:
    """The objective, which hears signals by the handlers that its import sets, and by those of its own.

    Between its calls there are none of them, no timer runs, and no signal is blocked: they could raise in the
    middle of what the worker does.
    """
    if threading.current_thread() is not threading.main_thread():  # where no handler runs, nor can be set
        return load()

    blocked, ours = signal.pthread_sigmask(signal.SIG_BLOCK, ()), _handlers()
    try:
        objective = load()
    finally:
        its = _handlers()
        _put_back(ours, blocked)

    def run(trial: Any) -> float:
        rounds = 0
        try:
            _set_handlers(its)
            return objective(trial)
        finally:
            while rounds < ROUNDS:  # no call stands before the `try`: a handler may raise at each
                try:
                    rounds += 1
                    _put_back(ours, blocked)
                    break
                except BaseException:  # the objective's, which has ended
                    pass
            else:
                leave(1)

    return run


def _handlers() -> dict[int, Any]:
    """Those of all signals; None: not Python's."""
    return {number: signal.getsignal(number) for number in EVERY}


def _set_handlers(wanted: Mapping[int, Any]) -> None:
    for number, handler in wanted.items():
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _put_back(handlers: Mapping[int, Any], blocked: Iterable[int]) -> None:
    """End all timers, drop what they sent, and hear signals by these handlers again."""
    signal.pthread_sigmask(signal.SIG_BLOCK, EVERY)
    for timer, number in TIMERS.items():
        signal.setitimer(timer, 0)
        signal.signal(number, signal.SIG_IGN)  # which drops what came meanwhile
    _set_handlers(handlers)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def leave(code: int) -> NoReturn:
    """End this process at once, whatever threads an objective left, and with it the worker's session."""
    _drop_handlers()
    end_session(os.getsid(0))
    os._exit(code)


def _drop_handlers() -> None:
    """Hear no signal any more: an objective's handler would raise in the middle of our own last steps.

    torch's does where a DataLoader's processes end. Handlers run in the main thread, and in no other.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL if number == signal.SIGCHLD else signal.SIG_IGN)
