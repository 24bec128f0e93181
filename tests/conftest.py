"""What all tests share: Ctrl-C, the database servers that the tests start, and small searches.

A search of the contract runs on every backend and in every kind of database (`bench`), or by the real command
line (`command`).
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import optuna
import pytest
import sqlalchemy
import typer.main
import typer.testing
from hypothesis import settings
from optuna.storages._rdb.storage import _VersionManager
from optuna.trial import FrozenTrial

from hpsearch.search import StudyResult, run
from hpsearch.search.backends.ray.cluster import connected
from hpsearch.search.backends.resources import Node
from hpsearch.search.engine.driver import Driver
from hpsearch.search.engine.watcher import SearchView
from hpsearch.spaces import Spec

PASSWORD = "p@ss/w:rd?#50%&+ {e}'\"\\"  # whatever a URL could stumble over


def pytest_configure() -> None:
    """Let Ctrl-C and a terminal's end reach the processes that tests start.

    A shell lets its background jobs ignore SIGINT, nohup SIGHUP, and a child inherits that; a handler of ours
    it does not.
    """
    settings.register_profile("here", settings(), deadline=None)  # an example waits for its core
    settings.load_profile("here")
    _read_once()
    for name in ("PYTHONUNBUFFERED", "PYTHONIOENCODING", "PYTHONUTF8"):  # a user has none of them
        os.environ.pop(name, None)
    # Tests run side by side: threads that wait for one that has no core now would burn what cores there are.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # where a search gives its workers more
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)


def _read_once() -> None:
    """Let this process build the command line once, and read Optuna's migrations once.

    A user's process does each once too, or twice; here every command and every database would do it again.
    """
    build = functools.cache(typer.main.get_command)
    typer.main.get_command = typer.testing._get_command = build  # type: ignore[attr-defined]
    made: list[Any] = []
    make = _VersionManager._create_alembic_script

    def migrations(self: _VersionManager) -> Any:
        if not made:
            made.append(make(self))
        return made[0]

    _VersionManager._create_alembic_script = migrations  # type: ignore[method-assign]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-pairs", action="store_true", help="also tests that Ray or PostgreSQL has no part in"
    )


class Server:
    """A database server of the tests' own: on this machine alone, in a folder that goes with it.

    No server likes to be root's, so root runs it as nobody. It ends with this process, however that ends.
    """

    scheme: str
    first: str  # a database that every server has

    def __init__(self, programs: dict[str, str], home: Path) -> None:
        self.programs = programs
        self.home = home
        self._process: subprocess.Popen[bytes] | None = None
        self._starter = ThreadPoolExecutor(1)  # the server ends with the thread that started it
        self._names = (f"test_{number}" for number in itertools.count())
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]

    def url(
        self, database: str, *, user: str = "searcher", password: str = PASSWORD, port: int | None = None
    ) -> str:
        secret = quote(password, safe="")
        return f"{self.scheme}://{user}:{secret}@127.0.0.1:{port or self.port}/{database}"

    def database(self) -> str:
        """The URL of a new database."""
        name = next(self._names)
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str) -> None:
        engine = sqlalchemy.create_engine(
            self.url(self.first), poolclass=sqlalchemy.NullPool, isolation_level="AUTOCOMMIT"
        )
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text(statement))

    def make(self) -> None:
        """Fill the folder."""
        raise NotImplementedError

    def words(self) -> list[str]:
        """The command that runs the server."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        with (self.home / "log").open("ab") as log:
            self._process = self._starter.submit(
                subprocess.Popen[bytes],
                self.as_user(self.words()),
                cwd=self.home,
                stdout=log,
                stderr=log,
                start_new_session=True,
            ).result()
        deadline = time.monotonic() + 60
        while True:
            try:
                return self.execute("SELECT 1")
            except sqlalchemy.exc.DBAPIError as error:
                said = (self.home / "log").read_text()
                assert self._process.poll() is None and time.monotonic() < deadline, f"{error}\n{said}"
                time.sleep(0.05)

    def stop(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def run(self, words: list[str]) -> None:
        """Run one of the server's programs to its end."""
        done = subprocess.run(self.as_user(words), cwd=self.home, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    @staticmethod
    def as_user(words: list[str]) -> list[str]:
        nobody = pwd.getpwnam("nobody")
        change = [f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
        return ["setpriv", "--pdeathsig=QUIT", *(change if os.geteuid() == 0 else []), *words]


class Postgres(Server):
    scheme = "postgresql+psycopg"
    first = "postgres"

    def make(self) -> None:
        (self.home / "password").write_text(PASSWORD)
        options = ["--auth=scram-sha-256", "--username=searcher", "--encoding=UTF8", "--no-sync"]
        folders = [f"--pgdata={self.home / 'data'}", f"--pwfile={self.home / 'password'}"]
        self.run([self.programs["initdb"], *options, *folders])

    def words(self) -> list[str]:
        # What a killed server has not written is lost without these two only where the machine dies too.
        settings = {"fsync": "off", "full_page_writes": "off", "port": str(self.port)}
        settings |= {"listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
        given = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [self.programs["postgres"], "-D", str(self.home / "data"), *given]


class MariaDb(Server):
    scheme = "mysql+pymysql"
    first = "mysql"

    def make(self) -> None:
        quoted = PASSWORD.replace("\\", "\\\\").replace("'", "\\'")
        (self.home / "start.sql").write_text(
            f"CREATE USER IF NOT EXISTS searcher@'127.0.0.1' IDENTIFIED BY '{quoted}';\n"
            "GRANT ALL ON *.* TO searcher@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        self.run([self.programs["mariadb-install-db"], "--no-defaults", f"--datadir={self.home / 'data'}"])

    def words(self) -> list[str]:
        options = {"datadir": "data", "socket": "socket", "init-file": "start.sql"}
        folders = [f"--{name}={self.home / file}" for name, file in options.items()]
        network = [f"--port={self.port}", "--bind-address=127.0.0.1", "--skip-name-resolve"]
        return [
            self.programs["mariadbd"],
            "--no-defaults",
            *folders,
            *network,
            "--character-set-server=utf8mb4",
        ]


@contextmanager
def running(kind: type[Server], programs: dict[str, str]) -> Iterator[Server]:
    """A server while it is needed."""
    home = Path(tempfile.mkdtemp(prefix="server"))  # pytest's own folders are closed to other users
    server = kind(programs, home)
    try:
        if os.geteuid() == 0:
            shutil.chown(home, "nobody")
        server.make()
        server.start()
        yield server
    finally:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(home)


def found(names: list[str], folders: list[Path]) -> dict[str, str] | None:
    """The programs of a server, from the PATH or the folders that Debian keeps off it."""
    path = os.pathsep.join([os.environ["PATH"], *map(str, folders)])
    programs = {name: shutil.which(name, path=path) for name in names}
    return {name: file for name, file in programs.items() if file} if all(programs.values()) else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server, whose databases each belong to a test."""
    newest_first = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: -int(p.parent.name))
    programs = found(["initdb", "postgres"], newest_first)
    if programs is None:
        reason = "needs a PostgreSQL server (Debian: postgresql)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with running(Postgres, programs) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    """A MariaDB server; nowhere required."""
    programs = found(["mariadb-install-db", "mariadbd"], [Path("/usr/sbin")])
    if programs is None:
        pytest.skip("needs a MariaDB server (Debian: mariadb-server)")
    with running(MariaDb, programs) as server:
        yield server


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Compute with one thread: more than the free cores wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_group() -> Iterator[Callable[[int], Path]]:
    """A control group with so many bytes of memory, whose limit the kernel enforces by its OOM killer."""
    second = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    root = Path("/sys/fs/cgroup") if second else Path("/sys/fs/cgroup/memory")
    folder = root / f"hpsearch-test-{os.getpid()}"

    def make(memory: int) -> Path:
        try:
            folder.mkdir()
            (folder / ("memory.max" if second else "memory.limit_in_bytes")).write_text(str(memory))
        except OSError as error:
            pytest.skip(f"this user may not make control groups: {error}")
        return folder

    yield make
    with suppress(OSError):  # there is none, or a process of it is still leaving
        folder.rmdir()


# Small searches

SMALL: dict[str, Any] = {
    "version": 1,
    "name": "study",
    "objective": "somewhere:train",
    "metric": "loss",
    "parameters": {"x": {"min": 0.0, "max": 1.0}},
    "search": {"sampler": "random"},
    "confirm": {"top": 0},  # most tests count trials
    "budget": {"trials": 4},
    "execution": {"workers": 1, "retries": 0},
}


@pytest.fixture
def make_spec() -> Callable[..., Spec]:
    """A spec of one float parameter and four trials, with other fields where they are given."""

    def make(**fields: Any) -> Spec:
        return Spec.from_json(SMALL | fields)

    return make


FUNCTIONS = Path(__file__).parent / "search" / "backends" / "functions.py"
HPSEARCH = Path(sys.executable).with_name("hpsearch")
Hook = Callable[[Driver], None]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out on Ray, and in PostgreSQL, what they have no part in: no backend talks to a database.

    Begin with the slow ones, and with the longest of all, or the others would wait for them in the end.
    """
    if not config.getoption("--all-pairs"):
        left_out = {item for item in items if _has_no_part(item)}
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    slow = [item for item in items if item.get_closest_marker("slow")]
    slow.sort(key=lambda item: "test_the_readme_runs" not in item.name)
    quick = [item for item in items if not item.get_closest_marker("slow")]
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))  # each begins with its part of all
    items[:] = [
        each
        for number in range(processes)
        for part in (slow, quick)
        for each in _part(part, number, processes)
    ]


def _part(items: list[pytest.Item], number: int, count: int) -> list[pytest.Item]:
    return items[len(items) * number // count : len(items) * (number + 1) // count]


def _has_no_part(item: pytest.Item) -> bool:
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    ray, server = params.get("backend_name") == "ray", params.get("storage_name") == "postgres"
    if ray and server:
        return item.get_closest_marker("pair") is None
    marker = "any_backend" if ray else "any_storage" if server else None
    return marker is not None and item.get_closest_marker(marker) is not None


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

    def trial_ended(self, search: SearchView, trial: FrozenTrial) -> None:
        self.ended.append(trial)
        if self.at_end is not None:
            self.at_end(cast(Driver, search))

    def tick(self, search: SearchView) -> None:
        if self.at_tick is not None:
            self.at_tick(cast(Driver, search))

    def say(self, message: str) -> None:
        if not message.startswith("each trial runs "):  # which is said of every objective here
            self.said.append(message)


@dataclass
class Bench:
    """One database, the spaces searched in it, and what trials noted."""

    backend: str
    folder: Path
    make_spec: Callable[..., Spec]
    make_database: Callable[[], str]

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
