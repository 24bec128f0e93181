"""The queue with a server and drivers that live, and are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search import open_study
from hpsearch.search.backends.resources import usable_cores
from hpsearch.search.operations import control, run
from hpsearch.search.operations.steer import steer
from hpsearch.search.operations.submit import submit
from hpsearch.search.queue.observe import Observed, observe
from hpsearch.search.queue.view import QueuedStudy
from hpsearch.search.results.report import MadeRoom
from hpsearch.search.service.client.server import Server
from hpsearch.search.service.home import Home
from hpsearch.search.service.queue.drivers import starting_drivers
from hpsearch.search.service.tokens import Tokens
from hpsearch.spaces import Spec
from hpsearch.storage.database import open_storage
from hpsearch.storage.wanted import Slots, Wanted
from hpsearch.storage.workspace import Workspace

from ....support.remote import wait_for
from ....support.spaces import SMALL
from ....support.watchers import Recorder

pytestmark = pytest.mark.slow
HPSEARCH = [sys.executable, "-m", "hpsearch.search.cli"]
OBJECTIVE = """
import json, os, signal, time

def train(trial):
    \"\"\"Each loss depends on the one before, so that a lost state shows.\"\"\"
    if "fail" in trial.params:
        raise SystemError("the disk is on fire")
    if "kill" in trial.params:
        os.kill(os.getppid(), signal.SIGKILL)
    if "threads" in trial.params:
        with open("threads", "a") as stream:
            print(os.environ["OMP_NUM_THREADS"], file=stream)
    while "gate" in trial.params and trial.number >= 3 and not os.path.exists("gate"):
        time.sleep(0.05)
    file = trial.checkpoint / "state.json"
    step, loss = json.loads(file.read_text()) if trial.resume_from else (0, 1.0)
    for step in range(step + 1, 10):
        time.sleep(trial.params.get("seconds", 0.0))
        loss = 0.7 * loss + (trial.params["x"] - 0.3) ** 2 / step
        file.write_text(json.dumps([step, loss]))
        trial.report(loss, step=step)
    return loss
"""


def space(name: str, trials: int = 1, **fields: Any) -> dict[str, Any]:
    constants = {
        key: fields.pop(key) for key in ("seconds", "fail", "kill", "threads", "gate") if key in fields
    }
    return SMALL | {
        "name": name,
        "objective": "curve.py:train",
        "parameters": SMALL["parameters"] | constants,
        "search": {"sampler": "tpe", "n_startup_trials": 3, "seed": 7},
        "early_stopping": {"method": "asha", "min": 3, "max": 9, "eta": 3},
        "budget": {"trials": trials},
    } | fields  # fmt: skip


class Living:
    """A folder with a server, whose drivers and searches are processes of their own."""

    def __init__(self, folder: Path, storage: str = "studies.db", home: str = "home") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "curve.py").write_text(OBJECTIVE)
        self.folder = folder
        self.home = Home.at(folder / home)
        (self.home.folder / "serve.yaml").write_text("settle: 0\n")
        self.workspace = Workspace.at(storage if "://" in storage else str(folder / storage), folder / "runs")
        self.database = open_storage(self.workspace.url, create=True)
        self._process: subprocess.Popen[str] | None = None
        self._token = Tokens(self.home).create("anna", "code").token

    def environment(self) -> dict[str, str]:
        kept = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "OMP_NUM_THREADS": "1"}
        return kept | {"HPSEARCH_HOME": str(self.home.folder), "HPSEARCH_STORAGE": self.workspace.url}

    def start(self) -> None:
        self._process = subprocess.Popen(
            [*HPSEARCH, "serve", "--port", "0"],
            cwd=self.folder, env=self.environment(), text=True, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith("serving ")
        self.anna = Server(self.home.links()[0]["url"], self._token)  # as the user anna has it

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self.anna.close()

    def end(self) -> None:
        """Kill the server and all drivers."""
        self.kill()
        for study in self.look():
            if study.driver is not None:
                os.kill(study.driver.pid, signal.SIGKILL)
        for _, pid, _ in starting_drivers(self.workspace):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @property
    def name(self) -> str:
        """What the server is called in studies."""
        return (self.home.folder / "server-id").read_text()

    def search(self, space: dict[str, Any]) -> subprocess.Popen[bytes]:
        """Search a space by hand, without the server."""
        file = self.folder / f"{space['name']}.json"
        file.write_text(json.dumps(space))
        return subprocess.Popen(
            [*HPSEARCH, "run", file, "--plain"],
            cwd=self.folder, env=self.environment(), stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def submit(self, space: dict[str, Any], **options: Any) -> None:
        submit(workspace=self.workspace, space=self.spec(space), cwd=self.folder, **options)

    def spec(self, space: dict[str, Any]) -> Spec:
        """The space as if it were read from a file of this folder."""
        return Spec.from_json(space).in_folder(self.folder)

    def look(self, *names: str) -> list[Observed]:
        return observe(self.workspace, self.database, names=names or None)

    def now(self, name: str) -> Observed:
        return self.look(name)[0]

    def wanted(self, name: str) -> Wanted:
        wanted = self.now(name).wanted
        assert wanted is not None
        return wanted

    def told(self, name: str) -> QueuedStudy:
        """What the server tells of a study."""
        return next(study for study in self.anna.queue().studies if study.study == name)

    def wait(self, name: str, condition: Callable[[Observed], Any], seconds: float = 120.0) -> Observed:
        """The study, once a condition is true."""
        found: list[Observed] = []

        def holds() -> bool:
            found[:] = self.look(name)
            return bool(condition(found[0]))

        try:
            wait_for(holds, seconds)
        except AssertionError:
            log = self.workspace.runs / found[0].folder / "driver.log"
            raise AssertionError(f"{found[0]}\n{log.read_text() if log.exists() else ''}") from None
        return found[0]


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Living]:
    found = Living(tmp_path_factory.mktemp("living"))
    try:
        found.start()
        yield found
    finally:
        found.end()


def results(workspace: Workspace, study: str) -> list[tuple[Any, ...]]:
    """All that the trials of a study have come to."""
    return [
        (trial.number, trial.state, trial.params, trial.intermediate_values, trial.values)
        for trial in open_study(study, storage=workspace.url, runs=workspace.runs).study.trials
    ]


def is_over(study: Observed) -> bool:
    return study.is_over and study.driver is None


def runs(study: Observed) -> bool:
    return study.driver is not None and study.running > 0 and not study.paused


def wanted_of(study: Observed) -> Wanted:
    assert study.wanted is not None
    return study.wanted


def pid_of(study: Observed) -> int:
    assert study.driver is not None
    return study.driver.pid


def goes_on(study: Observed, after: int) -> bool:
    """Whether it runs again after so many preemptions, and has reported."""
    return runs(study) and study.progress.reached > 0 and wanted_of(study).preemptions == after


def test_a_study_that_makes_room_twice_ends_with_the_same_bits(living: Living, tmp_path: Path) -> None:
    calm = Workspace.at(str(tmp_path / "calm.db"))
    slow = space("low", 12, seconds=0.2)
    living.submit(slow, priority="low")
    for number in range(2):
        living.wait("low", partial(goes_on, after=number))
        living.submit(space(f"high {number}"), priority="high")
        living.wait(f"high {number}", is_over)
        assert living.wanted("low").lost > 0 or not number
    run.run(workspace=calm, space=living.spec(slow), watcher=Recorder())
    living.wait("low", is_over)
    assert results(living.workspace, "low") == results(calm, "low")
    told = living.told("low")
    assert (told.state.state, told.preemptions, told.lost_seconds > 0) == ("finished", 2, True)
    assert living.anna.show(study="low").made_room == MadeRoom(2, "high 1", told.lost_seconds)
    log = (living.workspace.runs / "low/driver.log").read_text()
    assert log.count("and changed no number") == 2


def test_whoever_comes_last_wins(living: Living) -> None:
    """Paused over HTTP, resumed and stopped on the machine, killed, and given another budget."""
    living.submit(space("steered", 100, seconds=0.1))
    living.wait("steered", runs)
    living.anna.pause(study="steered")
    living.wait("steered", lambda study: study.driver is None)
    assert living.told("steered").state.reason == "paused by anna; resume queues it again"
    control.resume(workspace=living.workspace, study="steered")
    first = living.wait("steered", runs)
    assert first.driver is not None
    os.kill(first.driver.pid, signal.SIGKILL)
    second = living.wait("steered", lambda study: runs(study) and pid_of(study) != pid_of(first))
    assert len(living.wanted("steered").killed) == 1 and not living.wanted("steered").failure
    control.stop(workspace=living.workspace, study="steered")
    living.wait("steered", lambda study: study.driver is None)
    assert living.told("steered").state.reason == "stopped; resume queues it again"
    living.anna.steer(study="steered", desired="run")
    living.wait("steered", lambda study: runs(study) and study.progress.reached > second.progress.reached)
    assert not living.wanted("steered").killed
    steer(
        workspace=living.workspace,
        study="steered",
        budget={"trials": living.now("steered").progress.ended + 1},
    )
    living.wait("steered", is_over)


@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")
def test_a_study_that_goes_on_with_more_cores_computes_with_as_many_as_before(living: Living) -> None:
    living.submit(space("cores", 6, seconds=0.2, threads=1), slots=Slots(cpus=1))
    before = living.wait("cores", lambda study: runs(study) and study.progress.reached > 0)
    control.stop(workspace=living.workspace, study="cores")
    living.wait("cores", lambda study: study.driver is None)
    steer(workspace=living.workspace, study="cores", slots=Slots(cpus=2), desired="run")
    after = living.wait("cores", lambda study: runs(study) and pid_of(study) != pid_of(before))
    places = [study.driver.slice for study in (before, after) if study.driver is not None]
    assert [len(place.cpus) for place in places if place is not None] == [1, 2]
    living.wait("cores", is_over)
    threads = (living.folder / "threads").read_text().split()
    assert len(threads) >= 6 and set(threads) == {"1"}


def test_a_driver_that_fails_is_not_started_again(living: Living) -> None:
    living.submit(space("fails", fail=1), priority="high")
    (living.folder / "gone.py").write_text(OBJECTIVE)
    living.submit(space("gone") | {"objective": "gone.py:train"}, hold=True)
    (living.folder / "gone.py").unlink()
    control.resume(workspace=living.workspace, study="gone")
    for name in ("fails", "gone"):
        living.wait(name, lambda study: study.driver is None and (study.is_over or wanted_of(study).failure))
    assert living.told("fails").state.state == "finished"
    told = living.told("gone").state
    assert (told.state, "gone.py" in told.reason) == ("failed", True), told


def test_drivers_go_on_without_their_server_and_the_next_one_finds_them(living: Living) -> None:
    living.submit(space("survives", 6, seconds=0.1, gate=1))
    before = living.wait("survives", runs)
    living.kill()
    living.wait("survives", lambda study: study.progress.ended == 3)
    living.start()
    told = living.told("survives")
    assert (told.state.state, told.driver) == ("running", pid_of(before))
    (living.folder / "gate").touch()
    living.wait("survives", is_over)
    assert living.told("survives").state.state == "finished"
    assert [trial[0] for trial in results(living.workspace, "survives")] == list(range(6))
    wanted = living.wanted("survives")
    assert (wanted.started, wanted.killed, wanted.preemptions) == (wanted_of(before).started, (), 0)


def test_a_search_by_hand_is_left_alone_while_the_queue_is_planned_anew(living: Living) -> None:
    """It keeps its part of the machine, whatever its priority, and those that wait change places."""
    hand = living.search(space("by hand", 100, seconds=0.1))
    try:
        wait_for(lambda: bool(living.look("by hand")) and runs(living.now("by hand")), 60.0)
        living.submit(space("first"))
        living.submit(space("second"))
        told = [living.told(name) for name in ("by hand", "first", "second")]
        assert [(each.state.state, each.place) for each in told] == [
            ("elsewhere", None), ("queued", 1), ("queued", 2)
        ]  # fmt: skip
        steer(workspace=living.workspace, study="second", priority="high")
        told = [living.told(name) for name in ("by hand", "first", "second")]
        assert [(each.state.state, each.place) for each in told] == [
            ("elsewhere", None), ("queued", 2), ("queued", 1)
        ]  # fmt: skip
        assert "which by hand has" in told[2].state.reason and not told[2].would_stop
    finally:
        hand.send_signal(signal.SIGINT)
        assert hand.wait(60) == 130
    for name in ("first", "second"):
        living.wait(name, is_over)
    first, second = (living.wanted(name).started for name in ("first", "second"))
    assert first is not None and second is not None and second < first


@pytest.mark.postgres
def test_two_servers_of_one_database_keep_off_each_others_studies(tmp_path: Path, postgres: Any) -> None:
    """Not even for a study of higher priority does one of the other server make room."""
    url = postgres.database()
    ours, theirs = (Living(tmp_path, url, home) for home in ("ours", "theirs"))
    try:
        ours.start()
        theirs.start()
        ours.submit(space("ours", 4, gate=1), server=ours.name)
        ours.wait("ours", runs)
        theirs.submit(space("theirs"), server=theirs.name, priority="high")
        reason = theirs.told("theirs").state.reason
        assert "which ours has" in reason and not theirs.told("theirs").would_stop, reason
        assert ours.told("theirs").state.reason == "another server has it"
        (tmp_path / "gate").touch()
        theirs.wait("theirs", is_over)
        assert is_over(ours.now("ours")) and ours.wanted("ours").preemptions == 0
        for study, server, trials in (("ours", ours, 4), ("theirs", theirs, 1)):
            assert ours.wanted(study).server == server.name
            assert len(results(ours.workspace, study)) == trials
    finally:
        ours.end()
        theirs.end()
