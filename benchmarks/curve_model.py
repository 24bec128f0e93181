"""How configurations would train that were not recorded: a model of those that were.

    python benchmarks/curve_model.py [--table benchmarks/lora-curves] [--data FOLDER]

Recorded curves condition Gaussian processes of the principal components of their logarithms. From these one
function is drawn (pathwise conditioning, Wilson et al. 2020): a curve for each configuration, which agrees
with what was recorded, apart from the noise, and varies elsewhere as much as the recorded curves do.
`suites.py` and `lora_simulated.py` search on such functions.

The command asks how much of it is true: it hides a tenth of a table, predicts its losses at the end, and does
so with each tenth. The nearest neighbour, which needs no model, is beside it. `--data` is the folder of
`search.py`, for the table of CLIP models.

| column | what it is |
|---|---|
| size | configurations |
| explained | share of the variance of the logarithms at the end that is predicted (R2); 0 for the mean |
| ranks | Spearman's correlation of losses at the end and their predictions |
| better half | the same among the configurations that are better than the median |
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

Array = NDArray[np.float64]

COMPONENTS = 4  # of the curves
SAME = 1e-9  # as a share of the largest: of a component in which no curves differ
WAVES = 1500  # of a drawn function
BELOW = 0.1  # the best is the floor, as a share of what lies between the best and the median at the end
FITTED = 300  # curves at most, by which scales and noise are found: their cost grows with the cube
FOLDS = 10


class CurveModel:
    """Gaussian processes of the components of recorded curves."""

    def __init__(self, points: Array, losses: Array, floor: float | None = None, restarts: int = 0) -> None:
        """`points` [n, columns]; `losses` [n, places], in which one that is infinite counts as the worst.

        The logarithm of what a loss is above `floor` is modelled, so that good configurations differ as
        clearly as bad ones; without a floor, it is a little below the best loss.
        """
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        self._floor = floor_of(losses) if floor is None else floor
        logs = logs_above(losses, self._floor)
        spread = points.std(0)
        self._centre, self._spread = points.mean(0), np.where(spread > 0, spread, 1.0)
        self._points = (points - self._centre) / self._spread
        self._mean = logs.mean(0)
        _, sizes, directions = np.linalg.svd(logs - self._mean, full_matrices=False)
        self._directions = directions[:COMPONENTS][sizes[:COMPONENTS] > SAME * sizes[0]]
        values = (logs - self._mean) @ self._directions.T
        self._scales = values.std(0)
        self._values = values / self._scales
        kernel = ConstantKernel(1.0, (0.05, 50)) * Matern(
            np.full(points.shape[1], 3.0), (0.4, 60), nu=2.5
        ) + WhiteKernel(0.02, (1e-3, 0.5))
        some = np.random.default_rng(0).permutation(len(points))[:FITTED]
        self._kernels = []
        # Where other programs compute, several threads mostly wait for each other.
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where a column says nothing, its scale ends at a bound
            for component in self._values[some].T:
                process = GaussianProcessRegressor(kernel, n_restarts_optimizer=restarts, random_state=0)
                self._kernels.append(process.fit(self._points[some], component).kernel_)

    def drawn(self, seed: int) -> Callable[[Array], Array]:
        """A function that the processes may be: the losses [places] at a point [columns]."""
        rng = np.random.default_rng(seed)
        parts = [
            self._part(kernel, values, rng)
            for kernel, values in zip(self._kernels, self._values.T, strict=True)
        ]
        return lambda point: self._losses(np.array([part(self._standard(point)) for part in parts]))

    def expected(self, points: Array) -> Array:
        """The losses [n, places] that are most likely at these points [n, columns]."""
        standard, means = self._standard(points), []
        for kernel, values in zip(self._kernels, self._values.T, strict=True):
            covariance = kernel.k1(self._points) + kernel.k2.noise_level * np.eye(len(values))
            means.append(kernel.k1(standard, self._points) @ np.linalg.solve(covariance, values))
        return self._losses(np.stack(means, axis=1))

    def noisy(self, losses: Array, normals: Array) -> Array:
        """Trainings [n, places] with the noise that was fitted, around these losses [places].

        `normals` [n, COMPONENTS] are standard normal.
        """
        levels = np.sqrt([kernel.k2.noise_level for kernel in self._kernels]) * self._scales
        shifts = normals[:, : len(levels)] * levels @ self._directions
        shifted: Array = self._floor + (losses - self._floor) * np.exp(shifts)
        return shifted

    def _standard(self, points: Array) -> Array:
        standard: Array = (points - self._centre) / self._spread
        return standard

    def _losses(self, components: Array) -> Array:
        losses: Array = self._floor + np.exp(self._mean + components * self._scales @ self._directions)
        return losses

    def _part(self, kernel: Any, values: Array, rng: np.random.Generator) -> Callable[[Array], float]:
        """A function of a process: waves drawn from its prior, and what corrects them at recorded points."""
        amplitude, matern, noise = kernel.k1.k1.constant_value, kernel.k1.k2, kernel.k2.noise_level
        d = len(matern.length_scale)
        # The spectrum of a Matern kernel with nu = 5/2 is Student's t with five degrees of freedom.
        heavy = np.sqrt(rng.chisquare(5, (WAVES, 1)) / 5)
        waves = rng.standard_normal((WAVES, d)) / heavy / matern.length_scale
        phases, weights = rng.uniform(0, 2 * np.pi, WAVES), rng.standard_normal(WAVES)

        def prior(points: Array) -> Array:
            part: Array = np.sqrt(2 * amplitude / WAVES) * np.cos(points @ waves.T + phases) @ weights
            return part

        covariance = kernel.k1(self._points) + noise * np.eye(len(values))
        missing = values - prior(self._points) - np.sqrt(noise) * rng.standard_normal(len(values))
        correction = np.linalg.solve(covariance, missing)
        return lambda point: float(
            prior(point[None])[0] + (kernel.k1(point[None], self._points) @ correction)[0]
        )


def floor_of(losses: Array) -> float:
    """A loss a little below the best."""
    best = float(losses.min())
    return best - BELOW * (float(np.median(losses[:, -1])) - best)


def logs_above(losses: Array, floor: float) -> Array:
    worst = losses[np.isfinite(losses)].max()
    logs: Array = np.log(np.minimum(losses, worst) - floor)
    return logs


def nearest(points: Array, recorded: Array) -> NDArray[np.intp]:
    """Which of the recorded points is nearest to each of the points."""
    index: NDArray[np.intp] = ((points[:, None] - recorded) ** 2).sum(axis=2).argmin(axis=1)
    return index


def hidden(points: Array, losses: Array) -> tuple[Array, Array]:
    """The losses at the end that the nearest neighbour and the model predict, from all other folds."""
    fold = np.random.default_rng(0).permutation(len(points)) % FOLDS
    neighbour, modelled = np.empty(len(points)), np.empty(len(points))
    for each in range(FOLDS):
        asked, known = fold == each, fold != each
        neighbour[asked] = losses[known, -1][nearest(points[asked], points[known])]
        modelled[asked] = CurveModel(points[known], losses[known]).expected(points[asked])[:, -1]
    return neighbour, modelled


def show(name: str, points: Array, losses: Array) -> None:
    """Print a row for each way to predict."""
    from scipy.stats import spearmanr

    floor, ends = floor_of(losses), losses[:, -1]
    true, better = logs_above(losses, floor)[:, -1], ends < np.median(ends)
    for way, found in zip(("nearest neighbour", "model"), hidden(points, losses), strict=True):
        error = true - np.log(np.minimum(found, losses[np.isfinite(losses)].max()) - floor)
        explained = 1 - (error**2).sum() / ((true - true.mean()) ** 2).sum()
        ranks = spearmanr(ends, found).statistic, spearmanr(ends[better], found[better]).statistic
        told = f"{explained:10.2f}{ranks[0]:8.2f}{ranks[1]:13.2f}"
        print(f"{name:26}{len(points):6}  {way:20}{told}", flush=True)


def main() -> None:
    from lora_table import TABLE
    from suites import LoraCurves, Scan, WrongUse

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", type=Path, default=TABLE, help="default: lora-curves, beside this file")
    parser.add_argument("--data", type=Path, help="the folder of search.py")
    options = parser.parse_args()
    tables = {f"lora-curves/{task}": its for task, its in LoraCurves(options.table).recorded.items()}
    if not tables:
        parser.error(f"--table: found no runs in {options.table}")
    if options.data is not None:
        try:
            tables["scan/clip"] = Scan(options.data).recorded
        except WrongUse as error:
            parser.error(str(error))
    print(f"{'table':26}{'size':>6}  {'':20}{'explained':>10}{'ranks':>8}{'better half':>13}")
    for name, its in tables.items():
        if len(its.points) < FOLDS:
            print(f"{name:26}{len(its.points):6}  too few configurations: {FOLDS} are needed")
        else:
            show(name, its.points, its.losses)


if __name__ == "__main__":
    main()
