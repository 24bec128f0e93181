"""Which search finds better configurations for the same compute, on recorded learning curves.

    pip install 'hpsearch[bench-search]' && pip install --no-deps syne-tune==0.14.2
    python benchmarks/search.py [--data FOLDER] [--suites SUITE ...] [--tasks dev|judge|all|NAME ...]
        [--seeds 10] [--first-seed 0] [--workers 1 4] [--budgets 5 10 20] [--only CONTESTANT ...]
        [--environments FOLDER]
        [--out runs.csv] [--jobs 2] [--each-task] [--no-default] [--curves curves.html]

The clock is simulated: an epoch costs every search one unit of time on one worker, and a paused trial resumes
where it paused. Budgets are in full training runs, summed over the workers. hpsearch and
i-Epoch know their budget and run once per budget; the others take none, so they run for the longest budget
and are judged on the way.
A search is judged by the best value that any of its trials has reported, finished or not. In suites with
noise, by the mean over all seeds where that value was reported.

`suites.py` describes the suites: `lcbench` and `taskset`, which are the default, `lora-curves`, which needs
no `--data`, `scan`, `scan-model` and `rbv2_xgboost`. The folder of the first two contains data and
`mfbench.py`, which has the functions `list_tasks`, `dev_tasks`, `space`, `max_epoch`, `curve` and
`reference`. LCBench, from the surrogate of YAHPO Gym 1.0.2 (github.com/slds-lmu/yahpo_data, Apache-2.0):
perceptrons on 34 OpenML datasets, 7 parameters, 52 epochs. TaskSet, as packed in the repository of DyHPO
(github.com/releaunifreiburg/DyHPO, Apache-2.0): the curves of 1,000 configurations of Adam on text
classifiers, 8 parameters, 50 epochs. Searches are tuned on `dev`; `judge` has the other tasks.

    hpsearch          promotion at rungs and `rung_gp`
    hpsearch-baseline * the same; the task's default configuration is the baseline, and trained to the end
    hpsearch-tpe      * the same with TPE at the best rung
    hpsearch-prior    * like hpsearch, with a prior: the one of 100 random configurations with the best final
                      values on average over the suite's tasks of `dev`
    hpsearch-default  * like hpsearch, with the task's default as its prior
    hpsearch-random   * promotion at rungs and random search: shows what the model adds
    random            random search without early stopping
    one-epoch         i-Epoch (arXiv 2307.15422): random search that trains each trial for one epoch, then the
                      three best to the end; the budget says how many it tries
    few-epochs        the same with a ninth of the epochs of a full training run
    optuna-tpe        Optuna's default sampler, on an objective that does not report
    optuna-hyperband  the same with HyperbandPruner at its defaults except the maximum
    optuna-median     the same with MedianPruner at its defaults: Optuna's default if an objective reports
    optuna-auto       the sampler that OptunaHub's AutoSampler takes, without early stopping: GPSampler where
                      all parameters are ranges, otherwise multivariate TPE with the constant liar
    optuna-auto-hyperband
                      the same with HyperbandPruner at its defaults except the maximum
    ray-asha          Ray Tune's ASHAScheduler (stopping type) and random search
    ray-asha-tpe      the same with Ray Tune's OptunaSearch
    syne-asha         Syne Tune's ASHA (promotion type)
    syne-mobster      Syne Tune's MOBSTER: the same with a Gaussian process
    syne-dyhpo        * Syne Tune's DyHPO with evenly spaced rungs, its model fitted by `exp_decay.py`;
                      takes a minute per run
    syne-cqr          ASHACQR of Syne Tune 0.16: its ASHA (stopping type) with conformalized quantile
                      regression; takes minutes per run
    neps-hyperband    Hyperband of NePS
    neps-priorband    * PriorBand of NePS, with the task's default as its prior
    smac-hyperband    SMAC's MultiFidelityFacade: Hyperband with a random forest; takes a minute per run
    bohb              HpBandSter's BOHB: Hyperband with kernel density estimators
    wandb-bayes       W&B's Bayesian search, with its Hyperband (stopping type)
    ...-prior         * one-epoch, few-epochs, optuna-hyperband, optuna-auto, ray-asha, syne-mobster and
                      neps-priorband, trying the prior of hpsearch-prior first; neps-priorband-prior has it as
                      its prior

Those with * run only if named with --only. All except those in the last line try the task's default
configuration first, unless `--no-default` is given. All with rungs have the same ones: the first after a 25th
of a full training run, with one in three trials promoted. Brackets of Hyperband are counted from a full
training run downwards, so in NePS, SMAC and BOHB the rungs are those that are nearest: 2, 6, 17 and 52 epochs
in LCBench. A trial that these three train for longer resumes like all others here. They judge a trial at its
rungs alone; where they would have to wait for other trials, they begin their next bracket. Syne Tune 0.14.2
is the last version with its three searches from `syne-asha` to `syne-dyhpo`. It asks for an older numpy than
hpsearch, but works with the newer one.

The contestants from `syne-cqr` to `wandb-bayes` run in environments of their own, which `rivals.py` makes:

    python benchmarks/rivals.py install --into FOLDER

Regret is normalized: 0 is the best known value of a task, 1 the median of random configurations trained to
the end. Ranks are computed for each task and seed among the contestants of the table; equal values share
their mean rank. `worst` is the largest ratio, over the tasks, of a search's mean regret to that of the best
search there. 0.02 is added to both, because ten seeds cannot show smaller differences. A table has only the
tasks and seeds that all its contestants have run.

With `--out`, every run becomes a line in that file. The same command resumes where it was stopped: it repeats
no run that the file has; for the other tools, one with a longer budget is enough. `--show` prints the results
so far. `--curves` draws the regret after 1, 2, ... training runs of the searches with the longest budget.
"""

from __future__ import annotations

import argparse
import csv
import functools
import itertools
import multiprocessing
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import optuna
from contestants import CONTESTANTS, ENVIRONMENTS, Task, missing, quiet, suggested
from optuna.samplers import RandomSampler
from plotly.colors import qualitative
from plotly.graph_objects import Scatter
from plotly.subplots import make_subplots
from scipy.stats import rankdata
from simulation import THREADS, simulate
from suites import SUITES, Suites, WrongUse

ROLES = ("all", "dev", "judge")  # of tasks
KNOWN = 100  # configurations tried on similar tasks to find a prior
FLOOR = 0.02  # added to regrets before division: the standard error of a task's mean over 10 seeds


@dataclass(frozen=True)
class Plan:
    """A run to do."""

    contestant: str
    task: str
    seed: int
    workers: int
    default: bool  # whether the task's default configuration is tried first
    budget: int  # in full training runs


@dataclass(frozen=True)
class Run:
    """The results of a run."""

    plan: Plan
    seconds: float  # wall time
    trials: int
    finished: int  # trials trained to the end
    best: tuple[float, ...]  # the best value after 1, 2, ... full training runs


suites_in = functools.cache(Suites)  # what the runs of a process have in common is read and found once


def run(plan: Plan, folder: Path | None) -> Run:
    """Run a search."""
    quiet()
    suites = suites_in(folder)
    task = Task(
        suites.space(plan.task),
        suites.epochs(plan.task),
        lambda config: suites.reported(plan.task, config, plan.seed),
        lambda config: suites.expected(plan.task, config),
        None,
        lambda: known(suites, plan.task),
    )
    if plan.default:
        task = replace(task, first=task.default)
    begun = time.perf_counter()
    budget = plan.budget * task.epochs
    search = CONTESTANTS[plan.contestant].begin(task, plan.seed, budget)
    told = simulate(search, task, plan.workers, budget)
    seconds = time.perf_counter() - begun
    best = tuple(told.best[task.epochs - 1 :: task.epochs])
    return Run(plan, seconds, told.trials, told.finished, best)


@functools.cache
def known(suites: Suites, task: str) -> dict[str, Any]:
    """The prior for a task: the one of `KNOWN` random configurations that is best on the other tasks.

    The other tasks are those of `dev` with the same space, never the task itself. The best configuration has
    the smallest mean of normalized regrets at the end of training.
    """
    space, regret = suites.space(task), regret_in(suites)
    roles = suites.roles([task.partition("/")[0]])
    tuned = (name for name, role in roles.items() if role == "dev")
    others = [name for name in tuned if name != task and suites.space(name) == space]
    if not others:
        raise WrongUse(f"--only: no other task of dev has the space of {task}, so it has no prior")
    random = optuna.create_study(sampler=RandomSampler(seed=0))
    every = {name: {**p, "when": {}} for name, p in space.items()}  # some tools need all parameters
    tried = [suggested(random.ask(), every) for _ in range(KNOWN)]

    def expected(config: dict[str, Any]) -> float:
        return statistics.fmean(regret(name, float(suites.expected(name, config)[-1])) for name in others)

    return min(tried, key=expected)


def joined(runs: Iterable[Run]) -> Run:
    """Join runs of a search with several budgets: up to each budget, the values of the run that had it."""
    *shorter, longest = sorted(runs, key=lambda made: made.plan.budget)
    best = list(longest.best)
    for made in reversed(shorter):
        best[: made.plan.budget] = made.best
    return replace(longest, best=tuple(best))


def regret_in(suites: Suites) -> Callable[[str, float], float]:
    """A function for the normalized regret of a task's value."""

    def regret(task: str, value: float) -> float:
        known = suites.reference(task)
        return float((value - known.best) / max(known.median - known.best, 1e-12))

    return regret


class Runs:
    """The runs so far, in memory and, if a file is named, in its lines."""

    def __init__(self, file: Path | None, longest: int) -> None:
        self._file = file
        self._header = [field.name for field in fields(Plan)] + ["seconds", "trials", "finished"]
        self._header += [f"best_{number}" for number in range(1, longest + 1)]
        self._made: dict[Plan, Run] = {}
        found = file.read_bytes() if file is not None and file.exists() else b""
        whole = found[: found.rfind(b"\n") + 1]  # a kill may have cut the last line
        self._cut = len(whole) if whole != found else None
        if whole:
            header, *rows = csv.reader(whole.decode().splitlines())
            if header[: len(self._header)] != self._header:
                raise WrongUse(f"--out: {file} was made for a shorter budget; name another file")
            self._header, longest = header, len(header) - len(self._header) + longest
            for row in rows:
                self._add(self._read(row))
        elif file is not None:
            self._write(self._header)
        self._longest = longest

    @property
    def contestants(self) -> list[str]:
        """The contestants that have runs."""
        made = {plan.contestant for plan in self._made}
        return [name for name in CONTESTANTS if name in made]

    def find(self, plan: Plan) -> Run | None:
        """The planned run, or a longer one if the contestant does not know its budget."""
        longest = plan.budget if CONTESTANTS[plan.contestant].told else self._longest
        plans = (replace(plan, budget=budget) for budget in range(plan.budget, longest + 1))
        return next((self._made[each] for each in plans if each in self._made), None)

    def take(self, made: Run) -> None:
        self._add(made)
        row = [*astuple(made.plan), round(made.seconds, 3), made.trials, made.finished, *made.best]
        self._write(row + [""] * (len(self._header) - len(row)))

    def _add(self, made: Run) -> None:
        self._made[made.plan] = made

    def _write(self, row: Sequence[object]) -> None:
        if self._file is not None:
            if self._cut is not None:
                os.truncate(self._file, self._cut)
                self._cut = None
            with self._file.open("a", newline="") as stream:
                csv.writer(stream).writerow(row)

    @staticmethod
    def _read(row: list[str]) -> Run:
        contestant, task, seed, workers, default, budget, seconds, trials, finished, *best = row
        plan = Plan(contestant, task, int(seed), int(workers), default == "True", int(budget))
        values = tuple(float(value) for value in best if value)  # a shorter run has fewer
        return Run(plan, float(seconds), int(trials), int(finished), values)


def make(plans: Sequence[Plan], runs: Runs, folder: Path | None, jobs: int) -> int:
    """Do the runs, several at once; return how many failed."""
    failed = 0
    for name in THREADS:
        os.environ[name] = "1"  # each run uses one core
    # Spawned, because numpy and Ray do not work well after a fork.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(run, plan, folder): plan for plan in plans}
        try:
            for number, done in enumerate(as_completed(waiting), start=1):
                plan = waiting[done]
                told = f"{number}/{len(plans)} {plan.contestant}, {plan.task}, seed {plan.seed}"
                if (error := done.exception()) is not None:
                    failed += 1
                    print(f"{told}: FAILED, {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                    continue
                runs.take(done.result())
                print(f"{told}: {done.result().seconds:.1f} s", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    return failed


class Table:
    """The results of contestants on the same tasks, with the same seeds and number of workers."""

    def __init__(
        self, names: Sequence[str], runs: Iterable[Run], regret: Callable[[str, float], float]
    ) -> None:
        self.names = names
        self._regret = regret
        cells: dict[tuple[str, int], dict[str, Run]] = defaultdict(dict)
        for made in runs:
            cells[made.plan.task, made.plan.seed][made.plan.contestant] = made
        self.cells = {key: row for key, row in cells.items() if len(row) == len(names)}
        self.left_out = len(cells) - len(self.cells)
        self.tasks = sorted({task for task, _ in self.cells})

    def of(self, name: str) -> list[Run]:
        return [row[name] for row in self.cells.values()]

    def regret_on(self, task: str, name: str, budget: int) -> float:
        """The mean regret on one task."""
        found = [row[name].best[budget - 1] for (its, _), row in self.cells.items() if its == task]
        return statistics.fmean(self._regret(task, value) for value in found)

    def mean_regret(self, name: str, budget: int) -> float:
        """The mean regret over all tasks and seeds."""
        found = [self._regret(task, row[name].best[budget - 1]) for (task, _), row in self.cells.items()]
        return statistics.fmean(found)

    def ranks(self, budget: int) -> dict[str, float]:
        """The mean rank of each contestant."""
        rows = [[row[name].best[budget - 1] for name in self.names] for row in self.cells.values()]
        found = zip(*(rankdata(values) for values in rows), strict=True)
        return {name: statistics.fmean(ranks) for name, ranks in zip(self.names, found, strict=True)}

    def worst(self, name: str, budget: int) -> float:
        """The largest ratio of the regret on a task to the best one there."""
        return max(self._ratios(name, budget))

    def _ratios(self, name: str, budget: int) -> Iterator[float]:
        for task in self.tasks:
            regrets = {each: max(0.0, self.regret_on(task, each, budget)) for each in self.names}
            yield (regrets[name] + FLOOR) / (min(regrets.values()) + FLOOR)


def show(table: Table, budgets: Sequence[int], *, each_task: bool) -> None:
    """Print the means over all tasks and, with `each_task`, those of each task at the longest budget."""
    groups = [f"{title:>{8 * len(budgets)}}" for title in ("regret", "rank", "worst")]
    print(f"{'':22}" + "".join(groups) + f"{'s a run':>10}{'trials':>8}{'to end':>8}")
    print(f"{'training runs':22}" + "".join(f"{budget:8}" for _ in groups for budget in budgets))
    ranks = {budget: table.ranks(budget) for budget in budgets}
    for name in sorted(table.names, key=lambda name: ranks[budgets[-1]][name]):
        cells = [f"{table.mean_regret(name, budget):8.3f}" for budget in budgets]
        cells += [f"{ranks[budget][name]:8.2f}" for budget in budgets]
        cells += [f"{table.worst(name, budget):8.1f}" for budget in budgets]
        mine = table.of(name)
        trials = [statistics.fmean(each) for each in ([r.trials for r in mine], [r.finished for r in mine])]
        seconds = statistics.fmean(r.seconds for r in mine)
        print(f"{name:22}" + "".join(cells) + f"{seconds:10.1f}{trials[0]:8.0f}{trials[1]:8.0f}")
    if each_task:
        print(f"\nmean regret of each task after {budgets[-1]} full training runs, in the order of")
        print(", ".join(table.names))
        for task in table.tasks:
            row = "".join(f"{table.regret_on(task, name, budgets[-1]):8.3f}" for name in table.names)
            print(f"{task:48}{row}")


def draw(tables: dict[int, Table], longest: int, file: Path) -> None:
    """Draw the mean regret after each training run, a panel for each number of workers, as a page."""
    titles = [f"{workers} worker{'s' * (workers > 1)}" for workers in tables]
    figure = make_subplots(cols=len(tables), shared_yaxes=True, subplot_titles=titles)
    for column, table in enumerate(tables.values(), start=1):
        for name, colour in zip(table.names, itertools.cycle(qualitative.Dark24)):
            regrets = [table.mean_regret(name, budget) for budget in range(1, longest + 1)]
            line = Scatter(x=list(range(1, longest + 1)), y=regrets, name=name, line={"color": colour})
            line.update(legendgroup=name, showlegend=column == 1)
            figure.add_trace(line, row=1, col=column)
    figure.update_xaxes(title="full training runs")
    figure.update_yaxes(title="mean normalized regret", type="log", col=1)
    figure.update_layout(template="plotly_white", hovermode="x unified")
    figure.write_html(file)


def chosen(wanted: Sequence[str], roles: dict[str, str]) -> list[str]:
    """The names of tasks. Raises `WrongUse` for other names, and lists these."""
    groups = {role: [task for task in roles if role in ("all", roles[task])] for role in ROLES}
    unknown = [name for name in wanted if name not in groups and name not in roles]
    if unknown:
        raise WrongUse(f"--tasks: no {', '.join(unknown)}; there are {', '.join([*groups, *roles])}")
    named = [task for name in wanted for task in groups.get(name, [name])]
    return list(dict.fromkeys(named))


def present(wanted: Sequence[str] | None) -> list[str]:
    """The contestants that can run; prints those that cannot. Raises `WrongUse` if one of these is named."""
    named = wanted or [name for name, contestant in CONTESTANTS.items() if not contestant.extra]
    out = {name: package for name in named if (package := missing(name)) is not None}
    if out:
        told = "; ".join(f"{name}: {package} is not installed" for name, package in out.items())
        told += " (--help says how to install it)"
        if wanted is not None:
            raise WrongUse(f"--only: {told}")
        print(f"LEFT OUT: {told}", file=sys.stderr)
    return [name for name in named if name not in out]


def made_by(runs: Runs, plans: Sequence[Plan]) -> list[Run]:
    """The results of plans, joined over the budgets of a search; without searches that lack a budget."""
    searches: dict[Plan, list[Run | None]] = defaultdict(list)
    for plan in plans:
        searches[replace(plan, budget=0)].append(runs.find(plan))
    return [joined(run for run in each if run is not None) for each in searches.values() if None not in each]


def compare(options: argparse.Namespace) -> int:
    """Do the missing runs and print a table per number of workers; return how many runs failed."""
    suites = suites_in(options.data)
    tasks, budgets = chosen(options.tasks, suites.roles(options.suites)), sorted(options.budgets)
    runs = Runs(options.out, budgets[-1])
    names = (options.only or runs.contestants) if options.show else present(options.only)
    plans = [
        Plan(name, task, seed, workers, not options.no_default, budget)
        for workers in options.workers
        for seed in range(options.first_seed, options.first_seed + options.seeds)
        for task in tasks
        for name in names
        for budget in (budgets if CONTESTANTS[name].told else budgets[-1:])
    ]
    to_make = [plan for plan in plans if runs.find(plan) is None and not options.show]
    failed = make(to_make, runs, options.data, options.jobs) if to_make else 0
    regret = regret_in(suites)
    on_the_way: dict[int, Table] = {}
    for workers in options.workers:
        mine = [plan for plan in plans if plan.workers == workers]
        made = made_by(runs, mine)
        ran = [name for name in names if any(each.plan.contestant == name for each in made)]
        table = Table(ran, made, regret)
        print(f"\n{len(table.tasks)} tasks, {options.seeds} seeds, {workers} worker{'s' * (workers > 1)}")
        if out := [name for name in names if name not in ran]:
            print(f"without {', '.join(out)}: no such runs")
        if table.left_out:
            print(f"without {table.left_out} of the tasks and seeds, which not all contestants have run")
        if table.cells:
            show(table, budgets, each_task=options.each_task)
            whole = [plan for plan in mine if plan.budget == budgets[-1]]
            on_the_way[workers] = Table(ran, made_by(runs, whole), regret)
    if options.curves is not None and on_the_way:
        draw(on_the_way, budgets[-1], options.curves)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="needed by all suites but lora-curves")
    parser.add_argument(
        "--suites", nargs="+", choices=SUITES, default=["lcbench", "taskset"], metavar="SUITE"
    )
    parser.add_argument("--tasks", nargs="+", default=["dev"], metavar="NAME")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--budgets", type=int, nargs="+", default=[5, 10, 20], help="in full training runs")
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, metavar="CONTESTANT")
    parser.add_argument(
        "--environments", type=Path, metavar="FOLDER", help="those of rivals.py; without it they are left out"
    )
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--jobs", type=int, default=1, help="parallel runs")
    parser.add_argument("--each-task", action="store_true")
    parser.add_argument("--no-default", action="store_true")
    parser.add_argument("--curves", type=Path, metavar="FILE", help="an HTML page to draw")
    parser.add_argument("--show", action="store_true", help="run nothing, print the results in --out")
    options = parser.parse_args()
    if min(options.budgets) < 1:
        parser.error("--budgets: a budget is at least one full training run")
    if options.environments is not None:
        if not options.environments.is_dir():
            parser.error(f"--environments: there is no folder {options.environments}")
        # The processes of the runs see it too.
        os.environ[ENVIRONMENTS] = str(options.environments.absolute())
    try:
        failed = compare(options)
    except WrongUse as error:
        parser.error(str(error))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
