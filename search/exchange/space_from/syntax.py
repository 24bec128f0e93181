"""What a Python script's syntax tree shows, without running the script."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

FILE = "file"  # the attribute of nodes that are of another file than the script
Bounds = tuple[float | None, float | None]  # the least and the largest value; None: no limit
Node = TypeVar("Node", bound=ast.AST)


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


def nodes_of(tree: ast.AST, kind: type[Node]) -> list[Node]:
    """The nodes of this kind in a tree."""
    return [node for node in ast.walk(tree) if isinstance(node, kind)]


def is_number(value: object) -> bool:
    """Whether it is a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def name_of(node: ast.AST | None) -> str | None:
    """The last part of a name: `float`, `typer.Context`; for a call, of the function's name."""
    if isinstance(node, ast.Call):
        return name_of(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)


def root_of(node: ast.expr | None) -> str | None:
    """The first part of a name: `torch` for `torch.nn.Linear`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def constant(node: ast.AST | None) -> object:
    """A constant written there; None for anything else."""
    return node.value if isinstance(node, ast.Constant) else None


def keywords(call: ast.Call) -> dict[str, ast.expr]:
    """The keyword arguments of a call, without `**` ones."""
    return {each.arg: each.value for each in call.keywords if each.arg}


def imports(tree: ast.AST) -> dict[str, list[str]]:
    """The imported names, with the packages that each may come from, the preferred one first."""
    imported: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                package = each.name.partition(".")[0]
                imported.setdefault(each.asname or package, []).append(package)
        elif isinstance(node, ast.ImportFrom):
            package = (node.module or "").partition(".")[0]
            for each in node.names:
                imported.setdefault(each.asname or each.name, []).append(package)
    return imported


def with_local_imports(tree: ast.Module, source: Path, parse: Callable[[Path], ast.Module]) -> ast.Module:
    """A script with what the files beside it define, from which it imports: `from model import objective`."""
    body = [*tree.body]
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.level <= 1:
            path = source.parent.joinpath(*node.module.split(".")).with_suffix(".py")
            if not path.is_file() or path == source:
                continue
            for each in parse(path).body:
                if isinstance(each, ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign):
                    for inside in ast.walk(each):
                        vars(inside)[FILE] = path
                    body.append(each)
    return ast.Module(body, [])


def file_of(node: ast.AST, source: Path) -> Path:
    """The file that a node of a script is of, which may be one that it imports."""
    path: Path = vars(node).get(FILE, source)
    return path


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
    given = keywords(call)
    if name_of(call) in ("IntRange", "FloatRange"):
        given |= dict(zip(("min", "max"), call.args, strict=False))
    low, high = (constant(given.get(name)) for name in ("min", "max"))
    return low if isinstance(low, int | float) else None, high if isinstance(high, int | float) else None


def declaration(annotation: ast.expr | None) -> ast.Call | None:
    """The `typer.Option(...)` inside `Annotated[...]`."""
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        calls = [node for node in annotation.slice.elts if isinstance(node, ast.Call)]
        return next((call for call in calls if name_of(call) in ("Option", "Argument")), None)
    return None


def decorated(node: ast.ClassDef | ast.FunctionDef, *names: str) -> bool:
    """Whether it has a decorator of one of these names."""
    return not {*names}.isdisjoint(map(name_of, node.decorator_list))
