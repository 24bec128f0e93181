"""A file of a framework before it is text: keys by section, places to fill in, and what found no key.

Values are written so that every reader of YAML has them as they are: PyYAML, with which the frameworks read,
takes `1e-4` for a text and `no` for a falsehood.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .recipe import Recipe

PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./-]*")
WORDS = {
    "y",
    "n",
    "yes",
    "no",
    "on",
    "off",
    "true",
    "false",
    "null",
    "none",
}  # that YAML 1.1 takes for others


@dataclass
class Sheet:
    """What stands in a file, in its order. Whatever of the recipe is not put into it counts as lost."""

    title: str  # of the framework
    recipe: Recipe
    entries: list[tuple[str, Any, str | None]] = field(default_factory=list)  # key, value, remark
    lines: list[str] = field(default_factory=list)
    to_fill: list[str] = field(default_factory=list)

    def section(self, name: str) -> None:
        """Begin a section."""
        self.lines += ["", f"# {name}"]

    def put(self, key: str, value: Any, remark: str | None = None) -> None:
        """Write a key."""
        self.entries.append((key, value, remark))
        self.lines.append(f"{key}: {text_of(value)}" + (f"  # {remark}" if remark else ""))

    def place(self, key: str, example: str, what: str) -> None:
        """Leave a place to fill in: a line that is no comment once its `#` is gone."""
        self.to_fill.append(key)
        self.lines.append(f"# {key}: {example}  # to fill in: {what}")

    def take(self, name: str) -> Any:
        """A value of the recipe that then has its place; None where there is none."""
        return self.recipe.values.pop(name, None)

    def carry(self, names: Mapping[str, str] | Iterable[str]) -> None:
        """Write those of the recipe's values by the framework's names for them."""
        for name in names:
            if name in self.recipe.values:
                key = names[name] if isinstance(names, Mapping) else name
                self.put(key, self.take(name), self.recipe.remarks.get(name))

    def lose(self, name: str, why: str) -> None:
        """Note that a value of the recipe has no key here, where there is one."""
        if (value := self.take(name)) is not None:
            self.recipe.lose(name, value, why)

    def close(self) -> None:
        """Note all that has found no key."""
        for name in list(self.recipe.values):
            self.lose(name, f"{self.title} has no such key")

    def values(self) -> dict[str, Any]:
        """The keys with their values."""
        return {key: value for key, value, _ in self.entries}


def text_of(value: Any) -> str:
    """A value in YAML's flow style, which all readers of YAML 1.1 and 1.2 read alike."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, float):
        return _real(value)
    if isinstance(value, str):
        plain = PLAIN.fullmatch(value) and value.lower() not in WORDS
        return value if plain else f'"{"".join(map(_escaped, value))}"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{text_of(key)}: {text_of(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(text_of, value)) + "]"
    return str(value)


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08X}"


def _real(value: float) -> str:
    mantissa, e, exponent = repr(value).partition("e")
    if not e:
        return mantissa
    sign = "-" if exponent.startswith("-") else "+"  # YAML 1.1 wants a point and a sign
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{sign}{exponent.lstrip('+-')}"
