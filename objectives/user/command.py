"""Any script, in any language, as an objective: started once per trial, while its output is read (`reports`).

The script gets its parameters as arguments. Its last report is the trial's value.

If a trial has several processes, the script is started in each, with torchrun's variables (`processes`). The
reports of rank 0 count; the output of the others goes to the trial's output. All processes end when one of
them fails, or when the trial ends.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ..base import NothingReported, ObjectiveError, ScriptError, Trial, TrialStopped
from ..processes import rendezvous
from ..reports import PrintedReport
from .counting import Count
from .macros import absent, as_text, expand, flat, own_values
from .output import POLL_SECONDS, SILENCE_SECONDS, Output, Process
from .rest import Numbered, Rest
from .shell import without_absent
from .sources import Arrived, Source, lines_before, source_of
from .whole_lines import with_whole_lines
from .writing import (
    SIGNALLING,
    FileState,
    await_save,
    half_written,
    kill,
    let_write,
    set_aside,
    terminate,
    unfinished,
)

SAVES = re.compile(r"\$\{?(checkpoint|resume_from)\b")  # macros that tell a script where to save
TERM_SECONDS = 10.0  # between SIGTERM and SIGKILL
END_SECONDS = 0.5  # for a script that has reported past its pause to end by itself
LATE_SECONDS = 0.5  # several reports at once are late if they follow so much silence


@dataclass(frozen=True)
class CommandObjective:
    """Runs a command for each trial.

    The macros are those of W&B sweeps, `${name}` for one parameter, `${seed}`, `${checkpoint}`,
    `${resume_from}` and `${run}` for values of the trial itself, and `${config:FILE}` for the path of a copy
    of a configuration file with the trial's values. Words with one of the space's `parameters` that a trial
    does not have, because the parameter's condition is not met, are left out.
    """

    command: list[str]
    metric: str
    processes: int = 1
    parameters: Collection[str] = ()
    folder: str | None = None  # of the space file, in which its script and configuration files are
    report: Mapping[str, str] = field(default_factory=dict)  # the source of its values; empty: its output

    def __call__(self, trial: Trial, /) -> float:
        rest = Rest.of(trial)
        if rest is not None and rest.ended:
            return rest.deliver(trial)
        own = own_values(trial)
        params = flat(trial.params)
        words = expand(
            without_absent(self.command, absent(self.parameters, params)), params, own, self.folder
        )
        environment = with_whole_lines(os.environ) | {"HPSEARCH_TRIAL": str(trial.number)}
        environment |= {f"HPSEARCH_{name.upper()}": as_text(value) for name, value in own.items()}
        count = Count(trial, rest)
        source = source_of(self.report, self.metric, trial, {**own, **params}, count.before)
        for name, value in source.environment.items():
            environment.pop(name, None) if value is None else environment.update({name: value})
        environment.pop("RANK", None)  # of a launcher around the search
        ranks: list[Process] = []
        delivery = _Delivery(trial, count, rest)
        delivery.saves = any(map(SAVES.search, self.command))
        written: dict[Path, FileState] = {}
        with closing(source), rendezvous(self.processes) as variables:
            try:
                for rank, of_rank in enumerate(variables):
                    ranks.append(_started(words, environment | of_rank, leads=rank == 0))
                with Output(ranks, lines_before(trial)) as output:
                    try:
                        return self._follow(words[0], ranks, output, source, delivery)
                    except BaseException as error:
                        stopped = isinstance(error, TrialStopped)
                        if stopped and delivery.rest:
                            output.drain(END_SECONDS)
                        heard = partial(delivery.hear, source, output) if stopped else lambda: delivery.times
                        written = let_write(ranks, trial.checkpoint, output, heard)
                        has_ended = all(rank.poll() == 0 for rank in ranks)
                        terminate(ranks, output)
                        output.drain(TERM_SECONDS)
                        if stopped:
                            delivery.keep_rest(source, output, has_ended=has_ended)
                        raise
            finally:
                with SIGNALLING:
                    half = half_written(ranks, trial.checkpoint)
                    kill(ranks)  # processes that the script started and left behind
                    set_aside([*half, *unfinished(written)])

    def _follow(
        self, name: str, ranks: Sequence[Process], output: Output, source: Source, delivery: _Delivery
    ) -> float:
        """Pass on the reports of a trial as they come, until all ranks have ended. Returns the last value."""
        for piece in output.pieces(source.every):
            delivery.add(source, source.take(piece))
        _await_end(ranks, output)
        code = ranks[0].poll()
        has_ended = code is not None and code >= 0
        # One that was killed may have been in the middle of a line, or of the epoch that a bar shows.
        delivery.add(source, source.end() if has_ended else source.take(output.take_drained()))
        _check_codes(name, ranks, output)
        if delivery.value is None and delivery.earlier is not None:  # nothing was left to train
            return delivery.earlier.deliver(delivery.trial)
        if delivery.value is None and not source.unusable:
            delivery.value = _nothing_left(delivery.trial)
        if delivery.value is None:
            raise NothingReported(
                f'the command ended without reporting "{self.metric}"; it must {source.asks}',
                detail=_in_words(source.near_misses, output.last_errors(0)),
            )
        for kind, text in source.remarks():
            delivery.trial.remark(kind, text)
        if source.unusable:
            delivery.trial.remark("unusable", f"reports are left out: {' and '.join(source.unusable)}")
        return delivery.value


def _nothing_left(trial: Trial) -> float | None:
    """The value of a trial whose checkpoint has left its script nothing to train; None without one."""
    if trial.resume_from is None or trial.last_value is None:
        return None
    trial.remark("rest", f"it resumed and reported nothing more: its value is that of step {trial.reported}")
    return trial.last_value


class _Delivery:
    """Passes the reports of one attempt on to its trial."""

    def __init__(self, trial: Trial, count: Count, earlier: Rest | None) -> None:
        """`earlier`: what the attempt before has reported after its pause."""
        self.trial = trial
        self.count = count
        self.earlier = earlier
        self.rest: list[Numbered] = []  # after the report at which the trial was stopped
        self.value: float | None = None  # of the last report
        self.times: list[int] = []  # of the last two reports, in nanoseconds like file times
        self.saves = False  # whether the script is told where to save
        self._last: int | None = None  # step
        self._counts = True  # whether reports are counted, because none has had a step
        self._kept: int | None = None  # the step of the first report, while it waits

    def add(self, source: Source, arrived: Arrived) -> None:
        """Report what has arrived at once.

        Several reports after a long silence were printed one by one, but held in a buffer: the training has
        already reached the last of them.
        """
        if arrived.from_first:
            self.count.from_first()
        if arrived.found:
            for kind, text in source.remarks():
                self.trial.remark(kind, text)
        numbered, waited = list(self._numbered(arrived.found)), arrived.waited
        if len(numbered) > 1 and waited >= LATE_SECONDS:
            (first, _), *_, (last, _) = numbered
            self.trial.trained = last
            buffered = (
                "" if source.every is not None else ": its output is buffered; flush it after each report"
            )
            self.trial.remark(
                "late",
                f"its reports of steps {first} to {last} came together after {waited:.1f} s of silence, "
                f"too late for early stopping if it trained between them{buffered}",
            )
        if numbered and self.earlier is not None:
            # What the checkpoint from which the script resumes already had in it is not reported again.
            numbered[:0] = [each for each in self.earlier.reports if each[0] < numbered[0][0]]
            self.earlier = None
        if self.value is None:
            self._keep(numbered, source.waiting)
        if numbered:
            try:
                self._pass_on(numbered)
            finally:
                Rest.forget(self.trial)
                self._kept = None

    def _keep(self, numbered: Sequence[Numbered], waiting: PrintedReport | None) -> None:
        """Keep the first report of the attempt while it waits, for JSON to follow or for the script to save.

        Were this process killed meanwhile, the next attempt has it, and knows which one the checkpoint is of.
        """
        if not numbered and waiting is not None:
            step = self._step_of(waiting, self.count.before)
            earlier = () if self.earlier is None else self.earlier.reports
            numbered = [*(each for each in earlier if each[0] < step), (step, waiting)]
        if not numbered or numbered[-1][0] == self._kept:
            return
        step, report = numbered[-1]
        Rest(report.value, False, numbered).keep(self.trial)
        if _is_counted(report):
            self.count.note(step)
        self._kept = step

    def _pass_on(self, numbered: Sequence[Numbered]) -> None:
        for place, (step, report) in enumerate(numbered, 1):
            if self.saves and not self.times:
                await_save(self.trial.checkpoint)
            self.value = report.value
            self.times = [*self.times[-1:], time.time_ns()]
            if _is_counted(report) and step != self._kept:
                self.count.note(step)
            try:
                self.trial.report(report.value, step=step, **report.metrics)
            except TrialStopped:
                self.rest = list(numbered[place:])
                raise

    def hear(self, source: Source, output: Output) -> Sequence[int]:
        """Keep what was reported since the trial was stopped. Returns the times of the last two reports."""
        if numbered := list(self._numbered(source.take(output.take_drained()).found)):
            self.rest += numbered
            self.times = [*self.times[-1:], time.time_ns()]
        return self.times

    def keep_rest(self, source: Source, output: Output, *, has_ended: bool) -> None:
        """Keep the reports after the one at which the trial was stopped, for the next attempt."""
        arrived = [source.take(output.take_drained())]
        if has_ended:  # else the last line may be half a one
            arrived.append(source.end())
        for reports in arrived:
            self.rest += self._numbered(reports.found)
        last = self.rest[-1][1].value if self.rest else self.value
        if last is not None and (self.rest or has_ended):
            Rest(last, has_ended, self.rest).keep(self.trial)

    def _numbered(self, printed: Sequence[PrintedReport]) -> Iterator[tuple[int, PrintedReport]]:
        """Reports with their steps, which are counted if none has one. Steps that do not rise are dropped.

        So is a report without a step after reports with steps: it repeats the last one.
        """
        for report in printed:
            self._counts = self._counts and report.step is None
            last = self.count.before if self._last is None else self._last
            step = self._step_of(report, last)
            if self._last is not None and step <= self._last:
                again = f"step {step}" if report.step is not None else "without a step"
                self.trial.remark(
                    "repeated", f"it reported {again} after step {self._last}, which is left out"
                )
                continue
            self._last = step
            yield step, report

    def _step_of(self, report: PrintedReport, last: int) -> int:
        """The step of a report that comes after the step `last`."""
        if report.step is None:
            return last + 1 if self._counts else last
        return report.step + (self.count.offset if report.counted else 0)


def _is_counted(report: PrintedReport) -> bool:
    return report.step is None or report.counted


def _in_words(near_misses: Sequence[str], errors: str) -> str:
    """What may explain the failure of a script."""
    return "; ".join([*near_misses, *([f"standard error ends with {errors}"] if errors else [])])


def _started(words: list[str], environment: dict[str, str], *, leads: bool) -> Process:
    """Start the script in a process group of its own; standard output is read from the one that `leads`."""
    output = subprocess.PIPE if leads else None
    try:
        return subprocess.Popen(
            words,
            stdout=output,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env=environment,
            process_group=0,
        )
    except OSError as error:
        raise ObjectiveError(f"cannot start {shlex.join(words)}: {error.strerror}") from error


def _await_end(ranks: Sequence[Process], output: Output) -> None:
    """Wait until all ranks have ended, or one has failed."""
    if len(ranks) == 1:
        ranks[0].wait()
    while not any(process.poll() for process in ranks) and None in [process.poll() for process in ranks]:
        time.sleep(POLL_SECONDS)
    if None in [process.returncode for process in ranks]:
        output.drain(SILENCE_SECONDS)  # others may fail at the same time, or have caused the failure


def _check_codes(name: str, ranks: Sequence[Process], output: Output) -> None:
    """Raise `ScriptError` if a rank has failed."""
    failed = {rank: process.returncode for rank, process in enumerate(ranks) if process.poll()}
    if not failed:
        return
    # A killed rank comes first: the others may only have failed because they lost it.
    rank = min(failed, key=lambda rank: (failed[rank] > 0, rank))
    code = failed[rank]
    how = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
    of = f", rank {rank}," if len(ranks) > 1 else ""
    raise ScriptError(f"{name}{of} {how}", detail=_in_words((), output.last_errors(rank)))


def signal_name(number: int) -> str:
    """SIGKILL for 9; a real-time signal has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
