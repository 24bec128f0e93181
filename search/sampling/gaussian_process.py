"""A Gaussian process over the unit cube, which predicts a search's loss between the points that it has seen.

Matern 5/2 kernel of unit variance with a length scale for each parameter. Length scales and noise are maximum
a posteriori estimates under log-normal priors (Rasmussen and Williams 2006, chapters 2 and 5).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular
from scipy.optimize import minimize
from scipy.special import log_ndtr, ndtr

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

MAX_FIT_STEPS = 25  # of L-BFGS
JITTER = 1e-6


class GaussianProcess:
    """Fits hyperparameters (`optimise`), takes observations (`condition`), and predicts (`predict`)."""

    def __init__(self, owner: Indices) -> None:
        """`owner`: the parameter that each column of the points belongs to; a choice may have several."""
        d = int(owner.max()) + 1
        self._owner = owner
        # The logs of length scales, which grow with the dimension (Hvarfner et al. 2024), and of the noise.
        self._mean = np.r_[np.full(d, np.log(0.5) + 0.25 * np.log(d)), np.log(0.1)]
        self._spread = np.r_[np.full(d, 0.8), 1.0]
        self._theta = self._mean

    def optimise(self, x: Array, y: Array) -> None:
        """Fit length scales and noise to points x [n, columns] with standardised values y [n]."""
        d, n = len(self._mean) - 1, len(y)
        squares = np.zeros((d, n, n))
        for column, parameter in enumerate(self._owner):
            squares[parameter] += (x[:, column, None] - x[None, :, column]) ** 2

        def loss(theta: Array) -> tuple[float, Array]:
            """The negative log posterior, and its gradient."""
            weight, noise = np.exp(-2 * theta[:d]), np.exp(theta[d])
            r = np.sqrt(5 * np.tensordot(weight, squares, 1))
            decay = np.exp(-r)
            covariance = (1 + r + r * r / 3) * decay
            covariance[np.diag_indices(n)] += noise + JITTER
            z = (theta - self._mean) / self._spread
            factor, failed = lapack.dpotrf(covariance, lower=1)
            if failed:
                return 1e10, z / self._spread
            inverse = np.tril(lapack.dpotri(factor, lower=1)[0])
            inverse += np.tril(inverse, -1).T
            alpha = inverse @ y
            difference = inverse - np.outer(alpha, alpha)
            gradient = z / self._spread
            slope = difference * (5 / 3) * (1 + r) * decay
            gradient[:d] += 0.5 * weight * np.tensordot(squares, slope, 2)
            gradient[d] += 0.5 * noise * np.trace(difference)
            return float(0.5 * y @ alpha + np.log(np.diag(factor)).sum() + 0.5 * z @ z), gradient

        bounds = list(zip(self._mean - 4 * self._spread, self._mean + 4 * self._spread, strict=True))
        fit = minimize(
            loss, self._mean, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": MAX_FIT_STEPS}
        )
        self._theta = fit.x

    def condition(self, x: Array, y: Array) -> None:
        """Condition predictions on these points."""
        self._scales, noise = np.exp(self._theta[:-1])[self._owner], np.exp(self._theta[-1])
        self._x = x / self._scales
        covariance = _matern(self._x, self._x)
        covariance[np.diag_indices(len(y))] += noise + JITTER
        self._factor = lapack.dpotrf(covariance, lower=1)[0]
        self._alpha = lapack.dpotrs(self._factor, y, lower=1)[0]

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Mean and standard deviation [n] at points x [n, columns], without the noise."""
        covariance = _matern(self._x, x / self._scales)
        explained = solve_triangular(self._factor, covariance, lower=True, check_finite=False)
        return covariance.T @ self._alpha, np.sqrt(np.maximum(1 - (explained * explained).sum(0), 1e-10))


def log_expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """The log of the expected improvement below `best`, without underflow (Ament et al. 2023)."""
    z = (best - mean) / deviation
    density = -0.5 * z * z - 0.5 * np.log(2 * np.pi)
    above = np.maximum(z, -1)
    plain = np.log(above * ndtr(above) + np.exp(-0.5 * above * above) / np.sqrt(2 * np.pi))
    below = np.minimum(z, -1)
    ratio = 1 + below * np.exp(log_ndtr(below) + 0.5 * below * below + 0.5 * np.log(2 * np.pi))
    scaled = density + np.log(np.maximum(ratio, 1e-12 / (1 + below * below)))
    improvement: Array = np.where(z > -1, plain, scaled) + np.log(deviation)
    return improvement


MAX_SQUARABLE = 1e150  # the square of larger numbers may overflow


def standardised(y: Array) -> Array:
    """The values with mean 0 and deviation 1.

    Values above the median are clipped at twice the distance from the median to the best value, so that one
    diverged training does not make all others look alike.
    """
    if (largest := np.abs(y).max()) > MAX_SQUARABLE:
        y = y / largest
    middle = float(np.median(y))
    reach = middle - y.min()
    if reach == 0:  # more than half of the values are the best
        return np.zeros(len(y))
    relative = (np.minimum(y, middle + 2 * reach) - middle) / reach
    standard: Array = (relative - relative.mean()) / relative.std()
    return standard


def _matern(a: Array, b: Array) -> Array:
    squares = (a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2 * a @ b.T
    r = np.sqrt(5 * np.maximum(squares, 0.0))
    covariance: Array = (1 + r + r * r / 3) * np.exp(-r)
    return covariance
