"""From which options a script's values come, by its source: `--out` for `path = args.out + "/x"`.

An option is what the script reads it from: an attribute of what `parse_args` returned, or a parameter of a
command of click or Typer. A local variable of the same name is not an option.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from .syntax import constant, imports, keywords, name_of, root_of

PARSE_CALLS = re.compile(r"parse_(known_)?(intermixed_)?args\w*|parse_(json|yaml)_file|parse_dict|cli")
COPY_CALLS = {"vars", "copy", "deepcopy", "Namespace", "SimpleNamespace"}  # return the options they are given
PATH_CALLS = {"join", "Path", "PurePath", "PosixPath"}
SAME_PATH_CALLS = {"int", "str", "abspath", "realpath", "normpath", "expanduser", "expandvars", "fspath"}
SAME_PATH_METHODS = {"resolve", "absolute", "expanduser", "strip", "rstrip", "as_posix", "replace", "format"}
SIBLING_PATH_CALLS = {"dirname", "splitext", "with_suffix", "with_name", "with_stem", "parent"}
MOST_EXPRESSIONS = 200  # that are followed for one value

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Scope = Function | None  # None: the module
Place = tuple[int, int]
How = Literal["is", "within", "begins"]  # it is the path; the path is inside it; its name continues


@dataclass(frozen=True)
class Origin:
    """An option, and how a path starts with it."""

    option: str
    how: How
    filled: bool = False  # whether another value replaces a missing one: `args.out or "runs"`


@dataclass(frozen=True)
class _Bound:
    value: ast.expr
    scope: Scope  # of the value
    since: Place | None = None  # where in the source the assignment ends


class Origins:
    """Follows a module's variables, the parameters of its functions, and what they return."""

    def __init__(self, tree: ast.Module, commands: Collection[ast.AST] = ()) -> None:
        self._outer: dict[Function, Scope] = {}
        self._class: dict[Scope, str] = {}
        self._bound: dict[tuple[object, str], list[_Bound]] = defaultdict(list)
        self._options: set[tuple[Scope, str]] = set()
        self._functions: dict[str, list[Function]] = defaultdict(list)
        self._returns: dict[Scope, list[ast.expr]] = defaultdict(list)
        self._parsed: set[str] = set()  # names that hold options, and functions that return them, with ()
        self.imported = imports(tree)
        self.nodes = list(self._walk(tree))
        self._global = {
            (scope, name) for scope, node in self.nodes if isinstance(node, ast.Global) for name in node.names
        }
        for scope, node in self.nodes:
            self._declare(scope, node, commands)
        for scope, node in self.nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self._assign(target, node.value, scope)
        calls = [(scope, node) for scope, node in self.nodes if isinstance(node, ast.Call)]
        for scope, call in calls:
            self._give(scope, call)
        while self._find_parsed():
            pass
        for _, call in calls:  # main(**vars(args))
            if any(each.arg is None and self._is_parsed(each.value) for each in call.keywords):
                for function in self.defined(call):
                    self._options |= {(function, each) for each in _parameters(function)}

    def of(self, node: ast.expr, scope: Scope) -> list[Origin]:
        """The options that a value, used in this function, comes from."""
        return list(self._of(node, scope, set()))

    def receiver(self, call: ast.Call) -> ast.expr | None:
        """The object of a method call; None for a function, even one of an imported module: `torch.save`."""
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        root = root_of(owner)
        return None if root in self.imported and str(root)[0].islower() else owner

    def defined(self, call: ast.Call) -> list[Function]:
        """The functions of this module that a call may refer to."""
        of_module = isinstance(call.func, ast.Attribute) and self.receiver(call) is None
        return [] if of_module else self._functions.get(str(name_of(call)), [])

    def _walk(self, tree: ast.Module) -> Iterator[tuple[Scope, ast.AST]]:
        left: list[tuple[Scope, ast.AST]] = [(None, tree)]
        while left:
            scope, node = left.pop()
            yield scope, node
            if isinstance(node, Function):
                self._outer[node] = scope
                self._class.setdefault(node, self._class.get(scope, ""))
            if isinstance(node, ast.ClassDef):
                self._class |= {each: node.name for each in node.body if isinstance(each, Function)}
            inner = node if isinstance(node, Function) else scope
            left += [(inner, child) for child in ast.iter_child_nodes(node)]

    def _declare(self, scope: Scope, node: ast.AST, commands: Collection[ast.AST]) -> None:
        if isinstance(node, ast.ClassDef):
            self._functions[node.name] += [
                each for each in node.body if isinstance(each, Function) and each.name == "__init__"
            ]
        elif isinstance(node, ast.Return) and node.value is not None:
            self._returns[scope].append(node.value)
        elif isinstance(node, Function):
            for parameter in _parameters(node):
                self._bound[node, parameter] = []
                if node in commands:
                    self._options.add((node, parameter))
            if not isinstance(node, ast.Lambda):
                self._functions[node.name].append(node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            self._bound[self._variable(node.id, scope)] = []

    def _assign(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        end = (value.end_lineno or value.lineno, value.end_col_offset or 0)
        if isinstance(target, ast.Name):
            self._bound[self._variable(target.id, scope)].append(_Bound(value, scope, end))
        elif isinstance(target, ast.Attribute):
            self._bound[self._attribute(target, scope)].append(_Bound(value, scope))
        elif isinstance(target, ast.Tuple | ast.List):
            for index, each in enumerate(target.elts):
                part = ast.Subscript(value, ast.Constant(index), ast.Load())
                self._assign(each, ast.copy_location(part, value), scope)

    def _give(self, scope: Scope, call: ast.Call) -> None:
        """Bind the parameters of functions to the arguments of a call."""
        for function in self.defined(call):
            names = _parameters(function)
            if names[:1] in (["self"], ["cls"]):
                names = names[1:]
            plain = [each for each in call.args if not isinstance(each, ast.Starred)]
            given = dict(zip(names, plain, strict=False)) if len(plain) == len(call.args) else {}
            given |= {name: value for name, value in keywords(call).items() if name in names}
            for name, value in given.items():
                self._bound[function, name].append(_Bound(value, scope))

    def _variable(self, name: str, scope: Scope) -> tuple[object, str]:
        return (None if (scope, name) in self._global else scope), name

    def _attribute(self, node: ast.Attribute, scope: Scope) -> tuple[object, str]:
        text = ast.unparse(node)
        return (self._class.get(scope) if text.startswith("self.") else None), text

    def _find_parsed(self) -> bool:
        """Find more names that hold options; whether there were any."""
        before = len(self._parsed)
        self._parsed |= {
            name.rpartition(".")[2]
            for (_, name), bound in self._bound.items()
            if any(self._is_parsed(each.value) for each in bound)
        }
        self._parsed |= {
            f"{name}()"
            for name, functions in self._functions.items()
            if any(self._is_parsed(each) for one in functions for each in self._returns.get(one, ()))
        }
        return len(self._parsed) > before

    def _is_parsed(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether an expression holds the options, like the result of `parse_args`."""
        if depth > 20:
            return False
        if isinstance(node, ast.Subscript) and isinstance(constant(node.slice), int):
            parts = self._parts(node)
            return any(self._is_parsed(each, depth + 1) for each in parts or [node.value])
        if isinstance(node, ast.Attribute) and node.attr == "__dict__":
            return self._is_parsed(node.value, depth + 1)
        if isinstance(node, ast.Call):
            given = [*node.args, *(each.value for each in node.keywords if each.arg is None)]
            name = str(name_of(node))
            return (
                PARSE_CALLS.fullmatch(name) is not None
                or (f"{name}()" in self._parsed and bool(self.defined(node)))
                or (name in COPY_CALLS and any(self._is_parsed(each, depth + 1) for each in given))
            )
        return name_of(node) in self._parsed

    def _parts(self, node: ast.Subscript) -> list[ast.expr]:
        """The expressions at this index of a tuple that is written out or returned."""
        tuples = [node.value]
        if isinstance(node.value, ast.Call):
            tuples = [each for one in self.defined(node.value) for each in self._returns.get(one, ())]
        if not isinstance(index := constant(node.slice), int):
            return []
        return [
            each.elts[index]
            for each in tuples
            if isinstance(each, ast.Tuple) and -len(each.elts) <= index < len(each.elts)
        ]

    def _of(self, node: ast.expr | None, scope: Scope, seen: set[int]) -> Iterator[Origin]:
        if node is None or id(node) in seen or len(seen) > MOST_EXPRESSIONS:
            return
        seen.add(id(node))
        if isinstance(node, ast.Name):
            yield from self._of_name(node, scope, seen)
        elif isinstance(node, ast.Attribute):
            if self._is_parsed(node.value):
                yield Origin(node.attr, "is")
            if node.attr in SIBLING_PATH_CALLS:
                yield from self._on(node.value, scope, seen, "begins")
            for bound in self._bound.get(self._attribute(node, scope), ()):
                yield from self._of(bound.value, bound.scope, seen)
        elif isinstance(node, ast.Subscript):
            key = constant(node.slice)
            if isinstance(key, str) and self._is_parsed(node.value):  # vars(args)["out"]
                yield Origin(key, "is")
            elif parts := self._parts(node):
                for part in parts:
                    yield from self._of(part, scope, seen)
            else:
                yield from self._on(node.value, scope, seen, "begins")
        elif isinstance(node, ast.BoolOp | ast.IfExp):
            first, *others = node.values if isinstance(node, ast.BoolOp) else (node.body, node.orelse)
            filled = isinstance(node, ast.IfExp) or isinstance(node.op, ast.Or)
            for each in self._of(first, scope, seen):
                yield replace(each, filled=each.filled or filled)
            for other in others:
                yield from self._of(other, scope, seen)
        elif isinstance(node, ast.Call):
            yield from self._of_call(node, scope, seen)
        elif isinstance(node, ast.BinOp | ast.JoinedStr):
            yield from self._of_text(node, scope, seen)

    def _of_name(self, node: ast.Name, scope: Scope, seen: set[int]) -> Iterator[Origin]:
        """Follow the last assignment before the use, else the arguments of the function."""
        here, used = scope, (node.lineno, node.col_offset)
        while (scope, node.id) not in self._bound and scope is not None:
            scope = self._outer[scope]
        bound = self._bound.get((scope, node.id), [])
        before = [each for each in bound if each.since is not None and each.since <= used]
        if scope is here and before:
            bound = [max(before, key=lambda each: each.since or used)]
        else:
            if (scope, node.id) in self._options:
                yield Origin(node.id, "is")
            bound = [each for each in bound if each.since is None or scope is not here]
        for each in bound:
            yield from self._of(each.value, each.scope, seen)

    def _of_call(self, node: ast.Call, scope: Scope, seen: set[int]) -> Iterator[Origin]:
        name, first = name_of(node), node.args[0] if node.args else None
        receiver = self.receiver(node)
        if name == "format" and isinstance(text := constant(receiver), str):
            if begun := re.match(r"\{(\w*)[^}]*\}(/?)", text):
                named = next((each.value for each in node.keywords if each.arg == begun[1]), first)
                yield from self._on(named, scope, seen, "within" if begun[2] else "begins")
        elif receiver is not None and name in SAME_PATH_METHODS:
            yield from self._of(receiver, scope, seen)
        elif name == "joinpath":
            yield from self._on(receiver, scope, seen, "within")
        elif name in SIBLING_PATH_CALLS:
            yield from self._on(first if receiver is None else receiver, scope, seen, "begins")
        elif name in PATH_CALLS and len(node.args) > 1:
            yield from self._on(first, scope, seen, "within")
        elif name in PATH_CALLS or name in SAME_PATH_CALLS:
            yield from self._of(first, scope, seen)
        elif functions := self.defined(node):
            for function in functions:
                for returned in self._returns.get(function, ()):
                    yield from self._of(returned, function, seen)
        elif first is not None:  # a function that derives a path: increment_path(Path(args.out) / args.name)
            is_path = isinstance(first, ast.Call) and name_of(first) in PATH_CALLS
            yield from (each for each in self._of(first, scope, seen) if is_path or each.how == "within")

    def _of_text(self, node: ast.BinOp | ast.JoinedStr, scope: Scope, seen: set[int]) -> Iterator[Origin]:
        """A composed path: `a / b`, `a + "/b"`, `"%s/b" % a`, `f"{a}/b"`."""
        if isinstance(node, ast.JoinedStr):
            first, after = node.values[0] if node.values else None, node.values[1:2]
            if isinstance(first, ast.FormattedValue):
                yield from self._on(first.value, scope, seen, _continuation(after))
        elif isinstance(node.op, ast.Div):
            yield from self._on(node.left, scope, seen, "within")
        elif isinstance(node.op, ast.Add):
            yield from self._on(node.left, scope, seen, _continuation([node.right]))
        elif isinstance(node.op, ast.Mod) and isinstance(text := constant(node.left), str):
            if text.startswith("%s"):
                values = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
                how: How = "within" if text.startswith("%s/") else "begins"
                yield from self._on(next(iter(values), None), scope, seen, how)
        elif isinstance(node.op, ast.Mod):
            yield from self._of(node.left, scope, seen)

    def _on(self, node: ast.expr | None, scope: Scope, seen: set[int], how: How) -> Iterator[Origin]:
        for each in self._of(node, scope, seen):
            yield replace(each, how=how) if each.how == "is" else each


def _continuation(after: list[ast.expr]) -> How:
    """How a path starts with the expression before these."""
    if not after:
        return "is"
    if isinstance(after[0], ast.JoinedStr):
        return _continuation(after[0].values[:1])
    text = constant(after[0])
    starts = isinstance(text, str) and text.startswith("/")
    return "within" if starts or name_of(after[0]) == "sep" else "begins"


def _parameters(function: Function) -> list[str]:
    given = function.args
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
