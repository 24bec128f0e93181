"""What a whole search costs per trial and per report if trials do nothing, compared with other tools.

    python benchmarks/overhead.py [--trials 1 20 200] [--reports 10] [--rounds 3] [--only ...]

The other tools are `study.optimize` on Optuna's default SQLite storage and Ray Tune's `Tuner.fit` as in its
manual, with and without `reuse_actors`. A trial samples one parameter at random, reports a formula
`--reports` times, and returns. Every run is a process of its own, measured from the start of Python to its
end, including imports and Ray's start and shutdown: what a user waits for. All except `study.optimize` run
one trial per core at a time. Rounds are interleaved, and the table has medians over them. Runs that take
plain Tune more than a minute are measured in the first round only.

The cost per trial is that of a run divided by its trials. The cost per report comes from two runs with one
trial per core, one with `--reports` and one with a hundred times as many: it is the difference of their
costs, divided by that of their reports. With more trials, the start of Ray's processes would vary by more
than that difference. It still varies by a second, which is half a millisecond per report.

CPU seconds are those of the process and of everything it started, including processes that Ray detaches: this
process adopts orphans (Linux only). Those of adopted processes are read exactly when they end, the others ten
times a second, so up to a tenth of a second may be missing for each of the others.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

PERIOD = 0.1  # seconds between two readings of a run's processes
LEAVE_SECONDS = 15.0  # for processes that a run leaves behind, before they are killed
SLOW, SLOW_TRIALS = "Tuner.fit", 50  # with that many trials or more, it runs for one round
MORE = 100  # factor between the two numbers of reports
PR_SET_CHILD_SUBREAPER = 36
SPACE = """
version: 1
name: bench
objective: "{objective}:train"
metric: loss
parameters:
  x: {{min: 0.0, max: 1.0}}
search: {{sampler: random}}
budget: {{trials: {trials}}}
confirm: {{top: 0}}
execution: {{workers: {workers}}}
"""
OBJECTIVE = """
def train(trial):
    x = trial.params["x"]
    for step in range(1, {reports} + 1):
        trial.report(x + 1 / step, step=step)
    return x + 1 / step
"""


@dataclass(frozen=True)
class Cost:
    """The cost of a run, or of a part of it."""

    wall: float  # seconds
    cpu: float


# The contestants. Each runs in a process that imports nothing of the others.


def optimize(trials: int, reports: int) -> None:
    import optuna

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        for step in range(1, reports + 1):
            trial.report(x + 1 / step, step)
        return x + 1 / step

    study = optuna.create_study(storage="sqlite:///bench.db", sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=trials)


def tuner(trials: int, reports: int, reuse_actors: bool = False) -> None:
    from ray import tune

    def train(config: dict[str, float]) -> None:
        for step in range(1, reports + 1):
            tune.report({"loss": config["x"] + 1 / step})

    results = tune.Tuner(
        train,
        param_space={"x": tune.uniform(0.0, 1.0)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=trials, reuse_actors=reuse_actors),
        run_config=tune.RunConfig(storage_path=os.path.abspath("results")),
    ).fit()
    assert len(results) == trials and not results.num_errors


def ours(trials: int, reports: int, backend: str) -> None:
    from hpsearch.search import run
    from hpsearch.spaces import loads

    objective = Path("objective.py").absolute()
    objective.write_text(OBJECTIVE.format(reports=reports))
    space = SPACE.format(objective=objective, trials=trials, workers=cores())
    result = run(loads(space), backend=backend, storage="sqlite:///bench.db")
    assert len(result.trials) == trials and set(result.trials["state"]) == {"COMPLETE"}


CONTESTANTS: dict[str, Callable[[int, int], None]] = {
    "study.optimize": optimize,
    "hpsearch optuna": lambda trials, reports: ours(trials, reports, "optuna"),
    "Tuner.fit": tuner,
    "Tuner.fit, reuse_actors": lambda trials, reports: tuner(trials, reports, reuse_actors=True),
    "hpsearch ray": lambda trials, reports: ours(trials, reports, "ray"),
}
RATIOS = [
    ("hpsearch optuna", "study.optimize"),
    ("hpsearch ray", "Tuner.fit"),
    ("hpsearch ray", "Tuner.fit, reuse_actors"),
]


def cores() -> int:
    return len(os.sched_getaffinity(0))


# Measuring.


def adopt_orphans() -> None:
    """Become the parent of each descendant whose own parent ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot adopt the processes of a run")


class Seconds:
    """CPU seconds by process, as last read."""

    def __init__(self) -> None:
        self._seen: dict[psutil.Process, float] = {}  # keyed by process number and start time
        self._done = threading.Event()

    def note(self, process: psutil.Process) -> None:
        with suppress(psutil.Error):  # it has just gone
            times = process.cpu_times()
            self._seen[process] = max(self._seen.get(process, 0.0), times.user + times.system)

    def watch(self) -> None:
        """Read all processes of the run until it is over."""
        while not self._done.wait(PERIOD):
            for process in psutil.Process().children(recursive=True):
                self.note(process)

    def total(self) -> float:
        self._done.set()
        return sum(self._seen.values())


def measured(command: list[str], folder: Path) -> Cost:
    """Run a command, and wait for it and all processes that it started."""
    log = folder / "log"
    # Ray's sessions and files go into the folder, which is removed, and Ray sends no usage statistics.
    environment = {
        **os.environ,
        "HOME": str(folder),
        "RAY_TMPDIR": str(folder / "ray"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    seconds, wall, code = Seconds(), 0.0, 0
    with log.open("w") as output:
        started = time.perf_counter()
        main = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
    threading.Thread(target=seconds.watch, daemon=True).start()
    killer = threading.Timer(LEAVE_SECONDS, end_all)
    with suppress(ChildProcessError):  # all have ended
        while True:
            # Until it is reaped, an ended process still has its final figures.
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            assert dead is not None
            with suppress(psutil.Error):
                seconds.note(psutil.Process(dead.si_pid))
            if dead.si_pid == main.pid:
                wall = time.perf_counter() - started
                code = main.wait()
                killer.start()
            else:
                os.waitpid(dead.si_pid, 0)
    killer.cancel()
    if code:
        raise SystemExit(f"{' '.join(command)} failed:\n{log.read_text()}")
    return Cost(wall, seconds.total())


def end_all() -> None:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)


def run_of(who: str, trials: int, reports: int) -> Cost:
    """The cost of one run of a contestant in an empty folder."""
    with tempfile.TemporaryDirectory(prefix="b-", ignore_cleanup_errors=True) as name:
        options = ["--contestant", who, "--trials", str(trials), "--reports", str(reports)]
        return measured([sys.executable, os.path.abspath(__file__), *options], Path(name))


Runs = dict[tuple[str, int, int], list[Cost]]  # contestant, trials, reports -> the rounds


def measure(contestants: list[str], trials: list[int], reports: int, rounds: int) -> Runs:
    runs: Runs = {}
    shapes = [*((count, reports) for count in trials), (cores(), reports), (cores(), MORE * reports)]
    for number, (count, each), who in itertools.product(range(rounds), dict.fromkeys(shapes), contestants):
        if number and who == SLOW and count >= SLOW_TRIALS:
            continue
        cost = run_of(who, count, each)
        runs.setdefault((who, count, each), []).append(cost)
        print(
            f"round {number + 1}: {who}, {count} x {each}: {cost.wall:.1f} s, CPU {cost.cpu:.1f} s",
            file=sys.stderr,
        )
    return runs


# The table.


def median(costs: list[Cost], parts: float) -> Cost:
    return Cost(
        statistics.median(cost.wall for cost in costs) / parts,
        statistics.median(cost.cpu for cost in costs) / parts,
    )


def row(runs: Runs, who: str, trials: list[int], reports: int) -> list[float]:
    """Wall seconds per trial, CPU seconds per trial, and milliseconds per report of both."""
    each = [median(runs[who, count, reports], count) for count in trials]
    parts = cores() * reports / 1e3
    less, more = (median(runs[who, cores(), times * reports], parts) for times in (1, MORE))
    report = [(more.wall - less.wall) / (MORE - 1), (more.cpu - less.cpu) / (MORE - 1)]
    return [cost.wall for cost in each] + [cost.cpu for cost in each] + report


def show(runs: Runs, trials: list[int], reports: int, rounds: int) -> None:
    rows = {who: row(runs, who, trials, reports) for who in dict.fromkeys(who for who, _, _ in runs)}
    width = 12 * len(trials)
    print(f"seconds per trial of {reports} reports; random sampler; {cores()} cores; rounds: {rounds}")
    print(f"{'':26}{'wall s':>{width}}{'CPU s':>{width}}{'ms per report':>24}")
    names = [f"{count} trial{'s' * (count != 1)}" for count in trials] * 2 + ["wall", "CPU"]
    print(f"{'':26}" + "".join(f"{name:>12}" for name in names))
    for who, figures in rows.items():
        print(f"{who:26}" + "".join(f"{figure:12.3f}" for figure in figures))
    for mine, peer in RATIOS:
        if mine not in rows or peer not in rows:
            continue
        print(f"{mine} / {peer}")
        pairs = zip(rows[mine], rows[peer], strict=True)
        ratios = [one / other if other > 0 else float("nan") for one, other in pairs]
        print(f"{'':26}" + "".join(f"{ratio:12.2f}" for ratio in ratios))
    if SLOW in rows and rounds > 1 and max(trials) >= SLOW_TRIALS:
        print(f"{SLOW} with {SLOW_TRIALS} trials or more: one round, not {rounds}.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, nargs="+", default=[1, 20, 200])
    parser.add_argument("--reports", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS), metavar="NAME")
    parser.add_argument("--contestant", choices=CONTESTANTS, help="only run this one, without measuring")
    options = parser.parse_args()
    if options.contestant is not None:
        CONTESTANTS[options.contestant](options.trials[0], options.reports)
        return
    adopt_orphans()
    runs = measure(options.only, options.trials, options.reports, options.rounds)
    show(runs, options.trials, options.reports, options.rounds)


if __name__ == "__main__":
    main()
