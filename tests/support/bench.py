"""Searches of the contract: on a backend, in a database, by Python or by the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.trial import FrozenTrial

from hpsearch.search import run
from hpsearch.search.results.study import StudyResult
from hpsearch.spaces import Spec
from hpsearch.storage.database import sqlite_file

from .once import copy_tables
from .remote import workers_for
from .watchers import Recorder

FUNCTIONS = Path(__file__).parents[1] / "search" / "backends" / "functions.py"
HPSEARCH = Path(sys.executable).with_name("hpsearch")


@dataclass
class Bench:
    """One database, the spaces searched in it, and what trials noted."""

    backend: str
    folder: Path
    make_spec: Callable[..., Spec]
    make_database: Callable[[], str]
    start_ray: Callable[[], None]  # which all searches of this process share

    def __post_init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Go on with an empty database."""
        self.url = self.make_database()
        self._plain: optuna.storages.RDBStorage | None = None  # past all of our code

    def spec(self, function: str = "descend", **fields: Any) -> Spec:
        """A small space whose objective is one of `functions.py`."""
        parameters = fields.pop("parameters", {"x": {"min": 0.0, "max": 1.0}})
        folder = {"folder": str(self.folder)}
        return self.make_spec(objective=f"{FUNCTIONS}:{function}", parameters=parameters | folder, **fields)

    def search(
        self, function: str | Spec = "descend", *, watcher: Recorder | None = None, **fields: Any
    ) -> StudyResult:
        spec = function if isinstance(function, Spec) else self.spec(function, **fields)
        return self.run(spec, watcher=watcher or Recorder())

    def run(self, space: Any, **options: Any) -> StudyResult:
        usual: dict[str, Any] = {"backend": self.backend, "watcher": Recorder(), "storage": self.url}
        options = usual | {"runs": self.folder / "runs"} | options
        if options["backend"] == "ray":
            self.start_ray()
        if options["backend"] == "remote":
            with workers_for(space):
                return run(space, **options)
        return run(space, **options)

    def engine(self) -> sqlalchemy.Engine:
        """The database past all of our code; it keeps no connection."""
        waits = {"timeout": 30} if self.url.startswith("sqlite") else {}
        return sqlalchemy.create_engine(self.url, poolclass=sqlalchemy.NullPool, connect_args=waits)

    def untouched(self) -> bool:
        """Whether nothing was made in the database, or of it."""
        if self.url.startswith("sqlite"):
            return not (self.folder / "studies.db").exists()
        return sqlalchemy.inspect(self.engine()).get_table_names() == []

    def trials(self, name: str = "study") -> list[FrozenTrial]:
        """The trials as plain Optuna reads them from the database; a server's reports come in any order."""
        if self._plain is None:  # opened once: some tests look twenty times a second
            self._plain = optuna.storages.RDBStorage(
                self.url, engine_kwargs={"poolclass": sqlalchemy.NullPool}
            )
        trials = optuna.load_study(study_name=name, storage=self._plain).get_trials()
        for trial in trials:
            trial.intermediate_values = dict(sorted(trial.intermediate_values.items()))
        return trials

    def states(self) -> list[str]:
        return [trial.state.name for trial in self.trials()]

    def notes(self, number: int) -> list[dict[str, Any]]:
        """What a trial noted, over all its attempts."""
        path = self.folder / f"{number}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Command:
    """`hpsearch run` in a folder of its own."""

    def __init__(self, bench: Any, space: dict[str, Any]) -> None:
        self.bench = bench
        (bench.folder / "space.yaml").write_text(json.dumps(space))
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *more: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        file = sqlite_file(self.bench.url)
        if (
            file is not None and not file.exists()
        ):  # its process would make the tables for a third of a second
            copy_tables(file)
        words = [HPSEARCH, "run", "space.yaml", "--plain", "--backend", self.bench.backend]
        process = subprocess.Popen(
            [*words, *more],
            cwd=self.bench.folder,
            env=os.environ | {"HPSEARCH_STORAGE": self.bench.url} | (env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def begun(self, number: int) -> None:
        """Wait until a trial has begun, and the study has a report of it: its checkpoint is sealed by then."""
        metrics = self.bench.folder / "runs" / "study" / str(number) / "metrics.jsonl"
        self.wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0)
        self.wait_for(lambda: self.bench.trials()[number].intermediate_values)

    @staticmethod
    def wait_for(condition: Callable[[], Any], seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "waited too long"
            time.sleep(0.05)
