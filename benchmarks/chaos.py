"""Whether a search keeps its guarantees under random kills, stops and locks.

    python benchmarks/chaos.py [--minutes 10] [--backends optuna ray] [--workers 4] [--type promotion]
    python benchmarks/chaos.py --serve [--minutes 10]    a server, its queue and its workers: chaos_service.py

The real commands run in their own processes: `hpsearch run`, first with several workers and then with one, on
each backend, and `hpsearch dashboard`, polled as by a browser. Every few seconds there is a disturbance: the
driver or a worker gets SIGKILL, or SIGSTOP and SIGCONT a little later; the driver is killed while a worker is
stopped; or another program locks the database. A killed driver is restarted with the same command, either at
once or after all its processes have ended. Trials pause at rungs and are promoted, some are audited, and the
best is confirmed. If a search finishes early, it gets more trials. At the end it finishes undisturbed.

The objective depends on its parameters alone and resumes from its checkpoint. It logs each report to a file
before sending it and again after the answer. These logs are compared with the database: every answered report
must be stored, and every stored report must have been sent. With one worker, the study must equal, bit for
bit, that of an undisturbed search whose budget was raised in the same steps.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from optuna.trial import FrozenTrial

from hpsearch.search.preflight.kill_test import (
    CLEANUP_SECONDS,
    SearchProcess,
    all_facts,
    first_difference,
    winner,
)
from hpsearch.storage.files import study_folder
from hpsearch.storage.locks import driver_lock
from hpsearch.storage.trial_attrs import CONFIRMS_SEED, audited_at, confirms, search_trials

NAME = "chaos"
LAST = 27
PERIOD = (1.0, 4.0)  # seconds between two disturbances
LOCKED = (1.0, 6.0)  # seconds that another program locks the database
STOPPED = (0.5, 3.0)  # seconds that a process is stopped
ROUND = 6  # trials per worker by which the budget grows
CALM_SHARE = 0.3  # of the one-worker part's time, for the undisturbed search
PARTS = (0.6, 0.4)  # of a backend's time: several workers, one worker
END_SECONDS = 600  # for the undisturbed end, before the search counts as hanging
SPACE = """
version: 1
name: {name}
objective: "{objective}:train"
metric: loss
parameters:
  x: {{min: 0.0, max: 1.0}}
  y: {{min: 1e-4, max: 1.0, log: true}}
search: {{sampler: tpe, n_startup_trials: 5, seed: {seed}}}
early_stopping: {{method: hyperband, type: {type}, min: 3, max: {last}, eta: 3}}
budget: {{trials: {trials}}}
confirm: {{top: 1, seeds: 2}}
audit: 0.3
execution: {{workers: {workers}, retries: 100000}}
"""
OBJECTIVE = f'''
import json
import os
import pathlib
import time

from hpsearch.objectives import TrialStopped


def train(trial):
    """Each loss depends on the one before, so a lost state shows."""
    x, y = trial.params["x"], trial.params["y"]
    file = trial.checkpoint / "state.json"
    step, loss = json.loads(file.read_text()) if trial.resume_from else (0, 3.0)

    def note(what, **more):
        line = {{"what": what, "pid": os.getpid(), "at": time.monotonic(), "step": step, **more}}
        with (@SENT@).open("a") as stream:
            stream.write(json.dumps(line) + "\\n")

    note("begins", x=x, y=y)
    for step in range(step + 1, {LAST} + 1):
        time.sleep(0.05)
        loss = 0.9 * loss + 0.1 * ((x - 0.3) ** 2 + abs(y - 0.01) ** 0.5 + 1 / step)
        note("sends", value=loss)
        try:
            trial.report(loss, step=step)
        except TrialStopped:
            note("heard", value=loss)
            raise
        note("heard", value=loss)
        part = file.with_suffix(".part")
        part.write_text(json.dumps([step, loss]))
        part.rename(file)  # atomic: a kill leaves the old state or the new one
    return loss
'''
SENT = 'trial.checkpoint.parent / "sent.jsonl"'  # where the objective logs its reports, in its own words
HOLDER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
began = time.monotonic()
time.sleep(float(sys.argv[2]))
connection.execute("ROLLBACK")
print(time.monotonic() - began)
"""


@dataclass
class Tally:
    """What happened in one part, and the faults found."""

    backend: str
    workers: int
    seconds: float = 0.0
    drivers: int = 0  # killed
    killed: int = 0  # workers
    stopped: int = 0
    locked: float = 0.0  # seconds
    polls: int = 0
    slowest: float = 0.0  # the dashboard's slowest answer, in seconds
    trials: int = 0
    audited: int = 0
    sent: int = 0
    stored: int = 0
    faults: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def fault(self, check: str, what: str) -> None:
        self.faults[check].append(what)


Check = Callable[["Evidence"], list[str]]  # the faults found


@dataclass(frozen=True)
class Evidence:
    """A finished search: its study, and the logs of its trials."""

    trials: list[FrozenTrial]
    budget: int
    notes: dict[int, list[dict[str, Any]]]  # by trial, in the order written
    database: Path

    def reports(self, what: str) -> dict[tuple[int, int], set[float]]:
        """The logged values, by trial and step."""
        found = defaultdict(set)
        for number, lines in self.notes.items():
            for line in lines:
                if line["what"] == what:
                    found[number, line["step"]].add(line["value"])
        return found

    def stored(self) -> dict[tuple[int, int], float]:
        """The stored values, by trial and step."""
        return {(t.number, step): value for t in self.trials for step, value in t.intermediate_values.items()}


# Checks at the end.


def exact_budget(found: Evidence) -> list[str]:
    numbers, own = [trial.number for trial in found.trials], len(search_trials(found.trials))
    exact = own == found.budget and numbers == list(range(len(numbers)))
    wrong = [] if exact else [f"{own} trials of {found.budget}, and confirmation runs: {numbers}"]
    return wrong + [
        f"trial {t.number} is {t.state.name}: {t.user_attrs.get('error')}"
        for t in found.trials
        if t.state.name not in ("COMPLETE", "PRUNED")
    ]


def no_lost_report(found: Evidence) -> list[str]:
    stored = found.stored()
    return [
        f"trial {number} got an answer to {values} at {step}; the study has {stored.get((number, step))}"
        for (number, step), values in found.reports("heard").items()
        if values != {stored.get((number, step))}
    ]


def none_invented(found: Evidence) -> list[str]:
    sent = found.reports("sends")
    wrong = [
        f"trial {number} has {value} at {step}; {sent.get((number, step), 'nothing')} was sent"
        for (number, step), value in found.stored().items()
        if {value} != sent.get((number, step))
    ]
    for trial in found.trials:
        steps = sorted(trial.intermediate_values)
        whole = len(steps) == LAST or trial.state.name == "PRUNED"
        if steps != list(range(1, len(steps) + 1)) or not whole:
            wrong.append(f"trial {trial.number}, {trial.state.name}, has the steps {steps}")
    return wrong


def no_duplicate(found: Evidence) -> list[str]:
    drawn = Counter(tuple(trial.params.values()) for trial in search_trials(found.trials))
    wrong = [f"{count} trials have the parameters {params}" for params, count in drawn.items() if count > 1]
    again = Counter(
        (confirms(t), t.user_attrs[CONFIRMS_SEED]) for t in found.trials if confirms(t) is not None
    )
    wrong += [f"{count} trials confirm {which}" for which, count in again.items() if count > 1]
    for trial in found.trials:
        begun = {(n["x"], n["y"]) for n in found.notes.get(trial.number, []) if n["what"] == "begins"}
        if begun != {(trial.params["x"], trial.params["y"])}:
            wrong.append(f"trial {trial.number} has {trial.params}, but started with {begun}")
    return wrong


def one_process_each(found: Evidence) -> list[str]:
    """No trial runs in two processes at once: one logs nothing after another has started."""
    wrong = []
    for number, lines in found.notes.items():
        gone: set[int] = set()
        last = None
        for line in sorted(lines, key=lambda line: line["at"]):
            if line["pid"] != last:
                if line["pid"] in gone and line["what"] != "begins":
                    wrong.append(f"trial {number} ran in process {line['pid']} and {last} at once")
                gone.add(last) if last is not None else None
                last = line["pid"]
    return wrong


def integrity(found: Evidence) -> list[str]:
    with closing(sqlite3.connect(found.database, timeout=0)) as connection:
        said = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        twice = connection.execute(
            "SELECT number FROM trials GROUP BY study_id, number HAVING count(*) > 1"
        ).fetchall()
    return ([] if said == ["ok"] else said) + [f"trial {number} is stored twice" for (number,) in twice]


CHECKS: dict[str, Check] = {
    "exactly the budget's trials": exact_budget,
    "no report lost": no_lost_report,
    "no report invented": none_invented,
    "no duplicate trial": no_duplicate,
    "no trial in two processes at once": one_process_each,
    "database intact (integrity_check)": integrity,
}
# Checks while the search runs, and of its processes.
OTHERS = (
    "nothing still running after a kill",
    "winner confirmed",
    "nothing left locked",
    "dashboard always answers",
    "search never fails",
    "equals an undisturbed search",
)


class Dashboard:
    """`hpsearch dashboard`, polled as by its page."""

    def __init__(self, database: Path, tally: Tally) -> None:
        self._tally = tally
        self._done = threading.Event()
        command = [sys.executable, "-P", "-m", "hpsearch.search.cli", "dashboard", "--port", "0"]
        self._process = subprocess.Popen(
            [*command, "--storage", str(database)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if "http://" not in line:
            raise SystemExit(f"the dashboard does not start: {line}{self._process.communicate()[0]}")
        self._address = line.split()[2]
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _poll(self) -> None:
        known = 0  # finished trials at the head of the list: the page keeps them
        while not self._done.wait(0.5):
            try:
                [study] = self._get("/api/studies")["study_summaries"]
                trials = self._get(f"/api/studies/{study['study_id']}?after={known}")["trials"]
                states = [trial["state"] for trial in trials]
                open_ = [n for n, state in enumerate(states) if state in ("Running", "Waiting")]
                known += open_[0] if open_ else len(states)
            except Exception as error:  # a user would see any error
                self._tally.fault("dashboard always answers", f"{type(error).__name__}: {error}")

    def _get(self, path: str) -> Any:
        began = time.monotonic()
        with urllib.request.urlopen(self._address + path, timeout=30) as answer:
            content = json.load(answer)
        self._tally.polls += 1
        self._tally.slowest = max(self._tally.slowest, time.monotonic() - began)
        return content

    def close(self) -> None:
        self._done.set()
        self._thread.join()
        if self._process.poll() is not None:
            self._tally.fault("dashboard always answers", f"it ended with {self._process.returncode}")
        self._process.terminate()
        self._process.communicate()


class Monkey:
    """Disturbs a search."""

    def __init__(self, search: SearchProcess, tally: Tally, seed: int, trials: int) -> None:
        self._search = search
        self._tally = tally
        self._rng = random.Random(seed)
        self.budgets = [trials]  # of the rounds
        self._holder: subprocess.Popen[str] | None = None
        self._driver = self._start()

    def wait_for_a_trial(self) -> None:
        """Wait until the search has a trial, and so a database for the dashboard."""
        while not self._search.progress()[0]:
            if self._driver.poll() is not None:
                raise SystemExit(f"the search does not start: {self._search.tail()}")
            time.sleep(0.1)

    def play(self, seconds: float) -> None:
        """Disturb the search every few seconds, for `seconds` in total."""
        began = time.monotonic()
        actions = {
            self.kill_driver: 5,
            self.kill_worker: 5,
            self.stop_one: 2,
            self.kill_beside_a_stopped_worker: 1,
            self.lock: 2,
        }
        while (left := began + seconds - time.monotonic()) > 0:
            with suppress(subprocess.TimeoutExpired):
                code = self._driver.wait(min(left, self._rng.uniform(*PERIOD)))
                if code:
                    self._tally.fault("search never fails", f"exit code {code}: {self._search.tail()}")
                else:
                    self.budgets.append(self.budgets[-1] + ROUND * self._tally.workers)
                self._driver = self._start()
                continue
            self._rng.choices(list(actions), weights=list(actions.values()))[0]()
        self._tally.seconds += time.monotonic() - began

    def finish(self) -> None:
        """Let the search finish."""
        self._unlock()
        for _ in range(2):  # it may have finished only the second-to-last round
            try:
                code = self._driver.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._tally.fault("search never fails", f"no end after {END_SECONDS} s")
                return
            if code:
                self._tally.fault("search never fails", f"exit code {code} at the end: {self._search.tail()}")
            self._driver = self._start()
        self._driver.wait(END_SECONDS)

    def kill_driver(self) -> None:
        at_once = self._rng.random() < 0.5
        if sum(self._search.progress()) == 0 or self._rng.random() < 0.7:
            self._wait_for_a_report()
        self._driver.kill()
        self._driver.wait()
        self._tally.drivers += 1
        if not at_once:
            self._check_left()
        self._driver = self._start()

    def kill_worker(self) -> None:
        if not self._some_workers():
            self._wait_for_a_report()
        for process in self._some_workers():
            with suppress(psutil.NoSuchProcess):
                process.kill()
                self._tally.killed += 1

    def stop_one(self) -> None:
        with suppress(psutil.NoSuchProcess):
            process = self._rng.choice([*self._some_workers(), psutil.Process(self._driver.pid)])
            process.suspend()
            self._tally.stopped += 1
            time.sleep(self._rng.uniform(*STOPPED))
            process.resume()

    def kill_beside_a_stopped_worker(self) -> None:
        """A stopped worker cannot notice that its driver is gone."""
        for process in self._some_workers():
            with suppress(psutil.NoSuchProcess):
                process.suspend()
                self._tally.stopped += 1
        self._driver.kill()
        self._driver.wait()
        self._tally.drivers += 1
        self._check_left()
        self._driver = self._start()

    def lock(self) -> None:
        if self._holder is not None and self._holder.poll() is None:
            return
        self._unlock()
        if self._search.database.exists():
            seconds = str(self._rng.uniform(*LOCKED))
            self._holder = subprocess.Popen(
                [sys.executable, "-I", "-c", HOLDER, str(self._search.database), seconds],
                stdout=subprocess.PIPE,
                text=True,
            )

    def _unlock(self) -> None:
        """Wait until the lock is released, if there is one."""
        if self._holder is not None:
            self._tally.locked += float(self._holder.communicate()[0])
            self._holder = None

    def _check_left(self) -> None:
        self._unlock()  # trials cannot be requeued while the database is locked
        for each in self._search.remaining(CLEANUP_SECONDS):
            self._tally.fault(
                "nothing still running after a kill", f"{CLEANUP_SECONDS:g} s after a kill: {each}"
            )

    def _wait_for_a_report(self) -> None:
        """Wait until the search trains: most of a short run is its start."""
        before = self._search.progress()[1]
        deadline = time.monotonic() + 60
        while (
            self._search.progress()[1] == before
            and time.monotonic() < deadline
            and self._driver.poll() is None
        ):
            time.sleep(0.05)
        time.sleep(self._rng.uniform(0, 1))

    def _some_workers(self) -> list[psutil.Process]:
        """One worker or Ray actor; none if there is none."""
        found, children = [], []
        with suppress(psutil.NoSuchProcess):  # the search has finished
            children = psutil.Process(self._driver.pid).children(recursive=True)
        for process in children:
            with suppress(psutil.Error):  # it has just ended
                words = " ".join(process.cmdline())
                if "hpsearch.search.backends.worker" in words or words.startswith("ray::WorkerActor"):
                    found.append(process)
        return [self._rng.choice(found)] if found else []

    def _start(self) -> subprocess.Popen[bytes]:
        return self._search.start("--trials", str(self.budgets[-1]))


def run_part(folder: Path, backend: str, workers: int, kind: str, seconds: float, seed: int) -> Tally:
    """Disturb one search, and check it."""
    tally = Tally(backend, workers)
    trials = ROUND * workers
    space = folder / f"{backend}-{workers}.yaml"
    objective = folder / "objective.py"
    objective.write_text(OBJECTIVE.replace("@SENT@", SENT))
    given = {"objective": objective, "type": kind, "seed": seed, "trials": trials, "workers": workers}
    space.write_text(SPACE.format(name=NAME, last=LAST, **given))
    search = SearchProcess(space, NAME, folder / f"{backend}-{workers}", backend)
    calm = SearchProcess(space, NAME, folder / f"{backend}-calm", backend) if workers == 1 else None
    dashboard = None
    try:
        monkey = Monkey(search, tally, seed, trials)
        monkey.wait_for_a_trial()
        dashboard = Dashboard(search.database, tally)
        monkey.play(seconds * (1 - CALM_SHARE) if calm else seconds)
        monkey.finish()
        for each in search.remaining(CLEANUP_SECONDS):
            tally.fault("nothing still running after a kill", f"at the end: {each}")
        _check(search, monkey.budgets[-1], tally)
        if calm is not None:
            for budget in monkey.budgets:
                if calm.start("--trials", str(budget)).wait(END_SECONDS):
                    raise SystemExit(f"the undisturbed search failed: {calm.tail()}")
            _compare(calm, search, tally)
    finally:
        if dashboard is not None:
            dashboard.close()
        search.end()
        if calm is not None:
            calm.end()
    return tally


def _check(search: SearchProcess, budget: int, tally: Tally) -> None:
    result = search.result()
    notes = {}
    for file in study_folder(search.runs, NAME).glob("*/sent.jsonl"):
        notes[int(file.parent.name)] = [json.loads(line) for line in file.read_text().splitlines()]
    found = Evidence(result.study.get_trials(deepcopy=False), budget, notes, search.database)
    for name, check in CHECKS.items():
        for what in check(found):
            tally.fault(name, what)
    if result.confirmed is None:
        tally.fault("winner confirmed", "it is not")
    tally.audited = sum(audited_at(trial) is not None for trial in found.trials)
    tally.trials = len(found.trials)
    tally.sent = len(found.reports("sends"))
    tally.stored = len(found.stored())
    try:
        with driver_lock(result.workspace, NAME):
            pass
        with closing(sqlite3.connect(search.database, timeout=0, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
    except Exception as error:
        tally.fault("nothing left locked", f"{type(error).__name__}: {error}")


def _compare(calm: SearchProcess, killed: SearchProcess, tally: Tally) -> None:
    """Compare the trials without their attributes: those of killed workers count the retries."""
    one, other = (
        [{what: is_ for what, is_ in facts.items() if not what.startswith("attribute")} for facts in found]
        for found in (all_facts(calm.result()), all_facts(killed.result()))
    )
    difference = first_difference(one, other, ("undisturbed", "killed"))
    if difference is None and winner(calm.result()) != winner(killed.result()):
        difference = f"winner: undisturbed {winner(calm.result())}, killed {winner(killed.result())}"
    if difference is not None:
        tally.fault("equals an undisturbed search", difference)


def show(tallies: list[Tally]) -> None:
    def row(name: str, cell: Callable[[Tally], str]) -> None:
        print(f"{name:36}" + "".join(f"{cell(tally):>12}" for tally in tallies))

    row("", lambda t: t.backend)
    row("workers", lambda t: str(t.workers))
    row("seconds of chaos", lambda t: f"{t.seconds:.0f}")
    row("drivers killed", lambda t: str(t.drivers))
    row("workers killed", lambda t: str(t.killed))
    row("processes suspended", lambda t: str(t.stopped))
    row("database locked, s", lambda t: f"{t.locked:.0f}")
    row("dashboard requests answered", lambda t: str(t.polls))
    row("slowest answer, s", lambda t: f"{t.slowest:.2f}")
    row("trials", lambda t: str(t.trials))
    row("of these audited", lambda t: str(t.audited))
    row("reports sent", lambda t: str(t.sent))
    row("reports in the study", lambda t: str(t.stored))
    for name in (*CHECKS, *OTHERS):
        row(name, lambda t, name=name: _verdict(t, name))  # type: ignore[misc]
    for tally in tallies:
        for name, faults in tally.faults.items():
            for what in faults[:5]:
                print(f"{tally.backend}, {tally.workers} workers: {name}: {what}")
            if len(faults) > 5:
                print(f"{tally.backend}, {tally.workers} workers: {name}: and {len(faults) - 5} more")


def _verdict(tally: Tally, name: str) -> str:
    if name == "equals an undisturbed search" and tally.workers > 1:
        return "-"
    return f"{len(tally.faults[name])} faults" if tally.faults.get(name) else "ok"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="of disturbances in all parts; undisturbed ends add time"
    )
    parser.add_argument("--backends", nargs="+", choices=("optuna", "ray"), default=["optuna", "ray"])
    parser.add_argument("--workers", type=int, default=4, help="in the first part of each backend")
    parser.add_argument("--type", choices=("stopping", "promotion"), default="promotion")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--serve", action="store_true", help="disturb a server instead, and what it serves")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends what was started, too
    if options.serve:
        import chaos_service

        raise SystemExit(1 if chaos_service.run(options.minutes, options.seed).faults else 0)
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    each = 60 * options.minutes / len(options.backends)
    tallies = []
    for backend in options.backends:
        for workers, share in zip((options.workers, 1), PARTS, strict=True):
            tallies.append(run_part(folder, backend, workers, options.type, share * each, options.seed))
            print(f"{backend}, {workers} workers: done", file=sys.stderr)
    every = f"every {PERIOD[0]:g} to {PERIOD[1]:g} s"
    print(f"random kills {every}; type {options.type}, seed {options.seed}; {os.cpu_count()} cores")
    show(tallies)
    if any(tally.faults for tally in tallies):
        print(f"all files are kept in {folder}", file=sys.stderr)
        raise SystemExit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
