"""Relations between the parts of a space: names that exist, no cycles, conditions that can hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from .errors import hint
from .expressions import CONSTANTS, Expression
from .fields import show
from .parameters import Choice, Constant, Derived, Parameter
from .ranges import Range

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.([A-Za-z_][A-Za-z0-9_]*|0|[1-9][0-9]*))*")  # layers.0.units too

Problem = tuple[str, str]  # path, message
Known = Mapping[str, Parameter | None]  # None: its value is invalid, which is reported elsewhere


def relations(
    parameters: Known, constraints: Iterable[str | None], baseline: Mapping[str, Any] | None
) -> Iterator[Problem]:
    """Every problem between the parts. `Space` relies on there being none."""
    yield from _names(parameters)
    for name, parameter in parameters.items():
        if parameter is not None:
            yield from _reads(name, parameter, parameters)
    yield from _circles(parameters)
    fixed = [parameter for parameter in parameters.values() if isinstance(parameter, Constant | Derived)]
    if parameters and len(fixed) == len(parameters):
        yield "parameters", "nothing is searched; a parameter needs {min, max} or a list of choices"
    used = {read for parameter in parameters.values() if parameter is not None for read in reads(parameter)}
    for index, text in enumerate(constraints):
        if text is not None:
            names = Expression.parse(text).names
            used |= names
            if not names:
                yield f"constraints[{index}]", f"`{text}` names no parameter, so it is always true or never"
            yield from _known(f"constraints[{index}]", names, parameters)
    if None not in parameters.values():  # an invalid parameter might read others
        yield from _helpers(parameters, used)
    for name, value in (baseline or {}).items():
        for message in given_problems(name, value, parameters, "baseline"):
            yield f"baseline.{name}", message


def reads(parameter: Parameter) -> list[str]:
    """The names that a parameter's condition and expression read, in a fixed order."""
    names: set[str] = set()
    if isinstance(parameter.when, str):
        names |= Expression.parse(parameter.when).names
    elif parameter.when is not None:
        names |= parameter.when.keys()
    if isinstance(parameter, Derived):
        names |= Expression.parse(parameter.expr).names
    return sorted(names)


def order(parameters: Known) -> list[str]:
    """The names, each after those it reads; raises `graphlib.CycleError`."""
    graph = {name: reads(parameter) if parameter else [] for name, parameter in parameters.items()}
    return [name for name in TopologicalSorter(graph).static_order() if name in parameters]


def _names(parameters: Known) -> Iterator[Problem]:
    for name in parameters:
        path = f"parameters.{name}"
        if len(name) > 200 or not NAME.fullmatch(name):
            yield path, f"{show(name)} is not a name: letters, digits and _, with dots between the parts"
            continue
        if name in CONSTANTS:
            yield path, f'"{name}" is a value, not a name'
        parts = name.split(".")
        for end in range(1, len(parts)):
            outer = ".".join(parts[:end])
            if outer in parameters:
                yield path, f'"{outer}" is a parameter itself, so it cannot contain another'


def _reads(name: str, parameter: Parameter, parameters: Known) -> Iterator[Problem]:
    path = f"parameters.{name}"
    if isinstance(parameter, Derived):
        yield from _known(f"{path}.expr", Expression.parse(parameter.expr).names, parameters, but=name)
    if isinstance(parameter.when, str):
        yield from _known(f"{path}.when", Expression.parse(parameter.when).names, parameters, but=name)
        return
    for other, wanted in (parameter.when or {}).items():
        here = f"{path}.when.{other}"
        yield from _known(here, [other], parameters, but=name)
        values = wanted if isinstance(wanted, list) else [wanted]
        if not values:
            yield here, "lists no value, so the parameter would never exist"
        for value in values:
            yield from _reachable(here, other, value, parameters.get(other))


def _reachable(path: str, name: str, value: Any, parameter: Parameter | None) -> Iterator[Problem]:
    """Whether a condition on a value can ever hold."""
    if isinstance(parameter, Range) and parameter.count is None:
        message = f'"{name}" is continuous, so it is never exactly {show(value)}; write an expression'
        yield path, f'{message}, when: "{name} > ..."'
    elif isinstance(parameter, Range | Choice):
        try:
            parameter.accept(value)
        except ValueError as error:
            choices = [choice for choice in parameter.values() or () if isinstance(choice, str)]
            more = f"; {hint(value, choices)}" if isinstance(value, str) and choices else ""
            yield path, f'"{name}" can never be this: {error}{more}'
    elif isinstance(parameter, Constant) and parameter.value != value:
        yield path, f'"{name}" can never be this: it is {show(parameter.value)}'


def _helpers(parameters: Known, used: set[str]) -> Iterator[Problem]:
    """Helpers that neither the objective gets nor anything else reads."""
    for name, parameter in parameters.items():
        if parameter is not None and not parameter.passed and name not in used:
            message = "is false, and no expr, when or constraint reads the parameter: it would have no effect"
            yield f"parameters.{name}.pass", message


def _circles(parameters: Known) -> Iterator[Problem]:
    try:
        order(parameters)
    except CycleError as error:
        circle = error.args[1][::-1]
        yield f"parameters.{circle[0]}", f"depends on itself: {' -> '.join(circle)}"


def _known(path: str, names: Iterable[str], parameters: Known, but: str | None = None) -> Iterator[Problem]:
    """Names that are no parameters. `but` one, which reads them, any parameter may have been meant."""
    for name in sorted(names):
        if name not in parameters:
            others = [other for other in parameters if other != but]
            meant = hint(name, others) if others else "there is no other"
            yield path, f"{show(name)} is not a parameter; {meant}"


def kinds(names: Iterable[str], parameters: Known) -> Iterator[Problem]:
    """Whether these parameters can group trials: `early_stopping.alike`."""
    for index, name in enumerate(names):
        path = f"early_stopping.alike[{index}]"
        choices = {other: p for other, p in parameters.items() if isinstance(p, Choice)}
        if name in parameters and name not in choices:
            more = f"; {hint(name, choices)}" if choices else ""
            yield path, f'"{name}" is not a list of choices, so few trials would share a value{more}'
        else:
            yield from _known(path, [name], parameters)


def given_problems(name: str, value: Any, parameters: Known, what: str) -> Iterator[str]:
    """Why a `what`, such as the baseline, may not give a parameter this value."""
    yield from (message for _, message in _known("", [name], parameters))
    parameter = parameters.get(name)
    if isinstance(parameter, Constant | Derived):
        kind = "a constant" if isinstance(parameter, Constant) else "derived"
        yield f'"{name}" is {kind}; a {what} gives values only to searched parameters'
    elif parameter is not None:
        try:
            parameter.accept(value)
        except ValueError as error:
            yield str(error)
