"""PED-ANOVA (Watanabe et al. 2023, arXiv:2304.10255) of trials that count any number of times.

It asks of a parameter only how many trials, and how many of the best, are in each cell of a grid. Optuna
looks at every trial to know, and loads scikit-learn. Here each trial is looked at once, and a resample of a
bootstrap weighs the cells anew. The importances are Optuna's to the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers._tpe.probability_distributions import (
    _BatchedCategoricalDistributions,
    _BatchedDiscreteTruncNormDistributions,
    _MixtureOfProductDistribution,
)
from optuna.trial import FrozenTrial

Counts: TypeAlias = NDArray[np.int64]
Indices: TypeAlias = NDArray[np.intp]

BEST = 0.1  # of the trials
MAX_CELLS = 50  # of a range
MIN_SHARING = 2  # trials that have a distribution in common
MIN_SIGMA = 0.5 / 1.64  # cells: nine tenths of a kernel are in its own


class _Shared(NamedTuple):
    """A distribution of a parameter, and the trials that have it."""

    members: Indices
    cells: Indices  # of each member
    size: int  # of the grid
    is_choice: bool


class PedAnova:
    """The importance of each parameter for being among the best of some trials."""

    def __init__(self, trials: Sequence[FrozenTrial], sign: float) -> None:
        """`sign`: -1 if larger values are better."""
        self._losses = sign * np.array([trial.value for trial in trials], float)
        self._order = np.argsort(self._losses, kind="stable")
        self._names = sorted({name for trial in trials for name in trial.distributions})
        self._has = {name: np.array([name in t.distributions for t in trials]) for name in self._names}
        self._shared = {name: list(_shared(name, trials)) for name in self._names}

    def shares(self, weights: Counts) -> dict[str, float]:
        """The importances, whose sum is 1, if each trial counts so many times; the largest come first."""
        names = [name for name in self._names if weights[self._has[name]].any()]
        weights = np.where(np.isfinite(self._losses), weights, 0)
        total, found = int(weights.sum()), dict.fromkeys(names, 0.0)
        if total > 1:
            worst = self._order[np.searchsorted(weights[self._order].cumsum(), math.ceil(BEST * total))]
            best = np.where(self._losses <= self._losses[worst], weights, 0)
            found = {name: self._importance(name, weights, best) for name in names}
        found = dict(sorted(found.items(), key=lambda item: item[1])[::-1])
        if not (whole := sum(found.values())):
            return dict.fromkeys(found, 1 / len(found))
        return {name: value / whole for name, value in found.items()}

    def _importance(self, name: str, weights: Counts, best: Counts) -> float:
        of_all, of_best, importance = int(weights.sum()), int(best.sum()), 0.0
        for members, cells, size, is_choice in self._shared[name]:
            every, good = weights[members], best[members]
            if every.sum() < MIN_SHARING or not good.any():
                continue
            density, density_of_best = (
                _density(np.bincount(cells, each, size).astype(int), is_choice) + 1e-12
                for each in (every, good)
            )
            divergence = float(density @ ((density_of_best / density - 1) ** 2))
            importance += (int(good.sum()) / of_best) ** 2 / (int(every.sum()) / of_all) * divergence
        return importance * (of_best / of_all) ** 2


def _shared(name: str, trials: Sequence[FrozenTrial]) -> Iterator[_Shared]:
    """The distributions of a parameter that leave a choice, in the order of the trials."""
    same: dict[int, BaseDistribution] = {}  # by identity: to compare them takes long
    equal: dict[BaseDistribution, list[int]] = {}
    for number, trial in enumerate(trials):
        if (distribution := trial.distributions.get(name)) is not None:
            first = same.setdefault(id(distribution), distribution)
            equal.setdefault(first, []).append(number)
    for distribution, numbers in equal.items():
        if not distribution.single():
            values = [trials[number].params[name] for number in numbers]
            cells, size = _cells(distribution, values)
            is_choice = isinstance(distribution, CategoricalDistribution)
            yield _Shared(np.array(numbers), cells, size, is_choice)


def _cells(distribution: BaseDistribution, values: Sequence[Any]) -> tuple[Indices, int]:
    """The cells of values in the grid of their distribution, and how many cells that has."""
    if isinstance(distribution, CategoricalDistribution):
        return np.array([int(distribution.to_internal_repr(v)) for v in values]), len(distribution.choices)
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    size, low, high = MAX_CELLS, float(distribution.low), float(distribution.high)
    numbers = np.asarray(values, float)
    if isinstance(distribution, IntDistribution) and distribution.log:
        size = min(int(np.ceil(np.log(high - low + 1) / np.log(2))) + 1, MAX_CELLS)
    elif distribution.step is not None:
        size = min(round((high - low) / distribution.step) + 1, MAX_CELLS)
    if distribution.log:
        numbers, low, high = np.log(numbers), math.log(low), math.log(high)
    places = np.ceil((numbers - low) / ((high - low) / (size - 1)) - 0.5).astype(int)
    return np.clip(places, 0, size - 1), size


def _density(counts: Counts, is_choice: bool) -> NDArray[np.float64]:
    """The density at each cell: a kernel at each cell that is taken, weighed by its count, and the prior."""
    cells, size = np.flatnonzero(counts), len(counts)
    weights = counts[cells]
    mixture = np.append(weights, 1.0)
    kernels = _choice_kernels(cells, size) if is_choice else _range_kernels(cells, weights, size)
    estimate = _MixtureOfProductDistribution(mixture / mixture.sum(), [kernels])
    density: NDArray[np.float64] = np.exp(estimate.log_pdf(np.arange(size)[:, None]))
    return density


def _choice_kernels(cells: Indices, size: int) -> _BatchedCategoricalDistributions:
    kernels = np.full((len(cells) + 1, size), 1 / (len(cells) + 1))
    kernels[np.arange(len(cells)), cells] += 1
    return _BatchedCategoricalDistributions(kernels / kernels.sum(axis=1, keepdims=True))


def _range_kernels(cells: Indices, weights: Counts, size: int) -> _BatchedDiscreteTruncNormDistributions:
    """Kernels as wide as Scott's rule has them (1992, Multivariate Density Estimation)."""
    reached = np.cumsum(weights)
    total = reached[-1]
    mean = (cells @ weights) / total
    sigma = np.sqrt(((cells - mean) ** 2 @ weights) / max(1, total - 1))
    first = np.searchsorted(reached, total // 4, side="left")
    third = np.searchsorted(reached, total * 3 // 4, side="right")
    between = cells[min(cells.size - 1, third)] - cells[first]
    sigma = 1.059 * min(between / 1.34, sigma) * total**-0.2
    sigmas = np.r_[np.full_like(cells, max(sigma, MIN_SIGMA), float), size]
    mus = np.r_[cells, (size - 1) / 2]
    return _BatchedDiscreteTruncNormDistributions(mu=mus, sigma=sigmas, low=0, high=size - 1, step=1)
