"""The words of a command: its macros, and what a trial puts in their place."""

from __future__ import annotations

import difflib
import json
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..base import ObjectiveError, Trial
from .checkpoints import newest, problem_of_pattern
from .config_file import CONFIG_MACRO, OWN_NAME, copies, write_config
from .forms import (
    ARGS_FORMS,
    SAYS_NULL,
    VALUE_FORMS,
    arguments,
    overrides,
    problem_of_forms,
    text,
    words,
)
from .places import placed, program_words
from .shell import MACRO, OWN_FORMS, SWITCH, macro_name, shell_string, shell_words, without

# Macros for several words: those of W&B sweeps, and Hydra's.
LIST_MACROS = (
    *("env", "interpreter", "args", "args_no_hyphens", "args_no_boolean_flags", "args_json", "args_hydra"),
)
TRIAL_MACROS = ("seed", "checkpoint", "resume_from", "run")  # macros for values that differ in each trial
_ASSIGNMENT = re.compile(r"[\w.+~@/]+=")  # name=value, in which null is a value
_ARGS = re.compile(r"\$\{args:(?P<forms>[^}]*)\}")


def own_values(trial: Trial) -> dict[str, Any]:
    """The values that differ in each trial, for macros and environment variables of these names."""
    values = trial.seed, str(trial.checkpoint), str(trial.resume_from or ""), str(trial.checkpoint.parent)
    return dict(zip(TRIAL_MACROS, values, strict=True))


def absent(parameters: Iterable[str], params: Mapping[str, Any]) -> list[str]:
    """The parameters of a space that a trial with `params` does not have."""
    return [name for name in parameters if not any(f"{each}.".startswith(f"{name}.") for each in params)]


def is_list_macro(word: str) -> bool:
    """Whether a word of a command becomes several words: `${args}`, `${args:dashes}`, `${env}`."""
    return word in (f"${{{name}}}" for name in LIST_MACROS) or _ARGS.fullmatch(word) is not None


def is_parameter_list(word: str) -> bool:
    """Whether a word of a command passes all parameters."""
    return is_list_macro(word) and word.startswith("${args")


def expand(
    command: list[str],
    params: dict[str, Any],
    own: Mapping[str, Any] = MappingProxyType({}),
    folder: str | None = None,
) -> list[str]:
    """The command's words with their macros replaced.

    A word that is only a list macro becomes several words. `own` are the `own_values` of the trial; a
    parameter of the same name takes precedence. A word whose parameter is null is left out, unless it is
    `name=${x}`, and so is one for a checkpoint if there is none to resume from. The script and the
    configuration files are looked up in `folder`, if they are there. Raises `ObjectiveError` for an unknown
    macro, or a missing file.
    """
    values = _Values(params, own, folder, command)
    placing = {} if folder is None else program_words(command, folder)
    command = [placing.get(place, word) for place, word in enumerate(command)]
    command = without(command, values.lack)
    string, starts_over = shell_string(command), {**own, **params}.get("resume_from") == ""
    expanded: list[str] = []
    for place, word in enumerate(command):
        if place == string:
            expanded.append(values.in_shell(word))
        elif not (starts_over and word.endswith("=${resume_from}")):
            expanded += values.in_place_of(word)
    if command and command[0] in ("python", "python3"):
        expanded[0] = sys.executable  # so that the script has the search's environment
    return expanded


class _Values:
    """What a trial puts in the place of macros."""

    def __init__(
        self, params: dict[str, Any], own: Mapping[str, Any], folder: str | None, command: list[str]
    ) -> None:
        self._params, self._own, self._folder = params, own, folder
        self._known = {**own, **params}
        self._copied = {file: Path(own.get("run", ""), name) for file, name in copies(command).items()}

    def lack(self, word: str) -> bool:
        """Whether a word is left out, because it has no value or no checkpoint to name."""
        if is_list_macro(word):
            return False
        for macro in MACRO.finditer(word):
            name = macro_name(macro[1])
            if name.startswith("checkpoint:"):
                if self._checkpoint(name) is None:
                    return True
            elif name in self._known and self._known[name] is None:
                says_null = not SAYS_NULL.isdisjoint(_forms(macro[1])) or _ASSIGNMENT.match(word)
                if SWITCH.fullmatch(macro[0]) or not says_null:
                    return True
        return False

    def in_place_of(self, word: str) -> list[str]:
        """The words in the place of one."""
        if is_list_macro(word):
            return self._listed(word)
        if (unknown := unknown_macro(word, self._known)) is not None:
            raise ObjectiveError(unknown)
        return self._filled(word)

    def in_shell(self, string: str) -> str:
        """A shell's string; a macro that becomes several words is quoted."""
        if (unknown := unknown_macro(string, self._known, in_shell=True)) is not None:
            raise ObjectiveError(unknown)
        at, parts = 0, list[str]()
        several = [word for each in shell_words(string) or () for word in each if _is_several(word.text)]
        for word in sorted(several, key=lambda word: word.start):
            parts += [MACRO.sub(self._text, string[at : word.start]), shlex.join(self._filled(word.text))]
            at = word.end
        return "".join(parts) + MACRO.sub(self._text, string[at:])

    def _listed(self, word: str) -> list[str]:
        if word == "${env}":
            return ["/usr/bin/env"]
        if word == "${interpreter}":
            return [sys.executable]
        if word == "${args_json}":
            return [json.dumps(self._params)]
        if word == "${args_no_hyphens}":
            return overrides(self._params)
        if word == "${args_hydra}":
            return overrides(self._params, ("hydra",))
        if word == "${args_no_boolean_flags}":
            return arguments(self._params, ("switches",))
        forms = _forms(word[2:-1])
        if (problem := problem_of_forms(forms, ARGS_FORMS)) is not None:
            raise ObjectiveError(f'the macro "{word}" {problem}')
        return arguments(self._params, forms)

    def _filled(self, word: str) -> list[str]:
        """The words in the place of one without list macros."""
        whole = MACRO.fullmatch(word)
        if whole is not None and "words" in (forms := _forms(whole[1])):
            return words(self._known[macro_name(whole[1])], forms)
        for macro in MACRO.finditer(word):
            if "repeat" in (forms := _forms(macro[1])):
                value = self._known[macro_name(macro[1])]
                before, after = word[: macro.start()], word[macro.end() :]
                rest = [MACRO.sub(self._text, part) for part in (before, after)]
                return [
                    text(each, forms).join(rest) for each in (value if isinstance(value, list) else [value])
                ]
        filled = MACRO.sub(self._text, word)
        return [filled] if filled or SWITCH.fullmatch(word) is None else []

    def _text(self, macro: re.Match[str]) -> str:
        if (config := CONFIG_MACRO.fullmatch(macro[0])) is not None:
            target = self._copied[config["file"]]
            write_config(placed(config["file"], self._folder), self._params | self._assigned(config), target)
            return str(target)
        name = macro_name(macro[1])
        if name.startswith("checkpoint:"):
            if (found := self._checkpoint(name)) is None:
                raise ObjectiveError(f'"{macro[0]}" names no checkpoint, and only a word can be left out')
            return str(found)
        value = self._known[name]
        if (switch := SWITCH.fullmatch(macro[0])) is None:
            return text(value, _forms(macro[1]))
        if name == "resume_from" and name not in self._params:
            value = value != ""  # whether the trial resumes
        if not isinstance(value, bool):
            raise ObjectiveError(f'"{macro[0]}" needs true or false, but {name} is {as_text(value)}')
        return switch["on" if value else "off"]

    def _checkpoint(self, name: str) -> Path | None:
        pattern = name.partition(":")[2]
        if (problem := problem_of_pattern(pattern)) is not None:
            raise ObjectiveError(f'"${{{name}}}" {problem}')
        if self._own.get("resume_from") == "":
            return None  # there is nothing to resume from
        return newest(Path(self._own.get("checkpoint", "")), pattern)

    def _assigned(self, config: re.Match[str]) -> dict[str, Any]:
        """The values that `${config:FILE train.seed=$seed}` puts into the file besides the parameters."""
        assigned: dict[str, Any] = {}
        for assignment in config["own"].split():
            name, _, given = assignment.partition("=")
            if OWN_NAME.fullmatch(given):
                value = self._own_value(given[1:])
                assigned[name] = None if value == "" else value
            else:
                assigned[name] = OWN_NAME.sub(lambda macro: as_text(self._own_value(macro[1])), given)
        return assigned

    def _own_value(self, name: str) -> Any:
        if not name.startswith("checkpoint:"):
            return self._own[name]
        found = self._checkpoint(name)
        return None if found is None else str(found)


def unknown_macro(word: str, known: Collection[str], *, in_shell: bool = False) -> str | None:
    """What is wrong with the macros in a word of a command; `known` are the allowed names.

    `in_shell`: whether the word is a shell's string.
    """
    if (args := _ARGS.fullmatch(word)) is not None:
        problem = problem_of_forms(_forms(args[0][2:-1]), ARGS_FORMS)
        return None if problem is None else f'the macro "{word}" {problem}'
    if is_list_macro(word):
        return None
    for macro in MACRO.finditer(word):
        if (open_macro := _unclosed(macro)) is not None:
            return open_macro
        name = macro_name(macro[1])
        if (config := CONFIG_MACRO.fullmatch(macro[0])) is not None:
            strange = next((own for own in OWN_NAME.findall(config["own"]) if _is_strange(own)), None)
            if strange is not None:
                allowed = ", ".join(f"${each}" for each in TRIAL_MACROS)
                return f'${{config:...}} has "${strange}" in "{config["own"].strip()}"; allowed: {allowed}'
        elif name.startswith("checkpoint:"):
            if (problem := problem_of_pattern(name.partition(":")[2])) is not None:
                return f'"{macro[0]}" {problem}'
        elif name not in known:
            near = difflib.get_close_matches(name, [*known, *LIST_MACROS], 1)
            hint = f', did you mean "${{{near[0]}}}"?' if near and near[0] not in LIST_MACROS else ""
            return (
                f'the command has an unknown macro in "{word}"{hint}; allowed: ${{PARAMETER}}, '
                + "".join(f"${{{each}}}, " for each in TRIAL_MACROS)
                + "${checkpoint:last}, ${config:FILE}, and as whole words "
                + ", ".join(f"${{{each}}}" for each in LIST_MACROS)
            )
        elif (problem := _problem_of_value(macro, word, in_shell=in_shell)) is not None:
            return problem
    return None


def _unclosed(macro: re.Match[str]) -> str | None:
    """That a macro has no `}`, and what was meant; None for one that is closed."""
    inside, another, _ = macro[1].partition("${")
    if macro[0].endswith("}") and not another:
        return None
    name = re.match(r"[^\s$'\"]*", inside)
    meant = f'; did you mean "${{{name[0]}}}"?' if name is not None and name[0] else ""
    where = ' before the next "${"' if another else ""
    return f'"${{{inside.rstrip()}" has no "}}"{where}{meant}'


def _problem_of_value(macro: re.Match[str], word: str, *, in_shell: bool) -> str | None:
    """What is wrong with the form of a parameter in a word."""
    if SWITCH.fullmatch(macro[0]) is not None:
        return None
    forms = _forms(macro[1])
    if (problem := problem_of_forms(forms, VALUE_FORMS)) is not None:
        name = macro_name(macro[1])
        return f'"{macro[0]}" {problem}; or ${{{name}:IF_TRUE|IF_FALSE}}'
    several = [form for form in ("words", "repeat") if form in forms]
    if not several:
        return None
    if in_shell:
        found = shell_words(word)
        if found is None or not any(_is_several(each.text) for line in found for each in line):
            return f'"{macro[0]}" becomes several words, which this shell string has no place for'
        return None
    if several == ["words"] and macro[0] != word:
        repeat = f"${{{macro_name(macro[1])}:repeat}}"
        return f'"{macro[0]}" must be a word of its own: in "{word}", write {repeat}'
    if sum("repeat" in _forms(each[1]) for each in MACRO.finditer(word)) > 1:
        return f'"{word}" repeats two lists; a word repeats one'
    return None


def _is_strange(name: str) -> bool:
    """Whether an assignment to a configuration file names no value of the trial."""
    if name.startswith("checkpoint:"):
        return problem_of_pattern(name.partition(":")[2]) is not None
    return name not in TRIAL_MACROS


def _is_several(word: str) -> bool:
    """Whether a word of a shell's string has a macro that becomes several words, or none."""
    if SWITCH.fullmatch(word) is not None:
        return True
    whole = MACRO.fullmatch(word)
    if whole is not None and "words" in _forms(whole[1]):
        return True
    return any("repeat" in _forms(macro[1]) for macro in MACRO.finditer(word))


def _forms(inside: str) -> list[str]:
    """The forms in a macro: `dashes` and `words` of `args:dashes,words`."""
    name, colon, forms = inside.partition(":")
    is_form = colon and name not in OWN_FORMS
    return [each.strip() for each in forms.split(",")] if is_form else []


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def flat(params: Mapping[Any, Any], prefix: str = "", separator: str = ".") -> dict[str, Any]:
    """Nested parameters under their names, joined by the separator."""
    flattened: dict[str, Any] = {}
    for name, value in params.items():
        path = f"{prefix}{name}"
        nested = isinstance(value, Mapping)
        flattened |= flat(value, f"{path}{separator}", separator) if nested else {path: value}
    return flattened
