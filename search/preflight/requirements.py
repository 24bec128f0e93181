"""What a space may name and hpsearch does not bring: samplers of another library, trackers, DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterable

from ...objectives.catalog import Requirements
from ...spaces import SpaceError, Spec

SAMPLERS = {
    "hyperopt-tpe": Requirements(("hyperopt",), "hyperopt"),
    "hyperopt-atpe": Requirements(("hyperopt", "lightgbm", "sklearn"), "atpe"),
    "hyperopt-anneal": Requirements(("hyperopt",), "hyperopt"),
}
TRACKERS = {
    "tensorboard": Requirements(("tensorboardX",), "tensorboard"),
    "wandb": Requirements(("wandb",), "wandb"),
    "mlflow": Requirements(("mlflow",), "mlflow"),
}
STRATEGIES = {"deepspeed": Requirements(("deepspeed",), "deepspeed")}


def check_extras(spec: Spec) -> None:
    """Raise `SpaceError` where a package is missing, with what installs it."""
    sampler = spec.search.sampler
    if sampler in SAMPLERS and (told := SAMPLERS[sampler].told) is not None:
        raise SpaceError([spec.issue("search.sampler", f'the sampler "{sampler}" {told}')])
    if told := missing_strategy(spec.execution.strategy):
        raise SpaceError([spec.issue("execution.strategy", told)])
    if lacking := missing_trackers(spec.report_to):
        raise SpaceError(spec.issue("report_to", told) for told in lacking)


def missing_strategy(name: str | None) -> str | None:
    """What is to be installed for a strategy, in a sentence; None where it lacks nothing."""
    told = STRATEGIES[name].told if name in STRATEGIES else None
    return told and f'"{name}" {told}'


def missing_trackers(names: Iterable[str]) -> list[str]:
    """What is to be installed for trackers, in a sentence for each that lacks something."""
    lacking = ((name, TRACKERS[name].told) for name in names)
    return [f'"{name}" {told}' for name, told in lacking if told is not None]
