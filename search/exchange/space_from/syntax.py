"""What a Python script's syntax tree shows, without running the script."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

Bounds = tuple[float | None, float | None]  # the least and the largest value; None: no limit


def arithmetic(node: ast.expr | None) -> Any:
    """A number written as arithmetic: `2 ** 16`, `1024 * 8`, `10 ** -4`."""
    if not isinstance(node, ast.BinOp):
        return None
    try:
        left, right = (ast.literal_eval(side) for side in (node.left, node.right))
    except (ValueError, TypeError):
        return None
    if not all(isinstance(side, int | float) and abs(side) <= 1 << 20 for side in (left, right)):
        return None
    if isinstance(node.op, ast.Mult):
        return left * right
    if isinstance(node.op, ast.Pow) and abs(right) <= 64:
        return left**right if left or right > 0 else None
    return left / right if isinstance(node.op, ast.Div) and right else None


def is_of(function: ast.expr, module: str) -> bool:
    """Whether a function is called through its module's name: `click.option`."""
    owner = function.value if isinstance(function, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id == module


def name_of(node: ast.AST | None) -> str | None:
    """The last part of a name: `float`, `typer.Context`; for a call, of the function's name."""
    if isinstance(node, ast.Call):
        return name_of(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)


def root_of(node: ast.expr) -> str | None:
    """The first part of a name: `torch` for `torch.nn.Linear`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def constant(node: ast.AST | None) -> object:
    """A constant written there; None for anything else."""
    return node.value if isinstance(node, ast.Constant) else None


def called(call: ast.Call | None) -> str | None:
    """The name of the called function."""
    return name_of(call)


def assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Names with their assigned values: `LR = 1e-3`, `LR: float = 1e-3`."""
    for node in nodes:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            yield from ((target.id, node.value) for target in targets if isinstance(target, ast.Name))


def bounds(call: ast.expr | None) -> Bounds:
    """The limits in `click.IntRange(1, 64)` or `typer.Option(8, min=1, max=64)`."""
    if not isinstance(call, ast.Call):
        return None, None
    given: dict[str | None, ast.expr] = {keyword.arg: keyword.value for keyword in call.keywords}
    if called(call) in ("IntRange", "FloatRange"):
        given |= dict(zip(("min", "max"), call.args, strict=False))
    numbers = []
    for name in ("min", "max"):
        number = given.get(name)
        value = number.value if isinstance(number, ast.Constant) else None
        numbers.append(value if isinstance(value, int | float) else None)
    return numbers[0], numbers[1]


def declaration(annotation: ast.expr | None) -> ast.Call | None:
    """The `typer.Option(...)` inside `Annotated[...]`."""
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        calls = [node for node in annotation.slice.elts if isinstance(node, ast.Call)]
        return next((call for call in calls if called(call) in ("Option", "Argument")), None)
    return None


def decorated(node: ast.ClassDef | ast.FunctionDef, name: str) -> bool:
    """Whether it has a decorator of this name."""
    return name in map(name_of, node.decorator_list)
