"""The settings of a command's script besides a trial's parameters, and the options that pass them.

settings_beside(["python", "t.py", "--model=m", "--config=${config:t.yaml}"], folder).layers
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
from .config_file import CONFIG_MACRO, check_size, copies, read_config, with_values
from .macros import TRIAL_MACROS, as_text, expand, flat, is_parameter_list
from .places import placed
from .shell import MACRO, SWITCH, ShellWord, macro_name, names_in, shell_string, shell_words, without_absent

ASSIGNMENT = re.compile(r"(?:--|\+{0,2}(?=[A-Za-z_]))([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
UNFILLED_MACROS = {name: f"${{{name}}}" for name in TRIAL_MACROS if name != "seed"}  # differ in each trial
UNKNOWN = "${}"  # a value that only the shell knows
ENVIRONMENT = re.compile(r"\w+=")  # an assignment before a program's name
OPTION = re.compile(r"--([A-Za-z_][\w.-]*)")
NEGATIVE = re.compile(r"-[.\d]")  # a negative number, not an option
HYDRA_FLAGS = ("multirun", "resolve", "run", "hydra-help", "help", "version", "info")  # before name=value


@dataclass(frozen=True)
class ScriptSettings:
    """The named settings of a script, of which later layers override earlier ones, and the unreadable."""

    layers: tuple[dict[str, Any], ...] = ()
    unread: dict[str, str] = field(default_factory=dict)


def settings_beside(
    command: Sequence[str],
    folder: Path,
    params: Mapping[str, Any] = MappingProxyType({}),
    space_folder: str | None = None,
) -> ScriptSettings:
    """The settings of a trial's script, from its configuration files and from the words of its command.

    `--alpha=${r}` sets `alpha` to the value of the parameter `r`. The settings of a file come from its copy
    in the trial's `folder`, which the script has read; if the copy is gone, from the file itself, which may
    be in `space_folder`.
    """
    layers, unread, values = [], {}, flat(dict(params))
    for file, copy in copies(command).items():
        try:
            copied = folder / copy
            layers.append(read_config(copied if copied.is_file() else placed(file, space_folder)))
        except ObjectiveError:
            unread[file] = "it cannot be read now, so its other settings are unknown"
    string = shell_string(command)
    if string is not None and shell_words(command[string]) is None:
        unread[command[string]] = "only the shell can split it into words"
    words = list[str]()
    nulls = {name for name, value in values.items() if value is None}
    for before, word in itertools.pairwise([ShellWord(""), *_given(without_absent(command, nulls))]):
        of_an_option = before.text.startswith("-") and "=" not in before.text
        if word.changes and before.text:  # the first word is the program
            setting = f"{before.text} {word.text}" if of_an_option else word.text
            unread[setting] = "the shell substitutes its value"
        words.append(UNKNOWN if word.changes else _filled(word.text, values))
    own = {name: value for name, value in _own_words(words) if name not in params}
    return ScriptSettings((*layers, own), unread)


def changed_files(
    command: Sequence[str],
    params: Mapping[str, Any],
    folder: Path,
    besides: Iterable[str] = (),
    space_folder: str | None = None,
) -> list[str]:
    """The configuration files whose settings have changed since the trial.

    `besides` names settings that are meant to differ.
    """
    differing = []
    own = {*besides} | {
        assigned.partition("=")[0]
        for word in command
        for macro in CONFIG_MACRO.finditer(word)
        for assigned in macro["own"].split()
    }  # these differ in each trial
    for file, name in copies(command).items():
        copied = folder / name
        if not copied.is_file():
            continue
        try:
            source = placed(file, space_folder)
            unequal = dict.fromkeys(own)
            now = flat(with_values(read_config(source), flat(dict(params)) | unequal, source))
            then = flat(with_values(read_config(copied), unequal, copied))
            if any(now.get(name) != then.get(name) for name in now.keys() | then.keys()):
                differing.append(file)
        except ObjectiveError:
            differing.append(file)
    return differing


def passed_options(command: Sequence[str], params: Mapping[str, Any], seed: int) -> list[str] | None:
    """The words of a trial's command that pass its parameters; None if there are none.

    A `${name}` as a whole word comes with the option before it.
    """
    trial = flat(dict(params))
    single = {"seed": seed} | trial
    words: list[str] | None = None
    for before, word in itertools.pairwise(["", *(word.text for word in _given(command))]):
        if is_parameter_list(word):
            words = [*(words or ()), *expand(["", word], trial)[1:]]
        elif not CONFIG_MACRO.search(word) and not single.keys().isdisjoint(names_in(word)):
            is_option = before.startswith("-") and "${" not in before and SWITCH.fullmatch(word) is None
            option = [before] if is_option else []
            words = [*(words or ()), *expand(["", *option, word], single, UNFILLED_MACROS)[1:]]
    return words


def fixed_arguments(command: Sequence[str]) -> list[str]:
    """The arguments of a command's program that pass no parameter, without those of `passed_options`."""
    words = _arguments([word.text for word in _given(command)])
    pairs = itertools.pairwise([*words, "--"])
    return [word for word, after in pairs if "${" not in word and not _is_option_of(word, after)]


def overriding_words(command: Sequence[str], names: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """The words that override a parameter of these names, each with its index and the word that passes it.

    The last of two options counts, and an option overrides a configuration file.
    """
    files = {name: word for word in command if CONFIG_MACRO.search(word) for name in names}
    passing = {name.replace("-", "_"): word for name, word in files.items()}
    for place, (word, after) in enumerate(itertools.pairwise([*command, "--"])):
        if is_parameter_list(word):
            passing |= {name.replace("-", "_"): word for name in names if word != "${args_json}"}
        elif switch := SWITCH.fullmatch(word):
            ways = filter(None, map(OPTION.fullmatch, (switch["on"], switch["off"])))
            passing |= {option[1].replace("-", "_"): word for option in ways}
        elif assigned := ASSIGNMENT.fullmatch(word) or OPTION.fullmatch(word):
            name = assigned[1].replace("-", "_")
            if "${" in word or _is_option_of(word, after):
                passing[name] = word if "${" in word else f"{word} {after}"
            elif name in passing:
                yield place, word, passing[name]


def _given(command: Sequence[str]) -> list[ShellWord]:
    """The words that a command's script gets; in a shell's string, those of the program.

    If the string has several programs, only those with macros count.
    """
    string = shell_string(command)
    commands = None if string is None else shell_words(command[string])
    if string is None or commands is None:
        return [ShellWord(word) for word in command]
    with_macros = [words for words in commands if any("${" in word.text for word in words)] or commands
    programs = [
        itertools.dropwhile(lambda word: ENVIRONMENT.match(word.text) is not None, words)
        for words in with_macros
    ]
    return [*itertools.chain.from_iterable(programs), *map(ShellWord, command[string + 1 :])]


def _own_words(command: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The names and values in a command's own words.

    Their forms are `--name=value`, `--name value ...`, `--name` and, for Hydra, `name=value`.
    """
    option, values = "", list[str]()
    for word in [*command, "--"]:
        if option and _is_value(word) and ("=" not in word or not (values or option in HYDRA_FLAGS)):
            values.append(word)
            continue
        if option and not any("${" in value for value in values):
            read = [_value(value) for value in values] or [True]
            yield option.replace("-", "_"), read if len(read) > 1 else read[0]
        option, values = "", []
        if "${" in word:
            continue
        if assigned := ASSIGNMENT.fullmatch(word):
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
    """Whether a word is the option of the macro after it."""
    plain = after.startswith("${") and not is_parameter_list(after) and SWITCH.fullmatch(after) is None
    return word.startswith("-") and "=" not in word and plain


def _filled(word: str, params: Mapping[str, Any]) -> str:
    """A word with its macros replaced by parameters; other macros stay."""

    def value_of(macro: re.Match[str]) -> str:
        name = macro_name(macro[1])
        if name not in params:
            return macro[0]
        value, switch = params[name], SWITCH.fullmatch(macro[0])
        return as_text(value) if switch is None else switch["on" if value else "off"]

    return word if is_parameter_list(word) else MACRO.sub(value_of, word)


def _is_value(word: str) -> bool:
    return not is_parameter_list(word) and (not word.startswith("-") or NEGATIVE.match(word) is not None)


def _value(text: str) -> Any:
    """A word parsed as YAML; the text itself if that fails."""
    try:
        check_size(text)
        value = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError):
        return text
    return value if isinstance(value, bool | int | float | list) else text
