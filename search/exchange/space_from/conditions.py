"""Conditions on suggested values, as a script's branches have them and as a space's `when` says them.

A condition is a conjunction of facts; a fact says that a parameter is one of some values, or compares it with
a number, or holds alternatives.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...trials.yaml_text import text_of
from .scope import Scope, Unreadable

Fact = tuple[str, str, Any]  # a parameter, an operator, and a value; "in" has a tuple of values
Condition = tuple[Any, ...]  # of facts: all of them
UNKNOWN: Condition = (("", "unknown", None),)
COMPARED: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "==",
    ast.IsNot: "!=",
}
OPPOSITE = {"==": "!=", "<": ">=", ">": "<=", "in": "not in"}
OPPOSITE |= {opposite: one for one, opposite in OPPOSITE.items()}
TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}


@dataclass(frozen=True)
class Asked:
    """A suggested value."""

    name: str
    says: Any  # {min, max, ...} or a list of choices


def both(one: Condition, other: Condition) -> Condition:
    """The condition that both hold."""
    return (*one, *(fact for fact in other if fact not in one))


def either(one: Condition, other: Condition) -> Condition:
    """The condition that one of both holds."""
    if not one or not other or one == other:
        return () if not one or not other else one
    common = tuple(fact for fact in one if fact in other)
    left, right = (tuple(fact for fact in each if fact not in common) for each in (one, other))
    if not left or not right or right == _opposite(left) or left == _opposite(right):
        return common
    if len(left) == len(right) == 1 and left[0][1] == right[0][1] == "in" and left[0][0] == right[0][0]:
        values = tuple(dict.fromkeys((*left[0][2], *right[0][2])))
        return (*common, (left[0][0], "in", values))
    return (*common, ("", "or", (left, right)))


def _opposite(condition: Condition) -> Condition | None:
    """The condition that this one does not hold; None where its facts do not say."""
    opposite: Condition | None = None
    for name, sign, value in condition:
        if sign == "in" or sign not in OPPOSITE:
            return None
        fact = ((name, OPPOSITE[sign], value),)
        opposite = fact if opposite is None else either(opposite, fact)
    return opposite


def test_of(
    node: ast.expr, known: Mapping[str, Any], scope: Scope
) -> tuple[Condition | None, Condition | None]:
    """The conditions under which a test is true, and false; None for one that never holds."""
    plain = {name: value for name, value in known.items() if not isinstance(value, Asked | dict)}
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yes, no = test_of(inner, known, scope)
            return no, yes
        case ast.BoolOp(op=op, values=values):
            return _of_several(isinstance(op, ast.And), [test_of(each, known, scope) for each in values])
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARED:
            sign = COMPARED[type(op)]
            for one, other, turned in ((left, right, False), (right, left, True)):
                asked = known.get(ast.unparse(one))
                if not isinstance(asked, Asked) or (turned and sign not in TURNED):
                    continue
                try:
                    value = scope.value(other, plain)
                except Unreadable:
                    break
                return _compared(asked, TURNED[sign] if turned else sign, value)
        case ast.Name() | ast.Subscript() | ast.Attribute() | ast.Call():
            asked = known.get(ast.unparse(node))
            if isinstance(asked, Asked) and isinstance(asked.says, list):
                return _among(asked, [each for each in asked.says if each])
    try:
        return ((), None) if scope.value(node, plain) else (None, ())
    except Unreadable:
        return _compared_constants(node, plain, scope)


def _compared_constants(
    node: ast.expr, plain: Mapping[str, Any], scope: Scope
) -> tuple[Condition | None, Condition | None]:
    """A comparison of two known values."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in (ast.Eq, ast.NotEq):
        try:
            same = scope.value(node.left, plain) == scope.value(node.comparators[0], plain)
        except Unreadable:
            return UNKNOWN, UNKNOWN
        return ((), None) if same is isinstance(node.ops[0], ast.Eq) else (None, ())
    return UNKNOWN, UNKNOWN


def _compared(asked: Asked, sign: str, value: Any) -> tuple[Condition | None, Condition | None]:
    if isinstance(asked.says, list):
        if sign in ("==", "!=", "in", "not in"):
            wanted = list(value) if sign in ("in", "not in") else [value]
            chosen = [each for each in asked.says if any(_same(each, one) for one in wanted)]
            yes, no = _among(asked, chosen)
            return (no, yes) if sign in ("!=", "not in") else (yes, no)
        return UNKNOWN, UNKNOWN
    if not isinstance(value, int | float | list | tuple) or isinstance(value, bool):
        return UNKNOWN, UNKNOWN
    value = tuple(value) if isinstance(value, list) else value
    return ((asked.name, sign, value),), ((asked.name, OPPOSITE[sign], value),)


def _among(asked: Asked, chosen: list[Any]) -> tuple[Condition | None, Condition | None]:
    rest = [each for each in asked.says if not any(_same(each, one) for one in chosen)]
    return tuple(
        None if not values else () if len(values) == len(asked.says) else ((asked.name, "in", tuple(values)),)
        for values in (chosen, rest)
    )  # type: ignore[return-value]


def _of_several(
    all_of: bool, tests: list[tuple[Condition | None, Condition | None]]
) -> tuple[Condition | None, Condition | None]:
    """`and`: true if all are true, false if one is false; `or` the other way round."""
    if not all_of:
        opposite = _of_several(True, [(false, true) for true, false in tests])
        return opposite[1], opposite[0]
    yes: Condition | None = ()
    no: Condition | None = None
    for true, false in tests:
        yes = None if yes is None or true is None else both(yes, true)
        if false is not None:
            no = false if no is None else either(no, false)
    return yes, no


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def when_of(condition: Condition, choices: Mapping[str, list[Any]]) -> dict[str, Any] | str | None:
    """A condition as a `when`: a mapping of parameters to values, or an expression."""
    merged: dict[str, list[Any]] = {}
    others = []
    for name, sign, value in condition:
        if sign == "in" and isinstance(choices.get(name), list):
            merged[name] = [each for each in merged.get(name, value) if each in value]
        else:
            others.append((name, sign, value))
    whole = {name for name, values in merged.items() if len(values) == len(choices[name])}
    mapping = {name: values[0] if len(values) == 1 else values for name, values in merged.items()}
    mapping = {name: values for name, values in mapping.items() if name not in whole}
    if not others:
        return mapping or None
    facts = [(name, "in", tuple(values)) for name, values in merged.items() if name not in whole]
    text = " and ".join(_expression(fact) for fact in (*facts, *others))
    return text[1:-1] if len(facts) + len(others) == 1 and text.startswith("(") else text


def alternatives(condition: Condition) -> set[str]:
    """The parameters in alternatives, all of which must exist for an expression to have a value."""
    found: set[str] = set()
    for _, sign, value in condition:
        if sign == "or":
            found |= {each for side in value for each in alternatives(side) | {fact[0] for fact in side}}
    return found - {""}


def _expression(fact: Any) -> str:
    name, sign, value = fact
    if sign == "or":
        sides = (" and ".join(map(_expression, side)) for side in value)
        return "(" + " or ".join(sides) + ")"  # `and` binds closer
    if sign == "in" and len(value) == 1:
        return f"{name} == {_text(value[0])}"
    shown = f"[{', '.join(map(_text, value))}]" if isinstance(value, tuple) else _text(value)
    return f"{name} {sign} {shown}"


def _text(value: Any) -> str:
    return repr(value) if isinstance(value, str) else text_of(value)


def plain(known: Mapping[str, Any]) -> dict[str, Any]:
    """The known values that are no suggestions."""
    return {
        name: value
        for name, value in known.items()
        if isinstance(value, str | int | float | bool)
        or (isinstance(value, list | tuple) and _all_plain(value))
    }


def _all_plain(values: Sequence[Any]) -> bool:
    return all(isinstance(each, str | int | float | bool) for each in values)
