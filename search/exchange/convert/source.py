"""Another tool's file as it is read: values with their types, and every fault with its place."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....spaces import Issue, SpaceError
from ....spaces.document import Places, join
from ....spaces.errors import hint
from ....spaces.fields import show
from ...trials.yaml_text import one_line

MISSING: Any = object()


@dataclass
class Source:
    """A file, the tool that it is of, and what was found wrong in it."""

    file: Path
    tool: str  # as `dialects` names it
    places: Places
    issues: list[Issue] = field(default_factory=list)

    def fault(self, path: str, message: str, *, key: bool = False) -> SpaceError:
        """The error of a fault at a path."""
        return SpaceError([self.places.issue(path, message, key=key)])

    @contextmanager
    def part(self) -> Iterator[None]:
        """A part of the file: its faults are kept, and the parts after it are read too."""
        try:
            yield
        except SpaceError as error:
            self.issues += error.issues

    def place(self, path: str) -> str:
        """Where a path is, in words: `sweep.yaml:7 parameters.lr`."""
        issue = self.places.issue(path, "", key=True)
        return one_line(f"{self.file.name}:{issue.line} {path}" if path else self.file.name)


@dataclass(frozen=True)
class Section:
    """A mapping in a file."""

    source: Source
    path: str
    data: Mapping[str, Any]

    def at(self, key: str | int) -> str:
        """The path of a key."""
        return join(self.path, key)

    def fault(self, key: str, message: str, *, at_key: bool = False) -> SpaceError:
        """The error of a fault at a key; at the section itself for an empty key."""
        return self.source.fault(self.at(key) if key else self.path, message, key=at_key)

    def has(self, key: str) -> bool:
        """Whether a key has a value that is not null."""
        return self.data.get(key) is not None

    def known(self, *keys: str, but: str = "") -> None:
        """Refuse every key that is none of these and has a value. `but` says more of what is allowed."""
        for key in filter(self.has, self.data):
            if key not in keys:
                more = but or hint(key, keys)
                with self.source.part():
                    raise self.fault(key, f"is not a key of {self.source.tool}'s here; {more}", at_key=True)

    def get(self, key: str, default: Any = MISSING) -> Any:
        """The value of a key. Raises `SpaceError` where it is missing without a default."""
        if self.has(key):
            return self.data[key]
        if default is MISSING and key in self.data:
            raise self.fault(key, "has no value")
        if default is MISSING:
            raise self.fault("", f'"{key}" is missing')
        return default

    def text(self, key: str, default: Any = MISSING) -> str:
        """A text that is not blank."""
        value = self.get(key, default)
        if not self.has(key):
            return value  # type: ignore[no-any-return]
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise self.fault(key, f"must be a text, not {show(value)}")
        return value

    def one_of(self, key: str, allowed: Collection[str], default: Any = MISSING) -> str:
        """One of several words."""
        if default is MISSING and not self.has(key):
            raise self.fault(
                key if key in self.data else "", f'"{key}" is missing; it is one of {", ".join(allowed)}'
            )
        value = self.text(key, default)
        if self.has(key) and value not in allowed:
            raise self.fault(key, f"must be one of {', '.join(allowed)}, not {show(value)}")
        return value

    def number(self, key: str, default: Any = MISSING) -> Any:
        """A finite number."""
        value = self.get(key, default)
        return value if not self.has(key) else self.checked_number(key, value)

    def checked_number(self, key: str | int, value: Any) -> int | float:
        """The value where it is a finite number; `key` says where it stands."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.source.fault(self.at(key), f"must be a number, not {show(value)}")
        return value

    def whole(self, key: str, default: Any = MISSING, least: int | None = None) -> Any:
        """An integer, at least `least`; 3.0 is one too."""
        value = self.number(key, default)
        if not self.has(key):
            return value
        if value != int(value):
            raise self.fault(key, f"must be a whole number, not {show(value)}")
        if least is not None and value < least:
            raise self.fault(key, f"must be at least {least}, not {show(value)}")
        return int(value)

    def flag(self, key: str, default: Any = MISSING) -> bool:
        """True or false."""
        value = self.get(key, default)
        if self.has(key) and not isinstance(value, bool):
            raise self.fault(key, f"must be true or false, not {show(value)}")
        return bool(value)

    def items(self, key: str, default: Any = MISSING) -> list[Any]:
        """A list with at least one value."""
        value = self.get(key, default)
        if self.has(key) and (not isinstance(value, list) or not value):
            raise self.fault(key, f"must be a list of at least one value, not {show(value)}")
        return value  # type: ignore[no-any-return]

    def section(self, key: str, default: Any = MISSING) -> Section:
        """A mapping; the empty one where the key is missing and the default is None."""
        value = self.get(key, default)
        value = {} if value is None else value
        if not isinstance(value, dict):
            raise self.fault(key, f"must be a mapping, not {show(value)}")
        return Section(self.source, self.at(key), value)
