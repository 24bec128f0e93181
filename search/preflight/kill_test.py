"""Shows that a search that is killed and continued equals one that was never killed: here, with this space.

The same small search runs three times, each in a folder of its own: undisturbed, undisturbed again, and
killed with SIGKILL at random moments and continued with the same command each time. A difference between the
two undisturbed searches is due to the objective; any other difference is due to the kills.
"""

from __future__ import annotations

import json
import math
import os
import random
import secrets
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
from optuna.distributions import distribution_to_json
from optuna.trial import FrozenTrial

from ...spaces import Spec
from ...spaces.samplers import GP, TPE, RungGP
from ...storage.files import CONFIG, METRICS, study_folder
from ...storage.trial_attrs import AT_RUNG, EVENTS, TOOK, USED, USED_BEFORE_AUDIT
from ...storage.workspace import Workspace
from ..engine.costs import COST_ATTR
from ..engine.guardian import TEMPORARY_PREFIX
from ..engine.running import RESERVED_ATTRS
from ..errors import SearchError
from ..results.study import StudyResult, load_result
from ..trials.events import event_in_words
from ..values import Value

MARK = "HPSEARCH_KILL_TEST"  # an environment variable of a search, inherited by every process that it starts
POLL_SECONDS = 0.005  # between two looks at a search that is about to be killed
CLEANUP_SECONDS = 10.0  # after a kill, for all processes to end and all running trials to be requeued
UNEQUAL = (COST_ATTR, EVENTS, TOOK, USED, USED_BEFORE_AUDIT)  # attributes that two runs may have otherwise
ATTRIBUTE = "attribute "  # the beginning of an attribute's name among the facts of a trial
HANG_FACTOR = 10.0  # a killed search hangs if it takes this many times as long as an undisturbed one,
MIN_HANG_SECONDS = 120.0
KILLS_PER_EARLY_KILL = 4  # one kill in this many comes while the search starts
TAIL_LINES = 10  # lines of a failed search's output in the message

Watch = Callable[[str, int, int | None], None]  # what is being done, how far, and the total where known
Verdict = Literal["exact", "not exact", "not deterministic"]
Facts = dict[str, str]  # what is compared of a trial, by names that a user understands


@dataclass(frozen=True)
class Moment:
    """When a search is killed, by the trials and reports in its files."""

    events: int | None  # trials begun plus reports made by then; None: while it starts
    seconds: float  # after that; while it starts, at its first report at the latest
    at_once: bool  # whether the search continues at once, or after all processes of the killed one ended

    def __str__(self) -> str:
        if self.events is None:
            return "while it starts"
        return f"{1e3 * self.seconds:.0f} ms after event {self.events}"


@dataclass(frozen=True)
class Kill:
    """What a search was doing when it was killed."""

    moment: str
    seconds: float  # since the killed process started
    trials: int  # begun by then
    reports: int  # made by then
    at_once: bool  # whether it was continued without waiting for its processes to end
    left: list[str]  # processes and running trials that remained after `CLEANUP_SECONDS`


@dataclass(frozen=True)
class UndisturbedSearch:
    """A search that was not killed, and its pace."""

    result: StudyResult
    facts: list[Facts]
    seconds: float
    first: float  # seconds until its first report
    events: int  # trials begun and reports made


@dataclass(frozen=True)
class KillTestResult(Value):
    """The verdict, and the evidence for it."""

    computed = ("passed",)
    verdict: Verdict
    difference: str | None  # the first one
    seed: int
    kills: list[Kill]
    left: list[str]  # processes and running trials at the end
    trials: int
    reports: int
    winner: dict[str, Any] | None  # of the undisturbed search
    not_compared: list[str]  # attributes that differ between undisturbed searches, such as times and memory
    seconds: dict[str, float]
    folder: Path | None  # of the three searches; None where the test passed

    @property
    def passed(self) -> bool:
        return self.verdict == "exact" and not self.left and not any(kill.left for kill in self.kills)


class SearchProcess:
    """`hpsearch run` as a process of its own, in a folder of its own, and all processes that it starts."""

    def __init__(self, space: Path, name: str, folder: Path, backend: str) -> None:
        folder.mkdir(parents=True)
        self.name = name
        self.database = folder / "studies.db"
        self.runs = folder / "runs"
        self.log = folder / "output.log"
        self._mark = secrets.token_hex(8)
        self._drivers: list[int] = []  # process ids
        self._command = [
            *(sys.executable, "-P", "-m", "hpsearch.search.cli", "run", str(space), "--plain"),
            *("--backend", backend, "--storage", str(self.database), "--runs", str(self.runs)),
        ]

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Start or continue the search. Its objective sees the working folder of this process."""
        with self.log.open("ab") as log:
            driver = subprocess.Popen(
                [*self._command, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {MARK: self._mark},
                start_new_session=True,  # Ctrl-C in the terminal is for the test
            )
        self._drivers.append(driver.pid)
        return driver

    def progress(self) -> tuple[int, int]:
        """The trials begun and the reports made, from the files of the trials."""
        trials = reports = 0
        for folder in study_folder(self.runs, self.name).glob("[0-9]*"):
            trials += (folder / CONFIG).exists()
            with suppress(FileNotFoundError):
                reports += (folder / METRICS).read_bytes().count(b"\n")
        return trials, reports

    def processes(self) -> list[psutil.Process]:
        """All living processes of the search: the driver, its workers, and their descendants."""
        owned = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):  # it has just ended, or belongs to another user
                if process.status() != psutil.STATUS_ZOMBIE and self._owns(process):
                    owned.append(process)
        return owned

    def _owns(self, process: psutil.Process) -> bool:
        """Identify a process by the mark; Ray's agents overwrite theirs, but keep their logs open."""
        if process.name().startswith("ray::"):
            folders = tuple(f"/{TEMPORARY_PREFIX}{pid}-" for pid in self._drivers)
            return any(folder in file.path for file in process.open_files() for folder in folders)
        return bool(process.environ().get(MARK) == self._mark)

    def running_trials(self) -> list[int]:
        """The trials that are RUNNING in the study and do not wait at a rung."""
        query = (
            "SELECT number FROM trials WHERE state = 'RUNNING' AND trial_id NOT IN "
            f"(SELECT trial_id FROM trial_user_attributes WHERE key = '{AT_RUNG}') ORDER BY number"
        )
        if not self.database.exists():
            return []
        try:
            with closing(sqlite3.connect(self.database)) as connection:
                return [number for (number,) in connection.execute(query)]
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):  # killed before it had made them
                return []
            raise

    def remaining(self, seconds: float) -> list[str]:
        """The processes and running trials that remain after at most so many seconds."""
        deadline = time.monotonic() + seconds
        while True:
            processes, trials = self.processes(), self.running_trials()
            if not (processes or trials) or time.monotonic() > deadline:
                return [*map(_process_name, processes), *(f"trial {n} is RUNNING" for n in trials)]
            time.sleep(0.1)

    def result(self) -> StudyResult:
        """The study as it is now."""
        return load_result(Workspace.at(str(self.database), self.runs), self.name)

    def tail(self) -> str:
        """The end of the output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:])

    def end(self) -> None:
        """Kill all processes of the search."""
        while processes := self.processes():
            for process in processes:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(processes, timeout=1)


def kill_test(spec: Spec, *, backend: str, kills: int, seed: int, watch: Watch) -> KillTestResult:
    """Run the space three times, compare, and return the verdict.

    `spec` as `small` gives it. The user's own files and studies stay as they are. Raises `SearchError` where
    the space cannot be searched even without a kill.
    """
    folder = Path(tempfile.mkdtemp(prefix="hpsearch-kill-test-"))
    space = folder / "space.yaml"
    space.write_text(json.dumps(spec.to_json(), indent=2), encoding="utf-8")  # JSON is YAML
    names = ("calm", "again", "killed")
    searches = [SearchProcess(space, spec.name, folder / name, backend) for name in names]
    keep = True
    try:
        outcome = _compare(searches, folder, kills, seed, watch)
        keep = not outcome.passed
        return outcome
    except KeyboardInterrupt:
        keep = False
        raise
    finally:
        for search in searches:
            search.end()
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def small(spec: Spec, trials: int) -> Spec:
    """The space for one worker and a few trials, without a time budget.

    A sampler with a model starts to use it within these trials, if they suffice for one. Trials run on the
    CPU unless the space states their share of a GPU: no other machine promises the same bits.
    """
    count = min(trials, spec.budget.trials or trials)
    changes: dict[str, Any] = {
        "budget": {"trials": count, "time": None, "samples": None, "target": None},
        "execution": {"workers": 1, "gpus_per_trial": spec.execution.gpus_per_trial or 0},
        "report_to": [],
    }
    startup = max(2, count // 3)
    if isinstance(spec.search, (TPE, GP, RungGP)) and (spec.search.startup_trials or 0) > startup:
        changes["search"] = {"n_startup_trials": startup}
    return spec.override(**changes)


def moments(kills: int, seed: int, calm: UndisturbedSearch) -> list[Moment]:
    """When to kill: some kills while the search starts, the others spread over all of it."""
    rng = random.Random(seed)
    early = math.ceil(kills / KILLS_PER_EARLY_KILL)
    later = kills - early
    pace = (calm.seconds - calm.first) / calm.events
    chosen = []
    for index in range(later):
        event = int((index + rng.random()) * (calm.events + 1) / later)
        chosen.append(Moment(event, rng.uniform(0, pace), rng.random() < 0.5))
    for _ in range(early):
        moment = Moment(None, rng.uniform(0, calm.first), rng.random() < 0.5)
        chosen.insert(rng.randint(0, len(chosen)), moment)
    return chosen


def facts(trial: FrozenTrial, unit: str) -> Facts:
    """Everything about a trial that must be the same, to the bit, in another run of it.

    `unit`: that of its steps.
    """
    known = {"state": trial.state.name, "value": exact(trial.value)}
    for name, value in sorted(trial.params.items()):
        known[f"parameter {name}"] = exact(value)
        known[f"range of {name}"] = distribution_to_json(trial.distributions[name])
    for step, value in sorted(trial.intermediate_values.items()):
        known[f"value at {step}"] = exact(value)
    attributes: Mapping[str, Any] = trial.user_attrs | trial.system_attrs
    for name, value in sorted(attributes.items()):
        # More attempts may print more output, and no two trainings take equally long.
        if not name.startswith("artifacts:") and name not in UNEQUAL:
            known[ATTRIBUTE + name] = json.dumps(value, sort_keys=True)
    # Of these events a kill causes one: that a checkpoint was not whole.
    events = (event for event in trial.user_attrs.get(EVENTS, ()) if event["kind"] != "started_over")
    return known | {f"event {n}": event_in_words(event, unit) for n, event in enumerate(events, start=1)}


def exact(value: Any) -> str:
    """A value in readable form, and a float's bits."""
    return f"{value!r} ({value.hex()})" if isinstance(value, float) else repr(value)


def all_facts(result: StudyResult) -> list[Facts]:
    """The facts of all trials of a study, by trial number."""
    return [facts(trial, result.spec.resource) for trial in result.all_trials]


def first_difference(
    one: list[Facts], other: list[Facts], names: tuple[str, str], ignored: Collection[str] = ()
) -> str | None:
    """The first difference between two searches, in the order of their trials; None where they are equal."""
    for number, (left, right) in enumerate(zip(one, other, strict=False)):
        for what in dict.fromkeys([*left, *right]):
            if left.get(what) != right.get(what) and what not in ignored:
                values = left.get(what, "none"), right.get(what, "none")
                return _differ(f"trial {number}, {what}", *values, names)
    if len(one) != len(other):
        return _differ("the number of trials", str(len(one)), str(len(other)), names)
    return None


def _compare(
    searches: list[SearchProcess], folder: Path, kills: int, seed: int, watch: Watch
) -> KillTestResult:
    calm = _undisturbed(searches[0], "undisturbed search", None, watch)
    again = _undisturbed(searches[1], "undisturbed search again", calm.events, watch)
    varying = _varying(calm.facts, again.facts)
    seconds = {"undisturbed": calm.seconds, "again": again.seconds}
    met: list[Kill] = []
    left: list[str] = []
    verdict: Verdict = "not deterministic"
    difference = first_difference(calm.facts, again.facts, ("the first time", "the second time"), varying)
    if difference is None:
        began = time.monotonic()
        difference = _through_kills(searches[2], moments(kills, seed, calm), calm, met, watch)
        seconds["killed"] = time.monotonic() - began
        left = searches[2].remaining(CLEANUP_SECONDS)
        difference = difference or _difference(calm, searches[2].result(), varying)
        verdict = "exact" if difference is None else "not exact"
    return KillTestResult(
        verdict=verdict,
        difference=difference,
        seed=seed,
        kills=met,
        left=left,
        trials=len(calm.facts),
        reports=calm.events - len(calm.facts),
        winner=winner(calm.result),
        not_compared=sorted(name.removeprefix(ATTRIBUTE) for name in varying),
        seconds={name: round(value, 1) for name, value in seconds.items()},
        folder=folder,
    )


def _difference(calm: UndisturbedSearch, killed: StudyResult, varying: set[str]) -> str | None:
    names = ("undisturbed", "killed")
    difference = first_difference(calm.facts, all_facts(killed), names, varying)
    if difference is None and winner(calm.result) != winner(killed):
        return _differ("winner", str(winner(calm.result)), str(winner(killed)), names)
    return difference


def _undisturbed(search: SearchProcess, what: str, total: int | None, watch: Watch) -> UndisturbedSearch:
    """Run a search to its end. Raises `SearchError` where it fails."""
    began = time.monotonic()
    first = None
    process = search.start()
    while process.poll() is None:
        trials, reports = search.progress()
        watch(what, trials + reports, total)
        if first is None and reports:
            first = time.monotonic() - began
        time.sleep(4 * POLL_SECONDS)
    seconds = time.monotonic() - began
    if process.returncode:
        raise SearchError(
            f"the {what} failed before anything was killed (exit code {process.returncode}); "
            f"it is kept in {search.log.parent}, and its output ends:\n{search.tail()}"
        )
    result = search.result()
    return UndisturbedSearch(result, all_facts(result), seconds, first or seconds, sum(search.progress()))


def _through_kills(
    search: SearchProcess, chosen: list[Moment], calm: UndisturbedSearch, met: list[Kill], watch: Watch
) -> str | None:
    """Run a search to its end, appending its kills to `met`; why it did not finish, or None."""
    patience = max(MIN_HANG_SECONDS, HANG_FACTOR * calm.seconds)
    for moment in [*chosen, None]:
        aim = "the end" if moment is None else f"kill {len(met) + 1} of {len(chosen)}"
        began = time.monotonic()
        before = search.progress()
        process = search.start()
        reached: float | None = None  # when the event of the kill was reached
        while process.poll() is None:
            now, progress = time.monotonic(), search.progress()
            done = sum(progress)
            watch(f"killed search: to {aim}", done, calm.events)
            if moment is not None:
                # Each process adds at least one event, so that the search ends.
                enough = moment.events is None or done >= max(moment.events, sum(before) + 1)
                if reached is None and enough:
                    reached = now
                has_started = moment.events is None and progress[1] > before[1]
                if reached is not None and (has_started or now >= reached + moment.seconds):
                    process.kill()
                    process.wait()
                    trials, reports = search.progress()
                    left = [] if moment.at_once else search.remaining(CLEANUP_SECONDS)
                    seconds = round(now - began, 3)
                    met.append(Kill(str(moment), seconds, trials, reports, moment.at_once, left))
                    break
            if now > began + patience:
                return f"after {len(met)} kills the search did not reach {aim} in {patience:.0f} s"
            time.sleep(POLL_SECONDS)
        else:
            if process.returncode:
                return f"after {len(met)} kills the search failed: {search.tail()}"
            return None  # it has finished, maybe before all kills
    raise AssertionError("the last round is never killed")


def winner(result: StudyResult) -> dict[str, Any] | None:
    """The number and the value of the best trial."""
    best = result.best_trial
    return None if best is None else {"trial": best.number, "value": exact(best.value)}


def _varying(one: list[Facts], other: list[Facts]) -> set[str]:
    """Attributes that differ between two undisturbed searches: measurements of the machine."""
    own = {ATTRIBUTE + name for name in RESERVED_ATTRS}
    return {
        what
        for left, right in zip(one, other, strict=False)
        for what in {*left, *right} - own
        if what.startswith(ATTRIBUTE) and left.get(what) != right.get(what)
    }


def _differ(what: str, one: str, other: str, names: tuple[str, str]) -> str:
    return f"{what}: {names[0]} {one}, {names[1]} {other}"


def _process_name(process: psutil.Process) -> str:
    try:
        return f"process {process.pid} ({' '.join(process.cmdline())[:80]})"
    except psutil.Error:
        return f"process {process.pid}"
