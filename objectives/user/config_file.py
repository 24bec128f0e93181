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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.anchor import Anchor
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import YAMLError
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


def write_config(source: Path, values: Mapping[str, Any], target: Path) -> None:
    """Write a copy of the YAML or JSON file `source` to `target`, with `values` at their dotted names.

    Raises `ObjectiveError` if the file is missing, or a value has no place in it.
    """
    content, is_json = _read(source, _yaml())
    if isinstance(content, dict | list):
        _part(content, set())
    for name, value in values.items():
        _put(content, name, value, source)
    write_anew(target, json.dumps(content, indent=2) if is_json else _dumped(content))


def copies(command: Iterable[str]) -> dict[str, str]:
    """The configuration files that a command uses, and the names of their copies in a trial's folder."""
    names: dict[str, str] = {}
    for file in (macro["file"] for word in command for macro in CONFIG_MACRO.finditer(word)):
        suffix = Path(file).suffix
        alike = [name for name in names.values() if Path(name).suffix == suffix]
        names.setdefault(file, f"trial-{len(alike) + 1}{suffix}" if alike else f"trial{suffix}")
    return names


def read_config(file: Path) -> dict[str, Any]:
    """The content of a YAML or JSON file. Raises `ObjectiveError` if it is not a mapping."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _Constructor
    return _read(file, yaml)[0]


def check_config(command: Iterable[str], names: Iterable[str]) -> None:
    """Raise `ObjectiveError` if a configuration file is invalid, or has no place for a parameter's name."""
    for macro in (macro for word in command for macro in CONFIG_MACRO.finditer(word)):
        source = Path(macro["file"]).expanduser()
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


def _read(source: Path, yaml: YAML) -> tuple[dict[str, Any], bool]:
    """The content of a file, and whether it is JSON. Raises `ObjectiveError` if it is not a mapping."""
    try:
        text = source.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ObjectiveError(f"the configuration file {source} cannot be read: {error}") from error
    is_json = source.suffix.lower() == ".json"
    what = "JSON" if is_json else "YAML"
    try:
        if not is_json:
            check_size(text)
        content = json.loads(text) if is_json else yaml.load(text)
    except (ValueError, YAMLError, RecursionError) as error:
        raise ObjectiveError(f"the configuration file {source} is not valid {what}: {error}") from error
    if not isinstance(content, dict):
        raise ObjectiveError(f"the configuration file {source} does not hold a {what} mapping")
    return content, is_json


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


def _put(content: Any, name: str, value: Any, source: Path) -> None:
    *outer, last = [name] if isinstance(content, dict) and name in content else name.split(".")
    inside = content
    for part in outer:
        if isinstance(inside, dict) and inside.get(part) is None:
            inside[part] = {}  # missing, or empty as in `optimizer:`
        inside = inside[part] if isinstance(inside, dict) else None
    if not isinstance(inside, dict):
        raise ObjectiveError(f'the configuration file {source} has no place for the parameter "{name}"')
    inside[last] = _quoted(value)


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
