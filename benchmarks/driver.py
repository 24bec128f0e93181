"""What the driver costs per trial, compared with `study.optimize` on Optuna's default SQLite storage.

    python benchmarks/driver.py [--finished 1000] [--trials 30] [--rounds 3]

A trial does the same on both sides, and nearly nothing: TPE suggests five parameters, ten reports get a
Hyperband decision each, and the trial ends. The study already has `--finished` trials. Rounds are
interleaved. The table has medians over all trials, in milliseconds, and their ratio.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import optuna
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial
from silence import Silence

from hpsearch.search.engine.driver import Driver
from hpsearch.search.scheduling.pruners import make_pruner
from hpsearch.spaces import loads
from hpsearch.storage.database import open_storage
from hpsearch.storage.studies import SPEC, open_live

REPORTS = 10
SPACE = f"""
version: 1
name: bench
objective: "bench:train"
metric: loss
parameters:
  a: {{min: 1e-5, max: 1e-1, log: true}}
  b: {{min: 0.0, max: 1.0}}
  c: {{min: 0.0, max: 1.0}}
  d: {{min: 1, max: 64}}
  e: {{min: 1, max: 64, log: true}}
early_stopping: {{method: hyperband, min: 1, max: {REPORTS}, eta: 3}}
budget: {{trials: 1000000}}
"""
DISTRIBUTIONS = {
    "a": FloatDistribution(1e-5, 1e-1, log=True),
    "b": FloatDistribution(0.0, 1.0),
    "c": FloatDistribution(0.0, 1.0),
    "d": IntDistribution(1, 64),
    "e": IntDistribution(1, 64, log=True),
}


def loss(params: dict[str, float], step: int) -> float:
    return params["b"] ** 2 + params["c"] + 1.0 / (step + params["d"])


def filled(path: Path, finished: int, seed: int = 0) -> str:
    """Make a database with one study of `finished` trials, a third of them complete; return its URL."""
    url = f"sqlite:///{path}"
    # Made by Optuna's default storage, because SQLite's journal mode stays with the file.
    study = optuna.create_study(storage=url, study_name="bench")
    study.set_user_attr(SPEC, loads(SPACE).to_json())
    sampler = optuna.samplers.RandomSampler(seed=seed)
    for number in range(finished):
        params = {n: sampler.sample_independent(study, None, n, d) for n, d in DISTRIBUTIONS.items()}  # type: ignore[arg-type]
        last = REPORTS if number % 3 == 0 else 1
        values = {step: loss(params, step) for step in range(1, last + 1)}
        study.add_trial(
            create_trial(
                state=TrialState.COMPLETE if last == REPORTS else TrialState.PRUNED,
                value=values[last],
                params=params,
                distributions=DISTRIBUTIONS,
                intermediate_values=values,
                system_attrs={
                    f"completed_rung_{i}": values[s] for i, s in enumerate((1, 3, 9)) if s in values
                },
            )
        )
    return url


def ours(url: str, trials: int, folder: Path) -> list[tuple[float, float]]:
    """Wall and CPU milliseconds of each trial through the driver."""
    spec = loads(SPACE)
    live = open_live(open_storage(url), "bench", goal="minimize", attrs={})
    driver = Driver(spec, live, runs=folder, watcher=Silence(), pruner=make_pruner(spec))

    def one() -> None:
        assignment = driver.ask()
        assert assignment is not None
        for step in range(1, REPORTS + 1):
            value = loss(assignment.params, step)
            if driver.report(assignment.number, value, step, {}) is not None:
                return
        driver.complete(assignment.number, value)

    return timed(one, trials)


def plain(url: str, trials: int) -> list[tuple[float, float]]:
    """Wall and CPU milliseconds of each trial through `study.optimize` on Optuna's default storage."""

    def objective(trial: optuna.Trial) -> float:
        params = {
            "a": trial.suggest_float("a", 1e-5, 1e-1, log=True),
            "b": trial.suggest_float("b", 0.0, 1.0),
            "c": trial.suggest_float("c", 0.0, 1.0),
            "d": trial.suggest_int("d", 1, 64),
            "e": trial.suggest_int("e", 1, 64, log=True),
        }
        for step in range(1, REPORTS + 1):
            value = loss(params, step)
            trial.report(value, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    study = optuna.load_study(
        study_name="bench",
        storage=url,
        sampler=optuna.samplers.TPESampler(seed=0),
        pruner=optuna.pruners.HyperbandPruner(1, REPORTS, 3),
    )
    return timed(lambda: study.optimize(objective, n_trials=1), trials)


def timed(one: Callable[[], None], trials: int) -> list[tuple[float, float]]:
    one()  # the first trial loads the history
    found = []
    for _ in range(trials):
        wall, cpu = time.perf_counter(), time.process_time()
        one()
        found.append((1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - cpu)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--finished", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    results: dict[str, list[tuple[float, float]]] = {"study.optimize": [], "hpsearch driver": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        filled(folder / "filled.db", options.finished)
        for number in range(options.rounds):
            for who in results:
                copy = folder / f"{number}-{len(who)}.db"
                shutil.copy(folder / "filled.db", copy)
                if who == "study.optimize":
                    results[who] += plain(f"sqlite:///{copy}", options.trials)
                else:
                    results[who] += ours(f"sqlite:///{copy}", options.trials, folder / "runs")
    print(f"ask, {REPORTS} reports, tell; SQLite; TPE + Hyperband; {options.finished} finished trials before")
    print(f"{'':18}{'wall ms':>10}{'cpu ms':>10}")
    medians = {}
    for who, rows in results.items():
        medians[who] = [statistics.median(column) for column in zip(*rows, strict=True)]
        print(f"{who:18}{medians[who][0]:10.1f}{medians[who][1]:10.1f}")
    ratios = [
        ours_ / theirs
        for ours_, theirs in zip(medians["hpsearch driver"], medians["study.optimize"], strict=True)
    ]
    print(f"{'ratio':18}{ratios[0]:10.2f}{ratios[1]:10.2f}")


if __name__ == "__main__":
    main()
