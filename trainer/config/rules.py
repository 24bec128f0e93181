"""How an objective's parameters are told: each with its default, what it may be, and one line of help.

    @dataclass(frozen=True, kw_only=True)
    class Mine(Parameters):
        objective: ClassVar[str] = "mine"
        learning_rate: float = real(1e-3, "(0, inf)", "peak learning rate")

    Mine.from_params({"learning_rate": 1e-4})

Imports nothing heavy, so that a space is checked and `--help` printed in milliseconds.
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
    """What a value may be.

    A number in `interval` (`int`, `float`) or a list of whole ones (`tuple`), a `bool`, a `str` among
    `choices` or a list of those (`list`).
    """

    kind: type
    help: str
    interval: str = "(-inf, inf)"  # as mathematics writes it: a round bracket excludes its end
    choices: tuple[str, ...] = ()
    optional: bool = False

    @property
    def allowed(self) -> str:
        """What a value may be, in a few words."""
        one = ", ".join(self.choices) or {bool: "true, false", str: "text"}.get(self.kind, self.interval)
        some = f"a list of {one}" if self.kind in (list, tuple) else one
        return f"{some}, or null" if self.optional else some

    def problem(self, value: object) -> str | None:
        """What is wrong with `value`, to be read after its name and a colon; None where it is fine."""
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
        if not (abs(value) <= sys.float_info.max and above and below):  # a whole number may be beyond it
            return f"found {value!r}, needs {wanted}"
        return None


@functools.cache
def _ends(interval: str) -> tuple[float, float]:
    low, high = interval[1:-1].split(",")
    return float(low), float(high)


def did_you_mean(name: str, known: tuple[str, ...] | list[str]) -> str:
    """`, did you mean "warmup_ratio"?`, or nothing where no known name is close."""
    close = difflib.get_close_matches(name, known, n=1)
    return f', did you mean "{close[0]}"?' if close else ""


def real(default: float, interval: str, help: str) -> float:
    return field(default=default, metadata={"rule": Rule(float, help, interval)})


def whole(default: int, interval: str, help: str) -> int:
    return field(default=default, metadata={"rule": Rule(int, help, interval)})


def text(default: str, choices: tuple[str, ...], help: str) -> str:
    """One of `choices`; any text where there are none."""
    return field(default=default, metadata={"rule": Rule(str, help, choices=choices)})


def switch(help: str) -> bool:
    """What is off unless it is asked for."""
    return field(default=False, metadata={"rule": Rule(bool, help)})


def optional(kind: type, interval: str, help: str, choices: tuple[str, ...] = ()) -> Any:
    """A parameter that may be left out (None), with the meaning that its help tells."""
    return field(default=None, metadata={"rule": Rule(kind, help, interval, choices, optional=True)})


@dataclass(frozen=True)
class Need:
    """What a parameter needs of the others, or it changes nothing.

    `text` is read after "changes nothing unless"; `when` is how a space file says the same.
    """

    text: str
    when: str
    met: Callable[[Mapping[str, Any]], bool]  # whether values of all parameters meet it


def one_of(name: str, *values: str) -> Need:
    """The parameter `name` has one of these values."""
    choice = values[0] if len(values) == 1 else f"[{', '.join(values)}]"
    return Need(
        f"{name} is {' or '.join(values)}", f"{{{name}: {choice}}}", lambda given: given[name] in values
    )


@dataclass(frozen=True)
class Course:
    """A run's way from report to report, in the unit that these are numbered by."""

    length: str  # the parameter that says where it ends
    end: int | None
    every: int | None  # between two reports; None: a tenth of the whole, rounded down, at least 1


class Seeded(Protocol):
    """What has parameters, and a seed of its own."""

    @property
    def params(self) -> dict[str, Any]: ...

    @property
    def seed(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What an objective can be told: its fields, each with a rule."""

    objective: ClassVar[str]
    needs: ClassVar[Mapping[str, Need]] = {}  # of the parameters that others make idle
    outside: ClassVar[tuple[str, ...]] = ()  # say how a run is computed and kept, not what it is
    files: ClassVar[tuple[str, ...]] = ()  # name data, which may be a file
    bundled: ClassVar[tuple[str, ...]] = ()  # data that is no file
    models: ClassVar[tuple[str, ...]] = ()  # name files that hold a model

    def __post_init__(self) -> None:
        values = {name: getattr(self, name) for name in rules(type(self))}
        if problems := self._problems(values):
            raise ConfigError(problems)

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Self:
        """The configuration that `params` describe; what they leave out has its default.

        Raises `ConfigError`: every unknown name, wrong type, value out of range and contradiction.
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
    def course(cls, params: Mapping[str, Any]) -> Course:
        """Where runs of these parameters end and report."""
        raise NotImplementedError

    @classmethod
    def goal(cls, params: Mapping[str, Any]) -> str | None:
        """Whether to `minimize` or `maximize` the value of these parameters; None where nobody can tell."""
        return "minimize"

    @classmethod
    def _problems(cls, values: Mapping[str, Any]) -> list[str]:
        """Each value by itself; then, where all are fine, what they are together."""
        checked = ((name, rule.problem(values[name])) for name, rule in rules(cls).items())
        return [f"{name}: {problem}" for name, problem in checked if problem] or cls._contradictions(values)

    @classmethod
    def _contradictions(cls, values: Mapping[str, Any]) -> list[str]:
        """What is wrong with values together that are fine by themselves."""
        return []


def rules(config: type[Parameters]) -> Mapping[str, Rule]:
    """Each parameter of a configuration and what it may be, in the order of the class."""
    kind: Any = config  # whose instances' hash mypy takes for its own
    return _rules(kind)


@functools.cache
def _rules(config: Any) -> Mapping[str, Rule]:
    return MappingProxyType({entry.name: entry.metadata["rule"] for entry in fields(config)})


def defaults_of(config: type[Parameters]) -> dict[str, Any]:
    """What each parameter is where nobody says otherwise."""
    return {entry.name: entry.default for entry in fields(config)}


def known_parameters(config: type[Parameters]) -> frozenset[str]:
    """The names that `config.from_params` takes."""
    return frozenset(rules(config))


def idle_parameters(config: type[Parameters], params: Mapping[str, Any]) -> dict[str, Need]:
    """Those of `params` that change nothing beside the others, and what each needs."""
    values = defaults_of(config) | dict(params)
    return {name: need for name, need in config.needs.items() if name in params and not need.met(values)}


def _plain(rule: Rule, value: Any) -> Any:
    """`value` as its field holds it: whole numbers given for a real one become real, lists become tuples."""
    if rule.kind is float and value is not None:
        return float(value)
    return tuple(value) if isinstance(value, list) else value
