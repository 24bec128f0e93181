"""Several servers of one database: whose a study is, also where its server is gone. Nothing starts here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from hpsearch.search.operations.submit import submit
from hpsearch.search.queue.decide import Preempt
from hpsearch.search.queue.observe import DriverProcess, Observed, observe
from hpsearch.search.queue.slots import Machine, Slice
from hpsearch.search.queue.view import Situation
from hpsearch.search.service.queue.reconciler import GONE_SECONDS, Reconciler
from hpsearch.storage.claims import ID
from hpsearch.storage.commands import COMMAND_PREFIX
from hpsearch.storage.connection import DriverConnection
from hpsearch.storage.database import open_storage
from hpsearch.storage.files import CLAIM, study_folder
from hpsearch.storage.studies import find_study
from hpsearch.storage.wanted import Wanted, all_wanted
from hpsearch.storage.workspace import Workspace

from ....support.spaces import SMALL, small

MACHINE = Machine((0, 1), (), 100, 1, 0)


@dataclass
class Servers:
    """Servers of one workspace, whose clock a test moves."""

    workspace: Workspace
    folder: Path
    now: float = 1e9
    all: list[Reconciler] = field(default_factory=list)

    def make(self, name: str) -> Reconciler:
        home = self.folder / name
        home.mkdir(exist_ok=True)
        self.all.append(Reconciler(self.workspace, home, MACHINE, now=lambda: self.now))
        return self.all[-1]

    def add(self, name: str) -> Reconciler:
        made = self.make(name)
        made.look()
        return made

    def submit(self, study: str, server: Reconciler) -> None:
        space = small(name=study, objective="remote")
        submit(
            workspace=self.workspace,
            space=space,
            backend="remote",
            hold=True,
            cwd=self.folder,
            server=server.server,
        )

    def begin(self, study: str, is_here: bool) -> None:
        """Give a study a trial, and its folder where that is here."""
        stored = find_study(self.workspace, study)
        stored.study.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.WAITING))
        if is_here:
            folder = study_folder(self.workspace.runs, stored.folder)
            folder.mkdir(parents=True)
            (folder / CLAIM).write_text(f"{stored.study.user_attrs[ID]}\n")

    def server_of(self, study: str) -> str | None:
        return all_wanted(open_storage(self.workspace.url))[study].server

    def seconds_later(self, seconds: float, server: Reconciler) -> None:
        self.now += seconds
        server.look()


@pytest.fixture
def make_servers(tmp_path: Path) -> Iterator[Any]:
    made: list[Servers] = []

    def make(storage: str) -> Servers:
        made.append(Servers(Workspace.at(storage, tmp_path / "runs"), tmp_path))
        return made[-1]

    yield make
    for servers in made:
        for server in servers.all:
            server.stop()


KINDS = [pytest.param("postgres", marks=pytest.mark.postgres), "mariadb"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_study_is_taken_over_where_its_files_are_once_its_server_is_gone_for_good(
    make_servers: Any, request: pytest.FixtureRequest, kind: str
) -> None:
    servers = make_servers(request.getfixturevalue(kind).database())
    first, second = servers.add("first"), servers.add("second")
    for study in ("new", "here", "there"):  # the last one's files are on another machine
        servers.submit(study, first)
    for study in ("here", "there"):
        servers.begin(study, study == "here")
    servers.seconds_later(2 * GONE_SECONDS, second)
    assert servers.server_of("here") == first.server
    first.stop()
    servers.seconds_later(1.0, second)
    servers.seconds_later(GONE_SECONDS - 1, second)
    first = servers.add("first")  # only started anew
    servers.seconds_later(1.0, second)
    assert servers.server_of("here") == first.server
    first.stop()
    servers.seconds_later(1.0, second)
    assert servers.server_of("here") == first.server
    servers.seconds_later(GONE_SECONDS, second)
    assert {study: servers.server_of(study) for study in ("new", "here", "there")} == {
        "new": second.server, "here": second.server, "there": first.server
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_study_that_another_machine_searches_is_left_to_it(
    make_servers: Any, request: pytest.FixtureRequest, kind: str
) -> None:
    servers = make_servers(request.getfixturevalue(kind).database())
    server = servers.add("first")
    for study in ("s", "t"):
        servers.submit(study, server)
    engine = open_storage(servers.workspace.url).engine
    driver = DriverConnection(engine, find_study(servers.workspace, "t").study._study_id)
    with driver.transaction():
        pass
    states = {each.study: each.state.state for each in server.view().studies}
    assert states == {"s": "paused", "t": "elsewhere"}
    driver.close()
    assert server.view().of("t").state.state == "paused"


def test_a_file_has_one_server_whatever_it_was_called(make_servers: Any, tmp_path: Path) -> None:
    servers = make_servers(str(tmp_path / "a.db"))
    first = servers.add("first")
    servers.submit("s", first)
    sent = tmp_path / "first" / "bundles" / ("b" * 64)
    second = servers.add("second")
    assert servers.server_of("s") == first.server, "the first one has the queue"
    second.drain(True)
    submit(workspace=servers.workspace, space=small(name="code", objective="remote"), backend="remote",
           bundle="b" * 64, cwd=sent, server=first.server)  # fmt: skip
    first.stop()
    second.look()
    assert servers.server_of("s") == second.server
    assert servers.server_of("code") == first.server
    state = second.view().of("code").state
    assert state.state == "elsewhere" and state.reason == (
        f"another server has it, which is gone, and the bundle of its code is gone: {sent}"
    )
    sent.mkdir(parents=True)  # where the first one keeps what it was sent
    second.look()
    assert servers.server_of("code") == second.server


def test_a_search_that_listens_in_the_home_of_a_server_that_is_gone_is_begun_anew(
    make_servers: Any, tmp_path: Path
) -> None:
    """Its workers come to the one that has taken it over; others go on as they are."""
    servers = make_servers(str(tmp_path / "a.db"))
    first = servers.add("first")
    for backend, objective in (("remote", "remote"), ("optuna", {"command": ["true"]})):
        space = small(name=backend, objective=objective)
        submit(
            workspace=servers.workspace,
            space=space,
            backend=backend,
            hold=True,
            cwd=tmp_path,
            server=first.server,
        )
    first.stop()
    second = servers.make("second")
    for study in observe(servers.workspace, open_storage(servers.workspace.url)):
        assert second._take_over(replace(study, driver=DriverProcess(7, 0.0, served=True)))
        attrs = find_study(servers.workspace, study.name).study.user_attrs
        told = [value for key, value in attrs.items() if key.startswith(COMMAND_PREFIX)]
        stop = {"do": "stop", "driver": 7, "by": "the server that has taken it over"}
        assert told == ([stop] if study.name == "remote" else [])


@pytest.mark.parametrize("server", ["this", "another"])
def test_no_study_of_another_server_makes_room(server: str) -> None:
    driver = DriverProcess(1, 0.0, served=True, slice=Slice((0, 1)))
    low = Observed("low", 1, Wanted(0.0, priority="low", server=server), SMALL, driver=driver)
    high = Observed("high", 2, Wanted(0.0, priority="high", server="this"), SMALL)
    actions = Situation([low, high], MACHINE, 1000.0, "this").decide().actions
    assert actions == ((Preempt("low", "high"),) if server == "this" else ())
