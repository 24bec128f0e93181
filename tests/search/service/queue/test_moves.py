"""What moves in the queue is told, and what a server knows again after it has ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from hpsearch.search.errors import SearchError
from hpsearch.search.operations.steer import steer
from hpsearch.search.operations.submit import submit
from hpsearch.search.queue.foreseen import Rest
from hpsearch.search.queue.slots import Machine
from hpsearch.search.service.metrics import FORECAST_ERROR, QUEUE_WAIT
from hpsearch.search.service.queue.moves import Moves
from hpsearch.search.service.queue.reconciler import Reconciler
from hpsearch.search.service.worker.agent import work
from hpsearch.storage import StorageError
from hpsearch.storage.locks import driver_lock
from hpsearch.storage.wanted import DRIVER_VARIABLE
from hpsearch.storage.workspace import Workspace

from ....support.spaces import small

HOLDS = """
import sys
from pathlib import Path
from hpsearch.storage.locks import driver_lock
from hpsearch.storage.workspace import Workspace

with driver_lock(Workspace.at(sys.argv[1]), "study"):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.at(str(tmp_path / "studies.db"))


def reconciler(workspace: Workspace, folder: Path) -> Reconciler:
    """One of a machine without cores for what a study asks, on which nothing starts."""
    return Reconciler(workspace, folder, Machine((), memory=0))


def test_a_move_in_the_queue_is_told_once(workspace: Workspace, tmp_path: Path) -> None:
    told: list[tuple[str, Any, str]] = []
    queue = reconciler(workspace, tmp_path)
    queue.draining = True  # nothing starts
    queue.moved = Moves(lambda *event: told.append(event)).look
    queue.look()
    for name in ("first", "second"):
        submit(workspace=workspace, space=small(name=name, objective="remote"), backend="remote")
    queue.look()
    queue.look()
    assert [(kind, data["state"], data["place"], study) for kind, data, study in told] == [
        ("queue", "queued", 1, "first"),
        ("queue", "queued", 2, "second"),
    ]
    told.clear()
    steer(workspace=workspace, study="second", priority="high")
    queue.look()
    assert {study: data["place"] for _, data, study in told} == {"first": 2, "second": 1}
    told.clear()
    steer(workspace=workspace, study="second", desired="stop")
    queue.look()
    assert {study: (data["state"], data["place"]) for _, data, study in told} == {
        "first": ("queued", 1),
        "second": ("stopped", None),
    }
    queue.stop()


def test_the_wait_in_the_queue_is_measured() -> None:
    moves = Moves(lambda *event: None)
    before = {sample.name: sample.value for sample in next(iter(QUEUE_WAIT.collect())).samples}
    for state, now in (("queued", 10.0), ("queued", 11.0), ("starting", 14.0), ("running", 15.0)):
        moves._measure("study", state, now)
    moves._measure("other", "queued", 10.0)
    moves._measure("other", "stopped", 20.0)
    after = {sample.name: sample.value for sample in next(iter(QUEUE_WAIT.collect())).samples}
    name = "hpsearch_queue_wait_seconds"
    assert after[f"{name}_count"] - before[f"{name}_count"] == 1
    assert after[f"{name}_sum"] - before[f"{name}_sum"] == 4.0


def test_a_foreseen_end_is_compared_with_the_real_one() -> None:
    moves = Moves(lambda *event: None)
    before = {sample.name: sample.value for sample in next(iter(FORECAST_ERROR.collect())).samples}
    for state, now, left in (("running", 10.0, 2.0), ("running", 20.0, 40.0), ("running", 50.0, 25.0)):
        moves._measure("study", state, now, Rest(left, left, left))
        moves._measure("other", state, now, Rest(left, left, left))
    moves._measure("study", "finished", 70.0)
    moves._measure("other", "stopped", 70.0)
    after = {sample.name: sample.value for sample in next(iter(FORECAST_ERROR.collect())).samples}
    name = "hpsearch_forecast_error_ratio"
    assert after[f"{name}_count"] - before[f"{name}_count"] == 1
    assert after[f"{name}_sum"] - before[f"{name}_sum"] == 0.25, "10 s late, of 40"


def test_a_drained_server_stays_drained_until_the_machine_starts_anew(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconciler(workspace, tmp_path).drain(True)
    assert reconciler(workspace, tmp_path).draining
    began = psutil.boot_time()
    os.utime(tmp_path / "drained", (began - 1, began - 1))
    assert not reconciler(workspace, tmp_path).draining
    reconciler(workspace, tmp_path).drain(True)
    reconciler(workspace, tmp_path).drain(False)
    assert not reconciler(workspace, tmp_path).draining


def test_a_search_beside_that_of_a_server_says_who_has_the_study(workspace: Workspace) -> None:
    command = [sys.executable, "-c", HOLDS, str(workspace.file)]
    served = os.environ | {DRIVER_VARIABLE: "1"}
    with subprocess.Popen(command, stdin=-1, stdout=-1, env=served, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "locked\n"
        said = rf"a search that hpsearch serve has started \(process {process.pid}\) is running the study"
        with pytest.raises(StorageError, match=said), driver_lock(workspace, "study"):
            pass
        process.communicate("")


def test_a_worker_waits_for_its_server_as_long_at_its_start() -> None:
    said: list[str] = []
    with pytest.raises(SearchError, match="did not answer for 1 s"):
        work(url="http://127.0.0.1:9", study="mine", token="hps_x", lease=0.2, say=said.append)
    assert said == ["the search does not answer; it is asked again for 1 s"]
