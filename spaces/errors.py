"""What is wrong with a space file: issues with their place, raised all at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NamedTuple

MOST = 100  # issues that are told: who has more has one, many times


class Issue(NamedTuple):
    """One thing wrong in one place; `line` and `column` count from 1, 0 where there is no place."""

    file: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place} {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


class SpaceError(ValueError):
    """A space cannot be used; `issues` holds every reason in the order of the file, its message the first."""

    code = "space"

    def __init__(self, issues: Iterable[Issue]) -> None:
        self.issues = tuple(sorted(issues, key=lambda issue: (issue.line, issue.column)))
        lines = [str(issue) for issue in self.issues[:MOST]]
        if len(self.issues) > MOST:
            lines.append(f"and {len(self.issues) - MOST:,} more like these")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type[SpaceError], tuple[tuple[Issue, ...]]]:
        return type(self), (self.issues,)  # the message is no argument: an error crosses processes whole


def quoted(words: Iterable[object]) -> str:
    """The words as a reader would list them: `"min", "max"`."""
    return ", ".join(f'"{word}"' for word in words)


def meant(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return close[0] if close else None


def hint(word: str, known: Iterable[str]) -> str:
    """What to say after an unknown word: the one that was meant, else all there are."""
    known = list(known)
    best = meant(word, known)
    if best is not None:
        return f'did you mean "{best}"?'
    return f"there is {quoted(known)}" if known else "there is none"
