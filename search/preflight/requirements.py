"""Packages that a space may need beyond hpsearch's own: for samplers, trackers and DeepSpeed."""

from __future__ import annotations

from ...objectives.catalog import Requirements
from ...spaces import SpaceError, Spec

PACKAGES = {
    "hyperopt-tpe": Requirements(("hyperopt",), "hyperopt"),
    "hyperopt-atpe": Requirements(("hyperopt", "lightgbm", "sklearn"), "atpe"),
    "hyperopt-anneal": Requirements(("hyperopt",), "hyperopt"),
    "tensorboard": Requirements(("tensorboardX",), "tensorboard"),
    "wandb": Requirements(("wandb",), "wandb"),
    "mlflow": Requirements(("mlflow",), "mlflow"),
    "deepspeed": Requirements(("deepspeed",), "deepspeed"),
}
READ_BY = ("tensorboard", "wandb")  # sources of a command's values whose files their package reads


def check_extras(spec: Spec) -> None:
    """Raise `SpaceError` where a package is missing, and say how to install it."""
    if problem := missing(spec.search.sampler):
        raise SpaceError([spec.issue("search.sampler", f"the sampler {problem}")])
    if problem := missing(spec.execution.strategy):
        raise SpaceError([spec.issue("execution.strategy", problem)])
    read = next(iter(spec.report_source), "")
    if read in READ_BY and (problem := missing(read)):
        raise SpaceError([spec.issue(f"report.{read}", f"the source {problem}")])
    if problems := [problem for name in spec.report_to if (problem := missing(name))]:
        raise SpaceError(spec.issue("report_to", problem) for problem in problems)


def missing(name: str | None) -> str | None:
    """What must be installed for a sampler, a tracker or a strategy, in a sentence; None for nothing."""
    problem = PACKAGES[name].problem if name in PACKAGES else None
    return problem and f'"{name}" {problem}'
