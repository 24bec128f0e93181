"""A file of a framework before it is text: keys by section, places to fill in, and what found no key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...trials.yaml_text import one_line, text_of
from .recipe import Recipe


@dataclass
class ConfigWriter:
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
        self.lines.append(f"# {key}: {example}  # to fill in: {one_line(what)}")

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
