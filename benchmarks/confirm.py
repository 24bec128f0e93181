"""Whether the winner is as good as a confirmation reports, on noise with known true values.

    python benchmarks/confirm.py [--studies 4000] [--searches 12] [--workers 2]

The first table tests `search/results/confirmation.py` alone. The true values and the noise of 60
configurations are drawn at random, and the best few are confirmed. There is a row for each standard deviation
of the true values, each size of the seed effect (a shift that a seed gives all configurations), and each size
of the confirmation.

The second table tests whole searches: `hpsearch.search.run` with its driver, workers and study. The objective
is a bowl with noise that depends on the trial's seed and parameters, and half as much noise that depends on
the seed alone.

| column | what it is |
|---|---|
| value | how often the interval of the winner's value covers its true value |
| gain | the same for the interval of the winner's gain over the baseline |
| before | selection bias: how much the search's best value is better than its true value |
| after | the same for the winner's value after its confirmation |
| improved | how much better the winner truly is than the trial with the search's best value |

The last three are in standard deviations of the noise. Each rate comes with its interval (Wilson 1927).
"""

from __future__ import annotations

import argparse
import math
import os
import runpy
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import optuna
from silence import Silence

from hpsearch.search import run
from hpsearch.search.results.confirmation import LEVEL, Confirmed, confirmed
from hpsearch.spaces import loads
from hpsearch.storage.trial_attrs import search_trials

NOISE = 0.02  # the standard deviation of a value around its configuration's true value
SPREADS = (0.5, 1.0, 3.0)  # standard deviations of the true values, in units of NOISE
SEED_EFFECTS = (0.0, 1.0)  # their standard deviations, in units of NOISE
PLANS = ((3, 3), (2, 2))  # candidates and seeds: the sizes that a search chooses by default
CONFIGURATIONS = 60
TRIALS = 24  # in a whole search
SPACE = """
version: 1
name: "{name}"
objective: "{objective}:train"
metric: loss
parameters:
  x: {{min: 0.0, max: 1.0}}
  y: {{min: 0.0, max: 1.0}}
baseline: {{x: 0.9, y: 0.9}}
search: {{sampler: {sampler}, seed: {seed}}}
budget: {{trials: {trials}}}
confirm: {{top: 3, seeds: 3}}
execution: {{workers: {workers}}}
"""
OBJECTIVE = f"""
import random


def truth(params):
    return 0.2 * ((params["x"] - 0.3) ** 2 + (params["y"] - 0.6) ** 2)


def train(trial):
    shared = random.Random(trial.seed).gauss(0, {NOISE / 2})  # the same shift for all configurations
    own = random.Random(repr((trial.seed, trial.params))).gauss(0, {NOISE})
    value = truth(trial.params) + shared + own
    trial.report(value, step=1)
    return value
"""


@dataclass(frozen=True)
class Case:
    """One confirmation's result, compared with the truth."""

    covered: bool
    gained: bool | None  # None if the baseline won
    before: float
    after: float
    improved: float


def judged(found: Confirmed, truth: Sequence[float], seen: Sequence[float], baseline: int) -> Case:
    """Compare a confirmation with the truth. Losses are by configuration number; lower is better."""
    others = [number for number in range(len(seen)) if number != baseline]
    best = min(others, key=lambda number: seen[number])
    gained = None
    if found.gain is not None:
        gained = found.gain.low <= truth[baseline] - truth[found.winner] <= found.gain.high
    return Case(
        found.value.low <= truth[found.winner] <= found.value.high,
        gained,
        truth[best] - seen[best],
        truth[found.winner] - found.value.value,
        truth[best] - truth[found.winner],
    )


def drawn(rng: np.random.Generator, spread: float, seed_effect: float, top: int, seeds: int) -> Case:
    """Random configurations, of which the best are confirmed; the first is the baseline."""
    truth = rng.normal(0, spread * NOISE, CONFIGURATIONS)
    truth[0] = 2 * spread * NOISE
    seen = truth + rng.normal(0, NOISE, CONFIGURATIONS)
    chosen = [0, *(int(number) for number in np.argsort(seen[1:])[:top] + 1)]
    shared = rng.normal(0, seed_effect * NOISE, seeds)
    values = {number: list(truth[number] + shared + rng.normal(0, NOISE, seeds)) for number in chosen}
    found = confirmed(values, {number: float(seen[number]) for number in chosen}, baseline=0)
    return judged(found, list(truth), list(seen), 0)


def searched_for(folder: Path, sampler: str, seed: int, workers: int) -> Case:
    """A whole search, with its driver and workers."""
    objective = folder / "objective.py"
    objective.write_text(OBJECTIVE)
    space = SPACE.format(
        name=f"{sampler}-{seed}",
        objective=objective,
        sampler=sampler,
        seed=seed,
        trials=TRIALS,
        workers=workers,
    )
    result = run(loads(space), storage=f"sqlite:///{folder / 'bench.db'}", watcher=Silence(says=False))
    trials = search_trials(result.study.get_trials(deepcopy=False))
    true = runpy.run_path(str(objective))["truth"]
    truth = [true(trial.params) for trial in trials]
    seen = [trial.value for trial in trials if trial.value is not None]
    assert result.confirmed is not None and len(seen) == len(trials)
    return judged(result.confirmed, truth, seen, 0)


def show(name: str, cases: Sequence[Case]) -> None:
    gained = [case.gained for case in cases if case.gained is not None]
    rates = [_rate([case.covered for case in cases]), _rate(gained)]
    means = [
        np.mean([getattr(case, what) for case in cases]) / NOISE for what in ("before", "after", "improved")
    ]
    print(
        f"{name:<34}" + "".join(f"{rate:>22}" for rate in rates) + "".join(f"{mean:>9.2f}" for mean in means)
    )


def _rate(hits: Sequence[bool]) -> str:
    """A rate in percent, with its 95% interval (Wilson 1927)."""
    if not hits:
        return "-"
    n, share, z = len(hits), float(np.mean(hits)), 1.96
    middle, half = share + z * z / 2 / n, z * math.sqrt(share * (1 - share) / n + (z / 2 / n) ** 2)
    low, high = ((middle + sign * half) / (1 + z * z / n) for sign in (-1, 1))
    return f"{100 * share:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def head(what: str) -> None:
    print(f"{what:<34}{'value, %':>22}{'gain, %':>22}{'before':>9}{'after':>9}{'improved':>9}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=4000, help="studies per row of the first table")
    parser.add_argument("--searches", type=int, default=12, help="whole searches per sampler")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    print(f"{options.studies} studies of {CONFIGURATIONS} configurations; nominal coverage {LEVEL:.0%}")
    head("SD, seed effect, top x seeds")
    for spread in SPREADS:
        for effect in SEED_EFFECTS:
            for top, seeds in PLANS:
                rng = np.random.default_rng(0)
                cases = [drawn(rng, spread, effect, top, seeds) for _ in range(options.studies)]
                show(f"{spread:g}, {effect:g}, {top} x {seeds}", cases)
    print(f"\n{options.searches} whole searches of {TRIALS} trials; confirm: 3 x 3")
    head("sampler")
    for sampler in ("random", "tpe"):
        with tempfile.TemporaryDirectory() as name:
            runs = range(options.searches)
            show(sampler, [searched_for(Path(name), sampler, seed, options.workers) for seed in runs])


if __name__ == "__main__":
    main()
