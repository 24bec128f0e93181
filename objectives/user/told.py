"""What a command's script is told beside a trial's parameters, and the options by which it hears of these.

beside(["python", "t.py", "--model=m", "--config=${config:t.yaml}"], folder).layers
    ->  ({"epochs": 3}, {"model": "m"}), where t.yaml has `epochs: 3`
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ..base import ObjectiveError
from .command import LISTS as LIST_MACROS
from .command import OWN as OWN_MACROS
from .command import as_text, expand, flat
from .config_file import CONFIG, check_size, copies, read_config
from .shell import MACRO, ShellWord, shell_string, shell_words

LISTS = tuple(f"${{{name}}}" for name in LIST_MACROS if name.startswith("args"))  # have the parameters
ASSIGNED = re.compile(r"(?:--|\+{0,2}(?=[A-Za-z_]))([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
OWN = {name: f"${{{name}}}" for name in OWN_MACROS if name != "seed"}  # of a trial, and no other's
UNKNOWN = "${}"  # a value that only the shell knows
ENVIRONMENT = re.compile(r"\w+=")  # before a program's name
OPTION = re.compile(r"--([A-Za-z_][\w.-]*)")
NEGATIVE = re.compile(r"-[.\d]")  # begins a number, and no option
FLAGS_OF_HYDRA = ("multirun", "resolve", "run", "hydra-help", "help", "version", "info")  # before name=value


@dataclass(frozen=True)
class Told:
    """What a script was told by name, of which the later counts, and what cannot be read, with the reason."""

    layers: tuple[dict[str, Any], ...] = ()
    unread: dict[str, str] = field(default_factory=dict)


def beside(command: Sequence[str], folder: Path, params: Mapping[str, Any] = MappingProxyType({})) -> Told:
    """What a trial's script was told by its configuration files and by its command's own words.

    `--alpha=${r}` tells it `alpha`, by the value of the parameter `r`.
    The copy of a file in the trial's `folder` is what the script had; where that is gone, it is the file.
    """
    layers, unread = [], {}
    for file, copy in copies(command).items():
        try:
            copied = folder / copy
            layers.append(read_config(copied if copied.is_file() else Path(file).expanduser()))
        except ObjectiveError:
            unread[file] = "it cannot be read now: nobody knows what stands in it alone"
    string = shell_string(command)
    if string is not None and shell_words(command[string]) is None:
        unread[command[string]] = "nobody but the shell can tell its words apart"
    values, words = flat(dict(params)), list[str]()
    for before, word in itertools.pairwise([ShellWord(""), *_given(command)]):
        of_an_option = before.text.startswith("-") and "=" not in before.text
        if word.changes and before.text:  # the first is the program
            told = f"{before.text} {word.text}" if of_an_option else word.text
            unread[told] = "the shell puts its value there"
        words.append(UNKNOWN if word.changes else _filled(word.text, values))
    own = {name: value for name, value in _own_words(words) if name not in params}
    return Told((*layers, own), unread)


def changed(
    command: Sequence[str], params: Mapping[str, Any], folder: Path, besides: Iterable[str] = ()
) -> list[str]:
    """The configuration files that would tell a script something else now than they did in the trial.

    `besides` names what is to be something else now.
    """
    found = []
    own = {*besides} | {
        assigned.partition("=")[0]
        for word in command
        for macro in CONFIG.finditer(word)
        for assigned in macro["own"].split()
    }  # which another trial has other values of
    for file, name in copies(command).items():
        copied = folder / name
        if not copied.is_file():
            continue
        try:
            now = flat(read_config(Path(file).expanduser())) | flat(dict(params))
            then = flat(read_config(copied))
            if any(now.get(name) != then.get(name) for name in (now.keys() | then.keys()) - own):
                found.append(file)
        except ObjectiveError:
            found.append(file)
    return found


def options(command: Sequence[str], params: Mapping[str, Any], seed: int) -> list[str] | None:
    """The words of a trial by which the script hears of its parameters; None where it has none of them.

    `${name}` in a word of its own comes with the option before it.
    """
    trial = flat(dict(params))
    single = {"seed": seed} | trial
    words: list[str] | None = None
    for before, word in itertools.pairwise(["", *(word.text for word in _given(command))]):
        if word in LISTS:
            words = [*(words or ()), *expand(["", word], trial)[1:]]
        elif not CONFIG.search(word) and any(f"${{{name}}}" in word for name in single):
            option = [before] if before.startswith("-") and "${" not in before else []
            words = [*(words or ()), *option, *expand(["", word], single, OWN)[1:]]
    return words


def unsaid(command: Sequence[str]) -> list[str]:
    """The words for a command's program that say no parameter: those that `options` leaves out."""
    words = _arguments([word.text for word in _given(command)])
    pairs = itertools.pairwise([*words, "--"])
    return [word for word, after in pairs if "${" not in word and not _is_option_of(word, after)]


def overriding(command: Sequence[str], names: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """The words that set a parameter of these names anew, each with its place and the word that passes it.

    Of two options a script takes the last, and options before what stands in a configuration file.
    """
    files = {name: word for word in command if CONFIG.search(word) for name in names}
    passing = {name.replace("-", "_"): word for name, word in files.items()}
    for place, (word, after) in enumerate(itertools.pairwise([*command, "--"])):
        if word in LISTS:
            passing |= {name.replace("-", "_"): word for name in names if word != "${args_json}"}
        elif assigned := ASSIGNED.fullmatch(word) or OPTION.fullmatch(word):
            name = assigned[1].replace("-", "_")
            if "${" in word or _is_option_of(word, after):
                passing[name] = word if "${" in word else f"{word} {after}"
            elif name in passing:
                yield place, word, passing[name]


def _given(command: Sequence[str]) -> list[ShellWord]:
    """The words that tell a command's script something: of a shell's string those that its program gets.

    Where that starts several, they are those of the ones that have something of the trial's.
    """
    string = shell_string(command)
    commands = None if string is None else shell_words(command[string])
    if string is None or commands is None:
        return [ShellWord(word) for word in command]
    its = [words for words in commands if any("${" in word.text for word in words)] or commands
    programs = [
        itertools.dropwhile(lambda word: ENVIRONMENT.match(word.text) is not None, words) for words in its
    ]
    return [*itertools.chain.from_iterable(programs), *map(ShellWord, command[string + 1 :])]


def _own_words(command: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The names and values that stand in a command itself.

    `--name=value`, `--name value ...`, `--name` and, as Hydra has it, `name=value`.
    """
    option, values = "", list[str]()
    for word in [*command, "--"]:
        if option and _is_value(word) and ("=" not in word or not (values or option in FLAGS_OF_HYDRA)):
            values.append(word)
            continue
        if option and not any("${" in value for value in values):
            read = [_value(value) for value in values] or [True]
            yield option.replace("-", "_"), read if len(read) > 1 else read[0]
        option, values = "", []
        if "${" in word:
            continue
        if assigned := ASSIGNED.fullmatch(word):
            yield assigned[1].replace("-", "_"), _value(assigned[2])
        elif alone := OPTION.fullmatch(word):
            option = alone[1]


def _arguments(command: Sequence[str]) -> Sequence[str]:
    """The words after the program: a script, a module, or a program and its command."""
    for place, (before, word) in enumerate(itertools.pairwise(command), start=2):
        if before in ("-m", "-c") or word.endswith(".py"):
            return command[place:]
    return list(
        itertools.dropwhile(lambda word: not word.startswith("-") and not set("=$") & {*word}, command)
    )


def _is_option_of(word: str, after: str) -> bool:
    """Whether a word is the option of the macro that comes after it."""
    plain = after.startswith("${") and after not in LISTS
    return word.startswith("-") and "=" not in word and plain


def _filled(word: str, params: Mapping[str, Any]) -> str:
    """A word with the parameters for which it has a macro; others stay."""

    def value_of(macro: re.Match[str]) -> str:
        return as_text(params[macro[1]]) if macro[1] in params else macro[0]

    return word if word in LISTS else MACRO.sub(value_of, word)


def _is_value(word: str) -> bool:
    return word not in LISTS and (not word.startswith("-") or NEGATIVE.match(word) is not None)


def _value(text: str) -> Any:
    """A word as YAML reads it; what is none of that is a text."""
    try:
        check_size(text)
        value = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError):
        return text
    return value if isinstance(value, bool | int | float | list) else text
