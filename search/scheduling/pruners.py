"""Optuna's pruners for a space."""

from __future__ import annotations

import warnings

import optuna
from optuna.pruners import BasePruner

from ...spaces import Spec
from ...spaces.stopping import Hyperband, SuccessiveHalving
from .rungs import hyperband_brackets, promotes


def hyperband_options(stopping: Hyperband) -> dict[str, int]:
    """The options of Optuna's Hyperband.

    Optuna computes the number of brackets with a float logarithm. This maximum makes it the exact one; Optuna
    uses the maximum for nothing else.
    """
    count = len(hyperband_brackets(stopping.min, stopping.max, stopping.eta))
    maximum = stopping.min * stopping.eta ** (count - 1) * (stopping.eta + 1) // 2  # far from any power
    return {"min_resource": stopping.min, "max_resource": maximum, "reduction_factor": stopping.eta}


def make_pruner(spec: Spec) -> BasePruner:
    """Optuna's pruner with the name and options in the space file."""
    stopping = spec.early_stopping
    if promotes(spec):
        return optuna.pruners.NopPruner()  # trials pause instead
    ours = {"method", "type", "alike", "min", "max", "eta", "resource"}
    options = stopping.model_dump(exclude=ours, exclude_none=True)
    if isinstance(stopping, Hyperband):
        return optuna.pruners.HyperbandPruner(**hyperband_options(stopping))
    if isinstance(stopping, SuccessiveHalving):
        return optuna.pruners.SuccessiveHalvingPruner(
            min_resource=stopping.min, reduction_factor=stopping.eta, **options
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        match stopping.method:
            case "median":
                return optuna.pruners.MedianPruner(**options)
            case "percentile":
                return optuna.pruners.PercentilePruner(**options)
            case "threshold":
                return optuna.pruners.ThresholdPruner(**options)
            case "patient":
                return optuna.pruners.PatientPruner(None, **options)
            case "wilcoxon":
                return optuna.pruners.WilcoxonPruner(**options)
            case _:
                return optuna.pruners.NopPruner()
