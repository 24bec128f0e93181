"""Any script, in any language, as an objective: started once per trial, while its output is read (`reports`).

The script gets its parameters as arguments. Its last report is the trial's value.

If a trial has several processes, the script is started in each, with torchrun's variables (`processes`). The
reports of rank 0 count; the output of the others goes to the trial's output. All processes end when one of
them fails, or when the trial ends.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..base import NothingReported, ObjectiveError, ScriptError, Trial
from ..processes import rendezvous
from ..reports import LineSplitter, PrintedReport, ReportFinder
from .config_file import CONFIG_MACRO, copies, write_config
from .output import POLL_SECONDS, SILENCE_SECONDS, Output, Process
from .shell import MACRO, without_absent
from .writing import SIGNALLING, FileState, half_written, let_write, set_aside, unfinished

TERM_SECONDS = 10.0  # between SIGTERM and SIGKILL
LATE_SECONDS = 0.5  # several reports at once are late if they follow so much silence
# Makes programs print UTF-8 without buffering, also into a pipe.
UNBUFFERED = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", "GFORTRAN_UNBUFFERED_PRECONNECTED": "y"}
# Macros for several words, as in W&B sweeps.
LIST_MACROS = ("env", "interpreter", "args", "args_no_hyphens", "args_no_boolean_flags", "args_json")
TRIAL_MACROS = ("seed", "checkpoint", "resume_from", "run")  # macros for values that differ in each trial


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

    def __call__(self, trial: Trial, /) -> float:
        own = own_values(trial)
        params = flat(trial.params)
        words = expand(without_absent(self.command, absent(self.parameters, params)), params, own)
        environment = os.environ | UNBUFFERED | {"HPSEARCH_TRIAL": str(trial.number)}
        environment |= {f"HPSEARCH_{name.upper()}": as_text(value) for name, value in own.items()}
        ranks: list[Process] = []
        delivery = _Delivery(trial)
        written: dict[Path, FileState] = {}
        with rendezvous(self.processes) as variables:
            try:
                for rank, of_rank in enumerate(variables):
                    ranks.append(_started(words, environment | of_rank, leads=rank == 0))
                with Output(ranks) as output:
                    try:
                        return self._follow(words[0], ranks, output, delivery)
                    except BaseException:
                        written = let_write(ranks, trial.checkpoint, output, delivery.times)
                        _terminate(ranks, output)
                        raise
            finally:
                with SIGNALLING:
                    half = half_written(ranks, trial.checkpoint)
                    _kill_groups(ranks)  # processes that the script started and left behind
                    set_aside([*half, *unfinished(written)])

    def _follow(self, name: str, ranks: Sequence[Process], output: Output, delivery: _Delivery) -> float:
        """Pass on the reports of rank 0 as they come, until all ranks have ended. Returns the last value."""
        lines, reports = LineSplitter(), ReportFinder(self.metric)
        for piece in output.pieces():
            printed = [report for line in lines.feed(piece.text) for report in reports.read(line)]
            delivery.add(printed, piece.waited)
        delivery.add([report for line in lines.end() for report in reports.read(line)])
        _wait(name, ranks, output)
        if delivery.value is None:
            raise NothingReported(
                f'the command ended without reporting "{self.metric}"; it must print lines such as '
                + json.dumps({"step": 1, self.metric: 0.5}),
                detail=_in_words(reports.near_misses, output.last_errors(0)),
            )
        if reports.unusable:
            unusable = f"it printed lines that are not valid reports: {' and '.join(reports.unusable)}"
            delivery.trial.remark("unusable", unusable)
        return delivery.value


class _Delivery:
    """Passes the reports of one attempt on to its trial."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.value: float | None = None  # of the last report
        self.times: list[int] = []  # of the last two reports, in nanoseconds like file times
        self._last: int | None = None  # step
        self._counts = True  # whether reports are counted, because none has had a step

    def add(self, printed: Sequence[PrintedReport], waited: float = 0.0) -> None:
        """Report what was printed at once, after `waited` seconds of silence.

        Several reports after a long silence were printed one by one, but held in a buffer: the training has
        already reached the last of them.
        """
        numbered = list(self._numbered(printed))
        if len(numbered) > 1 and waited >= LATE_SECONDS:
            (first, _), *_, (last, _) = numbered
            self.trial.trained = last
            self.trial.remark(
                "late",
                f"its reports of steps {first} to {last} came together after {waited:.1f} s of silence, "
                "too late for early stopping if it trained between them: its output is buffered; "
                "flush it after each report",
            )
        for step, report in numbered:
            self.value = report.value
            self.times = [*self.times[-1:], time.time_ns()]
            self.trial.report(report.value, step=step, **report.metrics)

    def _numbered(self, printed: Sequence[PrintedReport]) -> Iterator[tuple[int, PrintedReport]]:
        """Reports with their steps, which are counted if none has one. Steps that do not rise are dropped.

        So is a report without a step after reports with steps: it repeats the last one.
        """
        for report in printed:
            self._counts = self._counts and report.step is None
            last = self._last or 0
            step = report.step if report.step is not None else last + 1 if self._counts else last
            if self._last is not None and step <= self._last:
                again = f"step {step}" if report.step is not None else "without a step"
                self.trial.remark(
                    "repeated", f"it reported {again} after step {self._last}, which is left out"
                )
                continue
            self._last = step
            yield step, report


def _in_words(near_misses: Sequence[str], errors: str) -> str:
    """The output of a script that may explain its failure."""
    printed = [f"it printed {' and '.join(near_misses)}"] if near_misses else []
    return "; ".join(printed + ([f"standard error ends with {errors}"] if errors else []))


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


def _wait(name: str, ranks: Sequence[Process], output: Output) -> None:
    """Wait until all ranks have ended. Raises `ScriptError` as soon as one has failed."""
    if len(ranks) == 1:
        ranks[0].wait()
    while not any(process.poll() for process in ranks) and None in [process.poll() for process in ranks]:
        time.sleep(POLL_SECONDS)
    if None in [process.returncode for process in ranks]:
        output.drain(SILENCE_SECONDS)  # others may fail at the same time, or have caused the failure
    failed = {rank: process.returncode for rank, process in enumerate(ranks) if process.poll()}
    if not failed:
        return
    # A killed rank comes first: the others may only have failed because they lost it.
    rank = min(failed, key=lambda rank: (failed[rank] > 0, rank))
    code = failed[rank]
    how = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
    of = f", rank {rank}," if len(ranks) > 1 else ""
    raise ScriptError(f"{name}{of} {how}", detail=_in_words((), output.last_errors(rank)))


def own_values(trial: Trial) -> dict[str, Any]:
    """The values that differ in each trial, for macros and environment variables of these names."""
    values = trial.seed, str(trial.checkpoint), str(trial.resume_from or ""), str(trial.checkpoint.parent)
    return dict(zip(TRIAL_MACROS, values, strict=True))


def absent(parameters: Iterable[str], params: Mapping[str, Any]) -> list[str]:
    """The parameters of a space that a trial with `params` does not have."""
    return [name for name in parameters if not any(f"{each}.".startswith(f"{name}.") for each in params)]


def expand(
    command: list[str], params: dict[str, Any], own: Mapping[str, Any] = MappingProxyType({})
) -> list[str]:
    """The command's words with their macros replaced.

    A word that is only a list macro becomes several words. `own` are the `own_values` of the trial; a
    parameter of the same name takes precedence. An option with `${resume_from}` is left out if there is no
    checkpoint to resume from. Raises `ObjectiveError` for an unknown macro, or a missing file.
    """
    lists: dict[str, list[str]] = {
        "${env}": ["/usr/bin/env"],
        "${interpreter}": [sys.executable],
        "${args}": [f"--{name}={as_text(value)}" for name, value in params.items()],
        "${args_no_hyphens}": [f"{name}={as_text(value)}" for name, value in params.items()],
        "${args_no_boolean_flags}": list(_without_boolean_flags(params)),
        "${args_json}": [json.dumps(params)],
    }
    starts_over = {**own, **params}.get("resume_from") == ""
    copied = {file: Path(own.get("run", ""), name) for file, name in copies(command).items()}
    words: list[str] = []
    for word in command:
        if word in lists:
            words += lists[word]
        elif not (starts_over and word.endswith("=${resume_from}")):
            words.append(_fill(word, params, own, copied))
    if command and command[0] in ("python", "python3"):
        words[0] = sys.executable  # so that the script has the search's environment
    return words


def _fill(word: str, params: dict[str, Any], own: Mapping[str, Any], copied: Mapping[str, Path]) -> str:
    known = {**own, **params}

    def value_of(macro: re.Match[str]) -> str:
        if (config := CONFIG_MACRO.fullmatch(macro[0])) is not None:
            target = copied[config["file"]]
            values = params | _assigned(config["own"], own)
            write_config(Path(config["file"]).expanduser(), values, target)
            return str(target)
        return as_text(known[macro[1]])

    if (unknown := unknown_macro(word, known)) is not None:
        raise ObjectiveError(unknown)
    return MACRO.sub(value_of, word)


def unknown_macro(word: str, known: Collection[str]) -> str | None:
    """What is wrong with the macros in a word of a command; `known` are the allowed names."""
    if word in (f"${{{name}}}" for name in LIST_MACROS):
        return None
    for macro in MACRO.finditer(word):
        if (config := CONFIG_MACRO.fullmatch(macro[0])) is not None:
            names = re.findall(r"\$(\w*)", config["own"])
            strange = next((name for name in names if name not in TRIAL_MACROS), None)
            if strange is not None:
                allowed = ", ".join(f"${name}" for name in TRIAL_MACROS)
                return f'${{config:...}} has "${strange}" in "{config["own"].strip()}"; allowed: {allowed}'
        elif macro[1] not in known:
            near = difflib.get_close_matches(macro[1], [*known, *LIST_MACROS], 1)
            hint = f', did you mean "${{{near[0]}}}"?' if near and near[0] not in LIST_MACROS else ""
            return (
                f'the command has an unknown macro in "{word}"{hint}; allowed: ${{PARAMETER}}, '
                + "".join(f"${{{name}}}, " for name in TRIAL_MACROS)
                + "${config:FILE}, and as whole words "
                + ", ".join(f"${{{name}}}" for name in LIST_MACROS)
            )
    return None


def _assigned(words: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """The values that `${config:FILE train.seed=$seed}` puts into the file besides the parameters."""
    assigned: dict[str, Any] = {}
    for word in words.split():
        name, _, given = word.partition("=")
        if given.removeprefix("$") in own:
            value = own[given.removeprefix("$")]
            assigned[name] = None if value == "" else value
        else:
            assigned[name] = re.sub(r"\$(\w+)", lambda macro: as_text(own[macro[1]]), given)
    return assigned


def _without_boolean_flags(params: dict[str, Any]) -> Iterator[str]:
    """W&B's form for the action `store_true` of argparse: a flag for True, nothing for False."""
    for name, value in params.items():
        if value is True:
            yield f"--{name}"
        elif value is not False:
            yield f"--{name}={as_text(value)}"


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def flat(params: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested parameters under their dotted names."""
    flattened: dict[str, Any] = {}
    for name, value in params.items():
        nested = isinstance(value, dict)
        flattened |= flat(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return flattened


def signal_name(number: int) -> str:
    """SIGKILL for 9; a real-time signal has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _terminate(ranks: Sequence[Process], output: Output) -> None:
    """Send SIGTERM to the script's process groups, and wait a while for all ranks to end."""
    for process in ranks:
        with SIGNALLING, suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            os.killpg(process.pid, signal.SIGCONT)  # it may have been stopped
    output.drain(TERM_SECONDS)


def _kill_groups(ranks: Sequence[Process]) -> None:
    for process in ranks:
        with suppress(ProcessLookupError):  # the group has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
