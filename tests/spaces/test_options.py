"""The options of samplers and early stopping exist, under the same names, in the libraries that run them."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hyperopt import anneal, atpe, tpe
from optuna import pruners, samplers

from hpsearch.spaces.samplers import SAMPLERS, TPE, RungGP, Sampler
from hpsearch.spaces.stopping import METHODS, EarlyStopping, Rungs

SAMPLER_CLASSES = {
    "tpe": samplers.TPESampler,
    "random": samplers.RandomSampler,
    "gp": samplers.GPSampler,
    "cmaes": samplers.CmaEsSampler,
    "qmc": samplers.QMCSampler,
    "grid": samplers.GridSampler,
    "nsgaii": samplers.NSGAIISampler,
}
HYPEROPT = {
    "hyperopt-tpe": tpe.suggest,
    "hyperopt-atpe": atpe.suggest,
    "hyperopt-anneal": anneal.AnnealingAlgo,
}
PRUNER_CLASSES = {
    "hyperband": pruners.HyperbandPruner,
    "asha": pruners.SuccessiveHalvingPruner,
    "median": pruners.MedianPruner,
    "percentile": pruners.PercentilePruner,
    "threshold": pruners.ThresholdPruner,
    "patient": pruners.PatientPruner,
    "wilcoxon": pruners.WilcoxonPruner,
    "none": pruners.NopPruner,
}


OURS = {"rung_gp"}


def test_the_only_option_of_our_own_sampler_is_that_of_optunas_samplers() -> None:
    options = RungGP.model_fields.keys() - {"sampler"} - Sampler.model_fields.keys()
    assert options == {"n_startup_trials"} <= TPE.model_fields.keys()


@pytest.mark.parametrize("name", sorted(SAMPLERS.keys() - OURS))
def test_every_sampler_option_exists_in_its_library(name: str) -> None:
    options = SAMPLERS[name].model_fields.keys() - {"sampler"}
    theirs: Any = (SAMPLER_CLASSES | HYPEROPT)[name]
    assert options <= inspect.signature(theirs).parameters.keys()
    assert options >= Sampler.model_fields.keys()


@pytest.mark.parametrize("name", METHODS)
def test_every_early_stopping_option_is_optunas(name: str) -> None:
    ours = Rungs if issubclass(METHODS[name], Rungs) else EarlyStopping  # the words that hpsearch defines
    options = METHODS[name].model_fields.keys() - ours.model_fields.keys() - {"method"}
    assert options <= inspect.signature(PRUNER_CLASSES[name]).parameters.keys()


def test_every_method_is_known() -> None:
    assert SAMPLERS.keys() == SAMPLER_CLASSES.keys() | HYPEROPT.keys() | OURS
    assert METHODS.keys() == PRUNER_CLASSES.keys()
