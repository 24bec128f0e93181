"""Syne Tune's model of learning curves, fitted in a fraction of the time.

DyHPO in Syne Tune 0.14.2 fits a Gaussian process over configurations and resources hundreds of times per
search. It uses autograd, which takes minutes. `quick` gives it the same likelihood with a hand-written
gradient, and caches the encodings of configurations. The search is the same except for rounding.

The kernel is the additive one for curves that decay exponentially (Swersky et al. 2014, arXiv:1406.3896; Tiao
et al. 2020, arXiv:2003.10865): the covariance of (x, r) and (x', r') is k(x, x') + gamma^2 (kappa(r + r') -
kappa(r) kappa(r')) with kappa(r) = (beta / (r + beta))^alpha and beta = alpha / lambda. k is Matern 5/2 with
a bandwidth for each dimension; the mean is m + gamma kappa(r). Terms that depend only on a configuration or a
rung are computed once for each, not for each report.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs
from scipy.special import gammaln

PACKAGE = "syne_tune.optimizer.schedulers.searchers"
JITTER = 1e-9  # on squared distances, and the first on the diagonal of a matrix that is not positive definite
NOISE = 0.1  # the shape and the mean of the noise's prior
BANDWIDTHS = (1e-4, 100.0)  # the bounds of their prior
KNOWN = [  # the parts of the model: kernels, mean, transform of targets
    "ExponentialDecayResourcesKernelFunction",
    "Matern52",
    "ScalarMeanFunction",
    "IdentityTargetTransform",
]

Array = NDArray[np.float64]


class Likelihood:
    """The negative log likelihood of observed values, and the negative log priors.

    `features` is (n, d + 1), the resource last; `targets` is (n,). A point is a vector: the logarithms of
    the noise's variance, the scale, d inverse bandwidths, alpha, lambda and gamma, then m. Calling the object
    with a point returns the value and its gradient. It raises LinAlgError if no jitter helps.
    """

    def __init__(self, features: Array, targets: Array) -> None:
        self._configs, config = np.unique(features[:, :-1], axis=0, return_inverse=True)
        order = np.argsort(config, kind="stable")  # reports of one configuration are adjacent
        self._targets = targets[order]
        self._rungs, self._rung = np.unique(features[order, -1], return_inverse=True)
        self._at_rung = (self._rung[:, None] == np.arange(len(self._rungs))).astype(float)
        self._starts = np.flatnonzero(np.diff(config[order], prepend=-1))
        # The position of each covariance entry among those of configurations and those of rungs.
        self._in_configs = config[order][:, None] * len(self._configs) + config[order]
        self._in_rungs = self._rung[:, None] * len(self._rungs) + self._rung

    def __call__(self, point: Array) -> tuple[float, Array]:
        noise, scale = np.exp(point[:2])
        inverse_bandwidths = np.exp(point[2:-4])
        alpha, lam, gamma = np.exp(point[-4:-1])

        scaled = self._configs * inverse_bandwidths
        norms = (scaled**2).sum(axis=1)
        squared = 5.0 * np.abs(norms[:, None] + norms - 2.0 * scaled @ scaled.T)
        root = np.sqrt(squared + JITTER)
        decay = scale * np.exp(-root)
        between_configs = (1.0 + root + squared / 3.0) * decay

        beta = alpha / lam
        share = beta / (self._rungs + beta)
        share_of_sum = beta / (self._rungs[:, None] + self._rungs + beta)
        kappa, kappa_of_sum = share**alpha, share_of_sum**alpha
        between_rungs = gamma**2 * (kappa_of_sum - np.outer(kappa, kappa))

        covariance = between_configs.take(self._in_configs)
        covariance += between_rungs.take(self._in_rungs)
        factor = cholesky(covariance, noise)
        residual = self._targets - point[-1] - gamma * kappa[self._rung]
        solved = dpotrs(factor, residual, lower=1)[0]
        value = 0.5 * (len(residual) * math.log(2.0 * math.pi) + residual @ solved)
        value += np.log(factor.diagonal()).sum()

        # The derivative by the covariance is (inverse - solved solved') / 2. Only its sums over
        # configurations and rungs are needed, so the triangle of the inverse that LAPACK fills is enough.
        half = dpotri(factor, lower=1, overwrite_c=1)[0].T
        half.flat[:: len(residual) + 1] *= 0.5
        by_noise = half.trace() - 0.5 * (solved @ solved)
        of_configs = np.add.reduceat(solved, self._starts)
        by_configs = np.add.reduceat(np.add.reduceat(half, self._starts), self._starts, axis=1)
        by_configs = derivative(by_configs, of_configs)
        by_distance = by_configs * decay * (1.0 / 3.0 - (root + squared / 3.0) / (2.0 * root))
        of_rungs = self._at_rung.T @ solved
        by_rungs = derivative(self._at_rung.T @ (half @ self._at_rung), of_rungs)
        by_kappa_of_sum = gamma**2 * by_rungs * kappa_of_sum
        by_kappa = -kappa * (2.0 * gamma**2 * by_rungs @ kappa + gamma * of_rungs)

        gradient = np.empty(len(point))
        gradient[0] = noise * by_noise
        gradient[1] = (by_configs * between_configs).sum()
        gradient[2:-4] = 20.0 * (
            by_distance.sum(axis=1) @ scaled**2 - (scaled * (by_distance @ scaled)).sum(axis=0)
        )
        gradient[-4] = alpha * (
            (by_kappa_of_sum * (np.log(share_of_sum) + 1.0 - share_of_sum)).sum()
            + by_kappa @ (np.log(share) + 1.0 - share)
        )
        gradient[-3] = -alpha * ((by_kappa_of_sum * (1.0 - share_of_sum)).sum() + by_kappa @ (1.0 - share))
        gradient[-2] = 2.0 * (by_rungs * between_rungs).sum() - gamma * (of_rungs @ kappa)
        gradient[-1] = -solved.sum()

        # Priors: gamma for the noise, log-normal for the scale, uniform for the bandwidths, normal for m.
        value += (1.0 - NOISE) * point[0] + noise + gammaln(NOISE)
        value += point[1] + 0.5 * point[1] ** 2 + 0.5 * point[-1] ** 2
        value += len(inverse_bandwidths) * math.log(BANDWIDTHS[1] - BANDWIDTHS[0])
        gradient[0] += 1.0 - NOISE + noise
        gradient[1] += 1.0 + point[1]
        gradient[-1] += point[-1]
        return float(value), gradient


def derivative(half: Array, solved: Array) -> Array:
    """The derivative by the covariance, from half of its inverse and its solution, or from sums of both."""
    return 0.5 * (half + half.T - np.outer(solved, solved))


def cholesky(covariance: Array, noise: float) -> Array:
    """The lower factor of a matrix with noise on its diagonal, with as little jitter as possible."""
    diagonal = covariance.diagonal().copy()
    largest = max(1.0, diagonal.mean())
    jitter = 0.0
    while jitter <= 1e3 * largest:
        covariance.flat[:: len(covariance) + 1] = diagonal + (noise + jitter)
        factor: Array
        factor, failed = dpotrf(covariance.T, lower=1)  # symmetric, so .T is in LAPACK's order
        if not failed:
            return factor
        jitter = jitter * 10.0 if jitter else JITTER * largest
    raise np.linalg.LinAlgError("the covariance is not positive definite")


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """While this lasts, Syne Tune fits its model with `Likelihood` and encodes each configuration once."""
    model: Any = importlib.import_module(f"{PACKAGE}.bayesopt.gpautograd.gp_model")
    ranges = importlib.import_module(f"{PACKAGE}.utils.hp_ranges_impl").HyperparameterRangesImpl
    theirs = model.create_lbfgs_arguments, ranges.to_ndarray
    model.create_lbfgs_arguments, ranges.to_ndarray = objective, remembered(ranges.to_ndarray)
    try:
        yield
    finally:
        model.create_lbfgs_arguments, ranges.to_ndarray = theirs


def objective(
    criterion: Any, crit_args: list[Any], verbose: bool = False
) -> tuple[Callable[[Array], tuple[float, Array]], dict[str, Any]]:
    """What Syne Tune's `create_lbfgs_arguments` returns, for the one model supported here.

    Raises TypeError for any other model.
    """
    kernel = criterion.kernel
    parts = (kernel, kernel.kernel_x, kernel.mean_x, criterion.target_transform)
    kinds = [type(part).__name__ for part in parts]
    if kinds != KNOWN or kernel.encoding_delta is not None or kernel.delta_fixed_value != 0.0:
        raise TypeError(f"{', '.join(kinds)}: only {', '.join(KNOWN)} is supported, without delta")
    data = crit_args[0]
    likelihood = Likelihood(data["features"], data["targets"][:, 0])
    parameters = {one.name: one for one in criterion.collect_params().values()}
    ordered = [
        criterion.noise_variance_internal,
        kernel.kernel_x.covariance_scale_internal,
        kernel.kernel_x.squared_distance.inverse_bandwidths_internal,
        kernel.alpha_internal,
        kernel.mean_lam_internal,
        kernel.gamma_internal,
        kernel.mean_x.mean_value_internal,
    ]
    # Syne Tune orders a point by its parameters' names.
    sizes = {one.name: one.shape[0] for one in ordered}
    if sizes.keys() != parameters.keys():
        raise TypeError(f"a model with {', '.join(parameters)}: only {', '.join(sizes)} are supported")
    ends = np.cumsum([sizes[name] for name in sorted(sizes)])
    places = dict(zip(sorted(sizes), np.split(np.arange(ends[-1]), ends[:-1]), strict=True))
    ours = np.concatenate([places[one.name] for one in ordered])

    def value_and_gradient(point: Array) -> tuple[float, Array]:
        value, gradient = likelihood(point[ours])
        theirs = np.empty_like(gradient)
        theirs[ours] = gradient
        return value, theirs

    return value_and_gradient, parameters


def remembered(encode: Callable[[Any, dict[str, Any]], Array]) -> Callable[[Any, dict[str, Any]], Array]:
    """An encoding that caches each configuration of a space."""

    def encoded(space: Any, config: dict[str, Any]) -> Array:
        found: dict[tuple[Any, ...], Array] = vars(space).setdefault("encoded", {})
        key = space.config_to_tuple(config)
        if key not in found:
            found[key] = encode(space, config)
        return found[key]

    return encoded
