"""A mapping as a script builds it: what a name is assigned, and what is set and merged after that."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .scope import Scope, Unreadable
from .syntax import constant, keywords, name_of, nodes_of

CHANGES = ("setdefault", "pop", "popitem", "clear")  # methods of a mapping that are not read
LONGEST = 80  # characters of the source in a note

Function = ast.FunctionDef | ast.AsyncFunctionDef
Owner = Function | None  # None: the module
Note = Callable[[ast.AST, str], None]


class Mappings:
    """Reads the mappings of a script. What of them cannot be read is given to `note`."""

    def __init__(self, tree: ast.Module, scope: Scope, note: Note, used: ast.Call) -> None:
        """`used`: the call that takes the mapping; what changes it afterwards does not count."""
        self._scope = scope
        self._note = note
        self._statements = list(_statements(tree.body, None))
        inside = (owner for node, owner, _ in self._statements if used in nodes_of(node, ast.Call))
        self._used, self._user = used, list(inside)[-1]
        self._assigned: dict[str, tuple[ast.expr, Owner]] = {
            target.id: (node.value, owner)
            for node, owner, _ in self._statements
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        self._functions = {node.name: node for node, *_ in self._statements if isinstance(node, Function)}
        self._own = {node: _own_names(node) for node, *_ in self._statements if isinstance(node, Function)}
        self._reading: list[ast.expr] = []

    def resolved(self, node: ast.expr | None, *only: type[ast.expr]) -> Any:
        """What a name was assigned, if it is such a node; anything else as it is."""
        for _ in range(5):
            if isinstance(node, ast.Name) and node.id in self._assigned:
                value, _ = self._assigned[node.id]
                node = value if isinstance(value, only or ast.expr) else node
        return node

    def entries(self, node: ast.expr) -> dict[str, ast.expr]:
        """The values of a mapping; those of a mapping inside have dotted names."""
        found: dict[str, ast.expr] = {}
        self._merge(found, "", node)
        return found

    def _merge(self, found: dict[str, ast.expr], before: str, node: ast.expr) -> None:
        made = self.resolved(node)
        if made in self._reading:
            self._note(node, f"{_short(node)} is made from itself, which cannot be read; check it")
            return
        self._reading.append(made)
        match made:
            case ast.Call(func=ast.Name("dict"), args=args) if len(args) <= 1:
                for each in args:
                    self._merge(found, before, each)
                for given in made.keywords:
                    if given.arg is None:  # **others
                        self._merge(found, before, given.value)
                    else:
                        self._put(found, f"{before}{given.arg}", given.value)
            case (
                ast.Call(func=ast.Attribute(attr="copy", value=inner), args=[])
                | ast.Call(func=ast.Name("deepcopy") | ast.Attribute(attr="copy" | "deepcopy"), args=[inner])
            ):
                self._merge(found, before, inner)
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                self._merge(found, before, left)
                self._merge(found, before, right)
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if key is None:
                        self._merge(found, before, value)
                    elif (name := self._key(key)) is not None:
                        self._put(found, f"{before}{name}", value)
            case _:
                self._note(node, f"{_short(node)} cannot be read; write its parameters yourself")
        self._reading.pop()
        if isinstance(node, ast.Name):
            self._change(found, before, node.id)

    def _put(self, found: dict[str, ast.expr], name: str, value: ast.expr) -> None:
        for other in [other for other in found if other == name or other.startswith(f"{name}.")]:
            del found[other]
        made = self.resolved(value, ast.Call, ast.Dict)
        is_mapping = isinstance(made, ast.Dict) and grid_of(made) is None
        if is_mapping or (isinstance(made, ast.Call) and name_of(made) == "dict"):
            self._merge(found, f"{name}.", value)
        else:
            found[name] = made

    def _key(self, node: ast.expr) -> str | None:
        try:
            return str(self._scope.value(node, {}))
        except Unreadable:
            self._note(node, f"the name {_short(node)} cannot be read; write it yourself")
            return None

    # What the script changes afterwards

    def _change(self, found: dict[str, ast.expr], before: str, name: str) -> None:
        """Apply what statements do to a name's mapping."""
        value, owner = self._assigned.get(name, (None, None))
        if value is None:
            return
        for node, where, always in self._statements:
            if where is owner and node.lineno < value.lineno:
                continue
            if where is self._user and node.lineno > self._used.lineno:
                continue
            if not (_changes(node, name) or self._passes(node, name)):
                continue
            if where is not None and where is not owner and name in self._own[where]:
                continue
            if where is not owner or not always:
                told = "runs only sometimes, in a loop or in a function: write its parameters yourself"
                self._note(node, f"{_short(node)} {told}")
            elif not self._applied(found, before, name, node):
                self._note(node, f"{_short(node)} cannot be read; write its parameters yourself")

    def _applied(self, found: dict[str, ast.expr], before: str, name: str, node: ast.stmt) -> bool:
        """Whether a statement can be read; then it is applied."""
        match node:
            case ast.Assign(targets=targets, value=value):
                places = [path for each in targets if (path := _path(each, name))]
                if len(places) < sum(_has(each, name) for each in targets) or not places:
                    return False
                for path in places:
                    if None not in (keys := [self._key(each) for each in path]):
                        self._put(found, before + ".".join(map(str, keys)), value)
                return True
            case ast.AugAssign(target=target, op=ast.BitOr(), value=value):
                given, updates = [value], []
            case ast.Expr(ast.Call(func=ast.Attribute(value=target, attr="update")) as call):
                given, updates = call.args, call.keywords
            case _:
                return False
        if (path_ := _path(target, name)) is None:
            return False
        keys = [self._key(each) for each in path_]
        if None in keys:
            return True  # it is told
        inside = "".join(f"{before if index == 0 else ''}{key}." for index, key in enumerate(keys)) or before
        for each in given:
            self._merge(found, inside, each)
        for keyword in updates:
            if keyword.arg is None:
                self._merge(found, inside, keyword.value)
            else:
                self._put(found, f"{inside}{keyword.arg}", keyword.value)
        return True

    def _passes(self, node: ast.stmt, name: str) -> bool:
        """Whether a statement gives the mapping to a function of the script that changes it."""
        if not isinstance(node, ast.Expr | ast.Assign | ast.AnnAssign | ast.Return):
            return False
        for call in nodes_of(node, ast.Call):
            function = self._functions.get(str(name_of(call)))
            given = [*call.args, *keywords(call).values()]
            if function is not None and any(isinstance(each, ast.Name) and each.id == name for each in given):
                inside = list(_statements(function.body, function))
                own = self._own[function]
                if any(_changes(each, one) for each, *_ in inside for one in own):
                    return True
        return False


def grid_of(node: ast.expr) -> ast.expr | None:
    """The values of `grid_search([...])`, or of `{"grid_search": [...]}`."""
    match node:
        case ast.Call() if name_of(node) == "grid_search":
            return node.args[0] if node.args else keywords(node).get("values")
        case ast.Dict(keys=[ast.Constant("grid_search")], values=[values]):
            return values
    return None


def _statements(
    body: Sequence[ast.AST], owner: Owner, always: bool = True
) -> Iterator[tuple[ast.stmt, Owner, bool]]:
    """Each statement, the function that it is in, and whether it runs just once whenever that runs."""
    for node in body:
        if isinstance(node, ast.stmt):
            yield node, owner, always
        inner = [
            each
            for block in ("body", "orelse", "finalbody", "handlers", "cases")
            for each in _list(node, block)
        ]
        if isinstance(node, Function):
            yield from _statements(inner, node)
        else:
            plain = isinstance(node, ast.With | ast.AsyncWith | ast.ClassDef) or _is_main(node)
            yield from _statements(inner, owner, always and plain)


def _list(node: ast.AST, block: str) -> list[ast.AST]:
    found = getattr(node, block, [])
    return found if isinstance(found, list) else []


def _is_main(node: ast.AST) -> bool:
    """Whether it is `if __name__ == "__main__":`."""
    return isinstance(node, ast.If) and "__main__" in map(constant, ast.walk(node.test))


def _own_names(function: Function) -> set[str]:
    """A function's parameters and the names that it assigns."""
    stored = (each for each in nodes_of(function, ast.Name) if isinstance(each.ctx, ast.Store))
    return {each.arg for each in nodes_of(function.args, ast.arg)} | {each.id for each in stored}


def _changes(node: ast.stmt, name: str) -> bool:
    """Whether a statement itself, without those inside it, changes a name's mapping."""
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            return any(_has(each, name) for each in targets)
        case ast.AugAssign(target=target):
            return _path(target, name) is not None
        case (
            ast.Expr(ast.Call(func=ast.Attribute(value=target, attr=method)))
            | ast.Assign(value=ast.Call(func=ast.Attribute(value=target, attr=method)))
        ):
            return method in ("update", *CHANGES) and _path(target, name) is not None
    return False


def _has(target: ast.expr, name: str) -> bool:
    """Whether an item of a name's mapping is among what is assigned."""
    return any(_path(each, name) for each in nodes_of(target, ast.Subscript))


def _path(node: ast.expr, name: str) -> list[ast.expr] | None:
    """The keys of `space["opt"]["lr"]`; none for the name itself, None for anything else."""
    keys: list[ast.expr] = []
    while isinstance(node, ast.Subscript):
        keys.insert(0, node.slice)
        node = node.value
    return keys if isinstance(node, ast.Name) and node.id == name else None


def _short(node: ast.AST) -> str:
    return ast.unparse(node)[:LONGEST]
