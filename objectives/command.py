"""Any script, in any language, as an objective: started once per trial, read line by line.

The script learns its parameters from its arguments and reports by printing JSON lines:

    {"step": 100, "val_loss": 1.84, "train_loss": 1.79}

where the metric stands under its own name or under "value". Its last report is the trial's value.
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
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from .base import ObjectiveError, Trial
from .config_file import write_config

TERM_SECONDS = 10.0  # between SIGTERM and SIGKILL
SILENCE_SECONDS = 0.5  # of a script that has ended, before its output counts as read
MACROS = "${env}, ${interpreter}, ${args}, ${args_no_hyphens}, ${args_no_boolean_flags}, ${args_json}"


_TAKEN = ("self", "step", "value")  # the names of `report`'s own parameters


class CommandObjective:
    """Runs a command for each trial.

    Macros are those of W&B sweeps, `${name}` for one parameter, and `${config:FILE}` for the path of a copy
    of a configuration file that has the trial's values in it.
    """

    def __init__(self, command: list[str], metric: str) -> None:
        self._command = command
        self._metric = metric

    def __call__(self, trial: Trial, /) -> float:
        words = expand(self._command, flat(trial.params), trial.checkpoint.parent)
        environment = os.environ | {
            "HPSEARCH_TRIAL": str(trial.number),
            "HPSEARCH_SEED": str(trial.seed),
            "HPSEARCH_CHECKPOINT": str(trial.checkpoint),
            "HPSEARCH_RESUME_FROM": str(trial.resume_from or ""),
        }
        try:
            process = subprocess.Popen(
                words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment, process_group=0
            )
        except OSError as error:
            raise ObjectiveError(f"cannot start {shlex.join(words)}: {error.strerror}") from error
        try:
            value = self._follow(process, trial)
            code = process.wait()
        except BaseException:
            _terminate(process)
            raise
        finally:
            _kill_group(process)  # what the script started and left behind
        if code:
            how = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
            raise ChildProcessError(f"{words[0]} {how}; its output is in output.log")
        if value is None:
            raise ObjectiveError(
                f'the command ended without reporting "{self._metric}"; it prints lines such as '
                + json.dumps({"step": 1, self._metric: 0.5})
            )
        return value

    def _follow(self, process: subprocess.Popen[bytes], trial: Trial) -> float | None:
        """Pass the script's reports on as they come; the last value."""
        value, last = None, 0
        for line in _lines(process):
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            found = parse_report(line, self._metric)
            if found is None:
                continue
            value, step, metrics = found
            last = last + 1 if step is None else step
            trial.report(value, step=last, **metrics)
        return value


def _lines(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """The script's output line by line, until it ends.

    What it started and left behind may keep its output open; that does not hold the trial.
    """
    rest = b""
    assert process.stdout is not None
    with process.stdout as output, selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while True:
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


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Ask the script and what it started to end, and give it some time."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(TERM_SECONDS)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # nothing of it is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
