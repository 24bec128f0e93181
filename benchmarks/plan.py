"""Whether a search ends when `hpsearch plan` predicts, and on time with `--time`.

    python benchmarks/plan.py [--only planned timed] [--spaces NAME ...] [--rounds 1]

For each of four spaces, the table `planned` compares the end that `hpsearch plan` predicts with the wall time
of `hpsearch run` for the same number of trials, from the start of the process to its exit. `simulated` is the
range from the earliest to the latest end of the searches that a plan simulates. The table `timed` compares
`--time` with the actual time of a search with more trials than fit; `confirmation` counts its confirmation
runs. The searches of a round have its number as their seed, because chance decides which trials of a short
search are slow.

    lora_quick  the bundled space
    lora        the bundled space, with fewer trials
    function    a Python function that sleeps; a trial takes half a second to two
    costly      the same, but trials that take longer, up to five seconds, are better

A plan measures for at most a minute, and the search starts right after. If the machine is busy with something
else then, the plan is not valid for it. The CPU seconds per second of all processes, during the plan and
during the run, show whether it was.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

FUNCTION = """
import time


def train(trial):
    x, pace, gain, done = trial.params["x"], trial.params["pace"], trial.params["gain"], 0
    if trial.resume_from is not None:
        done = int((trial.resume_from / "step").read_text())
    for step in range(done + 1, 10):
        time.sleep(pace)
        value = (x - 0.3) ** 2 + 1 / step - gain * pace
        (trial.checkpoint / "step").write_text(str(step))
        trial.report(value, step=step)
    return value
"""
SPACE = """
version: 1
name: function
objective: function.py:train
metric: loss
parameters:
  x: {min: 0.0, max: 1.0}
  pace: [0.05, 0.1, 0.2]
  gain: 0
baseline: {x: 0.9, pace: 0.1}
early_stopping: {method: asha, min: 1, max: 9, eta: 3, resource: steps, type: promotion}
budget: {trials: 40}
execution: {workers: 2}
"""
COSTLY = (
    SPACE.replace("name: function", "name: costly")
    .replace("[0.05, 0.1, 0.2]", "{min: 0.02, max: 0.5, log: true}")
    .replace("gain: 0", "gain: 1")
)


@dataclass(frozen=True)
class Case:
    """A space, with budgets for the two tables."""

    space: str
    trials: int
    time: int  # seconds


CASES = {
    "lora_quick": Case("lora_quick", 24, 120),
    "lora": Case("lora", 12, 240),
    "function": Case("function.yaml", 40, 60),
    "costly": Case("costly.yaml", 60, 60),
}
HPSEARCH = Path(sys.executable).with_name("hpsearch")


@dataclass(frozen=True)
class Ran:
    """A command that was run."""

    seconds: float
    busy: float  # CPU seconds per second, of all processes on the machine
    output: str


def ran(folder: Path, *words: str) -> Ran:
    """Run hpsearch in a folder."""
    before, started = psutil.cpu_times(), time.perf_counter()
    done = subprocess.run([HPSEARCH, *words], cwd=folder, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        raise SystemExit(f"hpsearch {' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    after = psutil.cpu_times()
    idle = (after.idle - before.idle) / seconds
    return Ran(seconds, max(0.0, (psutil.cpu_count() or 1) - idle), done.stdout)


def planned(case: Case, seed: int, folder: Path) -> str:
    """The predicted end, the range of simulated ends, and the actual end."""
    words = (case.space, "--trials", str(case.trials))
    plan = ran(folder, "plan", *words, "--json")
    told = json.loads(plan.output)
    predicted, (earliest, latest) = told["end"], told["ends"]
    run = ran(folder, "run", *words, "--seed", str(seed), "--plain")
    ratio = predicted / run.seconds
    luck = f"{earliest:.1f} to {latest:.1f}"
    return f"{predicted:10.1f}{luck:>17}{run.seconds:10.1f}{ratio:8.2f}{plan.busy:11.1f}{run.busy:10.1f}"


def timed(case: Case, seed: int, folder: Path) -> str:
    """The time asked for, and the time that the search took."""
    words = ("--trials", "5000", "--time", f"{case.time}s", "--seed", str(seed), "--plain")
    run = ran(folder, "run", case.space, *words)
    lines = run.output.splitlines()
    ended = sum(line.startswith("trial ") for line in lines)
    confirmed = sum("trains trial" in line and " complete" in line for line in lines)
    ratio = run.seconds / case.time
    return f"{case.time:10}{run.seconds:10.1f}{ratio:8.2f}{ended - confirmed:11}{confirmed:14}"


TABLES = {
    "planned": (
        planned,
        f"{'planned':>10}{'simulated':>17}{'actual':>10}{'ratio':>8}{'CPU, plan':>11}{'CPU, run':>10}",
    ),
    "timed": (timed, f"{'--time':>10}{'actual':>10}{'ratio':>8}{'trials':>11}{'confirmation':>14}"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=TABLES, default=list(TABLES), metavar="TABLE")
    parser.add_argument("--spaces", nargs="+", choices=CASES, default=list(CASES), metavar="SPACE")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    for name in options.only:
        measure, head = TABLES[name]
        print(f"{'seconds':12}{head}")
        for space in options.spaces:
            for seed in range(options.rounds):
                with tempfile.TemporaryDirectory(prefix="plan-", ignore_cleanup_errors=True) as folder:
                    Path(folder, "function.py").write_text(FUNCTION)
                    Path(folder, "function.yaml").write_text(SPACE)
                    Path(folder, "costly.yaml").write_text(COSTLY)
                    print(f"{space:12}{measure(CASES[space], seed, Path(folder))}", flush=True)


if __name__ == "__main__":
    main()
