"""Measures what the driver costs a search: it searches a study without training, with random losses."""

from __future__ import annotations

import random
import time
from contextlib import closing
from dataclasses import dataclass, field

from optuna.trial import FrozenTrial

from ...spaces import Spec
from ...storage import database, studies
from ...storage.files import CHECKPOINT, scratch_folder
from ..engine.driver import Driver
from ..engine.running import Assignment
from ..engine.watcher import SearchView
from ..scheduling.pruners import make_pruner
from ..scheduling.rungs import rung_steps

MOST_TRIALS = 1000  # of a dry run
LATEST_ASKS = 10  # the last proposals, from which the time of later ones is estimated


@dataclass
class DryRun:
    """The seconds that the driver takes."""

    begin: float = 0.0  # before the first proposal
    asks: list[float] = field(default_factory=list)  # for the proposal of each new trial
    reports: list[float] = field(default_factory=list)

    def ask(self, number: int) -> float:
        """Seconds to propose a trial; 0 where none was measured."""
        if number < len(self.asks):
            return self.asks[number]
        last = self.asks[-LATEST_ASKS:]
        return sum(last) / len(last) if last else 0.0

    @property
    def report(self) -> float:
        """Seconds for a report, on average."""
        return sum(self.reports) / len(self.reports) if self.reports else 0.0


class _SilentWatcher:
    """A watcher that says nothing."""

    def trial_ended(self, search: SearchView, trial: FrozenTrial) -> None: ...

    def tick(self, search: SearchView) -> None: ...

    def say(self, message: str) -> None: ...


def dry_run(spec: Spec, slots: int, seconds: float) -> DryRun:
    """Search for at most `seconds`, with `slots` trials at a time."""
    studies.quiet_optuna()
    trials = min(MOST_TRIALS, spec.budget.trials or MOST_TRIALS)
    spec = spec.override(budget={"trials": trials, "time": None, "samples": None}, confirm={"top": 0})
    costs, began = DryRun(), time.monotonic()
    with scratch_folder("hpsearch-plan-") as folder:
        opened = database.open_storage(f"sqlite:///{folder / 'dry_run.db'}", create=True)
        attrs = {studies.SPEC: spec.to_json()}
        with closing(studies.open_live(opened, spec.name, goal=spec.goal, attrs=attrs)) as live:
            driver = Driver(spec, live, runs=folder, watcher=_SilentWatcher(), pruner=make_pruner(spec))
            costs.begin = time.monotonic() - began
            _search(driver, slots, began + seconds, costs)
            driver.close()
    return costs


def _search(driver: Driver, slots: int, until: float, costs: DryRun) -> None:
    rng, running = random.Random(0), list[Assignment]()
    while time.monotonic() < until:
        while len(running) < slots:
            before, new_number = time.perf_counter(), len(driver.trials)
            assignment = driver.ask()
            if assignment is None:
                break
            if assignment.number >= new_number or assignment.number == 0:
                costs.asks.append(time.perf_counter() - before)
            (assignment.folder / CHECKPOINT).mkdir(parents=True, exist_ok=True)
            (assignment.folder / CHECKPOINT / "file").touch()  # a trial without a checkpoint cannot pause
            running.append(assignment)
        if not running:
            return
        _train(driver, running.pop(0), rng, costs)


def _train(driver: Driver, assignment: Assignment, rng: random.Random, costs: DryRun) -> None:
    for step in [*rung_steps(driver.spec), driver.spec.early_stopping.max or 1]:
        if step > assignment.reported:
            before = time.perf_counter()
            ended = driver.report(assignment.number, rng.random(), step, {})
            costs.reports.append(time.perf_counter() - before)
            if ended is not None:
                return
    driver.complete(assignment.number, rng.random())
