"""What all tests share: Ctrl-C, the database servers that the tests start, and small searches.

A search of the contract runs on every backend and in every kind of database (`bench`), or by the real command
line (`command`).
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from hpsearch.spaces import Spec

from .support.bench import Bench, Command
from .support.driving import DrivenStudy
from .support.in_process import InProcessBackend
from .support.once import do_once
from .support.order import arrange, has_no_part
from .support.servers import MariaDb, Postgres, Server, found, running
from .support.spaces import small
from .support.watchers import Recorder


def pytest_configure() -> None:
    """Let Ctrl-C and a terminal's end reach the processes that tests start.

    A shell lets its background jobs ignore SIGINT, nohup SIGHUP, and a child inherits that; a handler of ours
    it does not.
    """
    settings.register_profile("here", settings(), deadline=None)  # an example waits for its core
    settings.load_profile("here")
    do_once()
    gc.disable()  # until all modules of tests are loaded
    for name in ("PYTHONUNBUFFERED", "PYTHONIOENCODING", "PYTHONUTF8"):  # a user has none of them
        os.environ.pop(name, None)
    # Tests run side by side: threads that wait for one that has no core now would burn what cores there are.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # where a search gives its workers more
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-pairs", action="store_true", help="also tests that Ray or PostgreSQL has no part in"
    )


def pytest_collection_finish() -> None:
    """Look for garbage from now on, and not again and again among thousands of tests and what they import."""
    gc.freeze()
    gc.enable()


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


@pytest.fixture(autouse=True)
def at_no_server() -> Iterator[None]:
    """Forget the server of a command that ran in this process: the next test's words would name it."""
    yield
    if (places := sys.modules.get("hpsearch.search.cli.places")) is not None:
        places.NAMED.set(None)


@pytest.fixture
def make_spec() -> Callable[..., Spec]:
    """A spec of one float parameter and four trials, with other fields where they are given."""
    return small


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose extra libraries, the arguments of its mark, are not installed here."""
    needed = {name for mark in item.iter_markers("extras") for name in mark.args}
    if missing := sorted(name for name in needed if find_spec(name) is None):
        pytest.skip(f"needs {', '.join(missing)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test of an extra library that is skipped has failed: .ci/extras, which selects it, has the library."""
    report = yield
    is_extra = item.get_closest_marker("extras") is not None
    if report.skipped and is_extra and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"in CI, no test of an extra library is skipped: {report.longreprtext}"
    return report


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out on Ray, and in PostgreSQL, what they have no part in: no backend talks to a database."""
    if not config.getoption("--all-pairs"):
        left_out = {item for item in items if has_no_part(item)}
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    arrange(items)


@pytest.fixture(params=["optuna", pytest.param("ray", marks=pytest.mark.ray), "remote"])
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
    from hpsearch.search.backends.ray.cluster import connected
    from hpsearch.search.backends.resources import Node

    with connected(None, Node(cpus=2, gpus=0, memory=8 << 30)):
        yield


@pytest.fixture
def bench(
    backend_name: str,
    tmp_path: Path,
    make_spec: Callable[..., Spec],
    make_database: Callable[[], str],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Bench:
    def start_ray() -> None:
        request.getfixturevalue("shared_ray")

    monkeypatch.setenv("HPSEARCH_HOME", str(tmp_path / "home"))
    if request.node.get_closest_marker("in_process"):
        monkeypatch.setattr(
            "hpsearch.search.operations.run.make_backend", lambda name, *of: InProcessBackend(*of[:2])
        )
    # Now, or it would live in what its first test makes of the environment; a command has a Ray of its own.
    if backend_name == "ray" and "command" not in request.fixturenames:
        start_ray()
    return Bench(backend_name, tmp_path, make_spec, make_database, start_ray)


@pytest.fixture
def recorder() -> type[Recorder]:
    return Recorder


@pytest.fixture
def study(tmp_path: Path) -> Iterator[DrivenStudy]:
    """A study whose drivers this test asks for trials, as a backend does."""
    driven = DrivenStudy(tmp_path)
    yield driven
    driven.close()


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
