"""Parameters whose best values press against an end of what is searched, and what to search instead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optuna.trial import FrozenTrial

from ...objectives.info import ObjectiveInfo
from ...spaces import Choice, End, Interval, Range, Spec, describe, is_ordered, line, widened
from ...spaces.document import read
from ..sampling.unit_cube import UnitAxis, UnitCube
from ..scheduling.observed import comparable_trials
from ..trials.configuration import known_config
from ..values import Value
from .study import StudyResult

FEWEST = 10  # trials that compare, of those that have the parameter
SHARE = 0.1  # of them that are the best
FEWEST_BEST = 3
OUTERMOST = 0.05  # of a range
FEW_VALUES = 3  # of so few most are ends, so that values at an end say nothing of themselves
LOOKED_AT = 64  # values of a wider range, of which those beyond the end are tried
BY_CHANCE = 0.05  # at most, that the values of trials at an end of so few are as much better as they are


@dataclass(frozen=True)
class NarrowRange:
    """A parameter whose best values lie at an end."""

    name: str
    values: str  # in words
    end: End
    at: int  # how many of the best lie there
    best: int  # and how many these are
    winner: bool  # whether the best trial itself does
    line: str  # a wider parameter, for the space file


@dataclass(frozen=True)
class NarrowRanges(Value):
    """What a study says about the ends of its ranges."""

    study: str
    compared: int  # trials that were compared
    step: int | None  # and where; None at their ends
    resource: str
    found: list[NarrowRange]


def narrow_ranges(result: StudyResult) -> NarrowRanges:
    """Where the best values of a study press against an end."""
    spec = result.spec
    step, trials = comparable_trials(spec, result.all_trials, FEWEST)
    ranked = sorted(trials, key=lambda trial: (spec.loss(trial.value or 0.0), trial.number))
    winner = result.best_trial or (ranked[0] if ranked else None)
    edges = [] if winner is None else [_edge(spec, name, ranked, winner) for name in spec.space.searched]
    found = [edge for edge in edges if edge is not None]
    return NarrowRanges(result.name, len(ranked), step, spec.resource, found)


def with_wider_ranges(result: StudyResult) -> Spec:
    """The space of a study, with each range that presses replaced by the wider one."""
    content = result.spec.to_json()
    for each in narrow_ranges(result).found:
        data, _, _ = read(each.line, "<line>")
        content["parameters"] |= data
    return Spec.from_json(content)


def _edge(spec: Spec, name: str, ranked: list[FrozenTrial], winner: FrozenTrial) -> NarrowRange | None:
    parameter = spec.space.searched[name]
    if isinstance(parameter, Choice) and not is_ordered(parameter):
        return None
    having = [trial for trial in ranked if name in trial.params]
    if len(having) < FEWEST or having[0].value == having[-1].value:
        return None
    best = having[: max(FEWEST_BEST, math.ceil(SHARE * len(having)))]
    ends = [_end(parameter, trial.params[name]) for trial in best]
    winners = _end(parameter, winner.params[name]) if name in winner.params else None
    most = next((end for end in ends if end is not None and 2 * ends.count(end) > len(ends)), None)
    values = parameter.values()
    few = values is not None and len(values) <= FEW_VALUES
    end = most or (None if few else winners)
    if end is None or (few and not _is_better([_end(parameter, t.params[name]) == end for t in having])):
        return None
    interval = ObjectiveInfo(spec.objective_words).interval(name)
    wider = widened(parameter, end, Interval(interval) if interval else None)
    if wider is None or not _is_allowed(spec, name, wider, best):
        return None
    return NarrowRange(
        name, describe(parameter), end, ends.count(end), len(best), winners == end, line(name, wider)
    )


def _is_allowed(spec: Spec, name: str, wider: Range | Choice, best: Sequence[FrozenTrial]) -> bool:
    """Whether the constraints let any of the best go beyond the end, all else as it is."""
    parameter, cube, axis = spec.space.searched[name], UnitCube(spec.space), UnitAxis(wider)
    values = (axis.value(place / LOOKED_AT) for place in range(LOOKED_AT + 1))
    beyond = [value for value in values if not _has(parameter, value)]

    def allowed(config: dict[str, Any], value: Any) -> bool:
        suggester = cube.suggester(cube.point(config), {**config, name: value})
        return spec.space.proposed(suggester)[1] is None

    configs = [config for trial in best if (config := known_config(spec, trial)) is not None]
    return any(allowed(config, value) for config in configs for value in beyond)


def _has(parameter: Range | Choice, value: Any) -> bool:
    if isinstance(parameter, Choice):
        return value in parameter.choices
    return bool(parameter.min <= value <= parameter.max)


def _is_better(there: list[bool]) -> bool:
    """Whether the trials at an end are better than the others, or more of the best quarter are.

    The best comes first. Each is tested at half of `BY_CHANCE`.
    """
    from scipy.stats import hypergeom, mannwhitneyu  # half a second, which few commands pay

    at, others = ([rank for rank, here in enumerate(there) if here is wanted] for wanted in (True, False))
    if not others:
        return False
    quarter = math.ceil(len(there) / 4)
    all_of_them = mannwhitneyu(at, others, alternative="less").pvalue
    best = hypergeom.sf(sum(there[:quarter]) - 1, len(there), len(at), quarter)
    return bool(min(all_of_them, best) <= BY_CHANCE / 2)


def _end(parameter: Range | Choice, value: Any) -> End | None:
    """The end that a value lies at."""
    if isinstance(parameter, Choice):
        least, largest = min(parameter.choices), max(parameter.choices)
        return "lower" if value == least else "upper" if value == largest else None
    lower, here, upper = map(UnitAxis(parameter).coordinate, (parameter.min, value, parameter.max))
    place = (here - lower) / (upper - lower)
    return "lower" if place <= OUTERMOST else "upper" if place >= 1 - OUTERMOST else None
