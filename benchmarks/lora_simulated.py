"""What each setting of the space `lora` brings: its search, simulated in seconds instead of minutes.

    python benchmarks/lora_simulated.py [--trainings 18] [--searches 40] [--first-search 0] [--only NAME ...]
    hpsearch run benchmarks/lora-curves/near.yaml && python benchmarks/lora_simulated.py --record hpsearch.db

Recorded trainings of the same model and text (`lora-curves/english.csv`, and `near.csv`, which `--record`
writes) condition Gaussian processes of the four principal components of their curves. From these, each search
draws a function of its own: a curve for each configuration, which agrees with what was recorded (pathwise
conditioning, Wilson et al. 2020). A training's seed shifts its curve by a normal `NOISE`. hpsearch is the
real driver; two simulated workers train. All variants of a search get the same function.

| column | what it is |
|---|---|
| winner | the loss of the winner's configuration at its end, without noise, and Student's 95% interval |
| median | of these losses |
| difference | to the first row, search by search: negative is better |
| trials, finished | how many began, and how many trained to the end |

It says what to try in `lora_search.py`, which trains. It cannot say what a search gains where nothing was
recorded, and all trainings of it take the same time.
"""

from __future__ import annotations

import argparse
import csv
import functools
import json
import multiprocessing
import os
import statistics
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import contestants
import lora_table
import numpy as np
from contestants import Job, Ours, Search, Task, quiet
from lora_search import interval
from numpy.typing import NDArray
from optuna.pruners import HyperbandPruner
from simulation import THREADS, simulate

from hpsearch.search import open_study
from hpsearch.search.preflight.objective import load_space
from hpsearch.search.sampling.distributions import distributions, suggest
from hpsearch.search.trials.configuration import config_of
from hpsearch.spaces import Choice, Range, Spec
from hpsearch.spaces.stopping import Rungs
from hpsearch.storage.trial_attrs import search_trials

Array = NDArray[np.float64]
Config = dict[str, Any]

NEAR = lora_table.TABLE / "near.csv"
SAMPLES, EVERY = 1800, 150  # of a training, and between two validations, as in the space
PLACES = np.arange(EVERY, SAMPLES + 1, EVERY)
FLOOR = 1.1  # nats per byte, below all losses: the logarithm of what is above it is modelled
HOPELESS = 1.75  # a training that ends above this is not learned from, as no search stays there
COMPONENTS = 4  # of the curves
WAVES = 1500  # of a drawn function
NOISE = 0.005  # standard deviation between seeds
WORKERS = 2

Changes = dict[str, dict[str, Any]]


def without_priors(*names: str) -> dict[str, Any]:
    """The parameters of the space with these names, without what is known of them."""
    ranges = load_space("lora").to_json()["parameters"]
    return {name: {key: value for key, value in ranges[name].items() if key != "prior"} for name in names}


KNOWN = ("lora_r", "batch_size", "lora_dropout")
VARIANTS: dict[str, Changes] = {
    "the space lora": {},
    "models after 20 trials": {"search": {"n_startup_trials": 20}},
    "the rung half way": {"early_stopping": {"min": len(PLACES) // 2}},
    "no early stopping": {"early_stopping": {"method": "none"}},
    "priors of the rate alone": {"parameters": without_priors(*KNOWN)},
    "no priors": {"parameters": without_priors("learning_rate", *KNOWN)},
}
OPTUNA = "Optuna, TPE and Hyperband"
TOLD = "the same, told the priors"  # their values are tried after the baseline


def columns(config: Config) -> list[float]:
    """A configuration as the processes see it; adapters act by rate times alpha / rank."""
    rate, kind = float(config["learning_rate"]), config["lr_scheduler"]
    return [
        np.log(rate * float(config["lora_alpha"]) / float(config["lora_r"])),
        np.log(rate),
        np.log2(float(config["batch_size"])),
        np.log2(float(config["lora_r"])),
        5 * float(config["lora_dropout"]),
        *(2.0 * (kind == each) for each in ("linear", "cosine", "constant")),
        5 * float(config.get("warmup_ratio") or 0),
        np.log10(float(config["weight_decay"]) + 1e-3),
    ]


def recorded() -> list[tuple[Config, Array]]:
    """Configurations and their losses at `PLACES`: those that a search of the space could come near."""
    found = []
    runs = [run for run in lora_table.read_runs(lora_table.TABLE) if (run.task, run.seed) == ("english", 0)]
    configs = lora_table.configurations(1 + max(run.configuration for run in runs))
    for run in runs:
        config = configs[run.configuration]
        if config["lora_r"] >= 4 and max(run.losses) < np.inf:
            found.append((config, np.interp(PLACES, lora_table.PLACES, run.losses)))
    with NEAR.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            losses = np.array([float(row[f"loss_{place}"]) for place in PLACES])
            found.append((row | {"lora_alpha": 2 * int(row["lora_r"])}, losses))
    return [(config, losses) for config, losses in found if losses[-1] < HOPELESS]


class Curves:
    """Gaussian processes of the components of recorded curves."""

    def __init__(self, runs: Sequence[tuple[Config, Array]]) -> None:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        points = np.array([columns(config) for config, _ in runs])
        logs = np.log(np.array([losses for _, losses in runs]) - FLOOR)
        spread = points.std(0)
        self._centre, self._spread = points.mean(0), np.where(spread > 0, spread, 1.0)
        self._points = (points - self._centre) / self._spread
        self._mean = logs.mean(0)
        self._directions = np.linalg.svd(logs - self._mean, full_matrices=False)[2][:COMPONENTS]
        values = (logs - self._mean) @ self._directions.T
        self._scales = values.std(0)
        self._values = values / self._scales
        kernel = ConstantKernel(1.0, (0.05, 50)) * Matern(
            np.full(points.shape[1], 3.0), (0.4, 60), nu=2.5
        ) + WhiteKernel(0.02, (1e-3, 0.5))
        self._processes = []
        for component in self._values.T:
            process = GaussianProcessRegressor(kernel, n_restarts_optimizer=2, random_state=0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # where a column says nothing, its scale ends at a bound
                self._processes.append(process.fit(self._points, component).kernel_)

    def drawn(self, seed: int) -> Callable[[Config], Array]:
        """A function that the processes may be: the losses at `PLACES` of each configuration."""
        rng = np.random.default_rng(seed)
        parts = [
            self._part(kernel, values, rng)
            for kernel, values in zip(self._processes, self._values.T, strict=True)
        ]

        def curve(config: Config) -> Array:
            point = (np.array(columns(config)) - self._centre) / self._spread
            components = np.array([part(point) for part in parts]) * self._scales
            losses: Array = FLOOR + np.exp(self._mean + components @ self._directions)
            return losses

        return curve

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


class Optuna(contestants.Optuna):  # type: ignore[misc]  # mypy does not follow contestants
    """A study with TPE and Hyperband over the same space, the baseline first; `told`: then the priors."""

    def __init__(self, spec: Spec, task: Task, seed: int, *, told: bool) -> None:
        super().__init__(task, seed, 0, pruner=lambda task: HyperbandPruner(max_resource=task.epochs))
        self._space = spec.space
        baseline = dict(spec.baseline or {})
        priors = {name: p.prior.at for name, p in spec.space.searched.items() if p.prior is not None}
        for config in [baseline, baseline | priors] if told else [baseline]:
            self._study.enqueue_trial({name: config[name] for name in spec.space.searched})

    def next(self) -> Job:
        trial = self._study.ask(distributions(self._space))

        def suggested(name: str, parameter: Range | Choice) -> Any:
            value = suggest(trial, name, parameter)  # Optuna has no ranges with a factor
            return parameter.snap(value) if isinstance(parameter, Range) else value

        return Job(trial, self._space.resolve(suggested))


class Finishing:
    """A search of which it is known which configuration ended best."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self.next, self.close = search.next, search.close
        self.best, self.winner = np.inf, Config()

    def goes_on(self, job: Job, value: float) -> bool:
        if job.done == len(PLACES) and value < self.best:
            self.best, self.winner = value, job.config
        goes_on: bool = self._search.goes_on(job, value)
        return goes_on


@dataclass(frozen=True)
class Result:
    """The result of a search."""

    winner: float
    trials: int
    finished: int


def space(changes: Changes, seed: int, trainings: int) -> Spec:
    """The space `lora` with changes, in which a validation counts as one step."""
    shipped = load_space("lora")
    assert isinstance(shipped.early_stopping, Rungs)
    rung = {"min": shipped.early_stopping.min // EVERY}
    return shipped.override(
        objective="simulated:train",
        parameters=changes.get("parameters", {}),
        search={"seed": seed} | changes.get("search", {}),
        early_stopping=changes.get("early_stopping", rung) | {"max": len(PLACES)},
        budget={"trials": None, "samples": trainings * len(PLACES)},
        confirm={"top": 0},
    )


def one(curves: Curves, trainings: int, variant: str, seed: int) -> Result:
    """Run a search of a variant with so many trainings."""
    quiet()
    curve = curves.drawn(seed)
    known: dict[str, Array] = {}

    def means(config: Config) -> Array:
        key = json.dumps(config, sort_keys=True)
        if key not in known:
            known[key] = curve(config)
        return known[key]

    def seen(config: Config) -> Array:
        name = f"{seed} {json.dumps(config, sort_keys=True)}"
        shifted: Array = means(config) + np.random.default_rng(zlib.crc32(name.encode())).normal(0, NOISE)
        return shifted

    spec = space(VARIANTS.get(variant, {}), seed, trainings)
    task = Task({}, len(PLACES), seen, means, None, dict)
    search = Finishing(Ours(spec) if variant in VARIANTS else Optuna(spec, task, seed, told=variant == TOLD))
    told = simulate(search, task, WORKERS, trainings * task.epochs)
    winner = float(means(search.winner)[-1]) if search.winner else np.inf  # no training may have ended
    return Result(winner, told.trials, told.finished)


def record(database: str) -> None:
    """Write `near.csv` from the study of `near.yaml`."""
    study = open_study("near", storage=database)
    names = study.spec.space.searched
    with NEAR.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*names, *(f"loss_{place}" for place in PLACES)])
        for trial in search_trials(study.all_trials):  # not those that confirm
            config = config_of(study.spec, trial)
            losses = [f"{trial.intermediate_values[place]:.5f}" for place in PLACES.tolist()]
            writer.writerow([*(config[name] for name in names), *losses])


def compare(names: Iterable[str], searches: range, trainings: int) -> None:
    """Run all searches of all variants, and print a row for each."""
    print(f"{len(searches)} searches of {trainings} trainings; losses in nats per byte")
    print(f"{'':26}{'winner':>24}{'median':>9}{'difference':>29}{'trials':>8}{'finished':>9}")
    first: list[float] = []
    search = functools.partial(one, Curves(recorded()), trainings)
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for name in names:
            results = list(pool.map(search, repeat(name), searches))
            winners = [result.winner for result in results]
            first = first or winners
            differences = [own - other for own, other in zip(winners, first, strict=True)]
            told = "" if winners is first else interval(differences)
            means = [
                statistics.mean(of) for of in zip(*((r.trials, r.finished) for r in results), strict=True)
            ]
            print(
                f"{name:26}{interval(winners)[1:].replace('+', ''):>24}{statistics.median(winners):9.4f}"
                f"{told:>29}{means[0]:8.1f}{means[1]:9.1f}",
                flush=True,
            )


def main() -> None:
    names = [*VARIANTS, OPTUNA, TOLD]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trainings", type=int, default=18, help="the budget of a search")
    parser.add_argument("--searches", type=int, default=40)
    parser.add_argument("--first-search", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"of: {', '.join(names)}")
    parser.add_argument("--record", metavar="DATABASE", help="write near.csv from the study of near.yaml")
    options = parser.parse_args()
    if min(options.trainings - 1, options.searches) < 1:
        parser.error("--trainings needs 2 or more, --searches 1 or more")
    if options.record is not None:
        record(options.record)
        return
    for name in THREADS:
        os.environ[name] = "1"  # of the processes that search
    last = options.first_search + options.searches
    compare(options.only or names, range(options.first_search, last), options.trainings)


if __name__ == "__main__":
    main()
