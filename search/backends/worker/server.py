"""Runs the trials that the driver gives a worker process: one at a time, or several at once."""

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
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from ....objectives.base import Objective, TrialStopped
from ....objectives.info import ObjectiveInfo
from ....objectives.resolve import reports_again, resolve
from ....objectives.user.output import POLL_SECONDS
from ....storage.files import OUTPUT, make_folder, opened
from ....storage.locks import locked
from ....storage.texts import changed, writable
from ...garbage import none_while_loading
from ...trials.failures import failure_of
from ...trials.reports import Report
from ...trials.trial import FolderTrial, as_number
from .channel import Channel, Message, end_session

if TYPE_CHECKING:
    from ....objectives.runs import PackedTrials

RAY_REPORTERS = {"ray.tune", "ray.train", "ray.air"}  # modules through which functions report to Ray Tune
_saved: set[int] = set()  # descriptors of the driver's output, which forked processes must not keep open
ALL_SIGNALS = signal.valid_signals()  # computed once: asking takes longer than a fast timer's interval
TIMER_SIGNALS = {
    signal.ITIMER_REAL: signal.SIGALRM,
    signal.ITIMER_VIRTUAL: signal.SIGVTALRM,
    signal.ITIMER_PROF: signal.SIGPROF,
}
RESTORE_ATTEMPTS = 1000  # to restore signal handlers, each of which a handler may interrupt
KEEP_SECONDS = 2.0  # for a command to end, and its trial to keep its reports, where the driver is gone
EARLIER_ATTEMPT_SECONDS = 60.0  # for an earlier attempt to end: a script has 10 s to save, and 10 more


class WorkerTrial(FolderTrial):
    """The trial that an objective sees; its reports go to the driver and wait for the answer."""

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
        self.reported = max(self.reported, message["reported"])  # on a machine that did not hear them, too
        self._channel = channel
        self._answers = answers
        self._begun = message.get("since") or time.monotonic()
        self._remarks: list[tuple[str, str]] = []  # sent with the next message
        self._attributes: dict[str, Any] = {}  # sent with the next message
        self.unanswered = False  # whether it waits for the answer to a report, or gets none any more
        self.on_answer: Callable[[int, bool], None] = lambda step, stop: None  # called with each answer

    @property
    def seconds(self) -> float:
        """Seconds since it started here, with its worker ready and the objective loaded.

        In a worker that starts for this trial alone, since it was given.
        """
        return time.monotonic() - self._begun

    def _remark(self, kind: str, text: str) -> None:
        self._remarks.append((kind, text))

    def set_attribute(self, name: str, value: Any) -> None:
        self._attributes[name] = value

    def take_notes(self) -> Message:
        """Remarks and attributes that were not sent yet, as a part of a message."""
        remarks, self._remarks = self._remarks, []
        attributes, self._attributes = self._attributes, {}
        notes: Message = {"remarks": remarks} | ({"attributes": attributes} if attributes else {})
        return dict(changed(notes, writable))

    def deliver(self, report: Report) -> bool:
        """Where the driver is gone, the trial ends here: the next attempt delivers what is recorded."""
        message = {"kind": "report", "number": self.number, "seconds": self.seconds, "trained": self.trained}
        self.unanswered = True
        try:
            self._channel.send(message | asdict(report) | self.take_notes())
        except OSError:
            return True
        while (answer := self._answers.get())["kind"] != "gone":
            if (answer["number"], answer["step"]) == (self.number, report.step):  # not to another report
                self.unanswered = False
                self.on_answer(report.step, answer["stop"])
                return bool(answer["stop"])
        return True


def run_trial(objective: Objective, trial: WorkerTrial, reported: int) -> Message:
    """Run the objective; the end of the trial as a message. `reported` is the last step in the study."""
    try:
        trial.catch_up(reported)
        value = objective(trial)
        if value is None and not RAY_REPORTERS.isdisjoint(sys.modules):
            raise TypeError(
                "the objective returned None; hpsearch does not receive Ray Tune's tune.report() here: name "
                'a function of a config with that, objective: "ray:FILE.py:FUNCTION"; one of a trial calls '
                "trial.report(value, step=...), and returns the last value"
            )
        return end_message(trial, as_number(value, "the objective returned"))
    except BaseException as error:
        return end_message(trial, error)


def end_message(trial: WorkerTrial, outcome: float | BaseException) -> Message:
    """The end of a trial as a message, from its value or the exception that it raised."""
    stopped = trial.stopped or isinstance(outcome, TrialStopped)
    trial.stopped = True  # a thread that outlives the objective reports to nobody
    if stopped:  # errors of an objective that was stopped do not matter
        return {"kind": "stopped", "number": trial.number}
    end = {"number": trial.number, **trial.take_notes()}
    if not isinstance(outcome, BaseException):
        return {"kind": "done", **end, "value": outcome, "seconds": trial.seconds}
    return {"kind": "failed", **end, "failure": blamed(failure_of(outcome), trial)}


def blamed(failure: dict[str, str], trial: WorkerTrial) -> dict[str, str]:
    """The failure of a trial, blamed on its checkpoint where the trial could not resume from it."""
    return failure | (
        {"kind": "checkpoint"} if failure["kind"] in ("error", "silent") and trial.stuck else {}
    )


@contextmanager
def printing_to(folder: Path) -> Iterator[None]:
    """Send what a trial prints, from Python or below, to the log file in its folder.

    Whatever the trial does to its streams, even if it closes them, they are restored for the next trial.
    """
    make_folder(folder)
    ours = {"stdout": sys.stdout, "stderr": sys.stderr}
    with ExitStack() as stack:
        log = stack.enter_context(_output_of(folder))
        for descriptor, (name, stream) in enumerate(ours.items(), start=1):
            saved = os.dup(descriptor)
            _saved.add(saved)
            stack.callback(_close_saved, saved)
            stack.callback(_set_stream, name, stream, descriptor)
            stack.callback(os.dup2, saved, descriptor)
            os.dup2(log.fileno(), descriptor)
        stack.callback(_flush, *ours.values())
        try:
            yield
        finally:
            # Streams that the trial may have put there, or removed.
            _flush(getattr(sys, "stdout", None), getattr(sys, "stderr", None))


def _close_saved(saved: int) -> None:
    _saved.discard(saved)
    os.close(saved)


def _close_all_saved() -> None:
    while _saved:
        with suppress(OSError):  # the trial has closed it
            os.close(_saved.pop())


os.register_at_fork(after_in_child=_close_all_saved)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Start when an earlier attempt, which may still write its checkpoint, has left the folder.

    On Ray another worker may resume a trial that has just paused. It waits for a minute at most.
    """
    with _output_of(folder) as held:
        until = time.monotonic() + EARLIER_ATTEMPT_SECONDS
        while not locked(held.fileno()) and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            fcntl.flock(held.fileno(), fcntl.LOCK_UN)  # a forked process shares the lock


def _output_of(folder: Path) -> BinaryIO:
    return open(opened(folder / OUTPUT, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def _flush(*streams: Any) -> None:
    """Flush streams; a trial may have closed them, or replaced them by anything."""
    for stream in streams:
        with suppress(Exception):  # a full disk is reported by the next checkpoint
            stream.flush()


def _set_stream(name: str, stream: Any, descriptor: int) -> None:
    """Restore a stream as it was before a trial; one that it closed or detached is opened again."""
    try:
        usable = not stream.closed
    except ValueError:  # detached
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
        self._hosted: WorkerTrial | None = None  # the latest trial

    def hear(self, message: Message) -> None:
        """Handle a message of the driver; called from another thread."""
        (self._answers if message["kind"] == "answer" else self._incoming).put(message)

    def lose_driver(self) -> NoReturn:
        """The driver is gone: end this process and its session. Called from another thread.

        While a trial waits for the answer to a report, its command may print further ones, and nobody reads
        them. Such a trial ends as at a pause, and keeps them for the next attempt.
        """
        if "command" in self._setup["objective"] and self._hosted is not None and self._hosted.unanswered:
            self._answers.put({"kind": "gone"})
            time.sleep(KEEP_SECONDS)  # the main thread leaves before, unless the command takes longer
        leave(1)

    def serve(self) -> None:
        """Run trials until the driver sends `exit`."""
        self._load_early()
        while (message := self._incoming.get())["kind"] != "exit":
            if message["kind"] == "trial":
                self._tell(self._run(message))

    def _run(self, message: Message) -> Message:
        folder = Path(message["folder"])
        try:  # any failure here, also of the output, is the trial's failure
            with printing_to(folder), alone_in(folder):
                return run_trial(self._load(), self._trial(message), message["reported"])
        except BaseException as error:
            return {"kind": "failed", "number": message["number"], "failure": failure_of(error)}

    def _load_early(self) -> None:
        """Load a built-in objective before the first trial arrives: importing torch takes seconds."""
        if ObjectiveInfo(self._setup["objective"].get("name", [])).is_built_in:
            with suppress(Exception):  # it fails again in the first trial, and counts as its failure
                self._load()

    def _load(self) -> Objective:
        if self._objective is None:
            setup = self._setup
            with none_while_loading():
                self._objective = with_own_signals(
                    lambda: resolve(setup["objective"], metric=setup["metric"], processes=setup["processes"])
                )
        return self._objective

    def _trial(self, message: Message) -> WorkerTrial:
        sealed = not reports_again(self._setup["objective"])
        self._hosted = WorkerTrial(message, self._channel, self._answers, sealed=sealed)
        return self._hosted

    def _tell(self, message: Message) -> None:
        try:
            self._channel.send(message)
        except OSError:
            leave(1)  # the driver is gone


class PackServer(Server):
    """Runs several trials at once, for an objective that can train a pack."""

    def __init__(self, channel: Channel, setup: Message) -> None:
        super().__init__(channel, setup)
        self._trials: dict[int, WorkerTrial] = {}

    def serve(self) -> None:
        self._load_early()
        from ....objectives.runs import PackedTrials

        config = ObjectiveInfo(self._setup["objective"]["name"]).trainer
        assert config is not None
        pack = PackedTrials(config, lambda trial: printing_to(trial.checkpoint.parent))
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
                self._tell(end_message(trial, outcome))

    def _begin(self, pack: PackedTrials, message: Message) -> None:
        number, trial = message["number"], None
        try:
            with printing_to(Path(message["folder"])):
                trial = self._trial(message)
                trial.catch_up(message["reported"])
            pack.join(trial)
            self._trials[number] = trial
        except BaseException as error:
            failed = {"kind": "failed", "number": number, "failure": failure_of(error)}
            self._tell(failed if trial is None else end_message(trial, error))


def with_own_signals(load: Callable[[], Objective]) -> Objective:
    """Load an objective, which runs with the signal handlers that its import and its own calls set.

    Between its calls none of them is set, no timer runs, and no signal is blocked: a handler could raise in
    the middle of the worker's own code.
    """
    if threading.current_thread() is not threading.main_thread():  # where handlers neither run nor can be set
        return load()

    blocked, ours = signal.pthread_sigmask(signal.SIG_BLOCK, ()), _handlers()
    try:
        objective = load()
    finally:
        its_handlers = _handlers()
        _restore(ours, blocked)

    def run(trial: Any) -> float:
        rounds = 0
        try:
            _set_handlers(its_handlers)
            return objective(trial)
        finally:
            while rounds < RESTORE_ATTEMPTS:  # no call stands before the `try`: a handler may raise at each
                try:
                    rounds += 1
                    _restore(ours, blocked)
                    break
                except BaseException:  # from a handler of the objective, which has returned
                    pass
            else:
                leave(1)

    return run


def _handlers() -> dict[int, Any]:
    """The handlers of all signals; None: not set from Python."""
    return {number: signal.getsignal(number) for number in ALL_SIGNALS}


def _set_handlers(wanted: Mapping[int, Any]) -> None:
    for number, handler in wanted.items():
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _restore(handlers: Mapping[int, Any], blocked: Iterable[int]) -> None:
    """End all timers, discard their signals, and set these handlers again."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ALL_SIGNALS)
    for timer, number in TIMER_SIGNALS.items():
        signal.setitimer(timer, 0)
        signal.signal(number, signal.SIG_IGN)  # discards pending signals
    _set_handlers(handlers)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def leave(code: int) -> NoReturn:
    """End this process and the worker's session at once, whatever threads an objective left."""
    _drop_handlers()
    end_session(os.getsid(0))
    os._exit(code)


def _drop_handlers() -> None:
    """Ignore all signals: an objective's handler could raise in the last steps of this process.

    torch's does where a DataLoader's processes end. Handlers run in the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL if number == signal.SIGCHLD else signal.SIG_IGN)
