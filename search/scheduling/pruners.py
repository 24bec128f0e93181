"""Optuna's pruners, from what a space says."""

from __future__ import annotations

import warnings

import optuna
from optuna.pruners import BasePruner

from ...spaces import Spec
from ...spaces.stopping import Hyperband, SuccessiveHalving
from . import hyperband_brackets, promotes


def hyperband_options(stopping: Hyperband) -> dict[str, int]:
    """The options of Optuna's Hyperband.

    Optuna takes the number of brackets from a float logarithm; this maximum gives it the integer one, and it
    uses the maximum for nothing else.
    """
    count = len(hyperband_brackets(stopping.min, stopping.max, stopping.eta))
    maximum = stopping.min * stopping.eta ** (count - 1) * (stopping.eta + 1) // 2  # far from any power
    return {"min_resource": stopping.min, "max_resource": maximum, "reduction_factor": stopping.eta}


def make_pruner(spec: Spec) -> BasePruner:
    """Optuna's pruner of the name in the space file, with its options."""
    stopping = spec.early_stopping
    if promotes(spec):
        return optuna.pruners.NopPruner()  # nothing is stopped for good
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
