"""A space's searched parameters as points of the unit cube, for models and quasi-random sequences."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...spaces import Choice, Constant, Range, Space, is_ordered
from ...spaces.ranges import LARGEST_EXPONENT
from ...spaces.space import is_wanted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .gaussian_process import Array, Indices  # loads SciPy's optimizers


# Which of the listed values of other parameters a parameter exists with; None for a constant.
Condition = dict[str, "NDArray[np.bool_] | None"]


class UnitCube:
    """A coordinate for each searched parameter; 0.5 if a configuration lacks it."""

    def __init__(self, space: Space) -> None:
        self._space = space
        parameters = list(space.searched.values())
        self._axes = {name: UnitAxis(p, i) for i, (name, p) in enumerate(space.searched.items())}
        self.dimensions = len(parameters)
        self.unordered = np.array([isinstance(p, Choice) and not is_ordered(p) for p in parameters], bool)
        self._sizes = [len(p.choices) if isinstance(p, Choice) else 0 for p in parameters]
        self._conditions: dict[str, Condition] = {}
        for name in space.order:
            if (condition := self._condition(name)) is not None:
                self._conditions[name] = condition
        conditional = {name for name, p in space.parameters.items() if p.when is not None}
        # Whether each snapped point is that of a configuration that the space allows.
        self.snaps_to_configs = space.refuses_nothing and conditional == self._conditions.keys()

    def _condition(self, name: str) -> Condition | None:
        """When a parameter exists; None if that is always so, or not decided by listed values."""
        when = self._space.parameters[name].when
        if not isinstance(when, dict):
            return None
        condition: Condition = {}
        for other, wanted in when.items():
            parent, axis = self._space.parameters[other], self._axes.get(other)
            if parent.when is not None and other not in self._conditions:
                return None
            if isinstance(parent, Constant):  # it has the wanted value, where it exists
                condition[other] = None
            elif axis is not None and axis.values:
                condition[other] = np.array([is_wanted(value, wanted) for value in axis.values])
            else:
                return None
        return condition

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

    def place(self, name: str, value: Any) -> tuple[int, float]:
        """The axis of a parameter, and the coordinate of a value there."""
        axis = self._axes[name]
        return axis.index, axis.coordinate(value)

    def snapped(self, points: Array) -> Array:
        """The points [n, d] of the nearest configurations.

        Coordinates of long ranges stay as they are, and those of parameters that exist by an expression.
        """
        found = points.copy()
        places = {}
        for name, axis in self._axes.items():
            if axis.stops.size:
                places[name] = np.searchsorted(axis.borders, points[:, axis.index], "right")
                found[:, axis.index] = axis.stops[places[name]]
        lacking: dict[str, Any] = {}
        for name, condition in self._conditions.items():
            lacking[name] = np.zeros(len(points), bool)
            for other, fits in condition.items():
                lacking[name] |= lacking.get(other, False)
                if fits is not None:
                    lacking[name] |= ~fits[places[other]]
            if name in self._axes:
                found[lacking[name], self._axes[name].index] = 0.5
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
            self._low, self._high = self._ends(parameter)
        self.values, self.borders = self._listed()
        self.stops = np.array([self.coordinate(value) for value in self.values])

    def value(self, coordinate: float) -> Any:
        """The value nearest to a coordinate."""
        if self.values:
            return self.values[bisect(self.borders, coordinate)]
        assert isinstance(self._parameter, Range)
        raw = self._low + coordinate * (self._high - self._low)
        return self._parameter.snap(math.exp(min(raw, LARGEST_EXPONENT)) if self._log else raw)

    def coordinate(self, value: Any) -> float:
        """The coordinate of a value; one beyond the range is clipped to its end."""
        if isinstance(self._parameter, Choice):
            return (self._parameter.choices.index(value) + 0.5) / len(self._parameter.choices)
        value = min(max(value, self._parameter.min), self._parameter.max)
        raw = math.log(value) if self._log else float(value)
        return (raw - self._low) / (self._high - self._low)

    @staticmethod
    def _ends(parameter: Range) -> tuple[float, float]:
        """What 0 and 1 stand for: half a step beyond the range, so that each value has as much room."""
        if parameter.factor is not None:
            half = math.log(parameter.factor) / 2
            return math.log(parameter.min) - half, math.log(parameter.max) + half
        half = 0.0 if parameter.count is None else (parameter.step or 1) / 2
        low, high = parameter.min - half, parameter.max + half
        return (math.log(low), math.log(high)) if parameter.log else (low, high)

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
