"""A space in Optuna's terms: distributions, and values by their labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from ...spaces import Choice, Range, Space, Spec
from ...spaces.fields import show
from ...spaces.relations import given_problems

MAX_VALUES = 1 << 20  # of a range: with more it is as good as continuous, and some samplers list them


def distribution(parameter: Range | Choice) -> BaseDistribution:
    """The Optuna distribution of a searched parameter.

    `factor` ranges become log ranges, and proposals are snapped to their values.
    """
    if isinstance(parameter, Choice):
        return CategoricalDistribution(parameter.labels())
    log = parameter.log or parameter.factor is not None
    if parameter.is_int:
        return IntDistribution(int(parameter.min), int(parameter.max), log=log, step=int(parameter.step or 1))
    return FloatDistribution(float(parameter.min), float(parameter.max), log=log, step=parameter.step)


def suggest(trial: optuna.Trial, name: str, parameter: Range | Choice) -> Any:
    """The value of a searched parameter in this trial."""
    wanted = distribution(parameter)
    if isinstance(parameter, Choice):
        assert isinstance(wanted, CategoricalDistribution)
        return parameter.value_of(trial.suggest_categorical(name, wanted.choices))
    if isinstance(wanted, IntDistribution):
        return trial.suggest_int(name, wanted.low, wanted.high, step=wanted.step, log=wanted.log)
    assert isinstance(wanted, FloatDistribution)
    return trial.suggest_float(name, wanted.low, wanted.high, step=wanted.step, log=wanted.log)


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """The Optuna distributions of all searched parameters."""
    return {name: distribution(parameter) for name, parameter in space.searched.items()}


def is_conditional(spec: Spec) -> bool:
    """Whether some configurations lack some parameters."""
    return any(parameter.when is not None for parameter in spec.parameters.values())


def enqueued_labels(spec: Spec, labels: Mapping[str, Any]) -> dict[str, Any]:
    """The labels that another program enqueued a trial with, spelled as in the space.

    Raises `ValueError` with all problems, worded like those of a baseline.
    """
    parameters, problems, values = spec.parameters, [], {}
    for name, label in labels.items():
        parameter = parameters.get(name)
        is_label = isinstance(parameter, Choice) and isinstance(label, str) and label in parameter.labels()
        value = parameter.value_of(label) if isinstance(parameter, Choice) and is_label else label
        wrong = list(given_problems(name, value, parameters, "trial"))
        problems += [(name, each) for each in wrong]
        if not wrong and isinstance(parameter, Range | Choice):
            values[name] = parameter.accept(value)
    if problems:
        raise ValueError(in_words(problems))
    return labelled(spec.space, parameters, values)


def in_words(problems: Iterable[tuple[str, str]]) -> str:
    """Problems in one line, each after the name of its parameter, if it has one."""
    return "; ".join(f"{show(name)[1:-1]}: {text}" if name else text for name, text in problems)


def label_of(parameter: Any, value: Any) -> Any:
    return parameter.labels()[parameter.choices.index(value)] if isinstance(parameter, Choice) else value


def labelled(space: Space, parameters: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The searched part of a configuration as Optuna's labels."""
    return {name: label_of(parameters[name], config[name]) for name in space.searched if name in config}
