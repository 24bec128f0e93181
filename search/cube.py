"""A space's searched parameters as points of the unit cube, which models and quasi-random sequences know."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..spaces import Choice, Range, Space, is_ordered

if TYPE_CHECKING:
    from .gaussian import Array, Indices  # with SciPy's optimizers, which a cube does not need


class Cube:
    """A coordinate for each searched parameter, 0.5 where a configuration does not have it."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._index = {name: index for index, name in enumerate(space.searched)}
        parameters = [space.searched_parameter(name) for name in space.searched]
        self.dimensions = len(parameters)
        self.unordered = np.array([isinstance(p, Choice) and not is_ordered(p) for p in parameters], bool)
        self._sizes = [len(p.choices) if isinstance(p, Choice) else 0 for p in parameters]
        self._listed = {name: _listed(p) for name, p in zip(space.searched, parameters, strict=True)}

    def config(self, point: Array) -> dict[str, Any]:
        """The configuration at a point, whole."""

        def suggest(name: str, parameter: Range | Choice) -> Any:
            at = float(point[self._index[name]])
            values, borders = self._listed[name]
            return values[bisect(borders, at)] if values else _value(parameter, at)

        return self._space.resolve(suggest)

    def point(self, config: Mapping[str, Any]) -> Array:
        """The point of a configuration; of what it lacks the middle."""
        found = np.full(self.dimensions, 0.5)
        for name, index in self._index.items():
            if name in config:
                found[index] = coordinate(self._space.searched_parameter(name), config[name])
        return found

    def features(self, points: Array) -> tuple[Array, Indices]:
        """Columns for a kernel, and the parameter of each.

        A choice without an order has one for each of its values, so that any two are as far apart as the
        ends of a range.
        """
        columns, owner = [], []
        for index, size in enumerate(self._sizes):
            if not self.unordered[index]:
                columns.append(points[:, index])
                owner.append(index)
                continue
            chosen = np.minimum((points[:, index] * size).astype(int), size - 1)
            for value in range(size):
                columns.append((chosen == value) / math.sqrt(2))
                owner.append(index)
        return np.stack(columns, 1), np.array(owner, np.intp)


def _listed(parameter: Range | Choice) -> tuple[Sequence[Any], list[float]]:
    """The values of a parameter, and the coordinates where one gives way to the next; none of too many.

    To round exactly, at each of the hundreds of points that a proposal looks at, would take most of its time.
    """
    if isinstance(parameter, Choice):
        size = len(parameter.choices)
        return parameter.choices, [index / size for index in range(1, size)]
    values = parameter.values() or []
    middles = [
        math.sqrt(a) * math.sqrt(b) if parameter.factor else a / 2 + b / 2 for a, b in pairwise(values)
    ]
    return values, [coordinate(parameter, middle) for middle in middles]


def _value(parameter: Range | Choice, coordinate: float) -> Any:
    assert isinstance(parameter, Range)
    low, high = _bounds(parameter)
    raw = low + coordinate * (high - low)
    return parameter.snap(math.exp(raw) if _is_log(parameter) else raw)


def coordinate(parameter: Range | Choice, value: Any) -> float:
    """Where a value lies in its range, 0 to 1; in logs where these are searched."""
    if isinstance(parameter, Choice):
        return (parameter.choices.index(value) + 0.5) / len(parameter.choices)
    low, high = _bounds(parameter)
    raw = math.log(value) if _is_log(parameter) else float(value)
    return min(max((raw - low) / (high - low), 0.0), 1.0)


def _is_log(parameter: Range) -> bool:
    return parameter.log or parameter.factor is not None


def _bounds(parameter: Range) -> tuple[float, float]:
    if _is_log(parameter):
        return math.log(parameter.min), math.log(parameter.max)
    return float(parameter.min), float(parameter.max)
