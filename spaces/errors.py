"""Errors of a space file: all its issues, each with its place."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, NamedTuple

MOST_SHOWN = 100  # issues in a message; many more usually share one cause
LONGEST = 1000  # characters of an issue; a longer one holds a key or a word that is none


class Issue(NamedTuple):
    """One problem in one place; `line` and `column` count from 1, and are 0 where there is no place."""

    file: str
    line: int
    column: int
    path: str
    message: str

    def to_json(self) -> dict[str, Any]:
        """As plain data: without a file and a line where it has no place in one."""
        return self._asdict() if self.line else {"path": self.path, "message": self.message}

    def __str__(self) -> str:
        file, path = (shortened(text, LONGEST // 3) for text in (self.file, self.path))
        place = f"{file}:{self.line}:{self.column}" if self.line else file
        where = f"{place} {path}" if path else place
        return visible(shortened(f"{where}: {self.message}", LONGEST))


class SpaceError(ValueError):
    """A space cannot be used; `issues` holds all reasons in the order of the file, which form the message."""

    code = "space"

    def __init__(self, issues: Iterable[Issue]) -> None:
        self.issues = tuple(sorted(issues, key=lambda issue: (issue.line, issue.column)))
        lines = [str(issue) for issue in self.issues[:MOST_SHOWN]]
        if len(self.issues) > MOST_SHOWN:
            lines.append(f"and {len(self.issues) - MOST_SHOWN:,} more like these")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type[SpaceError], tuple[tuple[Issue, ...]]]:
        return type(self), (self.issues,)  # not the message, so that an error crosses processes whole


def visible(text: str) -> str:
    """The text with what a terminal would obey as escapes, such as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, most: int) -> str:
    """The text, or its beginning where it has more characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def quoted(words: Iterable[object]) -> str:
    """The words, quoted, as a list: `"min", "max"`."""
    return ", ".join(f'"{word}"' for word in words)


def meant(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant; None where none is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return close[0] if close else None


def hint(word: str, known: Iterable[str]) -> str:
    """A hint about an unknown word: the one that was probably meant, else all known words."""
    known = list(known)
    best = meant(word, known)
    if best is not None:
        return f'did you mean "{best}"?'
    return f"there is {quoted(known)}" if known else "there is none"
