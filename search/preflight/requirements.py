"""Packages that a space may need beyond hpsearch's own: for samplers, trackers and DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterable

from ...objectives.catalog import Requirements
from ...spaces import SpaceError, Spec

SAMPLER_PACKAGES = {
    "hyperopt-tpe": Requirements(("hyperopt",), "hyperopt"),
    "hyperopt-atpe": Requirements(("hyperopt", "lightgbm", "sklearn"), "atpe"),
    "hyperopt-anneal": Requirements(("hyperopt",), "hyperopt"),
}
TRACKER_PACKAGES = {
    "tensorboard": Requirements(("tensorboardX",), "tensorboard"),
    "wandb": Requirements(("wandb",), "wandb"),
    "mlflow": Requirements(("mlflow",), "mlflow"),
}
STRATEGY_PACKAGES = {"deepspeed": Requirements(("deepspeed",), "deepspeed")}


def check_extras(spec: Spec) -> None:
    """Raise `SpaceError` where a package is missing, and say how to install it."""
    sampler = spec.search.sampler
    if sampler in SAMPLER_PACKAGES and (problem := SAMPLER_PACKAGES[sampler].told) is not None:
        raise SpaceError([spec.issue("search.sampler", f'the sampler "{sampler}" {problem}')])
    if problem := missing_strategy(spec.execution.strategy):
        raise SpaceError([spec.issue("execution.strategy", problem)])
    if problems := missing_trackers(spec.report_to):
        raise SpaceError(spec.issue("report_to", problem) for problem in problems)


def missing_strategy(name: str | None) -> str | None:
    """What must be installed for a strategy, in a sentence; None where nothing is missing."""
    problem = STRATEGY_PACKAGES[name].told if name in STRATEGY_PACKAGES else None
    return problem and f'"{name}" {problem}'


def missing_trackers(names: Iterable[str]) -> list[str]:
    """What must be installed for trackers, a sentence for each that is missing something."""
    problems = ((name, TRACKER_PACKAGES[name].told) for name in names)
    return [f'"{name}" {problem}' for name, problem in problems if problem is not None]
