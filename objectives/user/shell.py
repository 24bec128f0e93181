"""Splits a command into words, also the string that it passes to a shell.

shell_words('cd x && python t.py --lr="${lr}"')
    ->  the words `cd x` and, as another command, `python t.py --lr=${lr}`, with their places in the string
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePath

MACRO = re.compile(r"\$\{([^}]*)\}?")
# `${amp:--amp|--no-amp}`: the words for true and false.
SWITCH = re.compile(r"\$\{(?P<name>[^}:]+):(?P<on>[^}|]*)\|(?P<off>[^}|]*)\}")
OWN_FORMS = ("checkpoint", "config")  # macros whose text after the colon is part of what they name
SHELLS = ("sh", "ash", "bash", "dash", "ksh", "zsh")
SHELL_STRING_OPTION = re.compile(r"-[A-Za-z]*c")  # the option before a shell's string
_HARMLESS = re.compile(r"[A-Za-z0-9_.,:/+=@%-]+")  # a value that no shell reads otherwise
# Quoted, escaped or substituted parts of a word.
_PARTS = r"""\$\{[^}]*\}|\$\([^()]*\)|`[^`]*`|'[^']*'|"(?:\\.|[^"\\])*"|\\."""
_WORD = rf"(?:{_PARTS}|\$(?!\()|[^\s;&|()<>'\"\\$`])+"
_BESIDE = rf"[ \t\r]+|\\\n|#[^\n]*|\d*[<>](?!<)[<>&|]*[ \t]*(?:{_WORD})?"  # gaps, comments, redirections
_TOKEN = re.compile(rf"(?P<end>[;&|()\n]+)|{_BESIDE}|(?P<word>{_WORD})", re.DOTALL)
_PART = re.compile(_PARTS, re.DOTALL)


@dataclass(frozen=True)
class ShellWord:
    """A word as the program gets it, and its place in the string."""

    text: str
    start: int = 0
    end: int = 0
    changes: bool = False  # whether the shell substitutes a part of it


def shell_string(command: Sequence[str]) -> int | None:
    """The index of the word that a shell interprets, as in `bash -c STRING`; None if there is none."""
    reads = False  # whether the word is an option of a shell
    for place, (before, word) in enumerate(itertools.pairwise(["", *command[:-1]]), start=1):
        if reads and SHELL_STRING_OPTION.fullmatch(word):
            return place
        is_option = word[:1] in ("-", "+") or before in ("-o", "+o", "-O", "+O")
        reads = PurePath(word).name in SHELLS or (reads and is_option)  # other words end the options
    return None


def shell_words(string: str) -> list[list[ShellWord]] | None:
    """The words of each command in a shell's string; None if it has unsupported syntax."""
    commands: list[list[ShellWord]] = [[]]
    at = 0
    while at < len(string):
        token = _TOKEN.match(string, at)
        if token is None:
            return None
        if token["end"] is not None:
            commands.append([])
        elif (word := token["word"]) is not None:
            live = re.sub(r"'[^']*'|\\.", "", MACRO.sub("", word), flags=re.DOTALL)
            changes = "$" in live or "`" in live
            commands[-1].append(ShellWord(_PART.sub(_plain, word), at, token.end(), changes))
        at = token.end()
    return [words for words in commands if words]


def keeps(string: str, macro: str, value: str) -> bool:
    """Whether a shell reads a value in the place of a macro as it is, and runs or splits no part of it."""
    if _HARMLESS.fullmatch(value):
        return True
    if "`" in string or "$(" in string or not _same_words(string, macro, "a b"):
        return False  # it stands outside of quotes, or inside another command
    within_double = _same_words(string, macro, "'")
    return not set('$`"\\' if within_double else "'") & {*value}


def _same_words(string: str, macro: str, value: str) -> bool:
    """Whether a shell's string has the same words with a value in the place of a macro."""
    before, after = shell_words(string), shell_words(string.replace(macro, value))
    if before is None or after is None:
        return False
    filled = [[word.text.replace(macro, value) for word in words] for words in before]
    return filled == [[word.text for word in words] for words in after]


def macro_name(inside: str) -> str:
    """The name in a macro: `layers` of `${layers:words}`, `checkpoint:last` of that macro of its own."""
    name = inside.partition(":")[0]
    return inside if name in OWN_FORMS else name


def names_in(word: str) -> list[str]:
    """The names of the macros in a word."""
    return [macro_name(macro[1]) for macro in MACRO.finditer(word)]


def without_absent(command: Sequence[str], absent: Collection[str]) -> list[str]:
    """A command without the words that name an absent parameter.

    The whole word is left out, and the option before it, unless the word is an option itself. The same
    applies within a shell's string, if it can be parsed.
    """
    if not absent:
        return list(command)
    return without(command, lambda word: not set(absent).isdisjoint(names_in(word)))


def without(command: Sequence[str], goes: Callable[[str], bool]) -> list[str]:
    """A command without the words that go, each with the option before it; also in a shell's string."""
    words, string = list(command), shell_string(command)
    if string is not None:
        words[string] = ""
    gone = _going(words, goes)
    if string is not None:
        words[string] = _shell_string_without(command[string], goes)
    return [word for place, word in enumerate(words) if place not in gone]


def _shell_string_without(string: str, goes: Callable[[str], bool]) -> str:
    gone = [
        words[place]
        for words in shell_words(string) or ()
        for place in _going([word.text for word in words], goes)
    ]
    for word in sorted(gone, key=lambda word: word.start, reverse=True):
        string = re.sub(r"(?<!\\) +$", "", string[: word.start]) + string[word.end :]
    return string


def _going(words: Sequence[str], goes: Callable[[str], bool]) -> set[int]:
    """The indices of the words that go, and of the options before them. A switch has no option."""
    places: set[int] = set()
    for place, word in enumerate(words):
        if "${" in word and goes(word):
            places.add(place)
            before = words[place - 1] if place else ""
            is_value = not word.startswith("-") and SWITCH.fullmatch(word) is None
            if before.startswith("-") and not set("=$") & {*before} and is_value:
                places.add(place - 1)
    return places


def _plain(part: re.Match[str]) -> str:
    """A part of a word without its quotes."""
    text = part[0]
    if text.startswith("'"):
        return text[1:-1]
    if text.startswith('"'):
        return re.sub(r'\\(["\\$`\n])', r"\1", text[1:-1])
    return text[1:] if text.startswith("\\") else text
