"""What a script gives to `study.optimize`: a function, an object that is called, a lambda, a partial.

Each becomes a function of a trial alone, which calls what the script has: it is read as any other, not run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .syntax import assignments, keywords, name_of, nodes_of

Function = ast.FunctionDef | ast.AsyncFunctionDef
TRIAL = "trial"  # the argument of a function that is made here
DEEPEST = 20  # names that stand for each other


@dataclass
class Objective:
    """A function of a trial, and what it knows beside the module."""

    function: Function
    functions: dict[str, Function] = field(default_factory=dict)  # that it can call, beside the module's
    constants: dict[str, ast.expr] = field(default_factory=dict)  # of the functions around it
    of_class: ast.ClassDef | None = None  # of which the function is a method
    made: ast.Call | None = None  # its object
    at_top: bool = False  # whether the module has it under its name once it is imported


class Given:
    """Finds what calls of `optimize` are given."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self._around = {  # of each call, the functions and blocks around it, the innermost first
            id(call): around for call, around in _calls(tree, ())
        }
        self._main = [node for node in tree.body if isinstance(node, ast.If | ast.With | ast.Try)]

    def of(self, call: ast.Call, given: ast.expr) -> Objective | None:
        """What this call of `optimize` is given; None where the source does not show it."""
        around = self._around[id(call)]
        objective = self._of(given, around, 0)
        if objective is not None:
            for place in (*around, *self._main):
                inside = self._inside(place)
                functions = {each.name: each for each in inside if isinstance(each, Function)}
                objective.functions = functions | objective.functions
                objective.constants = dict(assignments(inside)) | objective.constants
        return objective

    def _inside(self, place: ast.AST) -> list[ast.stmt]:
        """The statements of a function or module; of a block of the module, those within it too."""
        if place in self._main:
            return [node for node in ast.walk(place) if isinstance(node, ast.stmt)]
        return place.body  # type: ignore[attr-defined, no-any-return]

    def _of(self, given: ast.expr, around: tuple[Function, ...], depth: int) -> Objective | None:
        if depth > DEEPEST:
            return None
        match given:
            case ast.Name(id=name):
                return self._named(name, around, depth)
            case ast.Lambda(args=arguments, body=body):
                return Objective(_function(given, arguments, body))
            case ast.Call(args=[ast.expr() as inner, *others]) if name_of(given) == "partial":
                bound = ast.Call(inner, [*others, ast.Name(TRIAL, ast.Load())], given.keywords)
                found = self._of(inner, around, depth + 1)
                if found is None or found.of_class is not None:
                    return None
                name = f"{found.function.name} of the partial"
                bound.func = ast.Name(name, ast.Load())
                whole = _function(given, _arguments(TRIAL), ast.copy_location(bound, given))
                return Objective(whole, found.functions | {name: found.function}, found.constants)
            case ast.Call(func=ast.Name(id=name)) if name in self._classes:
                return self._method(self._classes[name], "__call__", given)
            case ast.Attribute(value=inner, attr=attr):
                made = self._assigned(inner, around) if isinstance(inner, ast.Name) else inner
                if isinstance(made, ast.Call) and (kind := self._classes.get(str(name_of(made)))):
                    return self._method(kind, attr, made)
            case ast.Call(func=ast.Name(id=name)):
                return self._returned(given, name, around, depth)
        return None

    def _named(self, name: str, around: tuple[Function, ...], depth: int) -> Objective | None:
        for place in (*around, self._tree, *self._main):
            inside = self._inside(place)
            for node in inside:
                if isinstance(node, Function) and node.name == name:
                    return Objective(node, at_top=place is self._tree)
            if (value := dict(assignments(inside)).get(name)) is not None:
                found = self._of(value, around, depth + 1)
                if found is not None:
                    found.at_top = place is self._tree
                return found
        return None

    def _assigned(self, name: ast.Name, around: tuple[Function, ...]) -> ast.expr | None:
        for place in (*around, self._tree, *self._main):
            if (value := dict(assignments(self._inside(place))).get(name.id)) is not None:
                return value
        return None

    def _method(self, kind: ast.ClassDef, name: str, made: ast.Call) -> Objective | None:
        methods = methods_of(kind, self._classes)
        return Objective(methods[name], of_class=kind, made=made) if name in methods else None

    def _returned(
        self, call: ast.Call, name: str, around: tuple[Function, ...], depth: int
    ) -> Objective | None:
        """What a function of the script makes: `study.optimize(make_objective(data))`."""
        maker = self._named(name, around, depth + 1)
        if maker is None or maker.of_class is not None:
            return None
        made = [node.value for node in maker.function.body if isinstance(node, ast.Return) and node.value]
        found = self._of(made[-1], (maker.function, *around), depth + 1) if made else None
        if found is not None:
            found.at_top = False
            inside = {each.name: each for each in maker.function.body if isinstance(each, Function)}
            found.functions = inside | found.functions
            bound = dict(bindings(maker.function, call)) | dict(assignments(maker.function.body))
            found.constants = bound | found.constants
        return found


def methods_of(kind: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> dict[str, Function]:
    """The methods of a class, by name, with those that it has from classes of the script."""
    found: dict[str, Function] = {}
    for base in reversed(kind.bases):
        inherited = classes.get(str(name_of(base)))
        if inherited is not None and inherited is not kind:
            found |= methods_of(inherited, {name: each for name, each in classes.items() if each is not kind})
    return found | {each.name: each for each in kind.body if isinstance(each, Function)}


def bindings(
    function: Function, call: ast.Call, *, of_object: bool = False
) -> Iterator[tuple[str, ast.expr]]:
    """The arguments of a call by the function's names for them, its defaults included."""
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args)]
    yield from zip(reversed(names), reversed(given.defaults), strict=False)
    for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        if default is not None:
            yield each.arg, default
    yield from zip(names[of_object:], call.args, strict=False)
    yield from keywords(call).items()


def free_name(tree: ast.Module, wanted: str) -> str:
    """A name that a script does not use."""
    used = {node.id for node in nodes_of(tree, ast.Name)}
    used |= {node.name for node in ast.walk(tree) if isinstance(node, Function | ast.ClassDef)}
    name, number = wanted, 2
    while name in used:
        name, number = f"{wanted}_{number}", number + 1
    return name


def _calls(node: ast.AST, around: tuple[Function, ...]) -> Iterator[tuple[ast.Call, tuple[Function, ...]]]:
    """The calls inside a node, with the functions around each."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, around
        yield from _calls(child, (child, *around) if isinstance(child, Function) else around)


def _function(node: ast.expr, arguments: ast.arguments, body: ast.expr) -> ast.FunctionDef:
    """A function that returns an expression."""
    made = ast.FunctionDef("objective", arguments, [ast.Return(body)], [])
    return ast.fix_missing_locations(ast.copy_location(made, node))


def _arguments(name: str) -> ast.arguments:
    return ast.arguments([], [ast.arg(name)], None, [], [], None, [])
