"""The configurations of a space: drawn, checked and listed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from math import prod
from typing import Any

from .errors import Issue, SpaceError
from .expressions import Expression, ExpressionError, NoNumber
from .fields import show
from .parameters import Choice, Constant, Derived, Parameter, describe_condition
from .ranges import Range
from .relations import Problem, order

DRAWS = 10_000  # random draws before a space counts as empty
SHARE_DRAWS = 2000  # random draws that estimate the feasible share
FEWEST_DRAWS = 100
MUCH_TEXT = 1000  # characters of expressions, above which fewer configurations are tried
TEXT_OF_A_PARAMETER = 20  # characters of expressions that take as long as a parameter
LARGEST_COUNTED = 10_000  # configurations of a conditional grid that are counted one by one
LARGEST_WALKED = 100_000  # configurations of a constrained grid that are tried one by one
FEW_CONFIGS = 1000  # configurations of a space so small that all of them are tried

Suggest = Callable[[str, Range | Choice], Any]
Limit = Callable[[Mapping[str, Any]], str | None]  # why a configuration is refused, or None


class NoValue(SpaceError):
    """An expression has no value for these numbers, but may have one for others."""


class Space:
    """The configurations of one spec; relies on the names and order that `relations` checks."""

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        constraints: Iterable[str],
        baseline: Mapping[str, Any] | None,
        issue: Callable[[str, str], Issue],
        limit: Limit | None = None,
    ) -> None:
        self.parameters = dict(parameters)
        self.searched = {name: p for name, p in parameters.items() if isinstance(p, Range | Choice)}
        self.order = tuple(order(self.parameters))  # each after the parameters that it reads
        self._constraints = [Expression.parse(text) for text in constraints]
        derived = {name: p.expr for name, p in parameters.items() if isinstance(p, Derived)}
        conditions = {name: p.when for name, p in parameters.items() if isinstance(p.when, str)}
        self._expressions = {name: Expression.parse(text) for name, text in derived.items()}
        self._conditions = {name: Expression.parse(text) for name, text in conditions.items()}
        self._baseline = baseline
        self._issue = issue
        self._limit = limit
        expressions = (*self._constraints, *self._expressions.values(), *self._conditions.values())
        self._text = sum(10 + len(expression.text) for expression in expressions)
        self._text += TEXT_OF_A_PARAMETER * len(self.parameters)
        self._shares: dict[int, float] = {}  # by seed
        self.refuses_nothing = not expressions and limit is None  # no configuration is refused

    def resolve(self, suggest: Suggest) -> dict[str, Any]:
        """A configuration in the order of the file, with one suggestion for each active searched parameter.

        Raises `SpaceError` where an expression has no value.
        """
        config: dict[str, Any] = {}
        self._fill(config, suggest)
        return self._in_order(config)

    def proposed(self, suggest: Suggest) -> tuple[dict[str, Any], str | None]:
        """The same configuration, and what refuses it: a constraint, the limit, or a missing value.

        Where an expression of a parameter has no value, the configuration is incomplete.
        """
        config: dict[str, Any] = {}
        refused = None
        try:
            self._fill(config, suggest)
        except SpaceError as error:
            refused = error.issues[0].message
        config = self._in_order(config)
        return config, refused or self.violated(config)

    def _fill(self, config: dict[str, Any], suggest: Suggest) -> None:
        for name in self.order:
            parameter = self.parameters[name]
            expression = self._expressions.get(name)
            if not self._active(name, parameter, config):
                continue
            if isinstance(parameter, Range | Choice):
                config[name] = suggest(name, parameter)
            elif isinstance(parameter, Constant):
                config[name] = parameter.value
            elif expression is not None and expression.names <= config.keys():
                config[name] = self._evaluate(f"parameters.{name}.expr", expression, config)

    def _in_order(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {name: config[name] for name in self.parameters if name in config}

    def passed(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The part of a configuration that the objective gets: all but helpers, which have `pass: false`."""
        return {name: value for name, value in config.items() if self.parameters[name].passed}

    def violated(self, config: Mapping[str, Any]) -> str | None:
        """The first constraint that the configuration violates, or why the limit refuses it.

        A constraint on an inactive parameter holds, and one without a value does not.
        """
        try:
            for broken in self._broken(config):
                return broken.text
        except SpaceError as error:
            return error.issues[0].message
        return None if self._limit is None else self._limit(config)

    def _broken(self, config: Mapping[str, Any]) -> Iterator[Expression]:
        for index, constraint in enumerate(self._constraints):
            known = constraint.names <= config.keys()
            if known and not self._truth(f"constraints[{index}]", constraint, config):
                yield constraint

    def misfits(self, config: Mapping[str, Any], given: Mapping[str, Any], what: str) -> Iterator[Problem]:
        """Why a configuration does not fit the `given` values of a `what`: a name, or "", and the reason."""
        for name in given:
            if name not in config:
                condition = describe_condition(self.parameters[name])
                yield name, f'"{name}" does not exist in the {what}: its condition is not met ({condition})'
        # The user can best mend what the given values violate alone.
        broken = min(self._broken(config), key=lambda each: len(each.names - given.keys()), default=None)
        if broken is not None:
            shown = ", ".join(f"{name}: {show(config[name])}" for name in sorted(broken.names))
            yield "", f"breaks the constraint `{broken.text}` ({shown})"

    def sample(self, rng: random.Random) -> dict[str, Any]:
        """A random configuration that satisfies the constraints; raises `SpaceError` where none is found."""
        draws = self._affordable(DRAWS)
        for _ in range(draws):
            config, refused = self.proposed(_drawn_by(rng))
            if refused is None:
                return config
        message = f"none of {draws:,} random configurations satisfies the constraints; the last: {refused}"
        raise SpaceError([self._issue("constraints", message)])

    def _affordable(self, most: int) -> int:
        """How many configurations there is time to try: `most`, or fewer with much text in expressions."""
        return max(FEWEST_DRAWS, most * MUCH_TEXT // max(self._text, MUCH_TEXT))

    def feasible_share(self, seed: int = 0) -> float:
        """The share of random configurations that satisfies the constraints and has all its values."""
        if self.refuses_nothing:
            return 1.0
        if seed not in self._shares:
            rng, samples = random.Random(seed), self._affordable(SHARE_DRAWS)
            draws = (self.proposed(_drawn_by(rng)) for _ in range(samples))
            self._shares[seed] = sum(refused is None for _, refused in draws) / samples
        return self._shares[seed]

    def grid(self) -> Iterator[dict[str, Any]]:
        """Every configuration that satisfies the constraints; raises `SpaceError` on a continuous range."""
        if unlisted := [self._issue(*problem) for problem in self.unlisted()]:
            raise SpaceError(unlisted)
        return self._walk({name: parameter.values() or [] for name, parameter in self.searched.items()})

    def _walk(self, values: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
        """Count like an odometer: `turns` has an index for each suggestion, and the last one moves first."""
        turns: list[int] = []
        while True:
            asked: list[int] = []

            def suggest(name: str, _: Range | Choice, asked: list[int] = asked) -> Any:
                asked.append(len(values[name]))
                if len(asked) > len(turns):
                    turns.append(0)
                return values[name][turns[len(asked) - 1]]

            config, refused = self.proposed(suggest)
            if refused is None:
                yield config
            while turns and turns[-1] + 1 == asked[len(turns) - 1]:
                turns.pop()
            if not turns:
                return
            turns[-1] += 1

    @cached_property  # it is asked for often, and conditional grids are counted one by one
    def grid_size(self) -> int | None:
        """The number of configurations that `grid` gives; None where a range cannot be listed.

        Above 10,000, or less where there are many expressions, this is an upper bound that ignores conditions
        and constraints.
        """
        if (size := self._points) is None:
            return None
        most = self._affordable(LARGEST_COUNTED)
        return size if self.is_plain or size > most else sum(1 for _ in self.grid())

    @cached_property
    def is_plain(self) -> bool:
        """Whether every combination of values is a configuration, with all its parameters."""
        return self.refuses_nothing and all(p.when is None for p in self.parameters.values())

    @cached_property
    def _points(self) -> int | None:
        """The number of combinations of values, refused or not; None where they cannot be listed."""
        counts = [_count(parameter) for parameter in self.searched.values()]
        return None if None in counts else prod(count or 0 for count in counts)

    @property
    def limited(self) -> bool:
        """Whether a limit leaves out configurations, which may not be permanent."""
        return self._limit is not None

    def few(self) -> int | None:
        """The number of configurations of a small space; None for any other."""
        size = self.grid_size if self.searched else None
        return size if size is not None and size <= self._affordable(FEW_CONFIGS) else None

    def baseline(self) -> dict[str, Any] | None:
        """The file's baseline, completed by priors, middles and first choices; None without a baseline."""
        return None if self._baseline is None else self.resolve(_central(self._baseline))

    def central(self) -> dict[str, Any]:
        """The baseline; without one, the configuration of priors, middles and first choices.

        A random configuration where an expression has no value there.
        """
        try:
            return self.resolve(_central(self._baseline or {}))
        except NoValue:
            return self.sample(random.Random(0))

    def corners(self) -> list[dict[str, Any]]:
        """The configurations of all lowest and of all highest values, where they are not refused."""
        return [config for config, refused in map(self.proposed, (_lowest, _highest)) if refused is None]

    def unlisted(self) -> Iterator[Problem]:
        """The ranges that cannot be part of a grid, and a grid with too many points."""
        for name, parameter in self.searched.items():
            if parameter.values() is None:
                yield f"parameters.{name}", "a grid needs values that can be listed; add a step or a factor"
        most = self._affordable(LARGEST_WALKED)
        if not self.refuses_nothing and (self._points or 0) > most:
            message = f"the grid has {self._points:,} points before the expressions leave some out"
            yield "search.sampler", f"{message}, but at most {most:,} can be tried; use another sampler"

    def problems(self) -> Iterator[Problem]:
        """Problems that only configurations reveal: expressions without a value, a bad baseline."""
        mistakes, lacking, whole = self._tried
        faults = mistakes or (lacking if not whole else {})
        if not faults and self._constraints and self.few() == 0:
            faults = {"constraints": "no configuration satisfies them"}
        yield from faults.items() if faults else self._baseline_problems()

    def lacking(self) -> Iterator[Problem]:
        """Expressions that have no value in some of the tried configurations."""
        yield from self._tried[1].items()

    @cached_property
    def _tried(self) -> tuple[dict[str, str], dict[str, str], int]:
        """Expressions that are always wrong, expressions without a value in some tried configurations, and
        the number of tried configurations in which all expressions have one.

        Each expression by its path, with its first message.
        """
        rng = random.Random(0)
        suggesters = [_lowest, _highest, _central({}), *[_drawn_by(rng)] * 50]
        mistakes: dict[str, str] = {}
        lacking: dict[str, str] = {}
        whole = 0
        for suggest in suggesters:
            try:
                next(self._broken(self.resolve(suggest)), None)
                whole += 1
            except SpaceError as error:
                faults = lacking if isinstance(error, NoValue) else mistakes
                faults.setdefault(error.issues[0].path, error.issues[0].message)
        return mistakes, lacking, whole

    def _baseline_problems(self) -> Iterator[Problem]:
        try:
            config = self.baseline() or {}
            for name, message in list(self.misfits(config, self._baseline or {}, "baseline")):
                yield f"baseline.{name}" if name else "baseline", message
        except SpaceError as error:
            yield "baseline", error.issues[0].message

    def _active(self, name: str, parameter: Parameter, config: Mapping[str, Any]) -> bool:
        """Whether the parameter exists; one that depends on a missing parameter does not."""
        if isinstance(parameter.when, dict):
            wanted = parameter.when.items()
            return all(other in config and is_wanted(config[other], values) for other, values in wanted)
        if name in self._conditions:
            condition = self._conditions[name]
            known = condition.names <= config.keys()
            return known and self._truth(f"parameters.{name}.when", condition, config)
        return True

    def _truth(self, path: str, expression: Expression, config: Mapping[str, Any]) -> bool:
        value = self._evaluate(path, expression, config)
        if not isinstance(value, bool):
            message = f"`{expression.text}` is neither true nor false but {show(value)}"
            raise SpaceError([self._issue(path, message)])
        return value

    def _evaluate(self, path: str, expression: Expression, config: Mapping[str, Any]) -> Any:
        try:
            return expression.evaluate(config)
        except ExpressionError as error:
            shown = ", ".join(f"{name}: {show(config[name])}" for name in sorted(expression.names))
            message = f"`{expression.text}` {error.message}" + (f" where {shown}" if shown else "")
            kind = NoValue if isinstance(error, NoNumber) else SpaceError
            raise kind([self._issue(path, message)]) from None


def nested(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with dotted names as nested mappings: `{"a.b": 1}` is `{"a": {"b": 1}}`."""
    result: dict[str, Any] = {}
    for name, value in config.items():
        *outer, last = name.split(".")
        inside = result
        for part in outer:
            inside = inside.setdefault(part, {})
        inside[last] = value
    return result


def _count(parameter: Range | Choice) -> int | None:
    """The number of values that can be listed; None where they cannot."""
    if isinstance(parameter, Choice):
        return len(parameter.choices)
    return parameter.count if parameter.is_listed else None


def _lowest(_: str, parameter: Range | Choice) -> Any:
    return parameter.min if isinstance(parameter, Range) else parameter.choices[0]


def _highest(_: str, parameter: Range | Choice) -> Any:
    return parameter.max if isinstance(parameter, Range) else parameter.choices[-1]


def _central(given: Mapping[str, Any]) -> Suggest:
    """Suggests the given values, else priors, middles and first choices."""

    def suggest(name: str, parameter: Range | Choice) -> Any:
        if name in given:
            return parameter.accept(given[name])
        return parameter.middle() if parameter.prior is None else parameter.accept(parameter.prior.at)

    return suggest


def _drawn_by(rng: random.Random) -> Suggest:
    return lambda _, parameter: parameter.sample(rng)


def is_wanted(value: Any, wanted: Any) -> bool:
    """Whether a condition's value, or one in its list, is this one; `true` is not 1 here."""
    values = wanted if isinstance(wanted, list) else [wanted]
    return any(value == one and isinstance(value, bool) is isinstance(one, bool) for one in values)
