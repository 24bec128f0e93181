"""Writes a trial's values into a copy of a script's own configuration file; comments and order are preserved.

The result means the same to every YAML parser: `1.0e-05`, because PyYAML reads `1e-05` as text, and `"no"`,
because it reads `no` as false. Numbers that are already in the file are rewritten too: some parsers read
`010` as 8, others as 10.
"""

from __future__ import annotations

import copy
import io
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.anchor import Anchor
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from ...trainer.anew import write_anew
from ..base import ObjectiveError

MAX_VALUES = 100_000  # in a file, with aliases expanded
MAX_DEPTH = 100  # levels of nesting

# The macro in a command: the file, and assignments of values of the trial itself.
CONFIG_MACRO = re.compile(r"\$\{config:(?P<file>[^}]+?)(?P<own>(?:\s+[\w.]+=[^\s}]*\$[^\s}]+)*)\s*(?:\}|$)")
OWN_NAME = re.compile(r"\$(checkpoint:[^\s}]+|\w*)")  # in such an assignment


def write_config(source: Path, values: Mapping[str, Any], target: Path) -> None:
    """Write a copy of a YAML, JSON or TOML file to `target`, with `values` at their dotted names.

    A number in a name is the index of a list's element. TOML has no null: a name whose value is null is left
    out of it. Raises `ObjectiveError` if the file is missing, or a value has no place in it.
    """
    if _format(source) == "TOML":
        write_anew(target, toml_with(_text(source), values, source))
        return
    content = _read(source, _yaml())
    _part(content, set())
    for name, value in values.items():
        _put(content, name, _quoted(value), source)
    write_anew(target, json.dumps(content, indent=2) if _format(source) == "JSON" else _dumped(content))


def copies(command: Iterable[str]) -> dict[str, str]:
    """The configuration files that a command uses, and the names of their copies in a trial's folder."""
    names: dict[str, str] = {}
    for file in (macro["file"] for word in command for macro in CONFIG_MACRO.finditer(word)):
        suffix = Path(file).suffix
        alike = [name for name in names.values() if Path(name).suffix == suffix]
        names.setdefault(file, f"trial-{len(alike) + 1}{suffix}" if alike else f"trial{suffix}")
    return names


def read_config(file: Path) -> dict[str, Any]:
    """The content of a YAML, JSON or TOML file. Raises `ObjectiveError` if it is not a mapping."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _Constructor
    return _read(file, yaml)


def with_values(content: dict[str, Any], values: Mapping[str, Any], source: Path) -> dict[str, Any]:
    """The content of a file with other values. Raises `ObjectiveError` if one has no place in it."""
    changed = copy.deepcopy(content)
    for name, value in values.items():
        _put(changed, name, value, source)
    return changed


def check_config(
    command: Iterable[str],
    names: Iterable[str],
    placed: Callable[[str], Path] = lambda file: Path(file).expanduser(),
) -> None:
    """Raise `ObjectiveError` if a configuration file is invalid, or has no place for a parameter's name.

    `placed` is the path of a file that a word of a command names.
    """
    for macro in (macro for word in command for macro in CONFIG_MACRO.finditer(word)):
        source = placed(macro["file"])
        content = read_config(source)
        for name in (*names, *(own.partition("=")[0] for own in macro["own"].split())):
            _put(content, name, 0, source)


def real(value: float) -> str:
    """A float in a form that every version of YAML, and JSON, reads as a number."""
    mantissa, e, exponent = repr(value).partition("e")
    if not e:
        return mantissa
    sign = "-" if exponent.startswith("-") else "+"  # YAML 1.1 requires a point and a sign
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{sign}{exponent.lstrip('+-')}"


def _format(source: Path) -> str:
    return {".json": "JSON", ".toml": "TOML"}.get(source.suffix.lower(), "YAML")


def _text(source: Path) -> str:
    try:
        return source.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ObjectiveError(f"the configuration file {source} cannot be read: {error}") from error


def _read(source: Path, yaml: YAML) -> dict[str, Any]:
    """The content of a file. Raises `ObjectiveError` if it is not a mapping."""
    text, what = _text(source), _format(source)
    try:
        if what == "YAML":
            check_size(text)
        if what == "TOML":
            content = tomllib.loads(text)
        else:
            content = json.loads(text) if what == "JSON" else yaml.load(text)
    except (ValueError, YAMLError, RecursionError) as error:
        raise ObjectiveError(f"the configuration file {source} is not valid {what}: {_why(error)}") from error
    if not isinstance(content, dict):
        raise ObjectiveError(f"the configuration file {source} does not hold a {what} mapping")
    return content


def toml_with(text: str, values: Mapping[str, Any], source: Path) -> str:
    """A TOML text with other values; its comments and order stay."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        expected, content = tomllib.loads(text), tomlkit.parse(text)
    except (ValueError, TOMLKitError, RecursionError) as error:
        raise ObjectiveError(f"the configuration file {source} is not valid TOML: {error}") from error
    try:
        for name, value in values.items():
            _put(content, name, value, source, null=False)
            _put(expected, name, value, source, null=False)
        written = tomlkit.dumps(content)
        if tomllib.loads(written) != expected:
            raise ValueError("its tables are in an order that cannot be kept")
    except (ValueError, TypeError, AttributeError, TOMLKitError, RecursionError) as error:
        told = f"the configuration file {source} cannot be written with {', '.join(values)}: {error}"
        raise ObjectiveError(told) from error
    return written


def _why(error: Exception) -> str:
    """What is wrong with a text, and where, in one line."""
    place, told = "", str(error)
    if isinstance(error, MarkedYAMLError) and (mark := error.problem_mark or error.context_mark):
        place, told = f"line {mark.line + 1}, column {mark.column + 1}: ", str(error.problem or error.context)
    return place + " ".join(told.split())


def check_size(text: str) -> None:
    """Raise `ValueError`, with the line, if the content of a YAML text is infinite or too large.

    Aliases multiply what they refer to, and an alias may refer to a list or mapping that contains it.
    """
    # The open collections: their anchors, and the count before them.
    around: list[tuple[str | None, int]] = []
    sizes: dict[str, int | None] = {}  # of anchored values; None while they are open
    count = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        line = event.start_mark.line + 1
        anchor = getattr(event, "anchor", None)
        if isinstance(event, AliasEvent):
            if (size := sizes.get(event.anchor, 0)) is None:
                raise ValueError(f"line {line}: the alias *{event.anchor} refers to a value that contains it")
            count += size
        elif isinstance(event, CollectionEndEvent):
            anchor, before = around.pop()
            if anchor is not None:
                sizes[anchor] = count - before
        elif isinstance(event, CollectionStartEvent):
            around.append((anchor, count))
            sizes |= {} if anchor is None else {anchor: None}
        elif isinstance(event, ScalarEvent):
            sizes |= {} if anchor is None else {anchor: 1}
        count += isinstance(event, CollectionStartEvent | ScalarEvent)
        if count > MAX_VALUES:
            raise ValueError(f"line {line}: more than {MAX_VALUES:,} values, with aliases expanded")
        if len(around) > MAX_DEPTH:
            raise ValueError(f"line {line}: nested deeper than {MAX_DEPTH} levels")


def _put(content: Any, name: str, value: Any, source: Path, *, null: bool = True) -> None:
    """Put a value at its dotted name. Without `null`, the name of a value that is null is removed."""
    *outer, last = [name] if isinstance(content, dict) and name in content else name.split(".")
    inside, path = content, ""
    for part in outer:
        if isinstance(inside, dict) and inside.get(_key(inside, part)) is None:
            inside[part] = {}  # missing, or empty as in `optimizer:`
        inside = inside[_place(inside, part, path, name, source)]
        path = f"{path}.{part}".lstrip(".")
    place = _place(inside, last, path, name, source)
    if value is not None or null:
        inside[place] = value
    elif isinstance(inside, list):
        raise ObjectiveError(f'{source} cannot hold null, the value of "{name}", in a list: TOML has no null')
    else:
        inside.pop(place, None)


def _place(inside: Any, part: str, path: str, name: str, source: Path) -> str | int:
    """The key or index of a part of a dotted name. Raises `ObjectiveError` if there is no such place."""
    if isinstance(inside, dict):
        key: str | int = _key(inside, part)
        return key
    told = f'the configuration file {source} has no place for the parameter "{name}"'
    if not isinstance(inside, list):
        raise ObjectiveError(f'{told}: "{path}" is a value')
    last = len(inside) - 1
    if not part.isdecimal() or int(part) > last:
        elements = f"elements {path}.0 to {path}.{last}" if last > 0 else f"element {path}.0"
        has = f"the one {elements}" if last == 0 else f"the {elements}" if last > 0 else "no element"
        raise ObjectiveError(f'{told}: the list "{path}" has {has}')
    return int(part)


def _key(mapping: dict[Any, Any], part: str) -> Any:
    """The key for a part of a name: a number where the mapping has that as a number."""
    if part in mapping:
        return part
    return next((key for key in mapping if type(key) is int and str(key) == part), part)


def _part(content: Any, seen: set[int]) -> None:
    """Give every alias and every merged key its own copy of the value.

    So a change of a value affects only the name that it is made under.
    """
    places = content.items() if isinstance(content, dict) else enumerate(content)
    for place, value in list(places):
        if id(value) in seen:
            value = _without_anchors(copy.deepcopy(value))
        if isinstance(value, dict | list) or hasattr(value, Anchor.attrib):
            seen.add(id(value))
        content[place] = value  # a merged key becomes a key of this mapping
        if isinstance(value, dict | list):
            _part(value, seen)


def _without_anchors(value: Any) -> Any:
    """The value without anchors, so that no alias refers to it."""
    if hasattr(value, Anchor.attrib):
        delattr(value, Anchor.attrib)
    if isinstance(value, dict | list):
        for inside in value.values() if isinstance(value, dict) else value:
            _without_anchors(inside)
    return value


def _quoted(value: Any) -> Any:
    """The value with all texts in quotes."""
    if isinstance(value, str):
        return DoubleQuotedScalarString(value)
    return [_quoted(each) for each in value] if isinstance(value, list | tuple) else value


class _Constructor(SafeConstructor):
    """Ignores tags, which only the script knows."""

    def untagged(self, _: str, node: Node) -> Any:
        """The value of a node without its tag."""
        if isinstance(node, MappingNode):
            return self.construct_mapping(node, deep=True)
        if isinstance(node, SequenceNode):
            return self.construct_sequence(node, deep=True)
        return self.construct_scalar(node)


_Constructor.add_multi_constructor("", _Constructor.untagged)


class _Representer(RoundTripRepresenter):
    """Writes floats by `real`."""


_Representer.add_representer(
    float, lambda self, value: self.represent_scalar("tag:yaml.org,2002:float", real(value))
)


def _yaml() -> YAML:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1 << 16
    yaml.Representer = _Representer
    return yaml


def _dumped(content: Any) -> str:
    stream = io.StringIO()
    _yaml().dump(content, stream)
    return stream.getvalue()
