"""How soon a killed search resumes: the time from restarting the command to the first new report.

    python benchmarks/resume.py [--finished 0 1000] [--rounds 5] [--only optuna ray]

The search uses the space `lora` and the trainer, in a study that already has `--finished` trials; the driver
made these, with reports from a formula. `hpsearch run lora` is started, killed (SIGKILL) when a trial has
reported twice, and restarted at once. The clock runs until the database has a new report. Until then, Python
and torch are loaded, the study is read, the trial is resumed, its checkpoint is read, and it trains up to the
next report. Rounds are interleaved.

CPU seconds are those of all processes of the search until then. If they are far fewer than the wall seconds
times the cores, the machine was busy with other work.
"""

from __future__ import annotations

import argparse
import math
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import optuna
import psutil
from silence import Silence

from hpsearch.search.engine.driver import Driver
from hpsearch.search.scheduling.pruners import make_pruner
from hpsearch.spaces import load
from hpsearch.storage.database import open_storage
from hpsearch.storage.studies import PROVENANCE, SPEC, open_live
from hpsearch.storage.workspace import Workspace

BACKENDS = ("optuna", "ray")
NAME = "lora"  # of the space and of its study
LIMIT = 180.0  # seconds that any step may take
EVERY = 0.02  # seconds between two reads of the database
TWICE = """
    SELECT count(*) FROM trials WHERE state = 'RUNNING'
    AND (SELECT count(*) FROM trial_intermediate_values WHERE trial_id = trials.trial_id) >= 2
"""
REPORTS = "SELECT count(*) FROM trial_intermediate_values"


def filled(folder: Path, finished: int) -> None:
    """Make a folder with a study of finished trials and their files, as a search leaves it."""
    spec = load(NAME)
    folder.mkdir()
    url = f"sqlite:///{folder / 'hpsearch.db'}"
    attrs = {SPEC: spec.to_json(), PROVENANCE: {"backend": "optuna"}}
    live = open_live(open_storage(url, create=True), NAME, goal=spec.goal, attrs=attrs)
    asked = spec.override(search={"sampler": "random"}, budget={"trials": max(1, finished)})
    runs = Workspace.at(url).runs
    driver = Driver(asked, live, runs=runs, watcher=Silence(), pruner=make_pruner(spec))
    for _ in range(finished):
        assignment = driver.ask()
        assert assignment is not None
        off = math.log10(assignment.params["learning_rate"] / 3e-3)
        for step in range(120, 1801, 120):
            value = 1.3 + 0.05 * off**2 + 0.2 * math.exp(-step / 600)
            if driver.report(assignment.number, value, step, {"train_loss": value - 0.1}) is not None:
                break
        else:
            driver.complete(assignment.number, value)
    driver.close()


@dataclass(frozen=True)
class Cost:
    """Seconds until the first new report."""

    wall: float
    cpu: float


def measured(folder: Path, backend: str, trials: int) -> Cost:
    """The cost from the second start of a search."""
    with searching(folder, backend, trials) as search:
        wait(search, folder, lambda: count(folder, TWICE) > 0)
        search.kill()
        search.wait()
    before = count(folder, REPORTS)
    started = time.perf_counter()
    with searching(folder, backend, trials) as search:
        wait(search, folder, lambda: count(folder, REPORTS) > before)
        cost = Cost(time.perf_counter() - started, cpu_seconds(search.pid))
        search.send_signal(signal.SIGTERM)  # a clean end, so that no process is left for the next round
        search.wait(LIMIT)
    return cost


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and its descendants."""
    total = 0.0
    process = psutil.Process(pid)
    for each in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # it has just ended
            times = each.cpu_times()
            total += times.user + times.system
    return total


@contextmanager
def searching(folder: Path, backend: str, trials: int) -> Iterator[subprocess.Popen[bytes]]:
    hpsearch = Path(sys.executable).with_name("hpsearch")
    command = [str(hpsearch), "run", NAME, "--plain", "--backend", backend, "--trials", str(trials)]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def wait(search: subprocess.Popen[bytes], folder: Path, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        if search.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the search does not resume:\n{(folder / 'log').read_text()}")
        time.sleep(EVERY)


def count(folder: Path, query: str) -> int:
    with closing(sqlite3.connect(f"file:{folder / 'hpsearch.db'}?mode=ro", uri=True, timeout=60)) as database:
        ((number,),) = database.execute(query)
        return int(number)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--finished", type=int, nargs="+", default=[0, 1000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=BACKENDS, default=list(BACKENDS), metavar="BACKEND")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    results: dict[tuple[str, int], list[Cost]] = {}
    with tempfile.TemporaryDirectory(prefix="resume-", ignore_cleanup_errors=True) as name:
        for finished in options.finished:
            filled(Path(name, str(finished)), finished)
        for _ in range(options.rounds):
            for backend in options.only:
                for finished in options.finished:
                    folder = Path(name, "round")
                    shutil.copytree(Path(name, str(finished)), folder)
                    cost = measured(folder, backend, finished + 100)
                    results.setdefault((backend, finished), []).append(cost)
                    told = f"{cost.wall:.1f} s, CPU {cost.cpu:.1f} s"
                    print(f"{backend}, {finished} finished trials: {told}", file=sys.stderr)
                    shutil.rmtree(folder)
    print(f"seconds from the restart after a kill to the first new report; rounds: {options.rounds}")
    print(f"{'':10}{'finished':>10}{'median':>10}{'longest':>10}{'CPU':>10}")
    for (backend, finished), costs in results.items():
        walls, cpu = [cost.wall for cost in costs], statistics.median(cost.cpu for cost in costs)
        print(f"{backend:10}{finished:10}{statistics.median(walls):10.1f}{max(walls):10.1f}{cpu:10.1f}")


if __name__ == "__main__":
    main()
