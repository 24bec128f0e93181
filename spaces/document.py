"""YAML text to plain data with the place of every key and value.

Built on the parser's events instead of a loader, because three things need it: a position for every value,
YAML 1.2's own scalars (`1e-4` is a number, `yes` and `1:30` are text), and limits that a hostile file
cannot exceed (aliases that multiply, endless nesting, numbers of a million digits).
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    ScalarEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from .errors import Issue, SpaceError

LARGEST_TEXT = 200_000  # characters
LONG = (
    "too large for a search space: write long lists of values as ranges, {min: ..., max: ..., step: ...}, "
    "and leave out what is not searched"
)
LARGEST_FILE = 4 * LARGEST_TEXT  # bytes
MOST_VALUES_IN_FILE = 20_000  # after aliases are expanded
STDIN = "-"  # as the name of a file
DEEPEST_YAML = 20  # levels of nesting
INTEGER_BOUND = 2**63

NULL = re.compile(r"|~|null|Null|NULL")
TRUE = re.compile(r"true|True|TRUE")
FALSE = re.compile(r"false|False|FALSE")
INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
MISSING = {"None", "NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "-"}  # values in Python, pandas, and our tables
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
# Scalars that are text in YAML 1.2, but not in YAML 1.1: `no`, `0b1`, `1_000`, `12:30`, `2024-01-01`.
YAML_1_1 = re.compile(
    r"y|n|yes|no|on|off|=|<<"
    r"|[-+]?0(b[01_]+|x[0-9a-f_]+)"
    r"|[-+]?([0-9][0-9_]*(:[0-5]?[0-9])*(\.[0-9_]*)?|\.[0-9][0-9_]*)(e[-+]?[0-9]+)?"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([t \t].*)?",
    re.IGNORECASE,
)

Place = tuple[int, int]


@dataclass
class Places:
    """The places of the keys and values in one file, by path (`parameters.lora_r.max`, `constraints[0]`)."""

    file: str
    keys: dict[str, Place] = field(default_factory=dict)
    values: dict[str, Place] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)  # of a command, that give values instead

    def issue(self, path: str, message: str, *, key: bool = False) -> Issue:
        """An issue at the value of a path, or at its key, else at the nearest place around it."""
        for given, option in self.options.items():
            if path == given or path.startswith((f"{given}.", f"{given}[")):
                return Issue(option, 0, 0, "", message)
        line, column = self.keys[path] if key and path in self.keys else self._nearest(path)
        return Issue(self.file, line, column, path, message)

    def _nearest(self, path: str) -> Place:
        while path and path not in self.values:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.values.get(path, (0, 0))


@dataclass
class YamlNode:
    """One value of the text: a scalar's text, or the nodes inside a list or mapping."""

    line: int
    column: int
    content: str | list[YamlNode] | list[tuple[YamlNode, YamlNode]]
    kind: type[str] | type[list[Any]] | type[dict[str, Any]]
    span: tuple[int, int]  # its characters in the text, without what follows a block
    plain: bool = False  # an unquoted scalar, which may be a number
    flow: bool = False  # a list or mapping in brackets


def text_of(path: Path) -> str:
    """The text of a file, or of standard input; reads no more than a space file may hold.

    Raises `SpaceError` where the file is larger, `OSError` and `UnicodeDecodeError` where it has no text.
    """
    with _standard_input() if str(path) == STDIN else path.open("rb") as stream:
        content = stream.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise _too_large(file_in_words(path))
    return content.decode("utf-8")


@contextmanager
def _standard_input() -> Iterator[BinaryIO]:
    if not hasattr(sys.stdin, "buffer"):  # closed, or a notebook's
        raise OSError("there is none")
    yield sys.stdin.buffer


def file_in_words(path: str | Path) -> str:
    """The name of a file in messages."""
    return "<stdin>" if str(path) == STDIN else str(path)


def _too_large(file: str) -> SpaceError:
    return SpaceError([Issue(file, 0, 0, "", f"larger than {LARGEST_TEXT:,} characters, {LONG}")])


def read(text: str, file: str) -> tuple[Any, Places, list[Issue]]:
    """The data of the one YAML document in `text`, the places of its values, and issues with some of them.

    Raises `SpaceError` where the text has no data at all.
    """
    places = Places(file)
    if len(text) > LARGEST_TEXT:
        raise _too_large(file)
    node = compose(text, file)
    if node is None:
        raise SpaceError([Issue(file, 1, 1, "", "the file is empty")])
    construction = _Construction(places)
    return construction.value(node, ""), places, construction.issues


def join(path: str, key: str | int) -> str:
    """The path of a key or an index below `path`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def compose(text: str, file: str) -> YamlNode | None:
    """The tree of the only document; None where there is none. Raises `SpaceError` where it is not YAML."""
    composer = _Composer(iter(YAML(typ="safe", pure=True).parse(text)), file)
    try:
        return composer.document()
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = str(error.problem or error.context or "cannot be read")
        if "'\\t'" in problem:
            problem = "YAML is indented with spaces, not with this tab"
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise SpaceError([Issue(file, line, column, "", f"not YAML: {problem}")]) from None
    except ReaderError as error:
        before = text[: error.position] if isinstance(error.position, int) else ""
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise SpaceError([Issue(file, line, column, "", f"not YAML: {error.reason}")]) from None
    except YAMLError as error:
        raise SpaceError([Issue(file, 0, 0, "", f"not YAML: {error}")]) from None


class _Composer:
    """Turns parser events into nodes; an alias is the node of its anchor."""

    def __init__(self, events: Iterator[Event], file: str) -> None:
        self.events = events
        self.file = file
        self.anchors: dict[str, YamlNode] = {}

    def document(self) -> YamlNode | None:
        root = None
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                if root is not None:
                    raise self.refusal(event, "a second document starts here; a space file holds one")
                root = self.node(next(self.events), 0)
        return root

    def node(self, event: Event, depth: int) -> YamlNode:
        if depth > DEEPEST_YAML:
            raise self.refusal(event, f"nested deeper than {DEEPEST_YAML} levels")
        if isinstance(event, AliasEvent):
            if event.anchor not in self.anchors:
                raise self.refusal(event, f'the alias "*{event.anchor}" has no anchor before it')
            return self.anchors[event.anchor]
        if getattr(event, "ctag", None) is not None:
            raise self.refusal(event, "YAML tags are not allowed here; quote the value if it is a text")
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        start = event.start_mark.index
        if isinstance(event, ScalarEvent):
            try:
                text = with_whole_characters(event.value)
            except ValueError as error:
                raise self.refusal(event, str(error)) from None
            node = YamlNode(line, column, text, str, (start, event.end_mark.index), plain=event.style is None)
        else:
            assert isinstance(event, CollectionStartEvent)
            items: list[YamlNode] = []
            while not isinstance(inner := next(self.events), CollectionEndEvent):
                items.append(self.node(inner, depth + 1))
            end = inner.end_mark.index
            if items and not event.flow_style:  # the parser notices the end of a block too late
                end = max(item.span[1] for item in items)
            if isinstance(event, SequenceStartEvent):
                node = YamlNode(line, column, items, list, (start, end), flow=event.flow_style)
            else:
                pairs = list(zip(items[::2], items[1::2], strict=True))
                node = YamlNode(line, column, pairs, dict, (start, end), flow=event.flow_style)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def refusal(self, event: Event, message: str) -> SpaceError:
        mark = event.start_mark
        return SpaceError([Issue(self.file, mark.line + 1, mark.column + 1, "", message)])


class _Construction:
    """Turns nodes into data, noting places and collecting issues."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.issues: list[Issue] = []
        self.count = 0

    def value(self, node: YamlNode, path: str, depth: int = 0) -> Any:
        self.count += 1
        if depth > DEEPEST_YAML:  # aliases can nest what the parser saw side by side
            raise SpaceError([self.issue(node, path, f"nested deeper than {DEEPEST_YAML} levels")])
        if self.count > MOST_VALUES_IN_FILE:
            message = f"more than {MOST_VALUES_IN_FILE:,} values in one file"
            raise SpaceError([self.issue(node, path, message)])
        self.places.values[path] = (node.line, node.column)
        content: Any = node.content
        if node.kind is list:
            return [self.value(item, join(path, index), depth + 1) for index, item in enumerate(content)]
        if node.kind is dict:
            return self.mapping(content, path, depth)
        try:
            return scalar(content) if node.plain else content
        except ValueError as error:
            self.issues.append(self.issue(node, path, str(error)))
            return math.nan  # it equals nothing, and every field refuses it

    def mapping(self, content: list[tuple[YamlNode, YamlNode]], path: str, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in content:
            name = key.content
            if not isinstance(name, str):
                self.issues.append(self.issue(key, path, "a key must be a name, not a list or a mapping"))
                continue
            here = join(path, name)
            if name in result:
                line, column = self.places.keys[here]
                message = f'duplicate key "{name}", first at {line}:{column}'
                self.issues.append(self.issue(key, here, message))
                continue
            if name == "<<" and key.plain:
                message = 'merge keys ("<<") are not part of YAML 1.2; write the keys out'
                self.issues.append(self.issue(key, path, message))
                continue
            self.places.keys[here] = (key.line, key.column)
            result[name] = self.value(value, here, depth + 1)
            if value.plain and value.content == "":  # empty, and placed on the next line
                self.places.values[here] = (key.line, key.column)
        return result

    def issue(self, node: YamlNode, path: str, message: str) -> Issue:
        return Issue(self.places.file, node.line, node.column, path, message)


def scalar(text: str) -> Any:
    """The value of an unquoted scalar in YAML 1.2's core schema; raises `ValueError` for infinite numbers."""
    if NULL.fullmatch(text):
        return None
    if TRUE.fullmatch(text):
        return True
    if FALSE.fullmatch(text):
        return False
    if INTEGER.fullmatch(text):
        integer = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)) if len(text) < 100 else INTEGER_BOUND
        return with_64_bits(integer)
    if NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number")
    if FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(f"{text} is too large for a number")
        return number
    return text


def written(value: Any) -> str:
    """A value for people to read; a text that could be read as something else is quoted."""
    if isinstance(value, str) and not could_be_more(value):
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return quoted if quoted.isprintable() else "".join(map(_visible, quoted))


def with_64_bits(integer: int) -> int:
    """The integer, which databases and JSON hold; raises `ValueError` for a larger one."""
    if abs(integer) >= INTEGER_BOUND:
        raise ValueError("an integer of more than 64 bits; write such a number with an exponent: 1e20")
    return integer


def with_whole_characters(text: str) -> str:
    """The text with each pair of surrogates, as JSON escapes characters beyond 16 bits, as one character.

    Raises `ValueError` for a surrogate without its other half.
    """
    try:
        return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        message = "holds half a character: a surrogate such as \\ud83e means nothing without its other half"
        raise ValueError(message) from None


def _visible(character: str) -> str:
    """A printable character itself, any other as JSON escapes it, so that no terminal obeys it."""
    escaped = character.encode("utf-16-be", "surrogatepass").hex()
    pairs = [escaped[at : at + 4] for at in range(0, len(escaped), 4)]
    return character if character.isprintable() else "".join(f"\\u{pair}" for pair in pairs)


def could_be_more(text: str) -> bool:
    """Whether a text could be read as null, a boolean, a number, a date, a JSON list, or several values.

    A reader may know YAML 1.1, such as PyYAML, or YAML 1.2.
    """
    if text in MISSING or text != text.strip() or not text.isprintable() or " | " in text:
        return True
    if YAML_1_1.fullmatch(text):
        return True
    for reader in (json.loads, float):  # Python's reads `nan` and `1_000` as numbers
        with suppress(ValueError, RecursionError):
            reader(text)
            return True
    try:
        return not isinstance(scalar(text), str)
    except ValueError:  # .inf
        return True
