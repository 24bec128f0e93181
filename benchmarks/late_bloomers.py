"""Whether early stopping keeps trials that look bad at first and end as the best.

    python benchmarks/late_bloomers.py [--space FILE] [--trials 60] [--folder FOLDER] [--orders 200]

If a space searches schedules, early rungs mislead: a decaying learning rate looks worse than a constant one
until training is nearly over. This command first trains random configurations of a space to the end. Their
study stays in `--folder`: the same command resumes it and repeats no trial. Then it replays the recorded
trials to each method in many random orders, and the method stops or pauses them by their reports. The values
come from real training runs; only the order and the decisions are simulated.

    promotion          hpsearch's promotion at rungs
    promotion, alike   the same, comparing only trials with equal values of `--alike`
    hyperband ...      the same two in the brackets of Hyperband
    optuna-...         Optuna's pruners, with the same first rung and eta

A late bloomer is a trial that ends in the best tenth but is not in the best third at the second rung. All
methods have the same budget (`--trainings`, in full training runs; by default an eighth of what all trials
take), so a method that stops early starts more trials. hpsearch is the real driver and study, with one
worker.

| column | what it is, on average |
|---|---|
| started, finished | numbers of trials |
| late | how often a late bloomer finished |
| best | how often the best of all trials finished |
| lost | by how much the best trial that finished is worse than the best of all |
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from contestants import Ours, quiet
from optuna import Study
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, SuccessiveHalvingPruner
from optuna.trial import FrozenTrial, TrialState
from silence import Silence

from hpsearch.search import run
from hpsearch.search.errors import UsageError
from hpsearch.search.preflight.objective import load_space
from hpsearch.search.sampling.whole_sampler import WholeSampler
from hpsearch.spaces import SpaceError, Spec
from hpsearch.spaces.stopping import Rungs

ETA = 3
SPACE = Path(__file__).with_name("schedules.yaml")


@dataclass(frozen=True)
class Recorded:
    """Trials that were trained to the end."""

    spec: Spec  # of their study
    first: int  # the first rung
    budget: int  # of each method
    alike: list[str]  # parameters; only trials with equal values are compared
    trials: Sequence[FrozenTrial]

    @property
    def late(self) -> list[int]:
        """The late bloomers, best first, as indices of `trials`."""
        ends = sorted(range(len(self.trials)), key=self.end)
        early = sorted(range(len(self.trials)), key=lambda n: self.at(n, self.first * ETA))
        good, promising = ends[: max(1, len(ends) // 10)], set(early[: len(early) // ETA])
        return [number for number in good if number not in promising]

    @property
    def best(self) -> int:
        return min(range(len(self.trials)), key=self.end)

    def end(self, number: int) -> float:
        value = self.trials[number].value
        assert value is not None
        return value if self.spec.goal == "minimize" else -value

    def at(self, number: int, step: int) -> float:
        values = self.trials[number].intermediate_values
        value = values[min(each for each in values if each >= step)]
        return value if self.spec.goal == "minimize" else -value


@dataclass(frozen=True)
class Played:
    """What a method did with the trials in one order."""

    begun: int
    ended: set[int]


def record(options: argparse.Namespace, folder: Path) -> Recorded:
    """Train random configurations of a space to the end, unless the folder has them already."""
    try:
        spec, trials = load_space(options.space), options.trials
    except (UsageError, SpaceError) as error:
        sys.exit(f"--space: {error}")
    stopping = spec.early_stopping
    if not isinstance(stopping, Rungs):
        sys.exit(f"--space: {options.space} has no rungs; it needs early_stopping: {{method: asha, ...}}")
    if stopping.min * ETA >= stopping.max:
        sys.exit(f"--space: {options.space} needs a second rung: min * {ETA} must be below max")
    folder.mkdir(parents=True, exist_ok=True)
    study = run(
        spec.override(
            search={"sampler": "random"},
            early_stopping={"method": "none", "max": stopping.max, "resource": stopping.resource},
            budget={"trials": trials},
            confirm={"top": 0},
            baseline=None,
        ),
        storage=f"sqlite:///{folder / 'recorded.db'}",
        watcher=Silence(),
    ).study
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    budget = round((options.trainings or trials / 8) * stopping.max)
    return Recorded(spec, stopping.min, budget, options.alike, complete)


class InOrder(WholeSampler):
    """Proposes the recorded configurations, one after another."""

    def __init__(self, recorded: Recorded, order: Sequence[int]) -> None:
        super().__init__(recorded.spec)
        self._trials = [recorded.trials[number] for number in order]

    def propose(self, study: Study, trial: FrozenTrial) -> dict[str, Any]:
        return dict(self._trials[trial.number].params)


def ours(recorded: Recorded, order: Sequence[int], name: str, **stopping: Any) -> Played:
    """Promotion, with hpsearch's driver."""
    spec = recorded.spec.override(
        name=name,
        search={"sampler": "random"},
        early_stopping={"eta": ETA, **stopping},
        budget={"trials": len(order), "samples": recorded.budget},
        confirm={"top": 0},
        baseline=None,
    )
    search = Ours(spec)
    search.propose_by(InOrder(recorded, order))  # enqueued trials would start before any promotion
    begun, spent, ended = 0, 0, set()
    while spent < recorded.budget and (job := search.next()) is not None:
        begun += job.done == 0
        trial = recorded.trials[order[job.key]]
        for step in (step for step in sorted(trial.intermediate_values) if step > job.done):
            spent, job.done = spent + step - job.done, step
            if not search.goes_on(job, trial.intermediate_values[step]):
                break
        if job.done == trial.last_step:
            ended.add(order[job.key])
    search.close(spent)
    return Played(begun, ended)


def optunas(recorded: Recorded, order: Sequence[int], name: str, pruner: BasePruner) -> Played:
    """An Optuna pruner, in a study of its own."""
    direction = recorded.spec.goal
    study = optuna.create_study(study_name=name, pruner=pruner, direction=direction)
    begun, spent, ended = 0, 0, set()
    for number in order:
        if spent >= recorded.budget:
            break
        begun += 1
        trial, known = study.ask(), recorded.trials[number]
        for step, value in sorted(known.intermediate_values.items()):
            trial.report(value, step)
            if step != known.last_step and trial.should_prune():
                study.tell(trial, state=TrialState.PRUNED)
                break
        else:
            study.tell(trial, known.value)
            ended.add(number)
        spent += study.trials[-1].last_step or 0
    return Played(begun, ended)


def methods(recorded: Recorded) -> dict[str, Callable[[Sequence[int], str], Played]]:
    """Functions that replay an order, by their names in the table."""
    first, last = recorded.first, recorded.trials[0].last_step or 0

    def promotion(method: str, alike: list[str]) -> Callable[[Sequence[int], str], Played]:
        stopping = {"method": method, "type": "promotion", "min": first, "max": last, "alike": alike}
        return lambda order, name: ours(recorded, order, name, **stopping)

    def pruned(make: Callable[[], BasePruner]) -> Callable[[Sequence[int], str], Played]:
        return lambda order, name: optunas(recorded, order, name, make())

    return {
        "promotion": promotion("asha", []),
        "promotion, alike": promotion("asha", recorded.alike),
        "hyperband": promotion("hyperband", []),
        "hyperband, alike": promotion("hyperband", recorded.alike),
        "optuna-hyperband": pruned(lambda: HyperbandPruner(first, last, ETA)),
        "optuna-asha": pruned(lambda: SuccessiveHalvingPruner(first, ETA)),
        "optuna-median": pruned(MedianPruner),
    }


def show(recorded: Recorded, orders: int) -> None:
    """Print a row for each method."""
    late, best = recorded.late, recorded.best
    count = len(recorded.trials)
    trainings = recorded.budget / (recorded.trials[0].last_step or 1)
    told = f"{count} trials of {recorded.spec.name}, {len(late)} late bloomers"
    print(f"{told}; {trainings:g} full training runs, {orders} orders")
    print(f"{'':18}{'started':>9}{'finished':>9}{'late':>8}{'best':>8}{'lost':>9}")
    for name, play in methods(recorded).items():
        played = []
        for seed in range(orders):
            order = list(range(count))
            random.Random(seed).shuffle(order)
            played.append(play(order, f"order {seed}"))
        begun = statistics.fmean(each.begun for each in played)
        ended = statistics.fmean(len(each.ended) for each in played)
        kept = statistics.fmean(one in each.ended for each in played for one in late) if late else math.nan
        found = statistics.fmean(best in each.ended for each in played)
        ends = [min(map(recorded.end, each.ended), default=math.inf) for each in played]
        lost = statistics.fmean(ends) - recorded.end(best)
        print(f"{name:18}{begun:9.1f}{ended:9.1f}{kept:8.2f}{found:8.2f}{lost:9.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--space", default=str(SPACE), help="default: schedules.yaml, beside this file")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--trainings", type=float, help="budget of each method, in full training runs")
    parser.add_argument("--alike", nargs="*", default=["lr_scheduler"], metavar="PARAMETER")
    parser.add_argument("--folder", type=Path, help="where to keep the recorded study")
    parser.add_argument("--orders", type=int, default=200)
    options = parser.parse_args()
    quiet()
    if options.folder is not None:
        show(record(options, options.folder), options.orders)
        return
    with tempfile.TemporaryDirectory() as folder:
        show(record(options, Path(folder)), options.orders)


if __name__ == "__main__":
    main()
