"""Whether trials cost more as a study grows: they should not.

    python benchmarks/scale.py [--trials 20000] [--sampler random] [--every 1000]

One search through the driver into a SQLite file. The objective costs nothing; each trial has two parameters,
a report, a value and a line of output. For each block of `--every` trials, it prints the CPU milliseconds per
trial, and at the end the ratio of the last block to the first. Then it measures, in processes of their own,
`hpsearch list`, `show` and `best` on this study, and a search of one trial, both in the same file and in a
file of its own.

CPU seconds are those of the process and of everything it started, so a busy machine does not change them.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import closing
from pathlib import Path

import optuna

from hpsearch.search import run
from hpsearch.search.cli.console import PlainConsole
from hpsearch.search.cli.progress import LineProgress
from hpsearch.search.engine.driver import Driver
from hpsearch.search.scheduling.pruners import make_pruner
from hpsearch.spaces import Spec, loads
from hpsearch.storage.database import open_storage
from hpsearch.storage.studies import PROVENANCE, SPEC, open_live

SPACE = """
version: 1
name: {name}
objective: "{objective}:train"
metric: loss
parameters:
  x: {{min: 0.0, max: 1.0}}
  y: {{min: 0.0, max: 1.0}}
search: {{sampler: {sampler}}}
budget: {{trials: {trials}}}
confirm: {{top: 0}}
"""
OBJECTIVE = "def train(trial):\n    return trial.params['x']\n"


def searched(spec: Spec, url: str, folder: Path, every: int) -> list[float]:
    """CPU milliseconds per trial, for each block of `every` trials."""
    attrs = {PROVENANCE: {"backend": "optuna"}, SPEC: spec.to_json()}
    found: list[float] = []
    live = open_live(open_storage(url, create=True), spec.name, goal=spec.goal, attrs=attrs)
    with closing(live), open(os.devnull, "w") as nowhere:
        watcher = LineProgress(PlainConsole(file=nowhere))
        driver = Driver(spec, live, runs=folder / "runs", watcher=watcher, pruner=make_pruner(spec))
        began = time.process_time()
        while (given := driver.ask()) is not None:
            driver.report(given.number, given.params["y"], 1, {})
            driver.complete(given.number, given.params["x"])
            if driver.finished % every == 0:
                now = time.process_time()
                found.append(1e3 * (now - began) / every)
                print(f"{driver.finished:>8,} trials{found[-1]:>10.2f} ms per trial", flush=True)
                began = now
    return found


def seconds(command: list[str], folder: Path) -> float:
    """CPU seconds of a command and of all processes that it started and waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def small(url: str, objective: str) -> None:
    """A search of one trial."""
    run(loads(SPACE.format(name="small", objective=objective, sampler="random", trials=1)), storage=url)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=1_000)
    parser.add_argument("--sampler", default="random")
    parser.add_argument("--small", metavar="URL", help="only search one trial there, without measuring")
    options = parser.parse_args()
    if options.small is not None:
        small(options.small, str(Path("objective.py").absolute()))
        return
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "objective.py").write_text(OBJECTIVE)
        text = SPACE.format(name="large", objective="bench", sampler=options.sampler, trials=options.trials)
        found = searched(loads(text), f"sqlite:///{folder / 'large.db'}", folder, options.every)
        print(f"the last {options.every:,} / the first {options.every:,}{found[-1] / found[0]:>10.2f}")
        hpsearch = [sys.executable, "-m", "hpsearch.search.cli"]
        for words in (["list"], ["show", "large"], ["best", "large"]):
            took = seconds([*hpsearch, *words, "--storage", "large.db"], folder)
            print(f"hpsearch {' '.join(words):<20}{took:>10.1f} s")
        for file in ("alone.db", "large.db"):
            command = [sys.executable, os.path.abspath(__file__), "--small", f"sqlite:///{folder / file}"]
            first, again = seconds(command, folder), seconds(command, folder)
            print(f"one trial in {file:<16}{first:>10.1f} s, the same again{again:>10.1f} s")


if __name__ == "__main__":
    main()
