"""Any script, in any language, as an objective: started once per trial, read line by line.

The script learns its parameters from its arguments and reports by printing JSON lines:

    {"step": 100, "val_loss": 1.84, "train_loss": 1.79}

where the metric stands under its own name or under "value". Its last report is the trial's value.

Where a trial has several processes the script is started in each, with torchrun's variables (`ranks`). The
reports of rank 0 count; what the others print is in the trial's output. They end together: when one of them
fails, and when the trial does.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .base import ObjectiveError, Trial
from .config_file import write_config
from .ranks import meeting

TERM_SECONDS = 10.0  # between SIGTERM and SIGKILL
SILENCE_SECONDS = 0.5  # of a script that has ended, before its output counts as read
LOOK_SECONDS = 0.05  # between two looks at the ranks that have not ended yet
MACROS = "${env}, ${interpreter}, ${args}, ${args_no_hyphens}, ${args_no_boolean_flags}, ${args_json}"


Process = subprocess.Popen[bytes]
_TAKEN = ("self", "step", "value")  # the names of `report`'s own parameters


class CommandObjective:
    """Runs a command for each trial.

    Macros are those of W&B sweeps, `${name}` for one parameter, and `${config:FILE}` for the path of a copy
    of a configuration file that has the trial's values in it.
    """

    def __init__(self, command: list[str], metric: str, processes: int = 1) -> None:
        self._command = command
        self._metric = metric
        self._processes = processes

    def __call__(self, trial: Trial, /) -> float:
        words = expand(self._command, flat(trial.params), trial.checkpoint.parent)
        environment = os.environ | {
            "HPSEARCH_TRIAL": str(trial.number),
            "HPSEARCH_SEED": str(trial.seed),
            "HPSEARCH_CHECKPOINT": str(trial.checkpoint),
            "HPSEARCH_RESUME_FROM": str(trial.resume_from or ""),
        }
        ranks: list[Process] = []
        with meeting(self._processes) as variables:
            try:
                for rank, its in enumerate(variables):
                    ranks.append(_started(words, environment | its, leads=rank == 0))
                value = self._follow(ranks, trial)
                _wait(words[0], ranks)
            except BaseException:
                _terminate(ranks)
                raise
            finally:
                _kill_groups(ranks)  # what the script started and left behind
        if value is None:
            raise ObjectiveError(
                f'the command ended without reporting "{self._metric}"; it prints lines such as '
                + json.dumps({"step": 1, self._metric: 0.5})
            )
        return value

    def _follow(self, ranks: Sequence[Process], trial: Trial) -> float | None:
        """Pass the reports of rank 0 on as they come; the last value."""
        value, last = None, 0
        for line in _lines(ranks):
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            found = parse_report(line, self._metric)
            if found is None:
                continue
            value, step, metrics = found
            last = last + 1 if step is None else step
            trial.report(value, step=last, **metrics)
        return value


def _started(words: list[str], environment: dict[str, str], *, leads: bool) -> Process:
    """The script as a process of a trial, in a group of its own; the one that `leads` is listened to."""
    output = subprocess.PIPE if leads else None
    try:
        return subprocess.Popen(
            words, stdout=output, stdin=subprocess.DEVNULL, env=environment, process_group=0
        )
    except OSError as error:
        raise ObjectiveError(f"cannot start {shlex.join(words)}: {error.strerror}") from error


def _lines(ranks: Sequence[Process]) -> Iterator[bytes]:
    """The output of rank 0 line by line, until it ends, or another rank fails.

    What it started and left behind may keep its output open; that does not hold the trial.
    """
    rest = b""
    process, *others = ranks
    assert process.stdout is not None
    with process.stdout as output, selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while not any(other.poll() for other in others):
            if selector.select(SILENCE_SECONDS):
                read = os.read(output.fileno(), 1 << 16)
                if not read:
                    break
                *lines, rest = (rest + read).split(b"\n")
                yield from (line + b"\n" for line in lines)
            elif process.poll() is not None:
                break
    if rest:
        yield rest


def _wait(name: str, ranks: Sequence[Process]) -> None:
    """Wait until all ranks have ended. Raises `ChildProcessError` as soon as one has failed."""
    if len(ranks) == 1:
        ranks[0].wait()
    while not any(process.poll() for process in ranks) and None in [process.poll() for process in ranks]:
        time.sleep(LOOK_SECONDS)
    if None in [process.returncode for process in ranks]:
        time.sleep(SILENCE_SECONDS)  # for whoever fails with the one that has, or failed first
    failed = {rank: process.returncode for rank, process in enumerate(ranks) if process.poll()}
    if not failed:
        return
    # What is killed tells more than who then waits for it in vain, and says so.
    rank = min(failed, key=lambda rank: (failed[rank] > 0, rank))
    code = failed[rank]
    how = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
    of = f", rank {rank}," if len(ranks) > 1 else ""
    raise ChildProcessError(f"{name}{of} {how}; its output is in output.log")


def parse_report(line: bytes, metric: str) -> tuple[float, int | None, dict[str, float]] | None:
    """The value, step and further metrics of a printed report; None where the line is none."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        return _report_in(json.loads(line), metric)
    except (ValueError, RecursionError, OverflowError):
        return None  # some other output that starts with a brace


def _report_in(record: dict[str, Any], metric: str) -> tuple[float, int | None, dict[str, float]] | None:
    key = metric if metric in record else "value"
    if not isinstance(record.get(key), (int, float)) or isinstance(record[key], bool):
        return None
    step = record.get("step")
    metrics = {
        name: float(number)
        for name, number in record.items()
        if name not in (key, *_TAKEN) and isinstance(number, (int, float)) and name.isidentifier()
    }
    return float(record[key]), step, metrics


def expand(command: list[str], params: dict[str, Any], folder: Path = Path()) -> list[str]:
    """The command's words with their macros replaced.

    A word that is a list macro alone becomes several words. `folder` is the trial's own, for a configuration
    file that a word asks for. Raises `ObjectiveError` for an unknown macro, or where there is no such file.
    """
    lists: dict[str, list[str]] = {
        "${env}": ["/usr/bin/env"],
        "${interpreter}": [sys.executable],
        "${args}": [f"--{name}={_text(value)}" for name, value in params.items()],
        "${args_no_hyphens}": [f"{name}={_text(value)}" for name, value in params.items()],
        "${args_no_boolean_flags}": list(_without_boolean_flags(params)),
        "${args_json}": [json.dumps(params)],
    }
    words: list[str] = []
    for word in command:
        words += lists[word] if word in lists else [_fill(word, params, folder)]
    if command and command[0] in ("python", "python3"):
        words[0] = sys.executable  # the environment that the search runs in
    return words


def _fill(word: str, params: dict[str, Any], folder: Path) -> str:
    def value_of(macro: re.Match[str]) -> str:
        if macro[1].startswith("config:"):
            source = Path(macro[1].removeprefix("config:")).expanduser()
            write_config(source, params, target := folder / f"trial{source.suffix}")
            return str(target)
        if macro[1] not in params:
            raise ObjectiveError(
                f'the command has an unknown macro in "{word}"; there is ${{PARAMETER}}, ${{config:FILE}}, '
                f"and as words of their own {MACROS}"
            )
        return _text(params[macro[1]])

    return re.sub(r"\$\{([^}]*)\}?", value_of, word)


def _without_boolean_flags(params: dict[str, Any]) -> Iterator[str]:
    """W&B's form for argparse's store_true: a flag for True, nothing for False."""
    for name, value in params.items():
        if value is True:
            yield f"--{name}"
        elif value is not False:
            yield f"--{name}={_text(value)}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def flat(params: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested parameters under their dotted names."""
    found: dict[str, Any] = {}
    for name, value in params.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def signal_name(number: int) -> str:
    """SIGKILL for 9; a real-time signal has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _terminate(ranks: Sequence[Process]) -> None:
    """Ask the script and what it started to end, and give all ranks some time."""
    until = time.monotonic() + TERM_SECONDS
    for process in ranks:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    for process in ranks:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, until - time.monotonic()))


def _kill_groups(ranks: Sequence[Process]) -> None:
    for process in ranks:
        with suppress(ProcessLookupError):  # nothing of it is left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
