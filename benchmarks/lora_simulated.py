"""What each setting of the space `lora` brings: its search, simulated in seconds instead of minutes.

    python benchmarks/lora_simulated.py [--trainings 18] [--searches 40] [--first-search 0] [--only NAME ...]
    hpsearch run benchmarks/lora-curves/near.yaml && python benchmarks/lora_simulated.py --record hpsearch.db

Each search draws a function of its own from a model (`curve_model.py`) of recorded trainings with the same
base and text: `lora-curves/english.csv`, and `near.csv`, which `--record` writes. A training's seed shifts
its curve by a normal `NOISE`. hpsearch is the real driver; two simulated workers train. All variants of a
search get the same function.

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
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import contestants
import lora_table
import numpy as np
from contestants import Job, Ours, Search, Task, quiet
from curve_model import CurveModel
from lora_search import interval
from lora_table import NOISE
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


def model_of(runs: Sequence[tuple[Config, Array]]) -> CurveModel:
    points = np.array([columns(config) for config, _ in runs])
    return CurveModel(points, np.array([losses for _, losses in runs]), FLOOR, restarts=2)


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


def one(model: CurveModel, trainings: int, variant: str, seed: int) -> Result:
    """Run a search of a variant with so many trainings."""
    quiet()
    drawn = model.drawn(seed)
    known: dict[str, Array] = {}

    def means(config: Config) -> Array:
        key = json.dumps(config, sort_keys=True)
        if key not in known:
            known[key] = drawn(np.array(columns(config)))
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
    search = functools.partial(one, model_of(recorded()), trainings)
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
