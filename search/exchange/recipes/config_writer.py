"""Writes a framework's file: keys by section, keys to fill in, and what has no key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...trials.yaml_text import one_line, text_of
from .recipe import Recipe


@dataclass
class ConfigWriter:
    """The content of a file, in its order. What of the recipe is not written counts as lost."""

    title: str  # of the framework
    recipe: Recipe
    values: dict[str, Any] = field(default_factory=dict)  # by the framework's keys
    lines: list[str] = field(default_factory=list)
    to_fill: list[str] = field(default_factory=list)

    def section(self, name: str) -> None:
        """Start a section."""
        self.lines += ["", f"# {name}"]

    def put(self, key: str, value: Any, remark: str | None = None) -> None:
        """Write a key."""
        self.values[key] = value
        self.lines.append(f"{key}: {text_of(value)}" + (f"  # {remark}" if remark else ""))

    def leave(self, key: str, example: str, what: str) -> None:
        """Leave a key to the user: a line that becomes one when its `#` is removed."""
        self.to_fill.append(key)
        self.lines.append(f"# {key}: {example}  # to fill in: {one_line(what)}")

    def take(self, name: str) -> Any:
        """Take a value out of the recipe; None where there is none."""
        return self.recipe.values.pop(name, None)

    def carry(self, names: Mapping[str, str] | Iterable[str]) -> None:
        """Write these values of the recipe, under the framework's names for them."""
        for name in names:
            if name in self.recipe.values:
                key = names[name] if isinstance(names, Mapping) else name
                self.put(key, self.take(name), self.recipe.remarks.get(name))

    def lose(self, name: str, why: str) -> None:
        """Note that a value of the recipe, if there is one, has no key here."""
        if (value := self.take(name)) is not None:
            self.recipe.lose(name, value, why)

    def close(self) -> None:
        """Note everything that has no key."""
        for name in list(self.recipe.values):
            self.lose(name, f"{self.title} has no such key")
