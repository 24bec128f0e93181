"""A space's searched parameters as points of the unit cube, for models and quasi-random sequences."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...spaces import Choice, Range, Space, is_ordered

if TYPE_CHECKING:
    from .gaussian_process import Array, Indices  # loads SciPy's optimizers


class UnitCube:
    """A coordinate for each searched parameter; 0.5 if a configuration lacks it."""

    def __init__(self, space: Space) -> None:
        self._space = space
        parameters = list(space.searched.values())
        self._axes = {name: UnitAxis(p, i) for i, (name, p) in enumerate(space.searched.items())}
        self.dimensions = len(parameters)
        self.unordered = np.array([isinstance(p, Choice) and not is_ordered(p) for p in parameters], bool)
        self._sizes = [len(p.choices) if isinstance(p, Choice) else 0 for p in parameters]

    def suggester(
        self, point: Array, given: Mapping[str, Any] = MappingProxyType({})
    ) -> Callable[[str, Range | Choice], Any]:
        """Suggests the values at a point; given values take precedence."""
        coordinates = point.tolist()

        def suggest(name: str, _: Range | Choice) -> Any:
            if name in given:
                return given[name]
            axis = self._axes[name]
            return axis.value(coordinates[axis.index])

        return suggest

    def point(self, config: Mapping[str, Any]) -> Array:
        """The point of a configuration, with 0.5 for parameters that it lacks."""
        return np.array(
            [a.coordinate(config[name]) if name in config else 0.5 for name, a in self._axes.items()]
        )

    def snapped(self, points: Array) -> Array:
        """The points [n, d] of the nearest configurations; coordinates of long ranges stay as they are."""
        found = points.copy()
        for axis in self._axes.values():
            if axis.stops.size:
                at = np.searchsorted(axis.borders, points[:, axis.index], "right")
                found[:, axis.index] = axis.stops[at]
        return found

    def features(self, points: Array) -> tuple[Array, Indices]:
        """Columns for a kernel, and the parameter of each.

        An unordered choice has a column for each of its values, so that any two values are as far apart as
        the ends of a range.
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


class UnitAxis:
    """A parameter's values as coordinates from 0 to 1; logarithmic if it is searched so."""

    def __init__(self, parameter: Range | Choice, index: int = 0) -> None:
        self.index = index  # of the axis in its cube
        self._parameter = parameter
        if isinstance(parameter, Range):
            self._log = parameter.log or parameter.factor is not None
            low, high = parameter.min, parameter.max
            self._low, self._high = (
                (math.log(low), math.log(high)) if self._log else (float(low), float(high))
            )
        self._values, self.borders = self._listed()
        self.stops = np.array([self.coordinate(value) for value in self._values])

    def value(self, coordinate: float) -> Any:
        """The value nearest to a coordinate."""
        if self._values:
            return self._values[bisect(self.borders, coordinate)]
        assert isinstance(self._parameter, Range)
        raw = self._low + coordinate * (self._high - self._low)
        return self._parameter.snap(math.exp(raw) if self._log else raw)

    def coordinate(self, value: Any) -> float:
        """The coordinate of a value; one beyond the range is clipped to its end."""
        if isinstance(self._parameter, Choice):
            return (self._parameter.choices.index(value) + 0.5) / len(self._parameter.choices)
        raw = math.log(value) if self._log else float(value)
        return min(max((raw - self._low) / (self._high - self._low), 0.0), 1.0)

    def _listed(self) -> tuple[Sequence[Any], list[float]]:
        """The values, and the coordinates of the borders between them; empty if there are too many.

        Exact rounding at each of a proposal's hundreds of points would take most of its time.
        """
        if isinstance(self._parameter, Choice):
            size = len(self._parameter.choices)
            return self._parameter.choices, [index / size for index in range(1, size)]
        values = self._parameter.values() or []
        factor = self._parameter.factor
        middles = [math.sqrt(a) * math.sqrt(b) if factor else a / 2 + b / 2 for a, b in pairwise(values)]
        return values, [self.coordinate(middle) for middle in middles]
