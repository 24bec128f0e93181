"""A space that is a dict in Python, as the data that a file would hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import PurePath
from typing import Any

from .document import (
    DEEPEST_YAML,
    MOST_VALUES_IN_FILE,
    Places,
    join,
    with_64_bits,
    with_whole_characters,
)
from .errors import Issue, SpaceError
from .fields import show


def plain_data(data: Mapping[Any, Any], places: Places) -> dict[str, Any]:
    """The same as plain data: tuples as lists, paths as texts, numpy's scalars and arrays as Python's.

    Raises `SpaceError` for each value that no file could hold.
    """
    conversion = _Conversion(places)
    result: dict[str, Any] = conversion.value(data, "", 0)
    if conversion.issues:
        raise SpaceError(conversion.issues)
    return result


class _Conversion:
    def __init__(self, places: Places) -> None:
        self._places = places
        self._count = 0
        self.issues: list[Issue] = []

    def value(self, value: Any, path: str, depth: int) -> Any:
        self._count += 1
        if depth > DEEPEST_YAML:
            raise SpaceError([self._places.issue(path, f"nested deeper than {DEEPEST_YAML} levels")])
        if self._count > MOST_VALUES_IN_FILE:
            message = f"more than {MOST_VALUES_IN_FILE:,} values in one space"
            raise SpaceError([self._places.issue("", message)])
        if isinstance(value, Mapping):
            return dict(self._items(value, path, depth))
        if isinstance(value, list | tuple):
            return [self.value(item, join(path, index), depth + 1) for index, item in enumerate(value)]
        if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
            inside = value.tolist()
            if type(inside) is not type(value):  # as numpy's long double stays one
                return self.value(inside, path, depth)
        try:
            return _scalar(value)
        except ValueError as error:
            self.issues.append(self._places.issue(path, str(error)))
            return None

    def _items(self, mapping: Mapping[Any, Any], path: str, depth: int) -> Iterator[tuple[str, Any]]:
        for key, value in mapping.items():
            try:
                if not isinstance(key, str):
                    raise ValueError(f"a key must be a text, not {show(key)}")
                name = _scalar(key)
            except ValueError as error:
                self.issues.append(self._places.issue(path, str(error)))
            else:
                yield name, self.value(value, join(path, name), depth + 1)


def _scalar(value: Any) -> Any:
    """A value without parts, of Python's own type; raises `ValueError` for what no file could hold."""
    if isinstance(value, PurePath):
        value = str(value)
    if isinstance(value, str):
        return with_whole_characters(str.__str__(value))  # members of an Enum, too, are their texts
    if isinstance(value, int) and not isinstance(value, bool):
        return with_64_bits(int.__int__(value))
    if isinstance(value, float | bool | timedelta | None):
        return value
    allowed = "text, number, true, false, null, or a list or mapping of these"
    raise ValueError(f"must be {allowed}, not {show(value)}")
