"""Plans by a server: measured in a part of the machine that is free, told once they are done."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hpsearch.search.cli.app import app
from hpsearch.search.errors import SearchError, UsageError
from hpsearch.search.preflight.forecast import SearchForecast
from hpsearch.search.queue.slots import Need
from hpsearch.search.service.client import connection
from hpsearch.search.service.client.server import Server
from hpsearch.search.service.planning import Plan, Plans
from hpsearch.search.trials.yaml_text import block_of
from hpsearch.spaces import Spec
from hpsearch.storage.workspace import Workspace

from ...support.online import Served, serving
from ...support.remote import wait_for
from ...support.spaces import small

OBJECTIVE = """
import time

def train(trial):
    for step in range(1, 4):
        time.sleep(0.01)
        trial.report(trial.params["x"] / step, step=step)
    return trial.params["x"]

def broken(trial):
    raise ValueError("no such data")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("planned") / "code"
    made.mkdir()
    (made / "curve.py").write_text(OBJECTIVE)
    return made


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serving(Workspace.at(str(folder.parent / "studies.db")), folder.parent) as found:
        yield found


@pytest.fixture
def server(served: Served, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(connection, "TRIES", 1)
    with served.client("code") as found:
        yield found


def space(function: str = "train", **fields: Any) -> Spec:
    stopping = {"method": "none", "max": 3}
    return small(name="ahead", objective=f"curve.py:{function}", early_stopping=stopping, **fields)


def test_a_plan_is_measured_at_the_server_with_the_code_that_was_sent(
    served: Served, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HPSEARCH_TOKEN", served.token("code"))
    told: list[tuple[str, Any, str]] = []
    publish = served.service.watch.publish

    def telling(kind: str, data: Any, study: str) -> None:
        told.append((kind, data, study))
        publish(kind, data, study)

    monkeypatch.setattr(served.service.watch, "publish", telling)
    (folder / "ahead.yaml").write_text(block_of(space(budget={"trials": 7}).to_json()))
    words = ["--server", served.url, "plan", "ahead.yaml", "--measure", "20", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "sent " in done.stderr
    found = SearchForecast.from_json(json.loads(done.stdout))
    assert found.spec.name == "ahead" and found.forecast.trials == 7 and found.measured.known
    assert served.service.queue.view().machine.has == {}, "its part of the machine is given back"
    assert [(kind, plan.state, study) for kind, plan, study in told] == [("plan.done", "done", "ahead")]


def test_a_plan_that_fails_says_why(server: Server) -> None:
    with pytest.raises(SearchError, match=r"every configuration that was tried failed: .*no such data"):
        server.plan(space=space("broken"), seconds=20)


def test_a_plan_needs_a_part_of_the_machine(server: Server, served: Served) -> None:
    queue = served.service.queue
    assert queue.lend("other", "plan other", Need(lane=True), 30.0) is not None
    try:
        assert set(queue.view().machine.has) == {"plan other"}
        with pytest.raises(SearchError, match="is not free for it now"):
            server.plan(space=space(), seconds=1)
    finally:
        queue.give_back("other")
    large = space(execution={"workers": 1, "cpus_per_trial": 10_000})
    with pytest.raises(UsageError, match=r"10,000 cores.*, which this machine never has"):
        server.plan(space=large, seconds=1)
    remote = space().override(objective="remote")
    with pytest.raises(UsageError, match="its code is with the workers"):
        server.plan(space=remote, seconds=1)
    with pytest.raises(UsageError, match="seconds"):
        server.plan(space=space(), seconds=0.5)


def test_a_drained_server_ends_its_plans_says_so_and_makes_no_others(server: Server, served: Served) -> None:
    with ThreadPoolExecutor(1) as threads, served.client("admin") as admin:
        waiting = threads.submit(server.plan, space=space(), seconds=30)
        wait_for(lambda: served.service.queue.view().machine.has, 30.0)
        admin.connection.call("POST", "/v1/drain", body={"on": True})
        try:
            with pytest.raises(SearchError, match=r"the plan at .* failed: the server is drained"):
                waiting.result(timeout=30.0)
            with pytest.raises(SearchError, match="drained"):
                server.plan(space=space(), seconds=1)
        finally:
            admin.connection.call("POST", "/v1/drain", body={"on": False})


def test_ctrl_c_ends_a_plan_at_its_server(
    served: Served, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    told: list[Plan] = []
    monkeypatch.setattr(served.service.plans, "_tell", told.append)

    def interrupt() -> None:
        wait_for(lambda: served.service.watch.watchers > 0, 30.0)  # who waits for the plan
        os.kill(os.getpid(), signal.SIGINT)

    (folder / "long.yaml").write_text(block_of(space().to_json()))
    threading.Thread(target=interrupt).start()
    words = ["--server", served.url, "plan", "long.yaml", "--measure", "30"]
    done = CliRunner(env={"HPSEARCH_TOKEN": served.token("code")}).invoke(app, words)
    assert done.exit_code == 130, done.output
    (plan,) = told
    assert plan.failure == "ended by tester" and not served.service.queue.view().machine.has


def test_the_same_request_is_the_same_plan(served: Served, folder: Path) -> None:
    ended: list[Plan] = []
    plans = Plans(served.service.queue, folder, ended.append)
    spec = space()
    made, is_new = plans.make(spec, 1.0, key="a")
    try:
        assert is_new and plans.make(spec, 1.0, key="a") == (made, False)
        with pytest.raises(UsageError, match="another plan"):
            plans.make(spec, 2.0, key="a")
    finally:
        plans.stop()
    deadline = time.monotonic() + 10
    while not ended and time.monotonic() < deadline:
        time.sleep(0.01)
    (over,) = ended
    assert replace(over, state="measuring", failure=None) == made
    assert (over.state, over.failure) == ("failed", "the server has ended")
    assert plans.get(made.id) == over
