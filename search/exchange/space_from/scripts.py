"""The options of a Python script, read from its source: the script is never run.

Supported are `add_argument` of argparse, the fields of dataclasses that `HfArgumentParser` parses, the
options of click and Typer, and what `declared` reads.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import UsageError
from .declared import IMPORTED, SEVERAL, Declared, element
from .fields import UNREADABLE, Setting, Settings
from .literals import NUMBER_TYPES, Literals, parameter_of
from .metric import metric_of
from .passing import ADDS, Form, flag, of_all, several
from .per_trial import as_word, option_use, trial_value
from .subcommands import for_one, subcommands_of
from .syntax import (
    assignments,
    bounds,
    constant,
    declaration,
    decorated,
    imports,
    keywords,
    name_of,
    nodes_of,
    root_of,
)

FLAG = "it is a flag for a value of its own"
COUNTS = "it counts how often it is given"
PARSERS = {"HfArgumentParser", "TrlParser"}
# These have options of their own, which are not in the script.
OF_A_TRAINER = re.compile(
    r"\w*TrainingArguments|(BCO|CPO|DPO|GKD|GRPO|KTO|NashMD|OnlineDPO|ORPO|PPO|PRM|Reward|RLOO|SFT|XPO)Config"
)
# Filters of warnings belong to the process, and two threads that parse can fail in CPython 3.11 (gh-106905).
PARSING = threading.Lock()
NO_VALUE = ("store_true", "store_false", "store_const", "count", "help", "version")


def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a script. Raises `UsageError` where it is not Python."""
    try:
        with PARSING, warnings.catch_warnings():
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
    declared = Declared(tree)
    options = [*reader.options(), *declared.options()]
    left_out = reader.left_out | declared.left_out
    if reader.subcommands is not None or declared.subcommands:
        raise UsageError(for_one(path, reader.subcommands or []))
    if not options and not left_out:
        raise UsageError(_by_hand(path, tree))
    use = option_use(tree, [*reader.commands, *declared.commands])
    per_trial = {option.name: value for option in options if (value := trial_value(option, use))}
    if any(OF_A_TRAINER.fullmatch(name) for name in left_out):
        per_trial = {"--seed": "$seed", "--output_dir": "$checkpoint"} | per_trial
    unfit = {each.name: why for each in options if each.name not in per_trial and (why := each.unfit)}
    known = list({option.parameter: option for option in options if option.name not in unfit}.values())
    parameters = [option for option in known if option.name not in per_trial]
    together = of_all(parameters)
    if together is not None and all(name.startswith("--") for name in per_trial):
        words, others = [together] * bool(parameters), list(per_trial)
    else:  # those without names first and in their order, since an option may take several words
        known.sort(key=lambda option: option.name.startswith("-"))
        words = [word for option in known for word in _words(option, per_trial.get(option.name))]
        others = sorted(per_trial.keys() - {option.name for option in known})
    words += [f"{name}={as_word(per_trial[name])}" for name in others]
    return Settings(
        source=path,
        parameters=parameters,
        command=[*program_of(path, tree), *words],
        how=f"Each trial runs {path.name} with these values as its options.",
        left_out=left_out | unfit,
        per_trial=per_trial,
        metric=metric_of(tree),
    )


def program_of(path: Path, tree: ast.Module) -> list[str]:
    """The words that run a script: one of a package, which imports from it, runs by `-m`."""
    inside = any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))
    parts = path.with_suffix("").parts
    if not (inside or path.stem == "__main__") or len(parts) < 2 or not all(map(str.isidentifier, parts)):
        return ["python", str(path)]
    return ["python", "-m", ".".join(parts).removesuffix(".__main__")]


def _by_hand(path: Path, tree: ast.Module) -> str:
    """What to write for a script that shows no options."""
    names = set(map(name_of, ast.walk(tree)))
    if "LightningCLI" in names:
        return (
            f"{path}: its options are those that LightningCLI makes of its classes: write them to a file with"
            f" python {path} fit --print_config > config.yaml, and propose a space from that; its command "
            "needs the word fit"
        )
    given = {  # lr = float(sys.argv[1])
        int(index): name
        for name, value in assignments(ast.walk(tree))
        for each in nodes_of(value, ast.Subscript)
        if name_of(each.value) == "argv" and isinstance(index := constant(each.slice), int) and index > 0
    }
    if given:
        named = (given.get(index, f"argument_{index}") for index in range(1, max(given) + 1))
        words = ", ".join(f'"${{{name}}}"' for name in named)
        return (
            f"{path}: it takes its options from sys.argv, which tells no ranges; write a space by hand with "
            f"objective: {{command: [python, {path}, {words}]}} and a range for each"
        )
    return (
        f"{path}: found no options of argparse, HfArgumentParser, click, Typer, tyro, Python Fire, absl, "
        "Hydra, OmegaConf, simple_parsing, Tap or jsonargparse; write a space with its function, "
        f'objective: "{path}:FUNCTION", or with its command, '
        f'objective: {{command: [python, {path}, "${{args}}"]}}; '
        "${args} gives each parameter as an option, ${args_hydra} as lr=0.1, ${lr} the value of one"
    )


def _words(option: Setting, trial_value: str | None) -> Sequence[str]:
    """The words of the command that pass an option's value; a positional argument is the value alone."""
    if option.words and trial_value is None:
        return option.words
    value = f"${{{option.parameter}}}" if trial_value is None else as_word(trial_value)
    if not option.name.startswith("-"):
        return [value]
    return [f"{option.name}{value}" if len(option.name) == 2 else f"{option.name}={value}"]  # -l0.1, --lr=0.1


class _Reader(Literals):
    """Collects options from a module's syntax tree."""

    def __init__(self, tree: ast.Module) -> None:
        super().__init__(tree)
        self.tree = tree
        self.left_out: dict[str, str] = {}
        self.imported = imports(tree)
        self.exclusive_groups = {  # with whether one of the options is required
            name: self.literal(keywords(value).get("required")) is True
            for name, value in assignments(ast.walk(tree))
            if isinstance(value, ast.Call) and name_of(value) == "add_mutually_exclusive_group"
        }
        self.calls = calls = nodes_of(tree, ast.Call)
        defaults = [keywords(call) for call in calls if name_of(call) == "set_defaults"]
        self.set_defaults = {name: value for each in defaults for name, value in each.items()}
        names = set(map(name_of, ast.walk(tree)))
        functions = nodes_of(tree, ast.FunctionDef)
        runs = [call for call in calls if root_of(call.func) == "typer" and name_of(call) == "run"]
        run = {each.id for call in runs for each in call.args if isinstance(each, ast.Name)}
        self.commands = [each for each in functions if decorated(each, "command") or each.name in run]
        self.subcommands = subcommands_of(tree, self.commands)
        self.parsed = self._parsed(calls) if names & PARSERS else set()

    def options(self) -> Iterator[Setting]:
        """All options, in the order of the source."""
        of_click = ("option", "argument")  # decorate click's commands; Typer reads the parameters
        of_typer = [each for each in self.commands if not decorated(each, *of_click)]
        kinds = (ast.Call, ast.ClassDef, ast.FunctionDef)
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, kinds)]
        for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
            if isinstance(node, ast.Call):
                yield from self._option(node)
            elif isinstance(node, ast.ClassDef) and decorated(node, "dataclass"):
                if self.parsed is None or node.name in self.parsed:
                    yield from self._dataclass(node)
            elif node in of_typer:
                yield from self._typer(node)

    def _parsed(self, calls: list[ast.Call]) -> set[str] | None:
        """The dataclasses passed to a parser, and those that they extend; None where that cannot be seen."""
        classes = {node.name: node for node in nodes_of(self.tree, ast.ClassDef)}
        parsed: set[str] = set()
        for call in calls:
            if name_of(call) not in PARSERS:
                continue
            given = call.args[0] if call.args else keywords(call).get("dataclass_types")
            if isinstance(given, ast.Name) and given.id not in classes:
                given = self.constants.get(given.id, given)
            listed = given.elts if isinstance(given, ast.Tuple | ast.List) else [given]
            names = [name_of(each) for each in listed]
            while names:
                name = names.pop()
                if name in self.imported:
                    self.left_out[name] = IMPORTED
                elif name not in classes:
                    return None
                elif name not in parsed:
                    names += map(name_of, classes[name].bases)
                parsed.add(name)
        return parsed

    def _option(self, call: ast.Call) -> Iterator[Setting]:
        """The option that a call of argparse or click declares, if it is one."""
        root = root_of(call.func)
        of_click = "click" in {root, *self.imported.get(str(root), ())}
        if name_of(call) != "add_argument" and not (of_click and name_of(call) in ("option", "argument")):
            return
        names = [word for word in map(self.literal, call.args) if isinstance(word, str)]
        given = keywords(call)
        name = _main_name(names)
        if name is None:
            return
        if not name.startswith("-"):
            yield from self._positional(name, given, of_click=of_click)
            return
        name, slash, _ = name.partition("/")  # click's --shout/--no-shout
        undashed = next((each for each in names if not each.startswith("-")), None)
        variable = self.literal(given.get("dest")) or undashed
        parameter = variable if isinstance(variable, str) and name[:2] != "--" else parameter_of(name)
        if (default := self.set_defaults.get(str(variable or parameter_of(name)))) is not None:
            given["default"] = default
        choices = self._choices(given.get("choices"), given.get("type"))
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        required = self.literal(given.get("required")) is True
        kind = given.get("type")
        setting = self.setting(name, kind, given.get("default"), choices, required, bounds(kind))
        number = setting.number and not ("choices" in given and not choices)  # which are they?
        setting = replace(setting, number=number, parameter=parameter, variable=str(variable or ""))
        found: Setting | str | None = self._flag(setting, slash, given, names, of_click=of_click)
        if found is None:
            found = self._several(setting, given, of_click=of_click)
        if found is None and not of_click:
            found = self._misread(given, choices)
        found = setting if found is None else found
        if isinstance(found, Setting) and name_of(owner) in self.exclusive_groups:
            found = self._exclusive(found, str(name_of(owner)))
        if isinstance(found, Setting):
            yield found
        else:
            self.left_out[name] = found

    def _positional(self, name: str, given: dict[str, ast.expr], *, of_click: bool) -> Iterator[Setting]:
        """An argument without dashes, unless the script runs without it."""
        nargs = self.literal(given.get("nargs"))
        if nargs in ("?", "*") or (
            of_click and (nargs == -1 or self.literal(given.get("required")) is False)
        ):
            return
        if of_click and "default" in given:
            if (
                setting := self.setting(name, given.get("type"), given["default"], (), False)
            ).value is not None:
                yield setting
            return
        yield Setting(name, parameter_of(name), required=True)

    def _exclusive(self, setting: Setting, group: str) -> Setting | str:
        """An option of a mutually exclusive group, or why it is left out: one of them can have a value.

        A switch that is off is not passed.
        """
        if setting.form == "switch" and setting.value is False and not self.exclusive_groups[group]:
            return replace(setting, choices=())
        others = [call for call in self.calls if name_of(getattr(call.func, "value", None)) == group]
        valued = [call for call in others if self.literal(keywords(call).get("default")) is not None]
        return setting if len(valued) == 1 and setting.value is not None else "other options exclude it"

    def _flag(
        self, setting: Setting, slash: str, given: dict[str, ast.expr], names: list[str], *, of_click: bool
    ) -> Setting | str | None:
        """A flag, or why it is left out; None if it is none."""
        name, action = setting.name, self.literal(given.get("action"))
        default = self.literal(given.get("default"))
        on, off = name, ""
        if of_click:
            if not slash and self.literal(given.get("is_flag")) is not True:
                return COUNTS if self.literal(given.get("count")) else None
            if "flag_value" in given:
                return FLAG
            off = next((word.partition("/")[2] for word in names if word.startswith(f"{name}/")), "").strip()
        elif "BooleanOptionalAction" in ast.dump(given.get("action", ast.Constant(None))):
            off = f"--no-{name[2:]}"
        elif action == "store_false":
            on, off = "", name
        elif action != "store_true":
            if isinstance(kind := given.get("type"), ast.Name) and kind.id == "bool" and action is None:
                if "nargs" in given or not isinstance(default, bool):
                    return "type=bool reads every text as true"
                on, off = f"{name}=1", f"{name}="  # of which Python makes true and false
            else:
                return COUNTS if action == "count" else FLAG if action in NO_VALUE else None
        if default is None and (of_click or action in ("store_true", "store_false")):
            default = action == "store_false"
        if not isinstance(default, bool) or not name.startswith("-"):
            return UNREADABLE
        parameter = setting.variable if action == "store_false" and setting.variable else setting.parameter
        return flag(name, parameter, on, off, default, setting.variable)

    def _several(
        self, setting: Setting, given: dict[str, ast.expr], *, of_click: bool
    ) -> Setting | str | None:
        """An option with several values, or why it is left out; None if it has one."""
        action, nargs = self.literal(given.get("action")), self.literal(given.get("nargs"))
        default, kind = self.literal(given.get("default")), str(name_of(given.get("type")))
        if of_click:
            if self.literal(given.get("multiple")) is True:
                if "nargs" in given:
                    return SEVERAL
                return several(setting, "repeat", [] if default is None else default, kind)
            is_one = nargs in (None, 1) and "nargs" not in given
            return None if is_one else several(setting, "words", default, kind, count=nargs)
        if action in ("append", "extend", "append_const"):
            if action != "append" or "nargs" in given or default != []:
                return ADDS
            return several(setting, "repeat", default, kind)
        if "nargs" not in given or nargs == "?":
            return None
        if nargs == "+" and default in ([], ()):
            return "it takes one value or more, and its default has none"
        count = nargs if isinstance(nargs, int) else None
        if nargs not in ("+", "*") and count is None:
            return SEVERAL
        return several(setting, "words", default, kind, count=count)

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
        if isinstance(kind, ast.Lambda):
            return "only the script knows what its type= makes of a number"
        return None

    def _choices(self, given: ast.expr | None, kind: ast.expr | None) -> tuple[Any, ...]:
        if isinstance(kind, ast.Call) and isinstance(kind.func, ast.Attribute) and kind.func.attr == "Choice":
            given = kind.args[0] if kind.args else None
            if isinstance(given, ast.Name) and given.id in self.enums:
                return tuple(self.enums[given.id])  # by their names
        if isinstance(given, ast.Call) and name_of(given) in ("list", "tuple") and len(given.args) == 1:
            given = given.args[0]
        if isinstance(given, ast.ListComp | ast.GeneratorExp):  # [each.value for each in Sched]
            source = given.generators[0].iter
            if name_of(given.elt) == "name" and isinstance(source, ast.Name):
                return tuple(self.enums.get(source.id, ()))
            given = source if name_of(given.elt) == "value" else None
        if values := self.values_of(given) or (self.values_of(kind) if given is None else ()):
            return values
        listed = self.literal(given)
        return tuple(listed) if isinstance(listed, list | tuple) else ()

    def _dataclass(self, node: ast.ClassDef) -> Iterator[Setting]:
        for entry in node.body:
            if not isinstance(entry, ast.AnnAssign) or not isinstance(entry.target, ast.Name):
                continue
            name, default, required = f"--{entry.target.id}", entry.value, entry.value is None
            if isinstance(default, ast.Call):  # field(default=...)
                given = keywords(default)
                required = not given.keys() & {"default", "default_factory"}
                if self.literal(given.get("init")) is False:
                    continue
                default = given.get("default")
            kind, choices = self.annotation(entry.annotation)
            setting = self.setting(name, kind, default, choices, required)
            if isinstance(kind, ast.Name) and kind.id in ("list", "List"):
                values = self._made(entry.value)
                found = several(setting, "words", values, element(entry.annotation)) if values else SEVERAL
                if isinstance(found, str):
                    self.left_out[name] = found
                    continue
                setting = found
            elif isinstance(kind, ast.Name) and kind.id in ("dict", "Dict", "tuple", "Tuple"):
                self.left_out[name] = SEVERAL
                continue
            yield setting

    def _made(self, value: ast.expr | None) -> Any:
        """The list of `field(default_factory=lambda: [64, 32])`."""
        made = keywords(value).get("default_factory") if isinstance(value, ast.Call) else value
        return self.literal(made.body) if isinstance(made, ast.Lambda) else None

    def _typer(self, node: ast.FunctionDef) -> Iterator[Setting]:
        arguments = [*node.args.args, *node.args.kwonlyargs]
        missing: list[ast.expr | None] = [None] * (len(node.args.args) - len(node.args.defaults))
        defaults = [*missing, *node.args.defaults, *node.args.kw_defaults]
        for argument, default in zip(arguments, defaults, strict=True):
            kind, choices = self.annotation(argument.annotation)
            if name_of(kind) == "Context":  # Typer gives it
                continue
            declared, words = declaration(argument.annotation), 0
            if isinstance(default, ast.Call) and name_of(default) in ("Option", "Argument"):
                declared, words = default, 1  # typer.Option(0.1, "--lr")
                default = default.args[0] if default.args else keywords(default).get("default")
            if constant(default) is Ellipsis:
                default = None
            name = f"--{argument.arg.replace('_', '-')}"
            is_argument = name_of(declared) == "Argument" or (declared is None and default is None)
            if declared is not None:
                texts = [word for word in map(self.literal, declared.args[words:]) if isinstance(word, str)]
                name = _main_name(texts) or name
            if is_argument:
                if default is None:
                    yield Setting(argument.arg, argument.arg, required=True)
            elif isinstance(kind, ast.Name) and kind.id == "bool":
                name, slash, off = name.partition("/")
                value = self.literal(default)
                given_names = declared is not None and _main_name(texts) is not None
                off = off if slash or given_names else f"--no-{name[2:]}"
                if isinstance(value, bool) and name.startswith("-"):
                    yield flag(name, argument.arg, name, off, value, argument.arg)
                else:
                    self.left_out[name] = UNREADABLE
            elif isinstance(kind, ast.Name) and kind.id in ("list", "List", "tuple", "Tuple"):
                setting = replace(self.setting(name, kind, None, (), False), parameter=argument.arg)
                values = self.literal(default)
                values = [] if values is None and kind.id in ("list", "List") else values
                form: Form = "repeat" if kind.id in ("list", "List") else "words"
                found = several(setting, form, values, element(argument.annotation))
                if isinstance(found, str):
                    self.left_out[name] = found
                else:
                    yield found
            else:
                setting = self.setting(name, kind, default, choices, default is None, bounds(declared))
                parameter = setting.parameter if name.startswith("--") else argument.arg
                yield replace(setting, parameter=parameter, variable=argument.arg)


def _main_name(names: list[str]) -> str | None:
    """The first of an option's names with two dashes, else with one, else without; None without names."""
    return max(names, key=lambda name: (name.startswith("--"), name.startswith("-")), default=None)
