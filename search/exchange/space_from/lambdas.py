"""A function of the other values as an expression: `lambda spec: spec.config.lr * 2` is `lr * 2`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from typing import Any

from ....spaces.expressions import Expression, ExpressionError
from .syntax import constant, name_of, root_of


def expression_of(
    node: ast.expr | None, known: Collection[str], value_of: Callable[[ast.expr], Any]
) -> str | None:
    """The expression that a lambda of one argument calculates from parameters; None where it is no such.

    `known`: the parameters; `value_of` gives the value of a constant, or None.
    """
    if not isinstance(node, ast.Lambda) or len(node.args.args) != 1:
        return None
    body = _Names(node.args.args[0].arg, value_of).visit(node.body)
    text = ast.unparse(body)
    try:
        names = Expression.parse(text).names
    except ExpressionError:
        return None
    return text if names and names <= {*known} else None


class _Names(ast.NodeTransformer):
    """Writes `spec.config.model["lr"]` as `model.lr`, `math.log` as `log`, and constants as their values."""

    def __init__(self, spec: str, value_of: Callable[[ast.expr], Any]) -> None:
        self._spec = spec
        self._value_of = value_of

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if root_of(node) == "math":
            return ast.Name(node.attr)
        return self._parameter(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return self._parameter(node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if isinstance(node.func, ast.Name):  # of Python, which no constant replaces
            return ast.Call(node.func, [self.visit(each) for each in node.args], node.keywords)
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self._value_of(node)
        return node if value is None else ast.Constant(value)

    def _parameter(self, node: ast.expr) -> ast.expr:
        parts: list[str] = []
        at = node
        while isinstance(at, ast.Attribute | ast.Subscript):
            part = at.attr if isinstance(at, ast.Attribute) else constant(at.slice)
            if not isinstance(part, str):
                return node
            parts.insert(0, part)
            at = at.value
        if name_of(at) != self._spec or parts[0] != "config" or len(parts) < 2:
            return node
        return ast.Name(".".join(parts[1:]))
