"""Values and types written in a script's source."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from .fields import Setting
from .syntax import Bounds, arithmetic, assignments, constant, is_number, name_of, nodes_of

NUMBER_TYPES = {"int": int, "float": float}
ENUM_BASES = {"Enum", "StrEnum"}
CLICK_RANGES = {"IntRange": "int", "FloatRange": "float"}  # of click


class Literals:
    """Reads literals in a module, whose constants it knows."""

    def __init__(self, tree: ast.Module) -> None:
        self.constants = dict(assignments(tree.body))
        self.enums = {
            each.name: dict(_members(each))
            for each in nodes_of(tree, ast.ClassDef)
            if set(map(name_of, each.bases)) & ENUM_BASES
        }

    def annotation(self, node: ast.expr | None) -> tuple[ast.expr | None, tuple[Any, ...]]:
        """The type inside `Optional[...]`, `... | None` and `Annotated[...]`, and a Literal's values."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):  # written as a text
            try:
                node = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return None, ()
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            left_is_none = isinstance(node.left, ast.Constant) and node.left.value is None
            return self.annotation(node.right if left_is_none else node.left)
        if not isinstance(node, ast.Subscript):
            return node, self.values_of(node)
        outer = name_of(node.value)
        inner = node.slice
        if outer == "Literal":
            values = self.literal(inner)
            return None, tuple(values) if isinstance(values, tuple) else (values,)
        if outer == "Annotated" and isinstance(inner, ast.Tuple):
            return self.annotation(inner.elts[0])
        return self.annotation(inner) if outer == "Optional" else (node.value, ())

    def values_of(self, node: ast.expr | None) -> tuple[Any, ...]:
        """The texts of an enumeration's members, where it is in this module and has only texts."""
        values = tuple(self.enums.get(str(name_of(node)), {}).values()) if isinstance(node, ast.Name) else ()
        return values if all(isinstance(value, str) for value in values) else ()

    def is_member(self, node: ast.expr | None) -> bool:
        """Whether it is a member of an enumeration of this module, such as `Sched.cosine`."""
        return isinstance(node, ast.Attribute) and name_of(node.value) in self.enums

    def setting(
        self,
        name: str,
        kind: ast.expr | None,
        default: ast.expr | None,
        choices: tuple[Any, ...],
        required: bool,
        limits: Bounds = (None, None),
    ) -> Setting:
        value = self.literal(default)
        kind_name = str(name_of(kind))
        wanted = NUMBER_TYPES.get(CLICK_RANGES.get(kind_name, kind_name))
        if wanted is not None and (isinstance(value, str) or is_number(value)):
            with suppress(ValueError, OverflowError):
                value = wanted(value)  # as argparse does with a text
        number = is_number(value) or (value is None and wanted is not None)
        whole = wanted is int or (wanted is None and isinstance(value, int))
        choices = tuple(choice for choice in choices if choice is not None)  # which no option can express
        unread = value is None and not self._is_none(default)
        return Setting(name, parameter_of(name), value, number, whole, choices, required, unread, limits)

    def _is_none(self, node: ast.expr | None) -> bool:
        """Whether it is None, or not there."""
        for _ in self.constants:
            if isinstance(node, ast.Name):
                node = self.constants.get(node.id, node)
        return node is None or (isinstance(node, ast.Constant) and node.value in (None, ...))

    def literal(self, node: ast.expr | None) -> Any:
        """A value written in the source, directly or in a constant of the module; None for any other."""
        for _ in self.constants:  # one constant may name another
            if isinstance(node, ast.Name):
                node = self.constants.get(node.id)
        if isinstance(node, ast.Attribute) and node.attr == "value" and self.is_member(node.value):
            node = node.value
        if isinstance(node, ast.Attribute) and self.is_member(node):
            return self.enums[str(name_of(node.value))].get(node.attr)
        try:
            return None if node is None else ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return arithmetic(node) if _path(node) is None else _path(node)


def _members(node: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    """An enumeration's names and values; `auto()` in a StrEnum is the name in lower case."""
    of_texts = "StrEnum" in map(name_of, node.bases)
    for name, value in assignments(node.body):
        if of_texts and isinstance(value, ast.Call) and name_of(value) == "auto":
            yield name, name.lower()
        else:
            yield name, constant(value)


def _path(node: ast.expr | None) -> str | None:
    """The path in `Path("out")` or `os.path.join("out", "model.pt")`, where all parts are written out."""
    if not isinstance(node, ast.Call) or name_of(node) not in ("Path", "PurePath", "join") or not node.args:
        return None
    parts = [part for part in map(constant, node.args) if isinstance(part, str)]
    return os.path.join(*parts) if len(parts) == len(node.args) else None


def parameter_of(name: str) -> str:
    """The name of an option in a space."""
    return name.lstrip("-").replace("-", "_")
