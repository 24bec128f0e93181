"""Options that a function's signature, a dataclass or a module's names declare.

The libraries are tyro, Python Fire, simple_parsing, Tap, jsonargparse, absl, and nanoGPT's configurator.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .fields import UNREADABLE, Setting
from .literals import Literals, parameter_of
from .passing import Form, literally, several, truth
from .syntax import assignments, constant, decorated, imports, keywords, name_of, nodes_of, root_of

IMPORTED = "it is imported: add its options that are to be searched, such as learning_rate"
SEVERAL = "it takes several values"
LISTS = ("list", "List", "tuple", "Tuple", "Sequence")
FIELDS = ("field", "Field", "choice", "attrib")  # calls in place of a default
CONFIGURATOR = "configurator.py"  # of nanoGPT


@dataclass(frozen=True)
class Style:
    """How a library writes options."""

    truth: Form = ""  # of a value that is true or false; "": `--amp=true`
    lists: Form = "words"
    texts: Form = ""
    dashes: bool = False  # `--batch-size` for batch_size
    nested: bool = True  # `--optim.lr` for a field of a dataclass inside; else `--lr`
    positional: bool = False  # a value that is required has no name


TAP = Style(truth="switch")
STYLES = {  # by package and function
    ("tyro", "cli"): Style(truth="flag", dashes=True),
    ("fire", "Fire"): Style(truth="literal", lists="literal", texts="literal"),
    ("simple_parsing", "parse"): Style(nested=False),
    ("simple_parsing", "add_arguments"): Style(nested=False),
    ("jsonargparse", "CLI"): Style(lists="json", positional=True),
    ("jsonargparse", "auto_cli"): Style(lists="json", positional=True),
    ("tap", "tapify"): TAP,
}
FLAGS_OF_ABSL = {  # the type of a value
    "DEFINE_float": "float",
    "DEFINE_integer": "int",
    "DEFINE_bool": "bool",
    "DEFINE_boolean": "bool",
    "DEFINE_string": "str",
    "DEFINE_enum": "str",
    "DEFINE_enum_class": "str",
}
LISTS_OF_ABSL: dict[str, tuple[Form, str]] = {
    "DEFINE_list": ("commas", "str"),
    "DEFINE_multi_integer": ("repeat", "int"),
    "DEFINE_multi_float": ("repeat", "float"),
    "DEFINE_multi_string": ("repeat", "str"),
}


@dataclass(frozen=True)
class _Field:
    """A field of a dataclass, or a parameter of a function."""

    name: str
    annotation: ast.expr | None
    default: ast.expr | None
    required: bool
    positional: bool = False


class Declared(Literals):
    """Reads the options that libraries make of what a script declares."""

    def __init__(self, tree: ast.Module) -> None:
        super().__init__(tree)
        self.tree = tree
        self._imported = imports(tree)
        self.classes = {each.name: each for each in nodes_of(tree, ast.ClassDef)}
        self._functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
        self.commands: list[ast.FunctionDef] = []  # whose parameters are options
        self.left_out: dict[str, str] = {}
        self.subcommands = False

    def options(self) -> Iterator[Setting]:
        """All options, in the order of the source."""
        yield from self._of_a_configurator()
        calls = nodes_of(self.tree, ast.Call)
        for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
            packages = self._imported.get(str(root_of(call.func)), [])
            name = str(name_of(call))
            if "absl" in packages and name.startswith("DEFINE_"):
                yield from self._flag_of_absl(call, name)
            elif name == "add_arguments" and ["simple_parsing"] in self._imported.values():
                yield from self._made_of(call, STYLES["simple_parsing", name])
            for package in packages:
                if style := STYLES.get((package, name)):
                    yield from self._made_of(call, style)
        for node in self.classes.values():
            bases = map(name_of, node.bases)
            if any(base == "Tap" and "tap" in self._imported.get(base, []) for base in bases):
                yield from self.settings(node, TAP)

    def settings(self, node: ast.ClassDef, style: Style) -> Iterator[Setting]:
        """The options that a library makes of a dataclass."""
        yield from self._settings(self._fields(node), style)

    def resolved(self, node: ast.expr | None) -> ast.expr | None:
        """What a constant of the module was assigned; anything else as it is."""
        return self.constants.get(node.id, node) if isinstance(node, ast.Name) else node

    def _made_of(self, call: ast.Call, style: Style) -> Iterator[Setting]:
        """The options of a call that is given a function or a dataclass."""
        given = call.args[0] if call.args else None
        name = name_of(given) if isinstance(given, ast.Name) else None
        if (function := self._functions.get(str(name))) is not None:
            self.commands.append(function)
            yield from self._settings(self._parameters(function), style)
        elif (node := self.classes.get(str(name))) is not None and self._is_dataclass(node):
            if style.texts == "literal":  # Fire makes a command of each method
                self.subcommands = True
            yield from self.settings(node, style)
        elif name in self._imported:
            self.left_out[str(name)] = IMPORTED
        else:  # several functions, a class, a mapping, or all that the module has
            self.subcommands = True

    def _is_dataclass(self, node: ast.ClassDef) -> bool:
        of_pydantic = "BaseModel" in map(name_of, node.bases)
        return of_pydantic or decorated(node, "dataclass", "define", "frozen", "attrs")

    def _fields(self, node: ast.ClassDef, below: tuple[str, ...] = ()) -> Iterator[_Field]:
        """The fields of a dataclass, those that it inherits first; `below`: the classes that inherit them."""
        below = (*below, node.name)
        for base in map(name_of, node.bases):
            if base in self.classes and base not in below:
                yield from self._fields(self.classes[base], below)
            elif base in self._imported and base not in ("Tap", "BaseModel", "ABC", "Generic", "Protocol"):
                self.left_out[str(base)] = IMPORTED
        for entry in node.body:
            if not isinstance(entry, ast.AnnAssign) or not isinstance(entry.target, ast.Name):
                continue
            default, required = entry.value, entry.value is None
            if isinstance(default, ast.Call) and name_of(default) in FIELDS:
                given = keywords(default)
                if self.literal(given.get("init")) is False:
                    continue
                if name_of(default) == "Field" and default.args:
                    given = {"default": default.args[0]} | given
                required = not given.keys() & {"default", "default_factory", "factory"}
            if "ClassVar" not in map(name_of, _names(entry.annotation)):
                yield _Field(entry.target.id, entry.annotation, default, required)

    def _parameters(self, node: ast.FunctionDef) -> Iterator[_Field]:
        """The parameters of a function that have names."""
        given = node.args
        named = [*given.posonlyargs, *given.args]
        missing: list[ast.expr | None] = [None] * (len(named) - len(given.defaults))
        defaults = [*missing, *given.defaults, *given.kw_defaults]
        for each, default in zip([*named, *given.kwonlyargs], defaults, strict=True):
            yield _Field(each.arg, each.annotation, default, default is None, each in given.posonlyargs)

    def _settings(
        self,
        fields: Iterator[_Field],
        style: Style,
        before: str = "",
        given: Mapping[str, Any] = {},
        inside: tuple[str, ...] = (),
    ) -> Iterator[Setting]:
        """The options of fields; `given` are values that replace their defaults.

        `before` begins their names, and `inside` are the classes that hold them.
        """
        for field in {each.name: each for each in fields}.values():
            inner = self._inner(field.annotation)
            if inner is not None:
                made = self._made(given.get(field.name, field.default))
                if inner.name in inside or (isinstance(made, ast.Constant) and made.value is None):
                    self.left_out[f"--{before}{field.name}"] = "it may be absent with all that it holds"
                    continue
                outer = f"{before}{field.name}." if style.nested else before
                values = keywords(made) if isinstance(made, ast.Call) else {}
                yield from self._settings(self._fields(inner), style, outer, values, (*inside, inner.name))
                continue
            name = f"--{before}{field.name}"
            if style.dashes:
                name = name.replace("_", "-")
            found = self._setting(name, replace(field, default=given.get(field.name, field.default)), style)
            if isinstance(found, Setting):
                yield found
            else:
                self.left_out[name] = found

    def _setting(self, name: str, field: _Field, style: Style) -> Setting | str:
        """One option, or why it is left out."""
        if any("tyro" in self._imported.get(str(root_of(each)), []) for each in _names(field.annotation)):
            return "tyro.conf changes its form"
        if self._is_union(field.annotation):
            return "it chooses one of several classes, whose options are subcommands"
        kind, choices = self.annotation(field.annotation)
        default = field.default
        made = self._made(default)
        if isinstance(default, ast.Call) and name_of(default) == "choice":
            choices = tuple(self.literal(each) for each in default.args)
        if isinstance(kind, ast.Name) and kind.id in self.enums:  # by their names
            choices = tuple(self.enums[kind.id])
            made = ast.Constant(made.attr) if isinstance(made, ast.Attribute) else made
        setting = self.setting(name, kind, made, choices, field.required)
        if field.positional or (style.positional and field.required):
            return replace(setting, name=setting.parameter)
        of_list = name_of(kind) in LISTS or (kind is None and isinstance(setting.value, list | tuple))
        if of_list:
            kind_inside = element(field.annotation) if field.annotation is not None else ""
            return several(setting, style.lists, self.literal(made), kind_inside)
        if name_of(kind) in ("dict", "Dict"):
            return SEVERAL
        if isinstance(setting.value, bool):
            return truth(setting, style.truth)
        return literally(setting) if style.texts else setting

    def _inner(self, annotation: ast.expr | None) -> ast.ClassDef | None:
        """The dataclass that an annotation names."""
        kind, _ = self.annotation(annotation)
        node = self.classes.get(kind.id) if isinstance(kind, ast.Name) else None
        if node is None or not self._is_dataclass(node) or self._is_union(annotation):
            return None
        return node

    def _is_union(self, annotation: ast.expr | None) -> bool:
        """Whether it may be one of several classes of this module."""
        classes = {name for each in _names(annotation) if (name := name_of(each)) in self.classes}
        return len(classes) > 1

    def _made(self, default: ast.expr | None) -> ast.expr | None:
        """What a field holds by default: of `field(default_factory=lambda: [1])`, the list."""
        if not isinstance(default, ast.Call) or name_of(default) not in FIELDS:
            return default
        given = keywords(default)
        if "default" in given or (name_of(default) == "Field" and default.args):
            return given.get("default", default.args[0] if default.args else None)
        made = given.get("default_factory") or given.get("factory")
        if isinstance(made, ast.Name) and made.id == "list":
            return ast.List([], ast.Load())
        return made.body if isinstance(made, ast.Lambda) else made

    def _flag_of_absl(self, call: ast.Call, kind: str) -> Iterator[Setting]:
        given = dict(zip(("name", "default", "help"), call.args, strict=False)) | keywords(call)
        name = self.literal(given.get("name"))
        if not isinstance(name, str):
            return
        option, default = f"--{name}", given.get("default")
        required = self.literal(given.get("required")) is True or self._is_marked(name)
        if kind in LISTS_OF_ABSL:
            form, element_kind = LISTS_OF_ABSL[kind]
            values = self.literal(default)
            values = [values] if isinstance(values, str | int | float) and form == "repeat" else values
            found = several(Setting(option, parameter_of(name)), form, values, element_kind)
        elif kind not in FLAGS_OF_ABSL:
            found = "a space cannot tell its values from its declaration"
        else:
            choices: Any = ()
            if kind == "DEFINE_enum":
                choices = self.literal(call.args[2] if len(call.args) > 2 else given.get("enum_values"))
            elif kind == "DEFINE_enum_class":
                enum = call.args[2] if len(call.args) > 2 else given.get("enum_class")
                choices = tuple(self.enums.get(str(name_of(enum)), ()))
                default = ast.Constant(default.attr) if isinstance(default, ast.Attribute) else default
            low, high = (self.literal(given.get(each)) for each in ("lower_bound", "upper_bound"))
            setting = self.setting(
                option, ast.Name(FLAGS_OF_ABSL[kind]), default, tuple(choices or ()), required, (low, high)
            )
            found = truth(setting, "") if isinstance(setting.value, bool) else setting
        if isinstance(found, Setting):
            yield found
        else:
            self.left_out[option] = found

    def _is_marked(self, name: str) -> bool:
        """Whether absl is told that a flag is required."""
        marks = [each for each in nodes_of(self.tree, ast.Call) if name_of(each) == "mark_flag_as_required"]
        return any(constant(argument) == name for each in marks for argument in each.args)

    def _of_a_configurator(self) -> Iterator[Setting]:
        """The names of a module up to where nanoGPT's configurator replaces their values."""
        for at, statement in enumerate(self.tree.body):
            texts = [each.value for each in ast.walk(statement) if isinstance(each, ast.Constant)]
            runs = any(name_of(call) == "exec" for call in nodes_of(statement, ast.Call))
            if not runs or not any(isinstance(text, str) and text.endswith(CONFIGURATOR) for text in texts):
                continue
            for name, node in dict(assignments(self.tree.body[:at])).items():
                value = self.literal(node)
                if name.startswith("_") or isinstance(value, list | tuple | dict):
                    continue  # which the configurator does not take
                setting = self.setting(f"--{name}", None, node, (), required=False)
                if isinstance(value, bool):
                    yield truth(setting, "literal")
                elif isinstance(value, int | float | str):
                    yield literally(setting)
                elif not isinstance(node, ast.ListComp | ast.DictComp):
                    self.left_out[f"--{name}"] = UNREADABLE
            return


def element(annotation: ast.expr | None) -> str:
    """The name of the type inside `list[int]`, in `Annotated` too; "" if there are several."""
    names = [str(name_of(each)) for each in _names(annotation)]
    kinds = {name for name in names if name in ("int", "float", "str", "Path", "bool")}
    return kinds.pop() if len(kinds) == 1 else ""


def _names(annotation: ast.expr | None) -> Sequence[ast.expr]:
    """The names within an annotation; one that is written as a text too."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return []
    return (
        []
        if annotation is None
        else [each for each in ast.walk(annotation) if isinstance(each, ast.Name | ast.Attribute)]
    )
