"""The values of expressions in a script, as far as its source shows them. Nothing is run."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from .literals import Literals
from .syntax import assignments, name_of

MOST_ITEMS = 1000  # of a list that is written out, such as range(1000)
LARGEST = 1e18
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
CALLS: dict[str, Callable[..., Any]] = {
    **{
        kind.__name__: kind
        for kind in (str, int, float, bool, list, tuple, sorted, len, min, max, sum, round)
    },
    "range": range,
}


class Unreadable(Exception):
    """The source does not show the value of an expression."""


class Scope:
    """A module's constants; the values of local names are handed in."""

    def __init__(self, tree: ast.Module) -> None:
        self.constants = dict(assignments(tree.body))
        for node in tree.body:  # several at once: A, B = 1, 2
            match node:
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                    pairs = zip(names, values, strict=False)
                    self.constants |= {each.id: value for each, value in pairs if isinstance(each, ast.Name)}
        self._literals = Literals(tree)

    def value(self, node: ast.expr | None, known: Mapping[str, Any], depth: int = 0) -> Any:
        """The value of an expression. Raises `Unreadable`."""
        if node is None or depth > 40:
            raise Unreadable
        try:
            value = self._value(node, known, depth + 1)
        except (ArithmeticError, TypeError, ValueError, LookupError, AttributeError, MemoryError) as error:
            raise Unreadable from error
        if isinstance(value, range):
            if len(value) > MOST_ITEMS:
                raise Unreadable
            value = list(value)
        too_large = isinstance(value, int | float) and abs(value) > LARGEST
        too_long = isinstance(value, str | list | tuple) and len(value) > MOST_ITEMS
        if too_large or too_long:
            raise Unreadable
        return value

    def _value(self, node: ast.expr, known: Mapping[str, Any], depth: int) -> Any:
        def of(inner: ast.expr | None) -> Any:
            return self.value(inner, known, depth)

        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name) if name in known:
                return known[name]
            case ast.Attribute() if ast.unparse(node) in known:  # what an object was given
                return known[ast.unparse(node)]
            case ast.Name(id=name) if name in self.constants:
                return self.value(self.constants[name], {}, depth)
            case ast.List(elts=items):
                return [of(item) for item in items]
            case ast.Tuple(elts=items):
                return tuple(of(item) for item in items)
            case ast.Set(elts=items):
                return [of(item) for item in items]
            case ast.Dict():
                return self._mapping(node, of)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -of(operand)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not of(operand)
            case ast.BinOp(op=ast.Pow(), left=left, right=right):
                base, power = of(left), of(right)
                if not abs(power) <= 64:
                    raise Unreadable
                return base**power
            case ast.BinOp(op=op, left=left, right=right) if type(op) in ARITHMETIC:
                one, other = of(left), of(right)
                if isinstance(op, ast.Mult) and not all(
                    isinstance(each, int | float) for each in (one, other)
                ):
                    raise Unreadable  # a long text or list
                if isinstance(op, ast.Mod) and isinstance(one, str):
                    _check_widths(one)
                return ARITHMETIC[type(op)](one, other)
            case ast.JoinedStr(values=parts):
                return "".join(self._part(part, of) for part in parts)
            case ast.Subscript(value=inside, slice=key):
                if (value := of(inside)[of(key)]) is Unreadable:
                    raise Unreadable
                return value
            case ast.ListComp(elt=item, generators=[ast.comprehension(ast.Name(id=name), over, [], 0)]):
                return [self.value(item, {**known, name: each}, depth) for each in of(over)]
            case ast.Call():
                return self._call(node, of)
        value = self._literals.literal(node)  # a member of an enumeration, a path that is written out
        if value is None:
            raise Unreadable
        return value

    def _mapping(self, node: ast.Dict, of: Callable[[ast.expr | None], Any]) -> dict[Any, Any]:
        """A mapping; its values may be anything, since often only its keys are asked for."""
        found = {}
        for key, value in zip(node.keys, node.values, strict=True):
            try:
                found[of(key)] = of(value)
            except Unreadable:
                found[of(key)] = Unreadable
        return found

    def _call(self, node: ast.Call, of: Callable[[ast.expr | None], Any]) -> Any:
        if node.keywords or any(isinstance(each, ast.Starred) for each in node.args):
            raise Unreadable
        values = [of(each) for each in node.args]
        match node.func:
            case ast.Name(id=name) if name in CALLS:
                return CALLS[name](*values)
            case ast.Attribute(value=inside, attr="format") if isinstance(text := of(inside), str):
                _check_widths(text)
                return text.format(*(_plain(value) for value in values))
            case ast.Attribute(value=inside, attr="keys" | "copy" | "lower" | "upper"):
                return getattr(of(inside), str(name_of(node)))()
        raise Unreadable

    def _part(self, part: ast.expr, of: Callable[[ast.expr | None], Any]) -> str:
        if not isinstance(part, ast.FormattedValue):
            return str(of(part))
        form = "" if part.format_spec is None else str(of(part.format_spec))
        _check_widths(form)
        return format(_plain(of(part.value)), form)


def _check_widths(form: str) -> None:
    """Raise `Unreadable` for a text that would be very long once it is filled in."""
    if re.search(r"\d{4}|[{]\w*[.\[]", form):
        raise Unreadable


def _plain(value: Any) -> Any:
    """A value that may be formatted; `Unreadable` for any other."""
    if not isinstance(value, str | int | float):
        raise Unreadable
    return value
