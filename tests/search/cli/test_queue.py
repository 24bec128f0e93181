"""`hpsearch queue` without --server: what the user's own server tells, or would tell."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hpsearch.search.cli.app import app
from hpsearch.search.operations.submit import submit
from hpsearch.search.queue.observe import DriverProcess, Observed
from hpsearch.search.queue.slots import Machine, Need
from hpsearch.search.service.home import Home
from hpsearch.search.service.known import database_of
from hpsearch.storage.wanted import Wanted
from hpsearch.storage.workspace import Workspace

from ...support.online import serving
from ...support.spaces import SMALL, small


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """One with a study that waits, in a folder whose home is `home`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HPSEARCH_HOME", str(tmp_path / "home"))
    for name in ("HPSEARCH_STORAGE", "HPSEARCH_SERVER", "HPSEARCH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    found = Workspace.at("hpsearch.db")
    submit(workspace=found, space=small(objective="remote"), backend="remote", hold=True)
    return found


def told(*words: str) -> Any:
    done = CliRunner().invoke(app, ["queue", "--json", *words])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_what_the_server_alone_knows_is_told_without_naming_it(workspace: Workspace, tmp_path: Path) -> None:
    with serving(Workspace.at(str(tmp_path / "hpsearch.db")), tmp_path) as served, served.client() as client:
        home, queue = Home.at(tmp_path / "home"), served.service.queue
        link = {"url": served.url, "token": served.token(), "pid": os.getpid(), "uds": None}
        home.write(home.link_file(1), json.dumps(link | {"storage": database_of(workspace)}))
        queue.drain(True)
        queue.lend("1", "plan 1", Need(lane=True), 60.0)
        found = told()
        assert found == json.loads(json.dumps(client.queue().to_json()))
        assert found["machine"]["draining"] and set(found["machine"]["has"]) == {"plan 1"}
        assert told("--machine") == found["machine"]
        assert told("--lanes", "1")["machine"]["has"] == {}, "another question"
        home.write(home.link_file(1), json.dumps(link | {"storage": "/other.db"}))
        assert told()["machine"]["has"] == {}
        link |= {"url": "http://127.0.0.1:9", "storage": database_of(workspace)}
        home.write(home.link_file(1), json.dumps(link))
        done = CliRunner().invoke(app, ["queue"])
        assert done.exit_code == 0 and "this is the queue without what the server alone knows" in done.stderr
    assert told()["machine"]["draining"], "as the next server is"


def test_resume_says_where_the_server_is_drained(workspace: Workspace, tmp_path: Path) -> None:
    drained = "it is queued again; its service (hpsearch serve) is drained, and starts nothing\n"
    assert CliRunner().invoke(app, ["resume", "study"]).output.endswith("starts it when there is room\n")
    home = Home.at(tmp_path / "home")
    home.drained.touch()  # from the start: it would begin what was just resumed
    with serving(Workspace.at(str(tmp_path / "hpsearch.db")), tmp_path) as served:
        env = {"HPSEARCH_SERVER": served.url, "HPSEARCH_TOKEN": served.token()}
        assert CliRunner().invoke(app, ["resume", "study"], env=env).output == drained
    assert CliRunner().invoke(app, ["resume", "study"]).output == drained, "as the next server is"


@pytest.mark.parametrize("settle", [0, 300])
def test_a_study_runs_as_long_as_serve_yaml_says_before_it_makes_room(
    settle: float, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = DriverProcess(1, 1000.0, served=True, slice=Machine.here().even[0])
    low = Observed("low", 1, Wanted(0.0, priority="low"), SMALL, driver=driver)
    high = Observed("high", 2, Wanted(0.0, priority="high"), SMALL)
    monkeypatch.setattr("hpsearch.search.operations.queue.observe", lambda *of: [low, high])
    monkeypatch.setattr("hpsearch.search.operations.queue.time.time", lambda: driver.since + 100.0)
    Home.at()
    (tmp_path / "home/serve.yaml").write_text(f"settle: {settle}\n")
    stops = {each["study"]: each["would_stop"] for each in told()["studies"]}
    assert stops == {"low": [], "high": [] if settle else ["low"]}
