"""A converted space: what one tool's module finds in a file, and its text as a space file of ours."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, TypeVar

from ....objectives.user.places import RUNNER, SCRIPT
from ....objectives.user.shell import ShellWord, shell_string, shell_words
from ....spaces.dialects import CONVERTED
from ....spaces.expressions import CONSTANTS
from ....spaces.fields import TO_FILL, show
from ....spaces.relations import NAME
from ....spaces.stopping import USUAL, is_length, snake
from ...trials.yaml_text import one_line, text_of
from ..draws import HELPER, RAW, Draw, Unsaid, one_of_mappings
from ..space_from import TO_FILL_IN
from ..space_from.metric import goal_of
from .source import Section, Source

LONGEST_NAME = 200
MOST_TRIALS = 10**9  # of a grid, whose end no search will see
# What a shell does around a program.
NO_PROGRAMS = {
    "cd",
    "source",
    ".",
    "export",
    "set",
    "unset",
    "ulimit",
    "module",
    "echo",
    "mkdir",
    "tee",
    "sleep",
}
ENVIRONMENT = re.compile(r"\w+=")  # an assignment before a program's name
WORDS_OF_ALL = {  # macros for all parameters: the words for each of them
    "${args}": ("--{given}={value}",),
    "${args_no_hyphens}": ("{given}={value}",),
    "${args_hydra}": ("{given}=${{{name}:hydra}}",),
    "${args_no_equals}": ("--{given}", "{value}"),
    "${args_append_hydra}": ("+{given}={value}",),
    "${args_override_hydra}": ("++{given}={value}",),
}
T = TypeVar("T")
BY_OUR_NAMES = ("${args_json}", "${args_no_boolean_flags}")  # which no words for each parameter replace
OURS = ("${args}", "${args_no_hyphens}", "${args_hydra}", "${args_no_boolean_flags}", "${args_json}")
UNNAMED = "parameter"  # where a name has no letter that a space knows


@dataclass(frozen=True)
class Parameter:
    """A parameter of the space, and where it comes from."""

    name: str  # in the space
    given: str  # in the other tool's file, as its program is told
    value: Any
    path: str
    remarks: tuple[str, ...] = ()
    is_helper: bool = False
    form: str = ""  # in which its value reaches the program, such as `literal`

    @property
    def macro(self) -> str:
        """What stands for its value in a command."""
        return f"${{{self.name}:{self.form}}}" if self.form else f"${{{self.name}}}"


@dataclass(frozen=True)
class Setting:
    """A field of the space beside its parameters, and where it comes from."""

    key: str  # `budget`, `execution.workers`
    value: Any
    path: str = ""
    remarks: tuple[str, ...] = ()


@dataclass
class Converted:
    """A space in the making. A tool's module adds to it; `text` writes it."""

    source: Source
    name: str
    command: list[str] = field(default_factory=list)
    command_path: str = ""
    command_remarks: list[str] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    metric: str = TO_FILL
    metric_path: str = ""
    metric_remarks: list[str] = field(default_factory=list)
    goal: str | None = None  # by default, by the metric's name
    reading: list[Setting] = field(default_factory=list)  # how the metric is read: `report`, `value`
    remarks: list[str] = field(default_factory=list)  # on the whole
    to_fill: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)  # keys without a counterpart, and why

    def add(
        self,
        given: str,
        draw: Draw,
        path: str,
        *,
        when: dict[str, Any] | None = None,
        form: str = "",
        name: str = "",
    ) -> str:
        """Add a parameter. Returns its name in the space, which differs where no name of ours can be `given`.

        Two of one name and value, in different branches of a choice, are one. `name`: in place of it.
        """
        name = self.free_name(name or given, path) if when is None else name_of(given)
        value, helper = draw.value, draw.helper
        if helper is not None:
            raw = self.free_name(f"{name.replace('.', '_')}{HELPER}", path)
            value = value | {"expr": value["expr"].replace(RAW, raw)}
            helper = helper | {"pass": False}
            why = (f"a helper: {name} is calculated from it",)
            self.parameters.append(Parameter(raw, raw, _with_when(helper, when), path, why, is_helper=True))
        remarks = draw.remarks if name == given else (f"its name there is {given}", *draw.remarks)
        self.parameters.append(Parameter(name, given, _with_when(value, when), path, remarks, form=form))
        return name

    def add_one_of(
        self,
        section: Section,
        groups: Sequence[dict[str, Any]],
        helper: str,
        path: str,
        why: str,
        path_of: Callable[[int, str], str],
    ) -> None:
        """Add the keys of mappings, one of which is chosen as a whole by its number, a helper.

        `path_of`: of a key in the mapping of this index.
        """
        helper = self.free_name(helper, path)
        numbers = {"choices": list(range(1, len(groups) + 1)), "pass": False}
        self.parameters.append(Parameter(helper, helper, numbers, path, (why,), is_helper=True))
        for name in dict.fromkeys(name for group in groups for name in group):
            first = path_of(next(index for index, group in enumerate(groups) if name in group), name)
            with section.source.part():
                values, present = [group.get(name) for group in groups], [name in group for group in groups]
                if any(isinstance(value, dict | list) for value in values):
                    message = "has a list or a mapping, which an expression cannot give"
                    raise section.source.fault(first, f"{message}; give it a list of its own")
                value = drawn(section, one_of_mappings, helper, values, present, key=first)
                self.add(name, Draw(value), first)

    def free_name(self, given: str, path: str) -> str:
        """A name for a parameter that no other has. Raises `SpaceError` where the given one is taken."""
        name = name_of(given)
        taken = next((each for each in self.parameters if each.name == name), None)
        if taken is not None and taken.given == given:
            raise self.source.fault(path, f'"{given}" is there already, from {self.source.place(taken.path)}')
        number = 2
        while any(each.name == name for each in self.parameters):
            name = f"{name_of(given)}_{number}"
            number += 1
        return name

    def set(self, key: str, value: Any, path: str = "", *remarks: str) -> None:
        """Add a field beside the parameters."""
        self.settings.append(Setting(key, value, path, remarks))

    @property
    def is_renamed(self) -> bool:
        """Whether a parameter has another name than in the other tool's file."""
        return any(each.name != each.given for each in self.parameters)

    def words(self) -> list[str]:
        """The words of the command; one for each parameter where the macro for all would give wrong names."""
        words: list[str] = []
        for word in self.command:
            if self.is_renamed and word in BY_OUR_NAMES:
                name = next(each for each in self.parameters if each.name != each.given)
                if word == "${args_json}" or any(_may_be_boolean(each.value) for each in self.parameters):
                    message = f'"{name.given}" is no name in a space, and "{word}" would pass {name.name}'
                    raise self.source.fault(self.command_path, f"{message}; rename it there")
                word = "${args}"
            by_name = self.is_renamed or word not in OURS or any(each.form for each in self.parameters)
            if word in WORDS_OF_ALL and by_name:
                words += [
                    part.format(given=each.given, name=each.name, value=each.macro)
                    for each in self.parameters
                    if not each.is_helper
                    for part in WORDS_OF_ALL[word]
                ]
            else:
                words.append(word)
        return words

    def text(self) -> str:
        """The text of the space file."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        source = self.source
        file = one_line(source.file.name)
        yield f"# Converted from {file}, {CONVERTED[source.tool]}."
        yield "# A comment at the end of a line names its origin; one before it says what differs."
        yield from (f"# {one_line(remark)}" for remark in self.remarks)
        if self.metric == TO_FILL:
            self.to_fill.append("metric")
        if self.to_fill:
            yield f"{TO_FILL_IN}{one_line(', '.join(dict.fromkeys(self.to_fill)))}"
        for reason in dict.fromkeys(self.left_out.values()):
            names = [key for key, why in self.left_out.items() if why == reason]
            yield f"# Left out, because {reason}: {one_line(', '.join(names))}"
        yield "version: 1"
        yield f"name: {text_of(study_name(self.name))}"
        yield from self._line("objective", {"command": self.words()}, self.command_path, self.command_remarks)
        yield from self._line("metric", self.metric, self.metric_path, self.metric_remarks)
        yield f"goal: {self.goal or goal_of(self.metric)}"
        for setting in self.reading:
            yield from self._line(setting.key, setting.value, setting.path, setting.remarks)
        yield ""
        yield "parameters:"
        for each in self.parameters:
            yield from self._line(each.name, each.value, each.path, each.remarks, indent="  ")
        yield ""
        done: set[str] = set()
        for setting in self.settings:
            section, _, inner = setting.key.partition(".")
            if not inner:
                yield from self._line(section, setting.value, setting.path, setting.remarks)
            elif section not in done:
                done.add(section)
                yield f"{section}:"
                for inside in self.settings:
                    if inside.key.startswith(f"{section}."):
                        key = inside.key.removeprefix(f"{section}.")
                        yield from self._line(key, inside.value, inside.path, inside.remarks, indent="  ")

    def _line(
        self, key: str, value: Any, path: str, remarks: Sequence[str], indent: str = ""
    ) -> Iterator[str]:
        yield from (f"{indent}# {one_line(remark)}" for remark in remarks)
        place = f"  # {self.source.place(path)}" if path else ""
        yield f"{indent}{text_of(key)}: {text_of(_short(value))}{place}"


def drawn(section: Section, make: Callable[..., T], *given: Any, key: str = "", **options: Any) -> T:
    """What a function of `draws` makes, or the `SpaceError` that it cannot be said, at its place."""
    try:
        return make(*given, **options)
    except Unsaid as unsaid:
        at = unsaid.key if section.has(unsaid.key) else key
        raise section.fault(at, str(unsaid)) from None


def name_of(given: str) -> str:
    """The name in a space for a name of another tool's."""
    if NAME.fullmatch(given) and given not in CONSTANTS and len(given) <= LONGEST_NAME:
        return given
    plain = "".join(each for each in unicodedata.normalize("NFKD", given) if not unicodedata.combining(each))
    parts = [re.sub(r"\W", "_", part, flags=re.ASCII) for part in plain.lstrip("-+~").split(".")]
    parts = [part if part.strip("_") or not part else UNNAMED for part in parts]  # of another alphabet
    parts = [part if re.match(r"[A-Za-z_]", part) else f"_{part}" for part in parts]
    name = ".".join(parts)[: LONGEST_NAME - len(HELPER) - 3].rstrip(".")
    return f"_{name}" if name in CONSTANTS else name


def study_name(given: str) -> str:
    """A name for the study."""
    name = re.sub(r"[/\\]|[^\S ]", "_", given).lstrip("-. ")
    return "".join(filter(str.isprintable, name))[:LONGEST_NAME].strip() or "converted"


def words_of(command: str | Sequence[str]) -> list[str]:
    """Another tool's command, a shell's or one in words, as ours: all parameters go to its program.

    What only a shell can interpret stays its string. Raises `Unsaid` where it does not show which of its
    programs gets the parameters.
    """
    if isinstance(command, str):
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise Unsaid(f"is no command of a shell: {error}") from None
        outside = command if '"' in command else re.sub(r"'[^']*'", "", command)
        if not words or ENVIRONMENT.match(words[0]) or re.search(r"[|&;<>()$`*?\n\\]", outside):
            words = ["bash", "-c", command]
    else:
        words = list(command)
    string = shell_string(words)
    if string is not None and string == len(words) - 1:
        return [*words[:-1], _passing_on(words[-1]), "bash", "${args}"]
    return [*words, "${args}"]


def _passing_on(string: str) -> str:
    """A shell's string with its arguments behind those of its program: before a pipe or what comes next."""
    if "$@" in string or "$*" in string:
        return string
    commands = shell_words(string)
    if commands is None:
        raise Unsaid('does not show which of its programs gets the parameters: write "$@" behind it')
    programs = [words for words in commands if words[0].text not in NO_PROGRAMS]
    if len(programs) > 1:
        programs = [words for words in programs if any(map(_is_program, words))]
    if len(programs) != 1:
        found = ", ".join(show(" ".join(word.text for word in words)) for words in programs or commands)
        raise Unsaid(f'has several programs, {found}: write "$@" behind that which gets the parameters')
    if shell_string([word.text for word in programs[0]]) is not None:
        raise Unsaid("is a shell within a shell: write the inner command alone")
    end = programs[0][-1].end
    return f'{string[:end]} "$@"{string[end:]}'


def _is_program(word: ShellWord) -> bool:
    """Whether a word of a command is an interpreter, a launcher or a script."""
    return (RUNNER.fullmatch(PurePath(word.text).name) or SCRIPT.fullmatch(word.text)) is not None


def length_of(parameters: Sequence[Parameter]) -> int | None:
    """The last step of a trial, by a constant such as `epochs: 27`; None without one."""
    for each in parameters:
        value = each.value.get("value") if isinstance(each.value, dict) else None
        if is_length(value) and any(names.fullmatch(snake(each.name)) for names in USUAL.values()):
            return int(value or 0)
    return None


def grid_size(parameters: Sequence[Parameter]) -> int | None:
    """The number of configurations of a grid; None where a range has no end of values."""
    from pydantic import TypeAdapter

    from ....spaces.parameters import Choice
    from ....spaces.parameters import Parameter as Ours
    from ....spaces.ranges import Range

    size = 1
    for each in parameters:
        parameter = TypeAdapter[Any](Ours).validate_python(each.value)
        if isinstance(parameter, Choice):
            size *= len(parameter.choices)
        elif isinstance(parameter, Range):
            if parameter.count is None:
                return None
            size *= parameter.count
    return min(size, MOST_TRIALS)


def _may_be_boolean(value: Any) -> bool:
    """Whether a parameter, as a space file writes it, may be true or false; of an expression, maybe."""
    if isinstance(value, dict):
        if "expr" in value:
            return "true" in value["expr"] or "false" in value["expr"]
        value = value.get("choices", [value.get("value")])
    return isinstance(value, list) and any(isinstance(each, bool) for each in value)


def _short(value: Any) -> Any:
    """A constant as the value alone, where a space file reads that alike."""
    if isinstance(value, dict) and value.keys() == {"value"}:
        inner = value["value"]
        odd = isinstance(inner, str) and re.search(r"[(\[~<$]", inner)
        if isinstance(inner, str | int | float | bool) and not odd:
            return inner
    return value


def _with_when(value: Any, when: dict[str, Any] | None) -> Any:
    if when is None:
        return value
    return ({"choices": value} if isinstance(value, list) else value) | {"when": when}
