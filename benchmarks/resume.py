"""How long a killed search takes to go on: from the start of the same command to its first new report.

    python benchmarks/resume.py [--finished 0 1000] [--rounds 5] [--only optuna ray]

The search is that of the space `lora`, with the trainer, in a study that has so many finished trials already:
the driver asked them, heard of them (reports from a formula) and ended them. `hpsearch run lora` is started
and killed (SIGKILL) when a trial has reported twice, and started again at once. The clock runs until the
database holds a report that it did not hold before: Python and torch are loaded, the study is read, the
trial is taken up, its checkpoint is read, and it trains up to the next report. Rounds are interleaved.
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
from contextlib import closing, contextmanager
from pathlib import Path

import optuna

from hpsearch.search.algorithms import make_pruner
from hpsearch.search.driver import Driver
from hpsearch.spaces import load
from hpsearch.storage import files
from hpsearch.storage.database import open_storage
from hpsearch.storage.studies import PROVENANCE, SPEC, open_live

BACKENDS = ("optuna", "ray")
NAME = "lora"  # of the space, and of its study
LIMIT = 180.0  # seconds that anything may take
EVERY = 0.02  # seconds between two looks at the database
TWICE = """
    SELECT count(*) FROM trials WHERE state = 'RUNNING'
    AND (SELECT count(*) FROM trial_intermediate_values WHERE trial_id = trials.trial_id) >= 2
"""
REPORTS = "SELECT count(*) FROM trial_intermediate_values"


class Silence:
    """Watches and says nothing."""

    def trial_ended(self, driver: Driver, trial: optuna.trial.FrozenTrial) -> None: ...

    def tick(self, driver: Driver) -> None: ...

    def say(self, message: str) -> None:
        print(message)


def filled(folder: Path, finished: int) -> None:
    """A study of so many finished trials in a folder, with their files, as searches leave it."""
    spec = load(NAME)
    folder.mkdir()
    url = f"sqlite:///{folder / 'hpsearch.db'}"
    attrs = {SPEC: spec.to_json(), PROVENANCE: {"backend": "optuna"}}
    live = open_live(open_storage(url, create=True), NAME, goal=spec.goal, attrs=attrs)
    asked = spec.override(search={"sampler": "random"}, budget={"trials": max(1, finished)})
    runs = files.runs_folder(url)
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


def measured(folder: Path, backend: str, trials: int) -> float:
    """Seconds from the second start of a search to its first new report."""
    with searching(folder, backend, trials) as search:
        wait(search, folder, lambda: count(folder, TWICE) > 0)
        search.kill()
        search.wait()
    before = count(folder, REPORTS)
    started = time.perf_counter()
    with searching(folder, backend, trials) as search:
        wait(search, folder, lambda: count(folder, REPORTS) > before)
        seconds = time.perf_counter() - started
        search.send_signal(signal.SIGTERM)  # tidily, so that nothing of it is left for the next round
        search.wait(LIMIT)
    return seconds


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
            raise SystemExit(f"the search does not go on:\n{(folder / 'log').read_text()}")
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
    results: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="resume-", ignore_cleanup_errors=True) as name:
        for finished in options.finished:
            filled(Path(name, str(finished)), finished)
        for _ in range(options.rounds):
            for backend in options.only:
                for finished in options.finished:
                    folder = Path(name, "round")
                    shutil.copytree(Path(name, str(finished)), folder)
                    seconds = measured(folder, backend, finished + 100)
                    results.setdefault((backend, finished), []).append(seconds)
                    print(f"{backend}, {finished} finished trials: {seconds:.1f} s", file=sys.stderr)
                    shutil.rmtree(folder)
    print(f"seconds from the same command after a kill to the first new report; rounds: {options.rounds}")
    print(f"{'':10}{'finished':>10}{'median':>10}{'longest':>10}")
    for (backend, finished), found in results.items():
        print(f"{backend:10}{finished:10}{statistics.median(found):10.1f}{max(found):10.1f}")


if __name__ == "__main__":
    main()
