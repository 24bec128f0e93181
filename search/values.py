"""What operations return, as plain data and back, and what can be done next."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence, Set
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

State = Literal["complete", "pruned", "fail", "running", "paused", "waiting"]  # of a trial, as it is shown


class Value:
    """A frozen dataclass that an operation returns."""

    computed: ClassVar[tuple[str, ...]] = ()  # properties that belong to its plain data

    def to_json(self) -> Any:
        """Its fields as plain data, ready for `json.dumps`."""
        return plain(self) | {name: plain(getattr(self, name)) for name in self.computed}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """The value whose `to_json` this is. Raises `ValueError` for anything else."""
        made: Self = _made(cls, data)
        return made

    @classmethod
    def shape(cls) -> Any:
        """What its plain data are, as an annotation."""
        if not cls.computed:
            return cls
        computed = {name: get_type_hints(getattr(cls, name).fget)["return"] for name in cls.computed}
        return merged(cls.__name__, cls, also=computed)


@dataclass(frozen=True)
class NextStep(Value):
    """An operation that makes sense now, with its arguments. One of None is for the user to choose."""

    operation: str  # as `operations.OPERATIONS` names it, or `dashboard`
    arguments: dict[str, Any]
    why: str


def merged(
    name: str,
    *kinds: type,
    also: Mapping[str, Any] | None = None,
    without: tuple[str, ...] = (),
    partial: bool = False,
) -> Any:
    """The shape that has the fields of several dataclasses, and others; `partial`: or only some of them."""
    hints = {field: hint for kind in kinds for field, hint in get_type_hints(kind).items()} | dict(also or {})
    fields = {field: hint for field, hint in hints.items() if field not in without and field != "computed"}
    return TypedDict(name, fields, total=not partial)  # type: ignore[operator]


def plain(content: Any) -> Any:
    """Content as JSON can hold it: a float that is no finite number becomes None, a path its text."""
    kind: Any = type(content)
    if content is None or kind in (str, int, bool):  # most of ten thousand trials is
        return content
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if kind in (list, tuple):
        return [plain(value) for value in content]
    if kind is dict:
        return {str(key): plain(value) for key, value in content.items()}
    if is_dataclass(content):
        return {name: plain(getattr(content, name)) for name in _names(kind)}
    if isinstance(content, Mapping):
        return plain(dict(content))
    if isinstance(content, Set) or (isinstance(content, Sequence) and not isinstance(content, str)):
        return plain(list(content))
    return str(content) if isinstance(content, Path) else content


@cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))


def from_plain(kind: Any, data: Any) -> Any:
    """A value of the annotation `kind` from what `plain` made of it. Raises `ValueError` where it is none.

    A float that was no finite number is NaN again where the annotation says a float alone. Others may be
    older or newer: fields that the class does not know are passed over, and a missing one has its default.
    """
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Any:
        return data
    if origin is Literal:
        if data not in inside:
            raise ValueError(f"{data!r} is none of {', '.join(map(repr, inside))}")
        return data
    if origin in (Union, types.UnionType):
        return _of_union(inside, data)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        keys, values = inside
        return {_key(keys, key): from_plain(values, value) for key, value in _checked(dict, data).items()}
    if origin is tuple and Ellipsis not in inside:
        if len(_checked(list, data)) != len(inside):
            raise ValueError(f"{len(data)} values where there are {len(inside)}")
        return tuple(from_plain(each, value) for each, value in zip(inside, data, strict=True))
    if isinstance(origin, type) and issubclass(origin, Sequence | Set):
        holds = origin if origin in (tuple, set, frozenset) else list
        return holds(from_plain(inside[0], value) for value in _checked(list, data))
    if isinstance(kind, type):
        return _of_class(kind, data)
    raise ValueError(f"nothing is known of {kind!r}")


def _of_class(kind: type, data: Any) -> Any:
    if issubclass(kind, Value):
        return kind.from_json(data)
    if is_dataclass(kind):
        return _made(kind, data)
    if kind is float:
        return math.nan if data is None else _checked((int, float), data)  # 3 is one, too
    if issubclass(kind, Path | Enum):
        return kind(_checked(str, data))
    return None if kind is type(None) and data is None else _checked(kind, data)


def _made(cls: Any, data: Any) -> Any:
    """A dataclass from its fields."""
    given, kinds = _checked(dict, data), _kinds(cls)
    values = {}
    for field in fields(cls):
        if field.name in given:
            try:
                values[field.name] = from_plain(kinds[field.name], given[field.name])
            except ValueError as error:
                raise ValueError(f"{field.name}: {error}") from None
        elif field.default is MISSING and field.default_factory is MISSING:
            if type(None) not in get_args(kinds[field.name]):
                raise ValueError(f"{field.name} is missing")
            values[field.name] = None
    return cls(**values)


@cache
def _kinds(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _of_union(kinds: tuple[Any, ...], data: Any) -> Any:
    """A value of the first of some annotations that it can be of; None stays None."""
    if data is None and type(None) in kinds:
        return None
    problems = []
    for kind in kinds:
        try:
            return from_plain(kind, data)
        except ValueError as error:
            problems.append(error)
    raise problems[0]


def _key(kind: Any, text: Any) -> Any:
    """A key of a mapping, which JSON makes a text."""
    return int(text) if kind is int else from_plain(kind, text)


def _checked(kind: Any, data: Any) -> Any:
    """The data, if they are of this class; a bool is no number."""
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise ValueError(f"{str(data)[:40]!r} is no {getattr(kind, '__name__', 'number')}")
    return data
