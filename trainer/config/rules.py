"""How an objective declares its parameters: each with its default, its allowed values and a line of help.

    @dataclass(frozen=True, kw_only=True)
    class Mine(Parameters):
        objective: ClassVar[str] = "mine"
        learning_rate: float = real(1e-3, "(0, inf)", "peak learning rate")

    Mine.from_params({"learning_rate": 1e-4})

Imports nothing heavy, so that checking a space and printing `--help` take milliseconds.
"""

from __future__ import annotations

import difflib
import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, Self

from ..errors import ConfigError


@dataclass(frozen=True)
class Rule:
    """The allowed values of a parameter.

    By `kind`: a number in `interval` (`int`, `float`), a list of whole numbers in it (`tuple`), a `bool`, one
    of `choices` (`str`) or a list of them (`list`).
    """

    kind: type
    help: str
    interval: str = "(-inf, inf)"  # in mathematical notation: a round bracket excludes the end
    choices: tuple[str, ...] = ()
    optional: bool = False

    @property
    def allowed(self) -> str:
        """The allowed values in a few words."""
        one = ", ".join(self.choices) or {bool: "true, false", str: "text"}.get(self.kind, self.interval)
        some = f"a list of {one}" if self.kind in (list, tuple) else one
        return f"{some}, or null" if self.optional else some

    def problem(self, value: object) -> str | None:
        """What is wrong with `value`, to be read after its name and a colon; None if it is allowed."""
        if value is None and self.optional:
            return None
        if self.kind is float or self.kind is int:
            return self._number_problem(value)
        if self.kind is bool:
            return None if isinstance(value, bool) else f"found {value!r}, allowed: true, false"
        if self.kind is tuple:
            return self._numbers_problem(value)
        names = value if self.kind is list and isinstance(value, list | tuple) else [value]
        for name in names:
            if not isinstance(name, str):
                return f"found {value!r} ({type(value).__name__}), needs text"
            if self.choices and name not in self.choices:
                return f"found {name!r}, allowed: {', '.join(self.choices)}{did_you_mean(name, self.choices)}"
        return None if names else "found an empty list, needs at least one name"

    def _numbers_problem(self, value: object) -> str | None:
        numbers = value if isinstance(value, list | tuple) and value else [None]
        if all(Rule(int, self.help, self.interval).problem(number) is None for number in numbers):
            return None
        return f"found {value!r}, needs a list of whole numbers in {self.interval}"

    def _number_problem(self, value: object) -> str | None:
        wanted = f"a {'whole ' if self.kind is int else ''}number in {self.interval}"
        if isinstance(value, bool) or not isinstance(value, int if self.kind is int else int | float):
            return f"found {value!r} ({type(value).__name__}), needs {wanted}"
        low, high = _ends(self.interval)
        above = value >= low if self.interval[0] == "[" else value > low
        below = value <= high if self.interval[-1] == "]" else value < high
        if not (abs(value) <= sys.float_info.max and above and below):  # an int may exceed any float
            return f"found {value!r}, needs {wanted}"
        return None


@functools.cache
def _ends(interval: str) -> tuple[float, float]:
    low, high = interval[1:-1].split(",")
    return float(low), float(high)


def did_you_mean(name: str, known: tuple[str, ...] | list[str]) -> str:
    """`, did you mean "warmup_ratio"?`, or an empty string if no known name is close."""
    close = difflib.get_close_matches(name, known, n=1)
    return f', did you mean "{close[0]}"?' if close else ""


def real(default: float, interval: str, help: str) -> float:
    return field(default=default, metadata={"rule": Rule(float, help, interval)})


def whole(default: int, interval: str, help: str) -> int:
    return field(default=default, metadata={"rule": Rule(int, help, interval)})


def text(default: str, choices: tuple[str, ...], help: str) -> str:
    """One of `choices`; any text if there are none."""
    return field(default=default, metadata={"rule": Rule(str, help, choices=choices)})


def switch(help: str, *, default: bool = False) -> bool:
    """A flag, off unless `default` is set."""
    return field(default=default, metadata={"rule": Rule(bool, help)})


def optional(kind: type, interval: str, help: str, choices: tuple[str, ...] = ()) -> Any:
    """A parameter that may be None; its help says what that means."""
    return field(default=None, metadata={"rule": Rule(kind, help, interval, choices, optional=True)})


@dataclass(frozen=True)
class Need:
    """A condition on the other parameters without which a parameter has no effect.

    `text` is read after "changes nothing unless"; `when` is the same condition as a space file writes it.
    """

    text: str
    when: str
    met: Callable[[Mapping[str, Any]], bool]  # whether the values of all parameters meet it


def one_of(name: str, *values: str) -> Need:
    """The condition that the parameter `name` has one of these values."""
    choice = values[0] if len(values) == 1 else f"[{', '.join(values)}]"
    return Need(
        f"{name} is {' or '.join(values)}", f"{{{name}: {choice}}}", lambda given: given[name] in values
    )


@dataclass(frozen=True)
class ReportPlan:
    """The length of a run and the distance of its reports, in the unit that its reports are numbered by."""

    length: str  # the parameter that sets the length
    end: int | None
    every: int | None  # between two reports; None: a tenth of the length, rounded down, at least 1


class Seeded(Protocol):
    """A trial's parameters and seed."""

    @property
    def params(self) -> dict[str, Any]: ...

    @property
    def seed(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The parameters of an objective: the fields of the class, each with a rule."""

    objective: ClassVar[str]
    needs: ClassVar[Mapping[str, Need]] = {}  # the conditions of parameters that can have no effect
    not_identifying: ClassVar[tuple[str, ...]] = ()  # parameters that may change when a run is resumed
    files: ClassVar[tuple[str, ...]] = ()  # parameters that name data, in a file or bundled
    bundled_data: ClassVar[tuple[str, ...]] = ()  # names of data that needs no file
    models: ClassVar[tuple[str, ...]] = ()  # parameters that name the file of a model

    def __post_init__(self) -> None:
        values = {name: getattr(self, name) for name in rules(type(self))}
        if problems := self._problems(values):
            raise ConfigError(problems)

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Self:
        """The configuration with these parameters and defaults for the others.

        Raises `ConfigError`, with every unknown name, wrong type, value out of range and contradiction.
        """
        known = rules(cls)
        problems = [
            f"{name}: unknown to the objective {cls.objective!r}{did_you_mean(name, list(known))}"
            for name in params
            if name not in known
        ]
        given = {name: value for name, value in params.items() if name in known}
        if problems := problems + cls._problems(defaults_of(cls) | given):
            raise ConfigError(problems)
        return cls(**{name: _plain(known[name], value) for name, value in given.items()})

    @classmethod
    def of(cls, trial: Seeded) -> Self:
        """The configuration of a trial, with its seed unless its parameters fix one. Raises `ConfigError`."""
        return cls.from_params({"seed": trial.seed} | trial.params)

    @classmethod
    def report_plan(cls, params: Mapping[str, Any]) -> ReportPlan:
        """The length and the reports of runs with these parameters."""
        raise NotImplementedError

    @classmethod
    def goal(cls, params: Mapping[str, Any]) -> str | None:
        """Whether to `minimize` or `maximize` the value of these parameters; None if unknown."""
        return "minimize"

    @classmethod
    def _problems(cls, values: Mapping[str, Any]) -> list[str]:
        """The problems of single values; if there are none, those of their combination."""
        checked = ((name, rule.problem(values[name])) for name, rule in rules(cls).items())
        return [f"{name}: {problem}" for name, problem in checked if problem] or cls._contradictions(values)

    @classmethod
    def _contradictions(cls, values: Mapping[str, Any]) -> list[str]:
        """The problems of values that are allowed one by one, but not together."""
        return []


def rules(config: type[Parameters]) -> Mapping[str, Rule]:
    """The rule of each parameter of a configuration, in the order of the class."""
    kind: Any = config  # mypy takes the instances' hash for the hash of the class
    return _rules(kind)


@functools.cache
def _rules(config: Any) -> Mapping[str, Rule]:
    return MappingProxyType({entry.name: entry.metadata["rule"] for entry in fields(config)})


def defaults_of(config: type[Parameters]) -> dict[str, Any]:
    """The default of each parameter."""
    return {entry.name: entry.default for entry in fields(config)}


def known_parameters(config: type[Parameters]) -> frozenset[str]:
    """The names that `config.from_params` takes."""
    return frozenset(rules(config))


def idle_parameters(config: type[Parameters], params: Mapping[str, Any]) -> dict[str, Need]:
    """The parameters that have no effect given the others, each with the condition that it needs."""
    values = defaults_of(config) | dict(params)
    return {name: need for name, need in config.needs.items() if name in params and not need.met(values)}


def _plain(rule: Rule, value: Any) -> Any:
    """`value` as its field holds it: ints become floats where the rule says so, lists become tuples."""
    if rule.kind is float and value is not None:
        return float(value)
    return tuple(value) if isinstance(value, list) else value
