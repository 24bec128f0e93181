"""The backends under the contract, and how the tests drive them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy
from optuna.trial import FrozenTrial

from hpsearch.search import StudyResult, run
from hpsearch.search.backends.ray.cluster import connected
from hpsearch.search.backends.resources import Node
from hpsearch.search.driver import Driver
from hpsearch.spaces import Spec

FUNCTIONS = Path(__file__).with_name("functions.py")
HPSEARCH = Path(sys.executable).with_name("hpsearch")
Hook = Callable[[Driver], None]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave most of Ray on PostgreSQL out: no backend talks to a database, and each runs on both kinds alone."""
    if config.getoption("--all-pairs"):
        return
    left_out = [item for item in items if _is_pair(item) and item.get_closest_marker("pair") is None]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _is_pair(item: pytest.Item) -> bool:
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return (params.get("backend_name"), params.get("storage_name")) == ("ray", "postgres")


@pytest.fixture(params=["optuna", pytest.param("ray", marks=pytest.mark.ray)])
def backend_name(request: pytest.FixtureRequest) -> str:
    """The backend that a test of the contract runs on: every one there is, in turn."""
    name: str = request.param
    return name


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def storage_name(request: pytest.FixtureRequest) -> str:
    """The database that a test of the contract searches in: every kind there is, in turn."""
    name: str = request.param
    return name


@pytest.fixture
def make_database(storage_name: str, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[], str]:
    """The URL of an empty database; where it is asked for again, of another one."""
    if storage_name != "sqlite":
        make: Callable[[], str] = request.getfixturevalue(storage_name).database
        return make

    def file() -> str:
        (tmp_path / "studies.db").unlink(missing_ok=True)
        return f"sqlite:///{tmp_path / 'studies.db'}"

    return file


@pytest.fixture(scope="session")
def shared_ray() -> Iterator[None]:
    """One Ray for all searches of this process; those of the command line start their own."""
    with connected(None, Node(cpus=2, gpus=0, memory=8 << 30)):
        yield


@dataclass
class Recorder:
    """A watcher that remembers, and lets a test act in the middle of a search."""

    at_end: Hook | None = None  # called when a trial has ended
    at_tick: Hook | None = None
    ended: list[FrozenTrial] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def trial_ended(self, driver: Driver, trial: FrozenTrial) -> None:
        self.ended.append(trial)
        if self.at_end is not None:
            self.at_end(driver)

    def tick(self, driver: Driver) -> None:
        if self.at_tick is not None:
            self.at_tick(driver)

    def say(self, message: str) -> None:
        self.said.append(message)


@dataclass
class Bench:
    """One database, the spaces searched in it, and what trials noted."""

    backend: str
    folder: Path
    make_spec: Callable[..., Spec]
    make_database: Callable[[], str]

    def __post_init__(self) -> None:
        self.url = self.make_database()

    def forget(self) -> None:
        """Go on with an empty database."""
        self.url = self.make_database()

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
        found: dict[str, Any] = {"backend": self.backend, "watcher": Recorder(), "storage": self.url}
        return run(space, **found | {"runs": self.folder / "runs"} | options)

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
        storage = optuna.storages.RDBStorage(self.url)
        try:
            trials = optuna.load_study(study_name=name, storage=storage).get_trials()
        finally:
            storage.engine.dispose()
        for trial in trials:
            trial.intermediate_values = dict(sorted(trial.intermediate_values.items()))
        return trials

    def states(self) -> list[str]:
        return [trial.state.name for trial in self.trials()]

    def notes(self, number: int) -> list[dict[str, Any]]:
        """What a trial noted, over all its attempts."""
        path = self.folder / f"{number}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def bench(
    backend_name: str,
    tmp_path: Path,
    make_spec: Callable[..., Spec],
    make_database: Callable[[], str],
    request: pytest.FixtureRequest,
) -> Bench:
    if backend_name == "ray":
        request.getfixturevalue("shared_ray")
    return Bench(backend_name, tmp_path, make_spec, make_database)


@pytest.fixture
def recorder() -> type[Recorder]:
    return Recorder


class Command:
    """`hpsearch run` in a folder of its own."""

    def __init__(self, bench: Any, space: dict[str, Any]) -> None:
        self.bench = bench
        (bench.folder / "space.yaml").write_text(json.dumps(space))
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *more: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
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
        """Wait until a trial has begun and reported."""
        metrics = self.bench.folder / "runs" / "study" / str(number) / "metrics.jsonl"
        self.wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0)

    @staticmethod
    def wait_for(condition: Callable[[], Any], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "waited too long"
            time.sleep(0.05)


@pytest.fixture
def command(bench: Any) -> Iterator[Callable[..., Command]]:
    """Write a space and run it from the command line; nothing outlives the test."""
    commands: list[Command] = []

    def make(function: str = "steady", **fields: Any) -> Command:
        spec = bench.spec(function).to_json()
        space = {k: v for k, v in spec.items() if v is not None} | fields
        commands.append(Command(bench, space))
        return commands[-1]

    yield make
    for process in [p for c in commands for p in c.started]:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
