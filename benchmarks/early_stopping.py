"""What asynchronous successive halving saves and loses, with the same trials on both backends.

    python benchmarks/early_stopping.py [--trials 40] [--seeds 5] [--workers 2]

Both sides have the same space, seeds and budget, and `early_stopping: {method: asha}`: Optuna's
SuccessiveHalvingPruner on the backend optuna, Tune's ASHAScheduler on the backend ray. Random search gives
both the same configurations and each trial the same noise, which is checked. The objective is a learning
curve that costs nothing to compute. With a high learning rate, the loss falls fast at first and ends badly;
with a low one it is the other way round, so early values mislead a little.

There is one row per seed. Budget is the number of steps trained, in percent of those without early stopping.
The last column is the best value of the same trials without early stopping. Which trials are stopped depends
on the order in which the workers report, so the figures differ a little between runs.
"""

from __future__ import annotations

import argparse
import math
import runpy
import statistics
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState
from silence import Silence

from hpsearch.search import run
from hpsearch.search.backends.ray.cluster import connected
from hpsearch.search.backends.resources import this_machine
from hpsearch.search.trials.seeds import derived_seed
from hpsearch.spaces import loads

BACKENDS = ("optuna", "ray")
STEPS = 81
SPACE = f"""
version: 1
name: "{{name}}"
objective: "{{objective}}:train"
metric: loss
parameters:
  lr: {{{{min: 1e-5, max: 1e-1, log: true}}}}
  width: {{{{min: 16, max: 512, log: true}}}}
  dropout: {{{{min: 0.0, max: 0.5}}}}
search: {{{{sampler: random, seed: {{seed}}}}}}
early_stopping: {{{{method: asha, min: 1, max: {STEPS}, eta: 3}}}}
budget: {{{{trials: {{trials}}}}}}
execution: {{{{workers: {{workers}}}}}}
"""
OBJECTIVE = f'''
import math
import random


def curve(params, seed):
    """The loss after each step: a power law down to a floor, with noise."""
    noise = random.Random(seed)
    off = math.log10(params["lr"] / 2e-3)  # decades from the best learning rate
    floor = 1.5 + 0.25 * off**2 + 8 / params["width"] + 0.6 * (params["dropout"] - 0.1) ** 2
    rate = 0.55 * 10 ** (0.2 * min(off, 1))
    for step in range(1, {STEPS} + 1):
        yield floor + 3 * (1 + step) ** -rate + noise.gauss(0, 0.02)


def train(trial):
    for step, value in enumerate(curve(trial.params, trial.seed), start=1):
        trial.report(value, step=step)
    return value
'''


def search(folder: Path, backend: str, seed: int, trials: int, workers: int) -> list[FrozenTrial]:
    """The trials of one study."""
    space = SPACE.format(
        name=f"{backend}-{seed}",
        objective=folder / "objective.py",
        seed=seed,
        trials=trials,
        workers=workers,
    )
    url = f"sqlite:///{folder / 'bench.db'}"
    found = run(loads(space), backend=backend, storage=url, watcher=Silence()).study.get_trials()
    assert all(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in found)
    return found


def figures(trials: list[FrozenTrial]) -> list[float]:
    """Budget used in percent, trials completed, trials pruned, the best value."""
    used = sum(trial.last_step or 0 for trial in trials)
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    best = min((trial.value for trial in complete if trial.value is not None), default=math.nan)
    return [100 * used / (len(trials) * STEPS), len(complete), len(trials) - len(complete), best]


def without(trials: list[FrozenTrial], curve: Callable[[Any, int], Iterable[float]], seed: int) -> float:
    """The best value of the same trials if none is stopped."""
    ends = {t.number: list(curve(t.params, derived_seed(seed, "trial", t.number)))[-1] for t in trials}
    assert all(ends[t.number] == t.value for t in trials if t.state == TrialState.COMPLETE)
    return min(ends.values())


def show(name: str, row: list[float]) -> None:
    *both, last = row
    cells = [f"{used:8.1f}{done:6.0f}{cut:6.0f}{best:9.4f}" for used, done, cut, best in (both[:4], both[4:])]
    print(f"{name:8}" + "  ".join(cells) + f"{last:11.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    rows = []
    print(f"{options.trials} trials of {STEPS} steps, successive halving from step 1, eta 3")
    print(f"{'':8}{'optuna':<31}{'ray':<29}{'none':>11}")
    print(
        f"{'seed':8}" + "  ".join([f"{'budget %':>8}{'done':>6}{'cut':>6}{'best':>9}"] * 2) + f"{'best':>11}"
    )
    with tempfile.TemporaryDirectory() as name, connected(None, this_machine()):
        objective = Path(name) / "objective.py"
        objective.write_text(OBJECTIVE)
        curve = runpy.run_path(str(objective))["curve"]
        for seed in range(options.seeds):
            optunas, rays = (
                search(Path(name), backend, seed, options.trials, options.workers) for backend in BACKENDS
            )
            assert [trial.params for trial in optunas] == [trial.params for trial in rays]
            rows.append([*figures(optunas), *figures(rays), without(optunas, curve, seed)])
            show(str(seed), rows[-1])
    show("median", [statistics.median(column) for column in zip(*rows, strict=True)])


if __name__ == "__main__":
    main()
