"""The words of a command, also those in a string that it hands to a shell.

shell_words('cd x && python t.py --lr="${lr}"')
    ->  the words `cd x` and, as another command, `python t.py --lr=${lr}`, with their places in the string
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePath

MACRO = re.compile(r"\$\{([^}]*)\}?")
SHELLS = ("sh", "ash", "bash", "dash", "ksh", "zsh")
HANDS_OVER = re.compile(r"-[A-Za-z]*c")  # the option before a shell's string
# Parts of a word that are not what they look like.
_PARTS = r"""\$\{[^}]*\}|\$\([^()]*\)|`[^`]*`|'[^']*'|"(?:\\.|[^"\\])*"|\\."""
_WORD = rf"(?:{_PARTS}|\$(?!\()|[^\s;&|()<>'\"\\$`])+"
_BESIDE = rf"[ \t\r]+|\\\n|#[^\n]*|\d*[<>](?!<)[<>&|]*[ \t]*(?:{_WORD})?"  # gaps, comments, redirections
_TOKEN = re.compile(rf"(?P<end>[;&|()\n]+)|{_BESIDE}|(?P<word>{_WORD})", re.DOTALL)
_PART = re.compile(_PARTS, re.DOTALL)


@dataclass(frozen=True)
class ShellWord:
    """A word as the program gets it, and where it stands in its string."""

    text: str
    start: int = 0
    end: int = 0
    changes: bool = False  # whether the shell puts something else for a part of it


def shell_string(command: Sequence[str]) -> int | None:
    """The place of the word that a shell reads, as in `bash -c STRING`; None where there is none."""
    reads = False  # whether a shell reads its options there
    for place, (before, word) in enumerate(itertools.pairwise(["", *command[:-1]]), start=1):
        if reads and HANDS_OVER.fullmatch(word):
            return place
        is_option = word[:1] in ("-", "+") or before in ("-o", "+o", "-O", "+O")
        reads = PurePath(word).name in SHELLS or (reads and is_option)  # a script of its ends them
    return None


def shell_words(string: str) -> list[list[ShellWord]] | None:
    """The words of each command in a shell's string; None where it has what this does not read."""
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


def said(command: Sequence[str], absent: Collection[str]) -> list[str]:
    """A command without what names a parameter that a trial does not have.

    A whole word falls away, and the option before it where it is none itself. So it is within a shell's
    string, as far as that can be read.
    """
    if not absent:
        return list(command)
    words, string = list(command), shell_string(command)
    if string is not None:
        words[string] = ""
    gone = _naming(words, absent)
    if string is not None:
        words[string] = _said_in_shell(command[string], absent)
    return [word for place, word in enumerate(words) if place not in gone]


def _said_in_shell(string: str, absent: Collection[str]) -> str:
    found = [
        words[place]
        for words in shell_words(string) or ()
        for place in _naming([word.text for word in words], absent)
    ]
    for word in sorted(found, key=lambda word: word.start, reverse=True):
        string = re.sub(r"(?<!\\) +$", "", string[: word.start]) + string[word.end :]
    return string


def _naming(words: Sequence[str], absent: Collection[str]) -> set[int]:
    """The places of the words that name one of these parameters, and of the options before them."""
    found: set[int] = set()
    for place, word in enumerate(words):
        if any(macro[1] in absent for macro in MACRO.finditer(word)):
            found.add(place)
            before = words[place - 1] if place else ""
            if before.startswith("-") and not set("=$") & {*before} and not word.startswith("-"):
                found.add(place - 1)
    return found


def _plain(part: re.Match[str]) -> str:
    """A part of a word without its quotes."""
    text = part[0]
    if text.startswith("'"):
        return text[1:-1]
    if text.startswith('"'):
        return re.sub(r'\\(["\\$`\n])', r"\1", text[1:-1])
    return text[1:] if text.startswith("\\") else text
