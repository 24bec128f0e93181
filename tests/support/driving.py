"""A driver without a backend: a test asks it for trials, and reports for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial

from hpsearch.search import open_study
from hpsearch.search.engine.driver import Driver
from hpsearch.search.engine.running import Assignment, Failure
from hpsearch.search.engine.watcher import Watcher
from hpsearch.search.results.study import StudyResult
from hpsearch.search.scheduling.pruners import make_pruner
from hpsearch.spaces import Spec
from hpsearch.storage.commands import COMMAND_PREFIX
from hpsearch.storage.database import open_storage
from hpsearch.storage.files import CHECKPOINT
from hpsearch.storage.studies import SPEC, open_live

from .watchers import Recorder

HYPERBAND = {"method": "hyperband", "min": 1, "max": 9, "eta": 3}
PROMOTION = {"method": "asha", "type": "promotion", "min": 1, "max": 9, "eta": 3}
CONFIRM = {"baseline": {"x": 0.5}, "budget": {"trials": 4}, "confirm": {"top": 2, "seeds": 2}}
ERROR = Failure("error", "ValueError: no", "the traceback")


class DrivenStudy:
    """A study in a SQLite file, and its drivers, set up as `run` does."""

    def __init__(self, folder: Path, watcher: Watcher | None = None) -> None:
        self.file = folder / "a.db"
        self.runs = folder / "runs"
        self.watcher: Any = watcher or Recorder()
        self._opened: list[optuna.storages.RDBStorage] = []
        self._plain: optuna.storages.RDBStorage | None = None  # past all of our code

    @property
    def url(self) -> str:
        return f"sqlite:///{self.file}"

    def driver(self, spec: Spec, **options: Any) -> Driver:
        storage = open_storage(self.url, create=True)
        self._opened.append(storage)
        live = open_live(storage, spec.name, goal=spec.goal, attrs={SPEC: spec.to_json()})
        options = {"pruner": make_pruner(spec)} | options
        return Driver(spec, live, runs=self.runs, watcher=self.watcher, **options)

    def command(self, **what: Any) -> None:
        """Ask something of the driver, as another process does."""
        study = optuna.load_study(study_name="study", storage=self.url)
        study.set_user_attr(f"{COMMAND_PREFIX}1", what)

    def trials(self, name: str = "study") -> list[FrozenTrial]:
        """The trials as plain Optuna reads them from the database."""
        if self._plain is None:
            self._plain = optuna.storages.RDBStorage(self.url)
            self._opened.append(self._plain)
        return optuna.load_study(study_name=name, storage=self._plain).get_trials()

    def states(self) -> list[str]:
        return [trial.state.name for trial in self.trials()]

    def result(self) -> StudyResult:
        return open_study("study", storage=str(self.file), runs=self.runs)

    def close(self) -> None:
        for storage in self._opened:
            storage.engine.dispose()


def asked(driver: Driver) -> Assignment:
    assignment = driver.ask()
    assert assignment is not None, "the search is over"
    return assignment


def save_checkpoint(assignment: Assignment) -> None:
    (assignment.folder / CHECKPOINT).mkdir(parents=True, exist_ok=True)
    (assignment.folder / CHECKPOINT / "weights").touch()


def to_rung(driver: Driver, step: int, value: float, *, checkpoint: bool = True) -> tuple[int, str | None]:
    """The next trial, trained to a step: its number and the driver's answer."""
    given = asked(driver)
    if checkpoint:
        save_checkpoint(given)
    return given.number, driver.report(given.number, value, step, {})


def trained(driver: Driver, value: float) -> Assignment:
    """The next trial, trained to its end."""
    given = asked(driver)
    driver.report(given.number, value, 9, {})
    driver.complete(given.number, value)
    return given
