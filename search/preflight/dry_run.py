"""What the driver itself costs a search: a study that is searched without training, with losses drawn."""

from __future__ import annotations

import random
import time
from contextlib import closing
from dataclasses import dataclass, field

from optuna.trial import FrozenTrial

from ...spaces import Spec
from ...storage import database, studies
from ...storage.files import CHECKPOINT, passing_folder
from ..engine.driver import Driver
from ..engine.running import Assignment
from ..engine.watcher import SearchView
from ..scheduling import places_of
from ..scheduling.pruners import make_pruner

MOST = 1000  # trials of a rehearsal
LATEST = 10  # proposals, by which later ones are judged


@dataclass
class DryRun:
    """Seconds that the driver takes."""

    begin: float = 0.0  # before the first proposal
    asks: list[float] = field(default_factory=list)  # for the proposal of each new trial
    reports: list[float] = field(default_factory=list)

    def ask(self, number: int) -> float:
        """For the proposal of a trial; 0 where nothing tells."""
        if number < len(self.asks):
            return self.asks[number]
        last = self.asks[-LATEST:]
        return sum(last) / len(last) if last else 0.0

    @property
    def report(self) -> float:
        """For a report, on average."""
        return sum(self.reports) / len(self.reports) if self.reports else 0.0


class _Nobody:
    """A watcher that says nothing."""

    def trial_ended(self, search: SearchView, trial: FrozenTrial) -> None: ...

    def tick(self, search: SearchView) -> None: ...

    def say(self, message: str) -> None: ...


def dry_run(spec: Spec, slots: int, seconds: float) -> DryRun:
    """Search for so long at most, with so many trials at a time."""
    studies.quiet_optuna()
    trials = min(MOST, spec.budget.trials or MOST)
    spec = spec.override(budget={"trials": trials, "time": None, "samples": None}, confirm={"top": 0})
    found, began = DryRun(), time.monotonic()
    with passing_folder("hpsearch-plan-") as folder:
        opened = database.open_storage(f"sqlite:///{folder / 'rehearsal.db'}", create=True)
        attrs = {studies.SPEC: spec.to_json()}
        with closing(studies.open_live(opened, spec.name, goal=spec.goal, attrs=attrs)) as live:
            driver = Driver(spec, live, runs=folder, watcher=_Nobody(), pruner=make_pruner(spec))
            found.begin = time.monotonic() - began
            _search(driver, slots, began + seconds, found)
            driver.close()
    return found


def _search(driver: Driver, slots: int, until: float, found: DryRun) -> None:
    rng, running = random.Random(0), list[Assignment]()
    while time.monotonic() < until:
        while len(running) < slots:
            before, new = time.perf_counter(), len(driver.trials)
            given = driver.ask()
            if given is None:
                break
            if given.number >= new or given.number == 0:
                found.asks.append(time.perf_counter() - before)
            (given.folder / CHECKPOINT).mkdir(parents=True, exist_ok=True)
            (given.folder / CHECKPOINT / "file").touch()  # without one, no trial pauses
            running.append(given)
        if not running:
            return
        _train(driver, running.pop(0), rng, found)


def _train(driver: Driver, given: Assignment, rng: random.Random, found: DryRun) -> None:
    for step in [*places_of(driver.spec), driver.spec.early_stopping.max or 1]:
        if step > given.reported:
            before = time.perf_counter()
            ended = driver.report(given.number, rng.random(), step, {})
            found.reports.append(time.perf_counter() - before)
            if ended is not None:
                return
    driver.complete(given.number, rng.random())
