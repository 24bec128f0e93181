"""Samplers with Optuna's interface for a space: Optuna's, CMA-ES, Hyperopt's."""

from __future__ import annotations

import warnings

import optuna
from optuna.samplers import BaseSampler

from ...spaces import Spec
from .distributions import distributions, is_conditional


def make_optuna_sampler(spec: Spec, seed: int) -> BaseSampler:
    """Optuna's sampler with the name and options in the space file, seeded."""
    search = spec.search
    options = search.model_dump(exclude={"sampler", "seed"}, exclude_none=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        match search.sampler:
            case "tpe":
                # Without groups, the multivariate model ignores parameters with conditions.
                multivariate = options.setdefault("multivariate", True)
                options.setdefault("group", bool(is_conditional(spec) and multivariate))
                return optuna.samplers.TPESampler(seed=seed, **options)
            case "random":
                return optuna.samplers.RandomSampler(seed=seed)
            case "gp":
                return optuna.samplers.GPSampler(seed=seed, warn_independent_sampling=False, **options)
            case "cmaes":
                from .cmaes import CmaEsSampler  # loads SciPy's statistics, a third of the start-up time

                return CmaEsSampler(seed=seed, **options)
            case "qmc":
                # One sequence for the whole study: its own counter advances it, not the seed.
                return optuna.samplers.QMCSampler(
                    seed=search.seed,
                    independent_sampler=optuna.samplers.RandomSampler(seed=seed),
                    warn_independent_sampling=False,
                    warn_asynchronous_seeding=False,
                    **options,
                )
            case "nsgaii":
                return optuna.samplers.NSGAIISampler(seed=seed, **options)
            case "hyperopt-tpe" | "hyperopt-atpe" | "hyperopt-anneal":
                from .hyperopt import HyperoptSampler  # an extra

                algorithm = search.sampler.removeprefix("hyperopt-")
                return HyperoptSampler(algorithm, distributions(spec.space), seed=seed, **options)
    raise AssertionError(f"the loader let the sampler {search.sampler!r} pass")
