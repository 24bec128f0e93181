"""The options of a Python script, read from its source: the script is never run.

Understood are `add_argument` of argparse, the fields of dataclasses where `HfArgumentParser` parses them, and
the options of click and Typer.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .fields import Setting, Settings

FLAG = "it is a flag, without a value"
NUMBERS = {"int": int, "float": float}
NO_VALUE = ("store_true", "store_false", "store_const", "append", "append_const", "count", "help", "version")


def settings_of_script(path: Path) -> Settings:
    """The options of a script. Raises `UsageError` where it is no Python, or has options of no kind known."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the script's own making, such as "\d"
            tree = ast.parse(path.read_bytes())
    except SyntaxError as error:
        place = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise UsageError(f"{place}: no Python: {error.msg}") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path}: no Python that can be read: {error}") from error
    reader = _Reader(tree)
    if reader.subcommands:
        raise UsageError(f"{path}: its options belong to subcommands; propose a space of one by hand")
    options = list(reader.options())
    if not options:
        raise UsageError(
            f"{path}: found no options of argparse, HfArgumentParser, click or Typer; "
            "a space for it names the function that trains: objective: FILE.py:FUNCTION"
        )
    unfit = {option.name: why for option in options if (why := option.unfit) is not None}
    found = list({option.parameter: option for option in options if option.name not in unfit}.values())
    alike = all(option.name == f"--{option.parameter}" for option in found)
    words = ["${args}"] if alike else [_word(option) for option in found]
    return Settings(
        source=path,
        found=found,
        command=["python", str(path), *words],
        how=f"Each trial runs {path.name} with these values as its options.",
        left_out=reader.left_out | unfit,
    )


def _word(option: Setting) -> str:
    """The word of the command that gives an option its value; a positional argument is the value alone."""
    value = f"${{{option.parameter}}}"
    return f"{option.name}={value}" if option.name.startswith("-") else value


class _Reader:
    """Collects options from a module's tree."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.left_out: dict[str, str] = {}
        self.constants = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        run = {
            argument.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and _is_of(node.func, "typer") and _called(node) == "run"
            for argument in node.args
            if isinstance(argument, ast.Name)
        }
        self.commands = [each for each in functions if _decorated(each, "command") or each.name in run]
        self.subcommands = "add_subparsers" in names or len(self.commands) > 1
        self.parses_dataclasses = bool(names & {"HfArgumentParser", "TrlParser"})

    def options(self) -> Iterator[Setting]:
        """All options, in the order of the source."""
        kinds = (ast.Call, ast.ClassDef, ast.FunctionDef)
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, kinds)]
        for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
            if isinstance(node, ast.Call):
                yield from self._call(node)
            elif isinstance(node, ast.ClassDef) and self.parses_dataclasses and _decorated(node, "dataclass"):
                yield from self._dataclass(node)
            elif isinstance(node, ast.FunctionDef) and node in self.commands and _is_typer(node):
                yield from self._typer(node)

    def _call(self, call: ast.Call) -> Iterator[Setting]:
        name, of_click = _called(call), _is_of(call.func, "click")
        if name == "add_argument" or (of_click and name in ("option", "argument")):
            yield from self._option(call)

    def _option(self, call: ast.Call) -> Iterator[Setting]:
        names = [word for word in map(self._literal, call.args) if isinstance(word, str)]
        given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        name = next((name for name in names if name.startswith("--")), names[0] if names else None)
        if name is None:
            return
        if not name.startswith("-"):
            if not _is_optional(given):
                yield Setting(name, _parameter(name), required=True)
            return
        name, slash, _ = name.partition("/")  # click's --shout/--no-shout
        if reason := FLAG if slash else self._unfit(given):
            self.left_out[name] = reason
            return
        choices = self._choices(given.get("choices"), given.get("type"))
        required = self._literal(given.get("required")) is True
        kind = given.get("type")
        yield self._setting(name, kind, given.get("default"), choices, required)

    def _unfit(self, given: dict[str, ast.expr]) -> str | None:
        action = self._literal(given.get("action"))
        if action in NO_VALUE or any(self._literal(given.get(word)) for word in ("is_flag", "count")):
            return FLAG
        if "BooleanOptionalAction" in ast.dump(given.get("action", ast.Constant(None))):
            return FLAG
        if "nargs" in given or self._literal(given.get("multiple")) is True:
            return "it takes several values"
        if isinstance(kind := given.get("type"), ast.Name) and kind.id == "bool":
            return "type=bool takes every text for true"
        return None

    def _choices(self, given: ast.expr | None, kind: ast.expr | None) -> tuple[Any, ...]:
        if isinstance(kind, ast.Call) and isinstance(kind.func, ast.Attribute) and kind.func.attr == "Choice":
            given = kind.args[0] if kind.args else None
        found = self._literal(given)
        return tuple(found) if isinstance(found, list | tuple) and found else ()

    def _dataclass(self, node: ast.ClassDef) -> Iterator[Setting]:
        for entry in node.body:
            if not isinstance(entry, ast.AnnAssign) or not isinstance(entry.target, ast.Name):
                continue
            name, default, required = f"--{entry.target.id}", entry.value, entry.value is None
            if isinstance(default, ast.Call):  # field(default=...)
                given = {keyword.arg: keyword.value for keyword in default.keywords}
                required = not given.keys() & {"default", "default_factory"}
                if given.get("init") is not None and self._literal(given["init"]) is False:
                    continue
                default = given.get("default")
            kind, choices = self._annotation(entry.annotation)
            if isinstance(kind, ast.Name) and kind.id in ("list", "List", "dict", "Dict", "tuple"):
                self.left_out[name] = "it takes several values"
                continue
            yield self._setting(name, kind, default, choices, required)

    def _typer(self, node: ast.FunctionDef) -> Iterator[Setting]:
        arguments = [*node.args.args, *node.args.kwonlyargs]
        missing: list[ast.expr | None] = [None] * (len(node.args.args) - len(node.args.defaults))
        defaults = [*missing, *node.args.defaults, *node.args.kw_defaults]
        for argument, default in zip(arguments, defaults, strict=True):
            kind, choices = self._annotation(argument.annotation)
            declared = _declaration(argument.annotation) or (
                default if isinstance(default, ast.Call) else None
            )
            name = f"--{argument.arg.replace('_', '-')}"
            if isinstance(default, ast.Call):  # typer.Option(0.1, "--lr")
                default = default.args[0] if default.args else None
            is_argument = _called(declared) == "Argument" or (declared is None and default is None)
            if declared is not None:
                given = [self._literal(word) for word in declared.args]
                name = next((w for w in given if isinstance(w, str) and w.startswith("--")), name)
            if is_argument:
                if default is None:
                    yield Setting(argument.arg, argument.arg, required=True)
            elif isinstance(kind, ast.Name) and kind.id == "bool":
                self.left_out[name.partition("/")[0]] = FLAG
            elif isinstance(kind, ast.Name) and kind.id in ("list", "List", "tuple"):
                self.left_out[name] = "it takes several values"
            else:
                yield self._setting(name, kind, default, choices, default is None)

    def _annotation(self, node: ast.expr | None) -> tuple[ast.expr | None, tuple[Any, ...]]:
        """The type within `Optional[...]`, `... | None` and `Annotated[...]`, and a Literal's values."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):  # written as a text
            try:
                node = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return None, ()
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            none = isinstance(node.left, ast.Constant) and node.left.value is None
            return self._annotation(node.right if none else node.left)
        if not isinstance(node, ast.Subscript):
            return node, ()
        outer = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", None)
        inner = node.slice
        if outer == "Literal":
            values = self._literal(inner)
            return None, tuple(values) if isinstance(values, tuple) else (values,)
        if outer == "Annotated" and isinstance(inner, ast.Tuple):
            return self._annotation(inner.elts[0])
        return self._annotation(inner) if outer == "Optional" else (node.value, ())

    def _setting(
        self,
        name: str,
        kind: ast.expr | None,
        default: ast.expr | None,
        choices: tuple[Any, ...],
        required: bool,
    ) -> Setting:
        value = self._literal(default)
        wanted = NUMBERS.get(kind.id) if isinstance(kind, ast.Name) else None
        if wanted is not None and isinstance(value, str | int | float) and not isinstance(value, bool):
            with suppress(ValueError, OverflowError):
                value = wanted(value)  # as argparse does with a text
        number = isinstance(value, int | float) and not isinstance(value, bool)
        whole = wanted is int or (wanted is None and isinstance(value, int))
        number = number or (value is None and wanted is not None)
        return Setting(name, _parameter(name), value, number, whole, choices, required)

    def _literal(self, node: ast.expr | None) -> Any:
        """A value that stands in the source, or in a constant of the module; None for any other."""
        if isinstance(node, ast.Name) and node.id in self.constants:
            node = self.constants[node.id]
        try:
            return None if node is None else ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return _arithmetic(node)


def _arithmetic(node: ast.expr | None) -> Any:
    """`2 ** 16`, `1024 * 8`, `10 ** -4`: numbers as people write them."""
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


def _parameter(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _is_optional(given: dict[str, ast.expr]) -> bool:
    nargs = given.get("nargs")
    return isinstance(nargs, ast.Constant) and nargs.value in ("?", "*")


def _is_of(function: ast.expr, module: str) -> bool:
    """Whether a function is called by its module's name: `click.option`."""
    owner = function.value if isinstance(function, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id == module


def _called(call: ast.Call | None) -> str | None:
    if call is None:
        return None
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)


def _declaration(annotation: ast.expr | None) -> ast.Call | None:
    """The `typer.Option(...)` within `Annotated[...]`."""
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        calls = [node for node in annotation.slice.elts if isinstance(node, ast.Call)]
        return next((call for call in calls if _called(call) in ("Option", "Argument")), None)
    return None


def _decorated(node: ast.ClassDef | ast.FunctionDef, name: str) -> bool:
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if (target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", None)) == name:
            return True
    return False


def _is_typer(node: ast.FunctionDef) -> bool:
    """Whether a command is Typer's, whose arguments are annotated; click's come by decorators."""
    others = [_called(each) for each in node.decorator_list if isinstance(each, ast.Call)]
    return "option" not in others and "argument" not in others
