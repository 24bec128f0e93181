"""Arithmetic over parameters: parsed into a whitelist of nodes and evaluated here, never run as Python.

An expression is short, its numbers stay within 64 bits and arithmetic takes numbers only, so that no
expression in a space file can take noticeable time or memory.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_CHARACTERS = 500  # of an expression
DEEPEST_EXPRESSION = 40  # levels of nesting
INTEGER_BOUND = 2**63

CONSTANTS = {"true": True, "false": False, "null": None}

OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: lambda base, exponent: _power(base, exponent),
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}

COMPARISONS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}


_KNOWN_OPERATORS = {*OPERATORS, *COMPARISONS, ast.And, ast.Or, ast.Not, ast.Load}
_COMPOSED = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.List, ast.Tuple)


class ExpressionError(ValueError):
    """An expression cannot be read or has no value; `column` counts from 1, and is 0 where it is unknown."""

    def __init__(self, message: str, column: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.column = column

    def __reduce__(self) -> tuple[type[ExpressionError], tuple[str, int]]:
        return type(self), (self.message, self.column)


class NoNumber(ExpressionError):
    """An expression has no value for these numbers, but may have one for others."""


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1 and exponent > 64:
        raise OverflowError
    return base**exponent


def _round(number: float, digits: int = 0) -> float:
    if abs(digits) > 30:
        raise ValueError(f"cannot round to {digits} digits")
    return round(number, digits) if digits else round(number)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "round": _round,
    "floor": math.floor,
    "ceil": math.ceil,
    "sqrt": math.sqrt,
    "log": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "exp": math.exp,
    "int": int,
    "float": float,
    "len": len,
}


@dataclass(frozen=True)
class Expression:
    """A parsed expression: its text, the parameter names it reads, and its tree."""

    text: str
    names: frozenset[str]
    _tree: ast.expr = field(repr=False, compare=False)

    @classmethod
    @functools.lru_cache(maxsize=4096)  # many parts of a space parse the same one
    def parse(cls, text: str) -> Expression:
        """Parse an expression; raises `ExpressionError` where it is more than arithmetic over names."""
        if len(text) > MOST_CHARACTERS:
            raise ExpressionError(f"is longer than {MOST_CHARACTERS} characters")
        if not text.strip():
            raise ExpressionError("is empty")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about odd literals, which fail below or are harmless
                tree = ast.parse(text.strip(), mode="eval").body
        except SyntaxError as error:
            reason = (error.msg or "cannot be read").removesuffix(" Perhaps you forgot a comma?")
            raise ExpressionError(f"is not an expression: {reason}", error.offset or 0) from None
        except (ValueError, RecursionError, MemoryError):
            raise ExpressionError("is not an expression") from None
        return cls(text, frozenset(_names(tree, DEEPEST_EXPRESSION)), tree)

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The value for parameters from `values`; raises `ExpressionError` where there is none."""
        return _value(self._tree, values)


def _names(node: ast.AST, levels: int) -> Iterator[str]:
    """The parameter names below a node; refuses every node that is not arithmetic."""
    if levels == 0:
        raise ExpressionError(f"is nested deeper than {DEEPEST_EXPRESSION} levels", _column(node))
    inside = list(ast.iter_child_nodes(node))
    children = [part for part in inside if isinstance(part, ast.expr)]
    operators = {type(part) for part in inside if not isinstance(part, ast.expr)}
    match node:
        case ast.Constant(value=value):
            if not isinstance(value, bool | int | float | str | None):
                raise ExpressionError(f"holds {value!r:.40}, neither a number nor a text", _column(node))
            if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
                raise ExpressionError(
                    "holds half a character; write the character itself, not its escape", _column(node)
                )
            _bounded(value, node)
            return
        case ast.Name() | ast.Attribute():
            name = _dotted(node)
            if name not in CONSTANTS:
                yield name
            return
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
            children = arguments
        case ast.Call(func=ast.Name(id=name)) if name not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            message = f'calls "{name}", which is not a function here; there is {known}'
            raise ExpressionError(message, _column(node))
        case _ if not isinstance(node, _COMPOSED) or not operators <= _KNOWN_OPERATORS:
            raise ExpressionError(f"uses {_kind(node)}, which is not allowed here", _column(node))
    for child in children:
        yield from _names(child, levels - 1)


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name() | ast.Attribute():
            name = _dotted(node)
            if name in CONSTANTS:
                return CONSTANTS[name]
            if name not in values:
                raise ExpressionError(f'needs "{name}", which has no value', _column(node))
            return values[name]
        case ast.BoolOp(op=op, values=operands):
            stop = isinstance(op, ast.Or)
            for operand in operands:
                result = _value(operand, values)
                if bool(result) is stop:
                    break
            return result
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, values)
        case ast.IfExp(test=test, body=body, orelse=other):
            return _value(body if _value(test, values) else other, values)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, values) for item in items]
        case ast.Compare(left=left, ops=ops, comparators=rest):
            operands_ = [_value(item, values) for item in (left, *rest)]
            pairs = zip(ops, operands_, operands_[1:], strict=False)
            return all(_apply(node, COMPARISONS[type(op)], a, b) for op, a, b in pairs)
        case ast.BinOp(left=left, op=binary, right=right):
            return _arithmetic(node, OPERATORS[type(binary)], _value(left, values), _value(right, values))
        case ast.UnaryOp(op=unary, operand=operand):
            return _arithmetic(node, OPERATORS[type(unary)], _value(operand, values))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _apply(node, FUNCTIONS[name], *(_value(argument, values) for argument in arguments))
    raise AssertionError(f"{_kind(node)} passed the whitelist")


def _arithmetic(node: ast.expr, function: Callable[..., Any], *operands: Any) -> Any:
    for operand in operands:
        if not isinstance(operand, int | float):  # which stops "a" * 10**9 and "%99999999d" % 1
            raise ExpressionError(f"does arithmetic with {operand!r:.60}, not a number", _column(node))
    return _apply(node, function, *operands)


def _apply(node: ast.expr, function: Callable[..., Any], *operands: Any) -> Any:
    try:
        result = function(*operands)
    except ZeroDivisionError:
        raise NoNumber("divides by zero", _column(node)) from None
    except OverflowError:
        raise NoNumber("gives a number that is too large", _column(node)) from None
    except ValueError as error:
        raise NoNumber(f"fails: {error}", _column(node)) from None
    except TypeError as error:
        raise ExpressionError(f"fails: {error}", _column(node)) from None
    return _bounded(result, node)


def _bounded(value: Any, node: ast.AST) -> Any:
    if isinstance(value, complex):
        raise NoNumber("has no real value", _column(node))
    if isinstance(value, int) and abs(value) >= INTEGER_BOUND:
        raise NoNumber("gives a number that is too large", _column(node))
    if isinstance(value, float) and not math.isfinite(value):
        raise NoNumber("does not give a finite number", _column(node))
    return value


def _dotted(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=owner, attr=attribute):
            return f"{_dotted(owner)}.{attribute}"
    raise ExpressionError(f"uses {_kind(node)}, which is not allowed here", _column(node))


def _column(node: ast.AST) -> int:
    return getattr(node, "col_offset", -1) + 1


def _kind(node: ast.AST) -> str:
    return {
        "Subscript": "an index",
        "Call": "such a call",
        "Lambda": "a lambda",
        "JoinedStr": "an f-string",
        "NamedExpr": ":=",
        "Starred": "a *",
    }.get(type(node).__name__, f'"{ast.unparse(node):.40}"')
