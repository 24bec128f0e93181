"""The options of a Python script, read from its source: the script is never run.

Supported are `add_argument` of argparse, the fields of dataclasses that `HfArgumentParser` parses, and the
options of click and Typer.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import UsageError
from .fields import Setting, Settings
from .literals import NUMBER_TYPES, Literals, parameter_of
from .own import in_a_command, used, value_of_its_own
from .shown import shown_by
from .syntax import assignments, bounds, called, declaration, decorated, is_of, name_of

FLAG = "it is a flag, without a value"
SEVERAL = "it takes several values"
IMPORTED = "it is imported: add its options that are to be searched, such as learning_rate"
PARSERS = {"HfArgumentParser", "TrlParser"}
# These have options of their own, which are not in the script.
OF_A_TRAINER = re.compile(
    r"\w*TrainingArguments|(BCO|CPO|DPO|GKD|GRPO|KTO|NashMD|OnlineDPO|ORPO|PPO|PRM|Reward|RLOO|SFT|XPO)Config"
)
NO_VALUE = ("store_true", "store_false", "store_const", "count", "help", "version")


def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a script. Raises `UsageError` where it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the script itself, such as "\d"
            return ast.parse(path.read_bytes())
    except SyntaxError as error:
        place = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise UsageError(f"{place}: not Python: {error.msg}") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path}: not Python that can be read: {error}") from error


def settings_of_script(path: Path) -> Settings:
    """The options of a script. Raises `UsageError` where it is not Python, or has no supported options."""
    tree = tree_of(path)
    reader = _Reader(tree)
    if reader.subcommands:
        raise UsageError(f"{path}: its options belong to subcommands; write a space for one of them by hand")
    options = list(reader.options())
    if not options and not reader.left_out:
        raise UsageError(
            f"{path}: found no options of argparse, HfArgumentParser, click or Typer; "
            "write a space that names its training function: objective: FILE.py:FUNCTION"
        )
    seen = used(tree, reader.commands)
    of_trials = {
        option.name: own for option in options if (own := value_of_its_own(option, seen)) is not None
    }
    if any(OF_A_TRAINER.fullmatch(name) for name in reader.left_out):
        of_trials = {"--seed": "$seed", "--output_dir": "$checkpoint"} | of_trials
    unfit = {
        option.name: why
        for option in options
        if option.name not in of_trials and (why := option.unfit) is not None
    }
    known = list({option.parameter: option for option in options if option.name not in unfit}.values())
    found = [option for option in known if option.name not in of_trials]
    if all(option.name == f"--{option.parameter}" for option in found) and all(map(_is_long, of_trials)):
        words = ["${args}"] * bool(found) + [f"{name}={in_a_command(own)}" for name, own in of_trials.items()]
    else:  # in their order: some may have no names
        words = [_word(option, of_trials.get(option.name)) for option in known]
        others = of_trials.keys() - {option.name for option in known}
        words += [f"{name}={in_a_command(of_trials[name])}" for name in sorted(others)]
    return Settings(
        source=path,
        found=found,
        command=["python", str(path), *words],
        how=f"Each trial runs {path.name} with these values as its options.",
        left_out=reader.left_out | unfit,
        own=of_trials,
        shown=shown_by(tree),
    )


def _is_long(name: str) -> bool:
    return name.startswith("--")


def _word(option: Setting, own: str | None) -> str:
    """The word of the command that passes an option's value; a positional argument is the value alone."""
    value = f"${{{option.parameter}}}" if own is None else in_a_command(own)
    if not option.name.startswith("-"):
        return value
    return f"{option.name}{value}" if len(option.name) == 2 else f"{option.name}={value}"  # -l0.1, --lr=0.1


class _Reader(Literals):
    """Collects options from a module's syntax tree."""

    def __init__(self, tree: ast.Module) -> None:
        super().__init__(tree)
        self.tree = tree
        self.left_out: dict[str, str] = {}
        self.excluding = {
            name
            for name, value in assignments(ast.walk(tree))
            if isinstance(value, ast.Call) and called(value) == "add_mutually_exclusive_group"
        }
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        self.set_defaults = {
            keyword.arg: keyword.value
            for call in calls
            if called(call) == "set_defaults"
            for keyword in call.keywords
        }
        self.from_click = {
            name.asname or name.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "click"
            for name in node.names
        }
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        run = {
            argument.id
            for node in calls
            if is_of(node.func, "typer") and called(node) == "run"
            for argument in node.args
            if isinstance(argument, ast.Name)
        }
        self.commands = [each for each in functions if decorated(each, "command") or each.name in run]
        groups = [each for each in functions if decorated(each, "group") or decorated(each, "callback")]
        self.subcommands = "add_subparsers" in names or len(self.commands) + bool(groups) > 1
        self.parsed = self._parsed(calls) if names & PARSERS else set()

    def options(self) -> Iterator[Setting]:
        """All options, in the order of the source."""
        kinds = (ast.Call, ast.ClassDef, ast.FunctionDef)
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, kinds)]
        for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
            if isinstance(node, ast.Call):
                yield from self._call(node)
            elif isinstance(node, ast.ClassDef) and decorated(node, "dataclass"):
                if self.parsed is None or node.name in self.parsed:
                    yield from self._dataclass(node)
            elif isinstance(node, ast.FunctionDef) and node in self.commands and _is_typer(node):
                yield from self._typer(node)

    def _parsed(self, calls: list[ast.Call]) -> set[str] | None:
        """The dataclasses passed to a parser, and those that they extend; None where that cannot be seen."""
        classes = {node.name: node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)}
        imported = {
            name.asname or name.name
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in node.names
        }
        found: set[str] = set()
        for call in calls:
            if called(call) not in PARSERS:
                continue
            words = {keyword.arg: keyword.value for keyword in call.keywords}
            given = call.args[0] if call.args else words.get("dataclass_types")
            if isinstance(given, ast.Name) and given.id not in classes:
                given = self.constants.get(given.id, given)
            listed = given.elts if isinstance(given, ast.Tuple | ast.List) else [given]
            names = [name_of(each) for each in listed]
            while names:
                name = names.pop()
                if name in imported:
                    self.left_out[name] = IMPORTED
                elif name not in classes:
                    return None
                elif name not in found:
                    names += map(name_of, classes[name].bases)
                found.add(name)
        return found

    def _call(self, call: ast.Call) -> Iterator[Setting]:
        name = called(call)
        of_click = is_of(call.func, "click") or (isinstance(call.func, ast.Name) and name in self.from_click)
        if name == "add_argument" or (of_click and name in ("option", "argument")):
            yield from self._option(call, of_click=of_click)

    def _option(self, call: ast.Call, *, of_click: bool) -> Iterator[Setting]:
        names = [word for word in map(self.literal, call.args) if isinstance(word, str)]
        given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        dashed = [name for name in names if name.startswith("-")]
        long = [name for name in dashed if name.startswith("--")]
        name = next(iter([*long, *dashed, *names]), None)
        if name is None:
            return
        if not name.startswith("-"):
            if not _is_optional(given):
                yield Setting(name, parameter_of(name), required=True)
            return
        name, slash, _ = name.partition("/")  # click's --shout/--no-shout
        own = self.literal(given.get("dest")) or next((name for name in names if name not in dashed), None)
        parameter = own if isinstance(own, str) and not name.startswith("--") else parameter_of(name)
        if (default := self.set_defaults.get(str(own or parameter_of(name)))) is not None:
            given["default"] = default
        choices = self._choices(given.get("choices"), given.get("type"))
        reason = FLAG if slash else self._unfit(given)
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if reason is None and name_of(owner) in self.excluding:
            reason = "other options exclude it"
        if reason is None and not of_click:
            reason = self._misread(given, choices)
        if reason is not None:
            self.left_out[name] = reason
            return
        required = self.literal(given.get("required")) is True
        kind = given.get("type")
        found = self.setting(name, kind, given.get("default"), choices, required, bounds(kind))
        if "choices" in given and not choices:  # which are they?
            found = replace(found, number=False)
        yield replace(found, parameter=parameter, variable=str(own or ""))

    def _unfit(self, given: dict[str, ast.expr]) -> str | None:
        action = self.literal(given.get("action"))
        if action in NO_VALUE or any(self.literal(given.get(word)) for word in ("is_flag", "count")):
            return FLAG
        if "BooleanOptionalAction" in ast.dump(given.get("action", ast.Constant(None))):
            return FLAG
        several = action in ("append", "append_const", "extend") or "nargs" in given
        if several or self.literal(given.get("multiple")) is True:
            return SEVERAL
        if isinstance(kind := given.get("type"), ast.Name) and kind.id == "bool":
            return "type=bool reads every text as true"
        return None

    def _misread(self, given: dict[str, ast.expr], choices: tuple[Any, ...]) -> str | None:
        """Why argparse would turn a value's text into something else; None where it would not."""
        kind = given.get("type")
        if self.is_member(given.get("default")) and not self.values_of(kind):
            return "only the script knows which texts name the members of its enumeration"
        values = [self.literal(given.get("default")), *choices]
        if not any(isinstance(value, int | float) for value in values):
            return None
        if kind is None:
            return "it has no type=: the script would get a text"
        if any(isinstance(value, bool) for value in values) and name_of(kind) not in NUMBER_TYPES:
            return "only the script knows which texts its type= reads as true"
        return (
            "only the script knows what its type= makes of a number" if isinstance(kind, ast.Lambda) else None
        )

    def _choices(self, given: ast.expr | None, kind: ast.expr | None) -> tuple[Any, ...]:
        if isinstance(kind, ast.Call) and isinstance(kind.func, ast.Attribute) and kind.func.attr == "Choice":
            given = kind.args[0] if kind.args else None
            if isinstance(given, ast.Name) and given.id in self.enums:
                return tuple(self.enums[given.id])  # by their names
        if isinstance(given, ast.Call) and called(given) in ("list", "tuple") and len(given.args) == 1:
            given = given.args[0]
        if isinstance(given, ast.ListComp | ast.GeneratorExp):  # [each.value for each in Sched]
            source = given.generators[0].iter
            if name_of(given.elt) == "name" and isinstance(source, ast.Name):
                return tuple(self.enums.get(source.id, ()))
            given = source if name_of(given.elt) == "value" else None
        if values := self.values_of(given) or (self.values_of(kind) if given is None else ()):
            return values
        found = self.literal(given)
        return tuple(found) if isinstance(found, list | tuple) else ()

    def _dataclass(self, node: ast.ClassDef) -> Iterator[Setting]:
        for entry in node.body:
            if not isinstance(entry, ast.AnnAssign) or not isinstance(entry.target, ast.Name):
                continue
            name, default, required = f"--{entry.target.id}", entry.value, entry.value is None
            if isinstance(default, ast.Call):  # field(default=...)
                given = {keyword.arg: keyword.value for keyword in default.keywords}
                required = not given.keys() & {"default", "default_factory"}
                if given.get("init") is not None and self.literal(given["init"]) is False:
                    continue
                default = given.get("default")
            kind, choices = self.annotation(entry.annotation)
            if isinstance(kind, ast.Name) and kind.id in ("list", "List", "dict", "Dict", "tuple"):
                self.left_out[name] = SEVERAL
                continue
            yield self.setting(name, kind, default, choices, required)

    def _typer(self, node: ast.FunctionDef) -> Iterator[Setting]:
        arguments = [*node.args.args, *node.args.kwonlyargs]
        missing: list[ast.expr | None] = [None] * (len(node.args.args) - len(node.args.defaults))
        defaults = [*missing, *node.args.defaults, *node.args.kw_defaults]
        for argument, default in zip(arguments, defaults, strict=True):
            kind, choices = self.annotation(argument.annotation)
            if name_of(kind) == "Context":  # Typer gives it
                continue
            declared, words = declaration(argument.annotation), 0
            if isinstance(default, ast.Call) and called(default) in ("Option", "Argument"):
                declared, words = default, 1  # typer.Option(0.1, "--lr")
                given = {keyword.arg: keyword.value for keyword in default.keywords}
                default = default.args[0] if default.args else given.get("default")
            if isinstance(default, ast.Constant) and default.value is Ellipsis:
                default = None
            name = f"--{argument.arg.replace('_', '-')}"
            is_argument = called(declared) == "Argument" or (declared is None and default is None)
            if declared is not None:
                texts = [word for word in map(self.literal, declared.args[words:]) if isinstance(word, str)]
                name = next((word for word in [*texts, name] if word.startswith("--")), name)
                if texts and name not in texts:
                    name = texts[0]
            if is_argument:
                if default is None:
                    yield Setting(argument.arg, argument.arg, required=True)
            elif isinstance(kind, ast.Name) and kind.id == "bool":
                self.left_out[name.partition("/")[0]] = FLAG
            elif isinstance(kind, ast.Name) and kind.id in ("list", "List", "tuple"):
                self.left_out[name] = SEVERAL
            else:
                limits = bounds(declared) if declared is not None else (None, None)
                found = self.setting(name, kind, default, choices, default is None, limits)
                parameter = found.parameter if name.startswith("--") else argument.arg
                yield replace(found, parameter=parameter, variable=argument.arg)


def _is_optional(given: dict[str, ast.expr]) -> bool:
    nargs = given.get("nargs")
    return isinstance(nargs, ast.Constant) and nargs.value in ("?", "*")


def _is_typer(node: ast.FunctionDef) -> bool:
    """Whether a command is Typer's, whose arguments are annotated; click's come by decorators."""
    others = [called(each) for each in node.decorator_list if isinstance(each, ast.Call)]
    return "option" not in others and "argument" not in others
