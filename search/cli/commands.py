"""Steps as commands to type, which find the same study."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...storage.passwords import hidden
from ..errors import SearchError
from .places import NAMED

if TYPE_CHECKING:
    from ..values import NextStep

POSITIONAL = ("space", "study", "file")
ALSO = {"export": ["-o", "best.yaml"], "retry": ["--failed"]}  # what a command needs besides the arguments


def command(*words: str) -> str:
    """A command to type, quoted for the shell. A URL's password stays out of it, and so do targets' URLs.

    One that reads standard input needs the same text again.
    """
    named = NAMED.get()
    at = ["--server", named.server] if named is not None and named.typed else []
    typed = shlex.join(["hpsearch", *map(hidden, [*at, *_without_targets(words)])])
    return f"{typed} < FILE" if "-" in words else typed


def names_target(words: Iterable[str]) -> bool:
    """Whether a command as it was typed says who is notified."""
    return any(word.split("=")[0] == "--notify" for word in words)


def _without_targets(words: Iterable[str]) -> Iterator[str]:
    """The words of a command, with URL in place of each that is to be notified: it may be a secret."""
    before = ""
    for word in words:
        yield "URL" if before == "--notify" else "--notify=URL" if word.startswith("--notify=") else word
        before = word


def finding(storage: str | None, runs: str | Path | None) -> list[str]:
    """The options that a further command needs to find the same study in a database."""
    from_environment = storage == os.environ.get("HPSEARCH_STORAGE")
    options = {} if storage is None or from_environment else {"--storage": storage}
    options |= {} if runs is None else {"--runs": str(runs)}
    return [word for option in options.items() for word in option]


def of_step(step: NextStep, where: Sequence[str]) -> str:
    """The command of a step; `where` are the options that find the study, which `train` does not need."""
    named = {name: value for name, value in step.arguments.items() if name not in POSITIONAL}
    words = [step.operation.partition(" ")[0]]
    for name in POSITIONAL:
        if name in step.arguments:
            words.append(str(step.arguments[name] or name.upper()))
    also = ALSO.get(step.operation, [])
    return command(*words, *words_of(named), *also, *(() if step.operation == "train" else where))


@contextmanager
def steps_as_commands(where: Sequence[str]) -> Iterator[None]:
    """Add the steps that an error proposes to its message, as commands to type."""
    try:
        yield
    except SearchError as error:
        if not error.next_steps:
            raise
        lines = (f"to {step.why}: {of_step(step, where)}" for step in error.next_steps)
        raise type(error)("\n".join([str(error), *lines]), code=error.code) from error


def words_of(arguments: Mapping[str, Any]) -> list[str]:
    """Arguments as options of a command; changes of a space's budget and confirmation are among them."""
    words: list[str] = []
    for name, value in arguments.items():
        if name == "budget":
            words += words_of(value)
        elif name == "confirm":
            words.append("--confirm")
        else:
            words += [f"--{name.replace('_', '-')}", "VALUE" if value is None else str(value)]
    return words


def again(arguments: Mapping[str, Any]) -> str:
    """The command as it was typed, with these arguments in place of what it said of them."""
    options, words = words_of(arguments), []
    names = [word for word in options if word.startswith("--")]
    typed = iter(sys.argv[1:])
    for word in typed:
        if word.startswith("--server="):  # `command` adds it
            continue
        if word == "--server":
            next(typed, None)
            continue
        if word.split("=")[0] not in names:
            words.append(word)
        elif "=" not in word and word != "--confirm":
            next(typed, None)  # its value
    return command(*words, *options)
