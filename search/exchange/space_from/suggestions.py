"""The parameters that an Optuna objective suggests, and under which conditions, by its source.

The function is read as it would run: branches become conditions, loops over known ranges are written out,
and functions of the module that get the trial are read where they are called.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....objectives.user.function import place_of
from ...errors import UsageError
from .asked import ARGUMENTS, says_of
from .conditions import UNKNOWN, Asked, Condition, alternatives, both, either, plain, test_of, when_of
from .found import FoundParameter, FoundSearch
from .given import Function, Objective, bindings, methods_of
from .scope import Scope, Unreadable
from .statements import asks, leaves, pattern_test
from .syntax import assignments, keywords, name_of

DEEPEST_CALL = 8  # functions that call each other with the trial
MOST_CALLS = 2000  # suggest_ calls, once loops are written out
MOST_STATEMENTS = 100_000  # that are read, once loops and calls are written out
SELF = "self"


@dataclass(frozen=True)
class Method:
    """A method of the trial with a name of its own: `ask = trial.suggest_float`."""

    kind: str  # `float`


@dataclass
class Frame:
    """A function while it is read."""

    trial: str  # the name of its trial
    known: dict[str, Any] = field(default_factory=dict)  # values and suggestions, by name or expression
    returned: Any = None  # what it returns, if that is known
    depth: int = 0

    @property
    def trials(self) -> set[str]:
        """The names that ask the trial: its own, and those of its methods."""
        return {self.trial, *(name for name, each in self.known.items() if isinstance(each, Method))}


class Suggestions:
    """Collects the suggestions of an objective."""

    def __init__(self, tree: ast.Module, scope: Scope, found: FoundSearch) -> None:
        self._scope = scope
        self._found = found
        self._functions = {node.name: node for node in tree.body if isinstance(node, Function)}
        self._classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        for made in self._classes.values():  # by its constructor
            for each in made.body:
                if isinstance(each, Function) and each.name == "__init__":
                    self._functions[made.name] = each
        self._methods: dict[str, Function] = {}  # of the object that is called
        self._asked: dict[str, tuple[Any, Condition, ast.Call]] = {}
        self._count = self._read = 0

    def read(self, objective: Objective, trial: str) -> None:
        """Read an objective whose trial has this name, and add its parameters to what is found."""
        self._functions |= objective.functions
        frame, defaults = Frame(trial), bindings(objective.function, ast.Call(ast.Name("objective"), [], []))
        if objective.of_class is not None:
            frame.known = self._attributes(objective.of_class, objective.made)
        frame.known |= {name: self._value(value, Frame(""), ()) for name, value in defaults}
        self._block(objective.function.body, frame, ())
        for name, (says, condition, call) in self._asked.items():
            for other in alternatives(condition):
                if not {*self._asked[other][1]} <= {*condition}:  # an expression needs all its parameters
                    self._note_unsaid(call, name)
                    condition = tuple(fact for fact in condition if fact[1] != "or")
                    break
            choices = {n: each for n, (each, _, _) in self._asked.items() if isinstance(each, list)}
            self._found.add(FoundParameter(name, says, call.lineno, when_of(condition, choices)))

    def _note_unsaid(self, node: ast.Call, name: str) -> None:
        self._found.note(node, f"{name} is asked for only sometimes, which the space does not say: check it")

    def _attributes(self, kind: ast.ClassDef, made: ast.Call | None) -> dict[str, Any]:
        """What an object's attributes are, as far as its class and the call that makes it show them."""
        self._methods = methods_of(kind, self._classes)
        frame, init = Frame(""), self._methods.get("__init__")
        values = {f"{SELF}.{name}": value for name, value in assignments(kind.body)}
        if made is not None and init is not None:
            values |= bindings(init, made, of_object=True)
        elif made is not None:  # of a dataclass
            fields = [each.target for each in kind.body if isinstance(each, ast.AnnAssign)]
            given = dict(zip(map(ast.unparse, fields), made.args, strict=False)) | keywords(made)
            values |= {f"{SELF}.{name}": value for name, value in given.items()}
        for name, value in values.items():
            if (read := self._value(value, Frame(""), ())) is not None:
                frame.known[name] = read
        if init is not None:
            self._block(init.body, frame, ())
        return {name: value for name, value in frame.known.items() if name.startswith(f"{SELF}.")}

    # Statements

    def _block(self, body: Sequence[ast.stmt], frame: Frame, given: Condition) -> Condition | None:
        """Read statements; the condition under which what follows them runs, None if nothing does."""
        for statement in body:
            after = self._statement(statement, frame, given)
            if after is None:
                return None
            given = after
        return given

    def _statement(self, node: ast.stmt, frame: Frame, given: Condition) -> Condition | None:
        self._read += 1
        if self._read > MOST_STATEMENTS:
            raise UsageError(
                f"{self._found.source}:{node.lineno}: its loops and calls are too long to be written out"
            )
        match node:
            case ast.For() | ast.AsyncFor() | ast.While() if not asks([node], frame.trials):
                self._forget([node], frame)  # it trains
            case ast.Return(value=value):
                frame.returned = self._value(value, frame, given)
                return None
            case ast.Raise() | ast.Continue() | ast.Break():
                self._expressions(node, frame, given)
                return None
            case ast.If(test=test, body=body, orelse=orelse):
                return self._branch(test, body, orelse, frame, given)
            case ast.Match():
                return self._match(node, frame, given)
            case ast.For() | ast.AsyncFor():
                self._loop(node.target, node.iter, lambda at: self._block(node.body, frame, at), frame, given)
                self._block(node.orelse, frame, given)
            case ast.While(test=test, body=body):
                self._value(test, frame, given)
                self._forget(body, frame)
                self._block(body, frame, both(given, UNKNOWN) if asks(body, frame.trials) else given)
            case ast.With(body=body) | ast.AsyncWith(body=body):
                for item in node.items:
                    self._value(item.context_expr, frame, given)
                return self._block(body, frame, given)
            case ast.Try():
                after = self._block(node.body, frame, given)
                for handler in node.handlers:
                    self._block(handler.body, frame, both(given, UNKNOWN))
                self._block(node.orelse, frame, given)
                self._block(node.finalbody, frame, given)
                return given if node.handlers else after
            case ast.Assign(targets=targets, value=value):
                read = self._value(value, frame, given)
                for target in targets:
                    self._assign(target, value, read, frame)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self._assign(target, value, self._value(value, frame, given), frame)
            case ast.AugAssign(target=target, value=value):
                self._value(value, frame, given)
                self._drop(target, frame)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                pass  # what it asks for is read where it is called, if it is one of the module
            case _:
                self._expressions(node, frame, given)
        return given

    def _branch(
        self,
        test: ast.expr,
        body: Sequence[ast.stmt],
        orelse: Sequence[ast.stmt],
        frame: Frame,
        given: Condition,
    ) -> Condition | None:
        self._value(test, frame, given)
        yes, no = test_of(test, frame.known, self._scope)
        before = dict(frame.known)
        ends_here = leaves(body) or leaves(orelse)
        ends: list[tuple[Condition | None, dict[str, Any]]] = []
        for condition, statements in ((yes, body), (no, orelse)):
            frame.known = dict(before)
            if condition is None:  # never so
                ends.append((None, before))
                continue
            matters = ends_here or asks(statements, frame.trials)
            at = both(given, condition) if matters else given
            ends.append((self._block(statements, frame, at), frame.known))
        (after_yes, known_yes), (after_no, known_no) = ends
        if after_yes is None or after_no is None:
            after, frame.known = (after_no, known_no) if after_yes is None else (after_yes, known_yes)
            if after is None or UNKNOWN[0] in given:
                return after
            return tuple(fact for fact in after if fact != UNKNOWN[0])  # what ends a trial asks for no more
        frame.known = {n: each for n, each in known_yes.items() if n in known_no and known_no[n] == each}
        return given

    def _match(self, node: ast.Match, frame: Frame, given: Condition) -> Condition | None:
        """A `match` is read as a chain of tests."""
        self._value(node.subject, frame, given)
        chain: list[ast.stmt] = []
        for case in reversed(node.cases):
            test = pattern_test(node.subject, case.pattern)
            if case.guard is not None:
                test = None
            if test is True:
                chain = list(case.body)
            else:
                shown = test if isinstance(test, ast.expr) else ast.Name("a pattern", ast.Load())
                chain = [ast.copy_location(ast.If(shown, list(case.body), chain), node)]
        return self._block([ast.fix_missing_locations(each) for each in chain], frame, given)

    def _loop(
        self,
        target: ast.expr,
        over: ast.expr,
        turn: Callable[[Condition], Any],
        frame: Frame,
        given: Condition,
    ) -> None:
        """Read the turns of a loop over known values, or up to the largest value of a suggested number."""
        self._value(over, frame, given)
        try:
            values: Any = self._scope.value(over, plain(frame.known))
        except Unreadable:
            counted = self._counted(over, frame)
            if counted is None:
                self._drop(target, frame)
                turn(both(given, UNKNOWN))
                self._drop(target, frame)
                return
            name, asked, first, offset = counted
            for index in range(first, asked["max"] + offset):
                self._assign(target, None, index, frame)
                least = index - offset
                always = least < asked["min"]
                turn(given if always else both(given, ((name, ">", least),)))
            self._drop(target, frame)
            return
        for value in list(values):
            self._read += 1
            self._assign(target, None, value, frame)
            turn(given)

    def _counted(self, over: ast.expr, frame: Frame) -> tuple[str, Mapping[str, Any], int, int] | None:
        """The suggested whole number that a `range` counts to: its name and range, and the first index."""
        if not (isinstance(over, ast.Call) and name_of(over) == "range" and len(over.args) in (1, 2)):
            return None
        first = 0
        if len(over.args) == 2:
            try:
                first = self._scope.value(over.args[0], plain(frame.known))
            except Unreadable:
                return None
        last, offset = over.args[-1], 0
        if isinstance(last, ast.BinOp) and isinstance(last.op, ast.Add | ast.Sub):
            try:
                offset = self._scope.value(last.right, plain(frame.known))
            except Unreadable:
                return None
            offset = -offset if isinstance(last.op, ast.Sub) else offset
            last = last.left
        asked = frame.known.get(ast.unparse(last))
        if not (isinstance(asked, Asked) and isinstance(asked.says, dict)):
            return None
        whole = all(isinstance(each, int) for each in (asked.says["min"], asked.says["max"], first, offset))
        return (asked.name, asked.says, first, offset) if whole and asked.says["max"] <= 200 else None

    # Names

    def _assign(self, target: ast.expr, value: ast.expr | None, read: Any, frame: Frame) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            parts = read if isinstance(read, tuple | list) and len(read) == len(target.elts) else None
            for index, each in enumerate(target.elts):
                self._assign(each, None, None if parts is None else parts[index], frame)
            return
        self._drop(target, frame)
        place = ast.unparse(target)
        if isinstance(read, dict):  # its items are names of their own: params["lr"]
            for key, each in read.items():
                frame.known[f"{place}[{key!r}]"] = each
        if read is not None and not isinstance(read, dict):
            frame.known[place] = read

    def _drop(self, target: ast.AST, frame: Frame) -> None:
        place = ast.unparse(target)
        for name in [
            name for name in frame.known if name == place or name.startswith((f"{place}[", f"{place}."))
        ]:
            del frame.known[name]

    def _forget(self, body: Sequence[ast.stmt], frame: Frame) -> None:
        """Forget the names that statements assign, which run several times."""
        for statement in body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    self._drop(node, frame)

    # Expressions

    def _expressions(self, node: ast.AST, frame: Frame, given: Condition) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._value(child, frame, given)
            elif not isinstance(child, ast.stmt):
                self._expressions(child, frame, given)

    def _value(self, node: ast.expr | None, frame: Frame, given: Condition) -> Any:
        """Read an expression: a known value, a suggestion, a mapping or tuple of these, or None."""
        match node:
            case None | ast.Lambda():
                return None
            case ast.Call():
                return self._call(node, frame, given)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._value(test, frame, given)
                yes, no = test_of(test, frame.known, self._scope)
                read = [
                    self._value(each, frame, both(given, condition) if asks([each], frame.trials) else given)
                    for condition, each in ((yes, body), (no, orelse))
                    if condition is not None
                ]
                return read[0] if len(read) == 1 else None
            case ast.BoolOp(values=[first, *others]):
                self._value(first, frame, given)
                for other in others:
                    self._value(other, frame, both(given, UNKNOWN) if asks([other], frame.trials) else given)
                return None
            case ast.ListComp(generators=[one]) | ast.GeneratorExp(generators=[one]) if not one.ifs:
                self._loop(one.target, one.iter, lambda at: self._value(node.elt, frame, at), frame, given)
                return None
            case ast.DictComp(generators=[one]) if not one.ifs:
                self._loop(one.target, one.iter, lambda at: self._value(node.value, frame, at), frame, given)
                return None
            case ast.Dict(keys=keys, values=values):
                read_all = [self._value(each, frame, given) for each in values]
                named = zip(keys, read_all, strict=True)
                return {key.value: each for key, each in named if isinstance(key, ast.Constant)}
            case ast.Tuple(elts=items):
                return tuple(self._value(each, frame, given) for each in items)
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if (name, attr[:8]) == (
                frame.trial,
                "suggest_",
            ):
                return Method(attr[8:])
        if (known := frame.known.get(ast.unparse(node))) is not None:
            return known
        if asks([node], frame.trials):
            self._expressions(node, frame, given)
            return None
        try:
            return self._scope.value(node, plain(frame.known))
        except Unreadable:
            return None

    def _call(self, node: ast.Call, frame: Frame, given: Condition) -> Any:
        function = node.func
        is_name = isinstance(getattr(function, "value", function), ast.Name)
        if is_name and isinstance(method := self._value(function, frame, given), Method):
            return self._suggested(node, method.kind, frame, given)
        passed = [each for each in (*node.args, *keywords(node).values()) if _is(each, frame.trial)]
        name = str(name_of(function))
        inner = self._functions.get(name) if isinstance(function, ast.Name) else None
        if _is(function, SELF):
            inner = self._methods.get("__call__")
        elif isinstance(function, ast.Attribute) and _is(function.value, SELF):
            inner = self._methods.get(name)
        if passed and inner is not None and frame.depth < DEEPEST_CALL:
            return self._inlined(node, inner, frame, given)
        if name_of(node) == "dict" and not node.args:
            return {name: self._value(each, frame, given) for name, each in keywords(node).items()}
        for each in (*node.args, *(keyword.value for keyword in node.keywords), function):
            read = self._value(each.value if isinstance(each, ast.Starred) else each, frame, given)
            if isinstance(read, Method):
                self._found.note(
                    node, f"{ast.unparse(node)}: what it suggests cannot be read; write it yourself"
                )
        try:
            return self._scope.value(node, plain(frame.known))
        except Unreadable:
            return None

    def _inlined(self, node: ast.Call, inner: Function, frame: Frame, given: Condition) -> Any:
        """What a function of the module asks for, and returns, where it is called with the trial."""
        names = [each.arg for each in (*inner.args.posonlyargs, *inner.args.args)]
        names = names[names[:1] == [SELF] :]
        values = dict(zip(names, node.args, strict=False)) | keywords(node)
        trial = next(name for name, value in values.items() if _is(value, frame.trial))
        defaults = zip(reversed(names), reversed(inner.args.defaults), strict=False)
        known = {name: self._value(value, Frame(""), ()) for name, value in defaults}
        known |= {name: self._value(value, frame, given) for name, value in values.items() if name != trial}
        known = {name: value for name, value in known.items() if value is not None}
        attributes = {name: each for name, each in frame.known.items() if name.startswith(f"{SELF}.")}
        own = Frame(trial, attributes if inner in self._methods.values() else {}, depth=frame.depth + 1)
        for name, value in known.items():
            self._assign(ast.Name(name, ast.Store()), None, value, own)
        self._block(inner.body, own, given)
        return own.returned

    def _suggested(self, node: ast.Call, kind: str, frame: Frame, given: Condition) -> Any:
        """Note a suggestion."""
        self._count += 1
        if kind not in ARGUMENTS or self._count > MOST_CALLS:
            return None
        values = dict(zip(ARGUMENTS[kind], node.args, strict=False)) | keywords(node)
        values |= {f"**{ast.unparse(each.value)}": each.value for each in node.keywords if each.arg is None}
        read: dict[str, Any] = {}
        for key, value in values.items():
            try:
                one = self._scope.value(value, plain(frame.known))
                read |= one if key.startswith("**") else {key: one}
            except (Unreadable, TypeError):
                self._found.note(node, f"{ast.unparse(node)}: its {key} cannot be read; write it yourself")
                return None
        try:
            name, says = str(read["name"]), says_of(kind, read)
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            why = f"its {error.args[0]} is missing" if isinstance(error, KeyError) else error
            self._found.note(node, f"{ast.unparse(node)}: {why}; write it yourself")
            return None
        place = place_of(name)
        if UNKNOWN[0] in given:
            self._note_unsaid(node, place)
            given = tuple(each for each in given if each != UNKNOWN[0])
        if place in self._asked:
            before, condition, _ = self._asked[place]
            if repr(before) != repr(says):  # 1 is not 1.0 here
                told = f"asks for another range of {place} than before; a space has one for each name"
                self._found.note(node, f"{ast.unparse(node)} {told}")
            given = either(condition, given)
        self._asked[place] = (self._asked[place][0] if place in self._asked else says, given, node)
        if not isinstance(says, dict | list):
            return says
        frame.known[ast.unparse(node)] = asked = Asked(place, self._asked[place][0])
        return asked


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
