"""Whether a search stays quick with ten thousand trials, beside Optuna on the same database.

    python benchmarks/scale.py [--trials 10000] [--space plain] [--sampler tpe] [--proposals 50] [--rounds 5]

A study is searched through the driver into a SQLite file, with random proposals. The objective costs nothing.
In the space `plain` each trial has two parameters, a report, a value and a line of output; in `rungs` it has
seven, one with a condition, and pauses at rungs. For each block of `--every` trials, it prints the CPU
milliseconds per trial, and at the end the ratio of the last block to the first.

Then the study continues with `--sampler`. Each row of the table is measured `--rounds` times on each side in
turn, in processes of their own, and has the medians:

- `list`, `show`, `trials --json`: the CPU seconds of these commands; on Optuna's side of a process that
  loads the summaries of all studies; or the study, its best trial and its importances; or its data frame.
- `first trial`: the seconds from the start of `hpsearch run`, or of a process with `study.optimize`, to the
  call of the objective.
- `proposal`, `longest`: the CPU milliseconds of `driver.ask`, or of `study.ask` with its suggestions; the
  median and the maximum of `--proposals` trials after the first. Optuna has its own sampler of that name, or
  else TPE.
- `memory`, `per trial`: the peak of the process that made these proposals; and by how much that exceeds what
  it held before it loaded the study, divided by the trials.

CPU seconds are those of the process and of everything it started, so a busy machine hardly changes them; it
does change the seconds to the first trial.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import optuna
import psutil
from silence import Silence

from hpsearch.search.engine.driver import Driver
from hpsearch.search.engine.running import Assignment
from hpsearch.search.sampling.distributions import suggest
from hpsearch.search.sampling.optuna_samplers import make_optuna_sampler
from hpsearch.search.scheduling.pruners import make_pruner
from hpsearch.spaces import Spec, loads
from hpsearch.storage.database import open_storage
from hpsearch.storage.studies import PROVENANCE, SPEC, open_live

SPACE = """
version: 1
name: large
objective: "bench:train"
metric: loss
{parameters}
search: {{sampler: {sampler}}}
budget: {{trials: {trials}}}
confirm: {{top: 0}}
execution: {{workers: 1}}
"""
PARAMETERS = {
    "plain": """
parameters:
  x: {min: 0.0, max: 1.0}
  y: {min: 0.0, max: 1.0}
""",
    "rungs": """
parameters:
  x: {min: 1e-4, max: 1.0, log: true}
  y: {min: 0.0, max: 1.0}
  size: {min: 2, max: 64, factor: 2}
  share: {min: 0.0, max: 0.5, step: 0.05}
  kind: [constant, linear, cosine]
  decay: [0.0, 0.01, 0.1]
  warmup: {min: 0.0, max: 0.2, step: 0.05, when: {kind: [linear, cosine]}}
early_stopping: {method: asha, type: promotion, min: 1, max: 27, eta: 3}
""",
}
OBJECTIVE = """
import pathlib
import time


def train(trial):
    began = pathlib.Path("began")
    if not began.exists():
        began.write_text(str(time.time()))
    return trial.params["x"]
"""
STEPS = {"plain": (1,), "rungs": (1, 3, 9, 27)}
SAMPLERS = {"random", "gp", "cmaes", "qmc", "nsgaii"}  # besides TPE, of which Optuna has its own
COLUMNS = ("number", "value", "state", "datetime_start", "datetime_complete", "params", "user_attrs")
SIDES = ("hpsearch", "Optuna")
URL, BEGAN, RUNS = "sqlite:///large.db", Path("began"), Path("runs")


def text_of(space: str, sampler: str, trials: int) -> str:
    return SPACE.format(parameters=PARAMETERS[space].strip(), sampler=sampler, trials=trials)


def spec_of(space: str, sampler: str, trials: int) -> Spec:
    return loads(text_of(space, sampler, trials))


def opened(spec: Spec, written: Spec) -> Driver:
    """A driver of the study in this folder, which is made with the `written` space if it is missing."""
    attrs = {PROVENANCE: {"backend": "optuna"}, SPEC: written.to_json()}
    live = open_live(open_storage(URL, create=True), spec.name, goal=spec.goal, attrs=attrs)
    return Driver(spec, live, runs=RUNS, watcher=Silence(), pruner=make_pruner(spec))


def trained(driver: Driver, given: Assignment, steps: Sequence[int]) -> None:
    """A training that costs nothing, up to its end or to where it pauses."""
    if len(steps) > 1:  # it may pause
        (given.folder / "checkpoint").mkdir(exist_ok=True)
        (given.folder / "checkpoint" / "state").touch()
    for step in steps:
        value = given.params["x"] + given.params["y"] / step
        if step > given.reported and driver.report(given.number, value, step, {}) is not None:
            return
    driver.complete(given.number, given.params["x"])


def search(space: str, sampler: str, trials: int, every: int) -> list[float]:
    """Search a study at random; the CPU milliseconds per trial, for each block of `every` trials."""
    driver = opened(spec_of(space, "random", trials), spec_of(space, sampler, trials))
    found, began = [], time.process_time()
    while (given := driver.ask()) is not None:
        trained(driver, given, STEPS[space])
        if (given.number + 1) % every == 0 and given.reported == 0:
            now = time.process_time()
            found.append(1e3 * (now - began) / every)
            print(f"{given.number + 1:>8,} trials{found[-1]:>10.2f} ms per trial", flush=True)
            began = now
    driver.finish()
    driver.close()
    return found


# Optuna's side


def load() -> optuna.Study:
    return optuna.load_study(study_name="large", storage=URL)


def optuna_sampler(space: str, sampler: str) -> optuna.samplers.BaseSampler:
    return make_optuna_sampler(spec_of(space, sampler if sampler in SAMPLERS else "tpe", 1), 0)


def first_trial(space: str, sampler: str) -> None:
    study, spec = load(), spec_of(space, sampler, 1)
    study.sampler = optuna_sampler(space, sampler)

    def objective(trial: optuna.Trial) -> float:
        params = spec.space.resolve(lambda name, parameter: suggest(trial, name, parameter))
        BEGAN.write_text(str(time.time()))
        return float(params["x"])

    study.optimize(objective, n_trials=1)


# Proposals, on either side in a process of its own


def propose(side: str, space: str, sampler: str, trials: int, proposals: int) -> None:
    """Print the milliseconds of each proposal, the peak of memory in MiB, and the KiB of a trial."""
    before = psutil.Process().memory_info().rss
    make = our_proposals if side == "hpsearch" else optuna_proposals
    one, took = make(space, sampler, trials + proposals + 1), []
    one()()  # looks at all trials
    for _ in range(proposals):
        began = time.process_time()
        end = one()
        took.append(1e3 * (time.process_time() - began))
        end()
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps([statistics.median(took), max(took), peak / 2**20, (peak - before) / trials / 2**10]))


def our_proposals(space: str, sampler: str, trials: int) -> Callable[[], Callable[[], object]]:
    spec = spec_of(space, sampler, trials)
    driver = opened(spec, spec)

    def one() -> Callable[[], object]:
        given = driver.ask()
        assert given is not None
        return lambda: trained(driver, given, STEPS[space])

    return one


def optuna_proposals(space: str, sampler: str, trials: int) -> Callable[[], Callable[[], object]]:
    study, spec = load(), spec_of(space, sampler, trials)
    study.sampler = optuna_sampler(space, sampler)

    def one() -> Callable[[], object]:
        trial = study.ask()
        params = spec.space.resolve(lambda name, parameter: suggest(trial, name, parameter))
        return lambda: study.tell(trial, params["x"])

    return one


# The table


def seconds(command: Sequence[str], folder: Path) -> list[float]:
    """CPU seconds of a command and of all processes that it started and waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return [after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime]


def to_first_trial(command: Sequence[str], folder: Path) -> list[float]:
    """Seconds from the start of a search to the call of its objective."""
    began = time.time()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return [float((folder / BEGAN).read_text()) - began]


def printed(command: Sequence[str], folder: Path) -> list[float]:
    """The figures that a command prints."""
    output = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures: list[float] = json.loads(output)
    return figures


ROWS: list[tuple[Callable[[Sequence[str], Path], list[float]], list[str], list[str]]] = [
    (seconds, ["list"], ["list, s"]),
    (seconds, ["show", "large"], ["show, s"]),
    (seconds, ["trials", "large", "--json"], ["trials --json, s"]),
    (to_first_trial, ["run", "large.yaml", "--plain"], ["first trial, s"]),
    (printed, ["propose"], ["proposal, ms", "longest, ms", "memory, MiB", "per trial, KiB"]),
]


def compare(folder: Path, options: argparse.Namespace) -> None:
    """Print the table; `folder` has the study."""
    found: dict[tuple[str, str], list[float]] = {}
    for number in range(options.rounds):
        for measure, words, titles in ROWS:
            for side in SIDES:
                ours = [sys.executable, "-m", "hpsearch.search.cli", *words, "--storage", "large.db"]
                other = [sys.executable, os.path.abspath(__file__), "--side", side, words[0], *sys.argv[1:]]
                place = folder / f"{number}-{words[0]}-{side}"
                place.mkdir()
                for file in ("bench.py", "large.yaml", "large.db"):
                    shutil.copy(folder / file, place)
                figures = measure(ours if side == "hpsearch" and words != ["propose"] else other, place)
                shutil.rmtree(place)
                for title, figure in zip(titles, figures, strict=True):
                    found.setdefault((title, side), []).append(figure)
    print(f"{'':<20}{SIDES[0]:>12}{SIDES[1]:>12}{'ratio':>12}")
    for title in (title for _, _, titles in ROWS for title in titles):
        here, there = (statistics.median(found[title, side]) for side in SIDES)
        print(f"{title:<20}{here:>12.4g}{there:>12.4g}{here / there:>12.3g}")


def measure_side(side: str, what: str, options: argparse.Namespace) -> None:
    """Do in this folder what a row measures."""
    space, sampler = options.space, options.sampler
    match what:
        case "list":
            print(optuna.get_all_study_summaries(URL))
        case "show":
            study = load()
            print(study.best_trial.params, optuna.importance.get_param_importances(study))
        case "trials":
            frame = load().trials_dataframe(COLUMNS)  # a column for each artifact would never end
            print(frame.to_json(orient="records", date_format="iso"))
        case "run":
            first_trial(space, sampler)
        case "propose":
            propose(side, space, sampler, options.trials, options.proposals)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--space", choices=PARAMETERS, default="plain")
    parser.add_argument("--sampler", default="tpe")
    parser.add_argument("--proposals", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--every", type=int, default=1_000)
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)  # and what of it to measure here
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    if options.side is not None:
        side, what = options.side
        measure_side(side, what, options)
        return
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        Path("bench.py").write_text(OBJECTIVE)
        Path("large.yaml").write_text(text_of(options.space, options.sampler, options.trials + 1))
        blocks = search(options.space, options.sampler, options.trials, options.every)
        print(f"the last {options.every:,} / the first {options.every:,}{blocks[-1] / blocks[0]:>10.2f}\n")
        compare(Path(name), options)


if __name__ == "__main__":
    main()
