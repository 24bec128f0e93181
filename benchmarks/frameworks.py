"""The same search with hpsearch and with a plain Optuna script that uses optuna-integration's callbacks.

    pip install 'hpsearch[bench,xgboost,lightgbm]'
    python benchmarks/frameworks.py [--trials 40] [--seeds 5] [--libraries xgboost lightgbm] [--data ...]

XGBoost and LightGBM, each on a small table (`breast_cancer` of scikit-learn, 569 rows of 30 columns) and on a
larger one (`made`: 20,000 rows of 20 columns). Both sides have the same space, budget, training and
validation rows, metric, number of threads (one), sampler (Optuna's TPE) and pruner: Optuna's median, which
checks every ten trees once five trials have finished. hpsearch reports and writes a checkpoint every ten
trees. The callbacks report each tree, and the scripts keep no model. The scripts keep their study in memory,
as in Optuna's examples, or in SQLite, as hpsearch always does.

Every run is a process of its own, measured from the start of Python to the end of everything it started.
Contestants take turns, seed by seed; the script with SQLite runs for the first seed only. The table has
medians over the seeds: the best value, wall and CPU seconds per trial, trees per trial (how early trials were
pruned), CPU milliseconds per tree (total CPU time divided by trees), and ratios. A seed gives different
proposals on the two sides, because hpsearch creates its sampler anew for each trial.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from overhead import Cost, adopt_orphans, measured

TREES, EVERY = 100, 10
SLOW = "Optuna, SQLite"  # writes each tree's report separately, so slow that it runs for one seed
DATA = ("breast_cancer", "made")
TARGET = "target"
STARTUP = 5  # finished trials before the pruner starts
RESULT = "result.json"
Range = tuple[float, float, bool]  # low, high, whether logarithmic
SPACES: dict[str, dict[str, Range]] = {
    "xgboost": {
        "learning_rate": (0.01, 0.5, True),
        "max_depth": (2, 10, False),
        "subsample": (0.5, 1.0, False),
        "colsample_bytree": (0.3, 1.0, False),
        "reg_lambda": (0.01, 100.0, True),
    },
    "lightgbm": {
        "learning_rate": (0.01, 0.5, True),
        "num_leaves": (4, 128, True),
        "min_child_samples": (1, 50, False),
        "subsample": (0.5, 1.0, False),
        "colsample_bytree": (0.3, 1.0, False),
        "reg_lambda": (0.01, 100.0, True),
    },
}
METRICS = {"xgboost": "logloss", "lightgbm": "binary_logloss"}
FIXED: dict[str, dict[str, Any]] = {"xgboost": {}, "lightgbm": {"subsample_freq": 1}}


@dataclass(frozen=True)
class Outcome:
    """The result of a search."""

    best: float
    trials: int
    trees: int  # of all trials


def outcome_of(done: list[Any], first: int = 1) -> Outcome:
    """The outcome of Optuna trials, whose steps count trees from `first`."""
    best = min(trial.value for trial in done if trial.state.name == "COMPLETE")
    return Outcome(best, len(done), sum(trial.last_step + 1 - first for trial in done))


# The contestants. Each runs in a process that imports nothing of the others.


def ours(library: str, trials: int, seed: int) -> Outcome:
    from hpsearch.search import run
    from hpsearch.spaces import loads

    ranges = "\n".join(
        f"  {name}: {{min: {low}, max: {high}, log: {str(log).lower()}}}"
        for name, (low, high, log) in SPACES[library].items()
    )
    fixed = "\n".join(f"  {name}: {value}" for name, value in FIXED[library].items())
    space = f"""
version: 1
name: bench
objective: {library}
metric: {METRICS[library]}
parameters:
{ranges}
{fixed}
  data: train.csv
  validation_file: held.csv
  target: {TARGET}
  n_estimators: {TREES}
  eval_every: {EVERY}
search: {{sampler: tpe, seed: {seed}}}
early_stopping: {{method: median, n_startup_trials: {STARTUP}, interval_steps: {EVERY}}}
confirm: {{top: 0}}
budget: {{trials: {trials}}}
execution: {{workers: 1, cpus_per_trial: 1}}
"""
    done = run(loads(space), storage="sqlite:///bench.db").study.trials
    assert {trial.state.name for trial in done} <= {"COMPLETE", "PRUNED"}
    return outcome_of(done)


def script(library: str, trials: int, seed: int, storage: str | None) -> Outcome:
    """A typical script: it loads the data once, and uses a callback for each trial."""
    import optuna
    import pandas as pd

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    tables = [pd.read_csv(name) for name in ("train.csv", "held.csv")]
    (x, y), (held_x, held_y) = [(table.drop(columns=[TARGET]), table[TARGET]) for table in tables]
    train = (with_xgboost if library == "xgboost" else with_lightgbm)(x, y, held_x, held_y)

    def objective(trial: optuna.Trial) -> float:
        params: dict[str, Any] = {}
        for name, (low, high, log) in SPACES[library].items():
            if isinstance(low, int) and isinstance(high, int):
                params[name] = trial.suggest_int(name, low, high, log=log)
            else:
                params[name] = trial.suggest_float(name, low, high, log=log)
        return train(params | FIXED[library] | {"seed": seed}, trial)

    study = optuna.create_study(
        storage=storage,
        sampler=optuna.samplers.TPESampler(seed=seed),
        pruner=optuna.pruners.MedianPruner(STARTUP, n_warmup_steps=EVERY - 1, interval_steps=EVERY),
    )
    study.optimize(objective, n_trials=trials)
    return outcome_of(study.trials, first=0)


Training = Callable[[dict[str, Any], Any], float]


def with_xgboost(x: Any, y: Any, held_x: Any, held_y: Any) -> Training:
    import xgboost
    from optuna_integration import XGBoostPruningCallback

    rows, held = xgboost.DMatrix(x, y), xgboost.DMatrix(held_x, held_y)

    def train(params: dict[str, Any], trial: Any) -> float:
        told: dict[str, dict[str, list[float]]] = {}
        xgboost.train(
            params | {"objective": "binary:logistic", "eval_metric": "logloss", "nthread": 1},
            rows,
            TREES,
            evals=[(held, "validation")],
            evals_result=told,
            verbose_eval=False,
            callbacks=[XGBoostPruningCallback(trial, "validation-logloss")],
        )
        return told["validation"]["logloss"][-1]

    return train


def with_lightgbm(x: Any, y: Any, held_x: Any, held_y: Any) -> Training:
    import lightgbm
    from optuna_integration import LightGBMPruningCallback

    alike = {"deterministic": True, "force_row_wise": True}  # as hpsearch sets them
    fixed = {"objective": "binary", "metric": "binary_logloss", "num_threads": 1, "verbosity": -1, **alike}

    def train(params: dict[str, Any], trial: Any) -> float:
        rows = lightgbm.Dataset(x, y)  # for each trial: LightGBM ties it to its parameters
        held = rows.create_valid(held_x, held_y)
        told: dict[str, dict[str, list[float]]] = {}
        lightgbm.train(
            params | fixed,
            rows,
            TREES,
            valid_sets=[held],
            valid_names=["validation"],
            callbacks=[
                lightgbm.record_evaluation(told),
                LightGBMPruningCallback(trial, "binary_logloss", "validation"),
            ],
        )
        return told["validation"]["binary_logloss"][-1]

    return train


CONTESTANTS: dict[str, Callable[[str, int, int], Outcome]] = {
    "hpsearch": ours,
    "Optuna, in memory": lambda library, trials, seed: script(library, trials, seed, None),
    SLOW: lambda library, trials, seed: script(library, trials, seed, "sqlite:///bench.db"),
}


# Measuring.


def write_tables(data: str, folder: Path) -> None:
    """Write the training rows and the validation rows to a file each."""
    import pandas as pd
    from sklearn.datasets import load_breast_cancer, make_classification

    if data == "made":
        x, y = make_classification(20_000, 20, n_informative=8, flip_y=0.1, random_state=0)
        frame = pd.DataFrame(x, columns=[f"x{number}" for number in range(x.shape[1])]).assign(**{TARGET: y})
    else:
        frame = load_breast_cancer(as_frame=True).frame
    held = frame.sample(frac=0.2, random_state=0)
    held.to_csv(folder / "held.csv", index=False)
    frame.drop(held.index).to_csv(folder / "train.csv", index=False)


def run_of(who: str, library: str, data: str, trials: int, seed: int) -> tuple[Cost, Outcome]:
    """One run of a contestant in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="b-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        write_tables(data, folder)
        options = ["--contestant", who, "--libraries", library, "--trials", str(trials), "--seeds", str(seed)]
        cost = measured([sys.executable, os.path.abspath(__file__), *options], folder)
        return cost, Outcome(**json.loads((folder / RESULT).read_text()))


Runs = dict[str, list[tuple[Cost, Outcome]]]  # by contestant, one run per seed


def measure(library: str, data: str, trials: int, seeds: int) -> Runs:
    runs: Runs = {who: [] for who in CONTESTANTS}
    for seed in range(seeds):
        for who in CONTESTANTS:
            if seed and who == SLOW:
                continue
            cost, outcome = run_of(who, library, data, trials, seed)
            runs[who].append((cost, outcome))
            print(f"{library}, {data}, seed {seed}: {who}: {cost.wall:.1f} s, {outcome}", file=sys.stderr)
    return runs


# The table.


def row(runs: list[tuple[Cost, Outcome]]) -> list[float]:
    """Medians: best value; wall seconds, CPU seconds and trees per trial; CPU milliseconds per tree."""
    each = [
        (
            outcome.best,
            cost.wall / outcome.trials,
            cost.cpu / outcome.trials,
            outcome.trees / outcome.trials,
            cost.cpu / outcome.trees * 1e3,
        )
        for cost, outcome in runs
    ]
    return [statistics.median(column) for column in zip(*each, strict=True)]


def show(library: str, data: str, runs: Runs, trials: int) -> None:
    seeds = len(next(iter(runs.values())))
    print(f"{library}, {data}: {trials} trials of up to {TREES} trees; medians of {seeds} seeds ({SLOW}: 1)")
    names = ("best", "wall s/trial", "CPU s/trial", "trees/trial", "CPU ms/tree")
    print(f"{'':30}" + "".join(f"{name:>14}" for name in names))
    rows = {who: row(each) for who, each in runs.items()}
    for who, figures in rows.items():
        print(f"{who:30}" + "".join(f"{figure:14.4g}" for figure in figures))
    mine, *others = rows
    for other in others:
        ratios = [one / two for one, two in zip(rows[mine], rows[other], strict=True)]
        print(f"{f'{mine} / {other}':30}" + "".join(f"{ratio:14.2f}" for ratio in ratios))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--libraries", nargs="+", choices=SPACES, default=list(SPACES))
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--contestant", choices=CONTESTANTS, help="run this one with the seed --seeds")
    options = parser.parse_args()
    if options.contestant is not None:
        outcome = CONTESTANTS[options.contestant](options.libraries[0], options.trials, options.seeds)
        Path(RESULT).write_text(json.dumps(vars(outcome)))
        return
    needs = ("optuna_integration", "sklearn", *options.libraries)
    if missing := [name for name in needs if importlib.util.find_spec(name) is None]:
        extras = ",".join(["bench", *options.libraries])
        parser.error(f"needs {', '.join(missing)}: pip install 'hpsearch[{extras}]'")
    adopt_orphans()
    for library in options.libraries:
        for data in options.data:
            show(library, data, measure(library, data, options.trials, options.seeds), options.trials)


if __name__ == "__main__":
    main()
