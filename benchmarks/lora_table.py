"""What the recorded learning curves of LoRA say at first sight.

    python benchmarks/lora_table.py [--table benchmarks/lora-curves]

The curves are in `lora-curves/`, a file for each task; its README says what they are, and `lora_curves.py`
records them. All figures are of the runs of seed 0, except the noise.

A row is all configurations, the better half of them, or those with a schedule. A hopeless one is so from the
start, so the better half says more about a search than all.

| column | what it is |
|---|---|
| runs, worse | configurations, and how many of them end worse than the base alone |
| after 120, ... | Spearman's rank correlation of the loss after so many samples with the loss at the end |
| best, median | losses at the end |
| noise | standard deviation between seeds, pooled over the better half of the configurations with several |

Then the best configurations of each task, and how alike the tasks rank configurations at the end (Spearman):
all, and the better half of the task of the row.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import qmc, rankdata

from hpsearch.search.preflight.objective import load_space
from hpsearch.spaces import Choice, Range, Spec

TABLE = Path(__file__).with_name("lora-curves")
ABOUT = "about.json"  # beside the table: what the curves depend on, and the loss of each base alone
SAMPLES, EVERY = 1800, 120  # of a run, as in spaces/lora.yaml, and between two validations
PLACES = tuple(range(EVERY, SAMPLES + 1, EVERY))
NOISE = 0.005  # nats per byte: standard deviation of the losses of confirmed winners between seeds
SHOWN = (120, 360, 720, 1080, 1440)
BEST = 3  # configurations that are printed for each task
SOBOL_SEED = 2026
RANGES: dict[str, Any] = {  # wider than those of spaces/lora.yaml, so that bad choices are in the table too
    "learning_rate": {"min": 1e-4, "max": 1e-1, "log": True},
    "batch_size": [2, 4, 8, 16, 32],
    "lora_r": {"min": 1, "max": 64, "factor": 2},
    "alpha_over_r": {"choices": [0.5, 1.0, 2.0, 4.0, 8.0], "pass": False},
    "lora_dropout": {"min": 0.0, "max": 0.3, "step": 0.05},
    "lr_scheduler": ["constant", "linear", "cosine"],
    "warmup_ratio": {"min": 0.0, "max": 0.3, "step": 0.05, "when": {"lr_scheduler": ["linear", "cosine"]}},
    "weight_decay": [0.0, 0.01, 0.1, 1.0],
}

ALPHA = {"lora_alpha": {"expr": "alpha_over_r * lora_r"}}
BASELINE: dict[str, Any] = {  # what guides for large models recommend
    "learning_rate": 2e-4,
    "batch_size": 8,
    "lora_r": 8,
    "alpha_over_r": 4.0,
    "lora_dropout": 0.05,
    "lr_scheduler": "linear",
    "warmup_ratio": 0.05,
    "weight_decay": 0.01,
}


@dataclass(frozen=True)
class Task:
    """A text that all configurations learn, from one base."""

    base: str  # a name in `lora_curves.BASES`, or `shipped`
    text: str
    role: str  # tune: a search may be tuned on it; judge: it may not


# What a search is tuned on says nothing of the judges' texts, nor of the bases that learn them.
TASKS = {
    "english": Task("shipped", "english", "tune"),
    "small": Task("small", "english", "tune"),
    "python": Task("english", "python", "judge"),
    "instructions": Task("english", "instructions", "judge"),
    "deep": Task("deep", "python", "judge"),
}


@dataclass(frozen=True, order=True)
class Run:
    """A configuration, by its number, trained with a seed."""

    task: str
    configuration: int
    seed: int
    seconds: float  # of CPU time, in one thread
    losses: tuple[float, ...]  # in nats per byte, at `PLACES`; infinite from where they are no number

    @property
    def end(self) -> float:
        return self.losses[-1]


def wide_space() -> Spec:
    """The space of `lora` with the `RANGES`, and the `BASELINE`."""
    parameters = RANGES | ALPHA | {"max_samples": SAMPLES, "eval_every": EVERY}
    return load_space("lora").override(name="lora_curves", parameters=parameters, baseline=BASELINE)


def configurations(count: int) -> list[dict[str, Any]]:
    """The baseline, then a scrambled Sobol sequence: the first of them are spread over the space, too."""
    space = wide_space().space
    baseline, names = space.baseline(), list(RANGES)
    assert baseline is not None
    sequence = qmc.Sobol(len(names), rng=np.random.default_rng(SOBOL_SEED))
    points = sequence.random_base2(max(1, (count - 1).bit_length()))

    def config_at(point: Sequence[float]) -> dict[str, Any]:
        shares = dict(zip(names, point, strict=True))
        return space.resolve(lambda name, parameter: value_at(parameter, shares[name]))

    return [baseline, *map(config_at, points.tolist())][:count]


def value_at(parameter: Range | Choice, share: float) -> Any:
    """The value at a share of the range, from 0 to below 1. All values of a list are equally frequent."""
    if isinstance(parameter, Choice):
        return parameter.choices[int(share * len(parameter.choices))]
    if parameter.count is not None:
        return parameter.at(int(share * parameter.count))
    low, high = math.log(parameter.min), math.log(parameter.max)
    return float(f"{math.exp(low + (high - low) * share):.4g}")  # the table has all its digits


def write_runs(folder: Path, runs: Iterable[Run]) -> None:
    """Write a file for each task, sorted by configuration and seed."""
    folder.mkdir(parents=True, exist_ok=True)
    of_task: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs):
        of_task[run.task].append(run)
    for task, its in of_task.items():
        configs = configurations(its[-1].configuration + 1)
        with (folder / f"{task}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(
                ["configuration", *RANGES, "seed", "seconds", *(f"loss_{place}" for place in PLACES)]
            )
            for run in its:
                values = [configs[run.configuration].get(name, "") for name in RANGES]
                losses = [f"{loss:.5f}" for loss in run.losses]
                writer.writerow([run.configuration, *values, run.seed, f"{run.seconds:.2f}", *losses])


def read_runs(folder: Path) -> list[Run]:
    """The runs of all tasks."""
    runs = []
    for task in TASKS:
        if not (path := folder / f"{task}.csv").exists():
            continue
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                losses = tuple(float(row[f"loss_{place}"]) for place in PLACES)
                runs.append(
                    Run(task, int(row["configuration"]), int(row["seed"]), float(row["seconds"]), losses)
                )
    return runs


def correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rank correlation; NaN if one of the two is constant."""
    ranks = rankdata(one), rankdata(other)  # equal losses, such as infinite ones, share a rank
    if any(len(set(each)) < 2 for each in ranks):
        return math.nan
    return float(np.corrcoef(*ranks)[0, 1])


def noise(runs: Iterable[Run]) -> float:
    """The standard deviation between seeds at the end; NaN without several seeds."""
    ends: dict[int, list[float]] = defaultdict(list)
    for run in runs:
        ends[run.configuration].append(run.end)
    several = sorted((its for its in ends.values() if len(its) > 1), key=statistics.fmean)
    better = several[: (len(several) + 1) // 2]  # where the training is stable
    if not better or not math.isfinite(statistics.fmean(better[-1])):
        return math.nan
    return math.sqrt(statistics.fmean(statistics.variance(its) for its in better))


def show(table: Path) -> None:
    """Print the three tables."""
    runs = read_runs(table)
    bases = json.loads((table / ABOUT).read_text(encoding="utf-8"))["tasks"]
    configs = configurations(1 + max(run.configuration for run in runs))
    first = {task: [run for run in runs if run.task == task and run.seed == 0] for task in TASKS}
    first = {task: its for task, its in first.items() if its}
    columns = "".join(f"{f'after {place}':>12}" for place in SHOWN)
    print(f"{'task, schedule':26}{'runs':>6}{'worse':>7}{columns}{'best':>9}{'median':>9}{'noise':>9}")
    for task, its in first.items():
        middle = statistics.median(run.end for run in its)
        groups = {"all": its, "better half": [run for run in its if run.end <= middle]}
        for schedule in RANGES["lr_scheduler"]:
            groups[schedule] = [run for run in its if configs[run.configuration]["lr_scheduler"] == schedule]
        for name, mine in groups.items():
            ends = [run.end for run in mine]
            early = [[run.losses[PLACES.index(place)] for run in mine] for place in SHOWN]
            cells = "".join(f"{correlation(losses, ends):12.2f}" for losses in early)
            worse = sum(end > bases[task]["loss_of_base"] for end in ends)
            alike = {run.configuration for run in mine}
            spread = noise(run for run in runs if run.task == task and run.configuration in alike)
            lowest, median = min(ends, default=math.nan), statistics.median(ends) if ends else math.nan
            figures = f"{lowest:9.4f}{median:9.4f}{spread:9.4f}"
            print(f"{f'{task}, {name}':26}{len(mine):6}{worse:7}{cells}{figures}")
    print(f"\n{'task':14}{'base':>8}{'loss':>9}{'s':>6}  " + "".join(f"{name:>14}" for name in RANGES))
    for task, its in first.items():
        for run in sorted(its, key=lambda run: run.end)[:BEST]:
            values = "".join(f"{configs[run.configuration].get(name, ''):>14}" for name in RANGES)
            base = bases[task]["loss_of_base"]
            print(f"{task:14}{base:8.4f}{run.end:9.4f}{run.seconds:6.1f}  {values}")
    ends_of = {task: {run.configuration: run.end for run in its} for task, its in first.items()}
    for title in ("all", "better half"):
        print(f"\n{title:14}" + "".join(f"{task:>14}" for task in first))
        for task, its_ends in ends_of.items():
            middle = math.inf if title == "all" else statistics.median(its_ends.values())
            row = []
            for others in ends_of.values():
                both = [number for number, end in its_ends.items() if end <= middle and number in others]
                row.append(correlation([its_ends[n] for n in both], [others[n] for n in both]))
            print(f"{task:14}" + "".join(f"{cell:14.2f}" for cell in row))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", type=Path, default=TABLE, help="default: lora-curves, beside this file")
    options = parser.parse_args()
    if not (options.table / ABOUT).is_file():
        parser.error(f"--table: found no {ABOUT} in {options.table}")
    show(options.table)


if __name__ == "__main__":
    main()
