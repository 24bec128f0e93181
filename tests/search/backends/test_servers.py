"""What only a server does: it goes away in the middle of a search, and asks for a password."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import sqlalchemy

from hpsearch.search.cli.commands import command as typed
from hpsearch.storage.commands import COMMAND_PREFIX

AWAY = 8.0  # seconds that a server is gone: more than the first pauses between two tries
SECRET = re.compile(rb"p@ss|p%40ss|w:rd|w%3Ard|50%&|50%25", re.IGNORECASE)  # of the servers' password
TELLS_ALL = """\
import os, sys, time

def train(trial):
    print(sys.argv, os.environ)  # what a careless objective might log
    time.sleep(0.5)  # long enough to be seen
    if trial.number == 1:
        raise ValueError(f"{sys.argv} {os.environ}")
    for step in range(1, 10):
        trial.report(1 / step, step=step)
    return trial.params["x"]
"""


@pytest.fixture(params=[pytest.param("postgres", marks=pytest.mark.postgres)])
def storage_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class Outage:
    """A server that is killed once a trial has ended, and comes back; what it has not written is lost."""

    def __init__(self, server: Any, seconds: float) -> None:
        self._server, self._seconds = server, seconds
        self._thread = threading.Thread(target=self._happen)
        self.over = False

    def __call__(self, driver: Any) -> None:
        if self._thread.ident is None:
            self._thread.start()

    def wait(self) -> None:
        self._thread.join()

    def _happen(self) -> None:
        self._server.stop(signal.SIGQUIT)  # PostgreSQL's "immediate"
        time.sleep(self._seconds)
        self._server.start()
        self.over = True


@pytest.mark.slow
@pytest.mark.parametrize("backend_name", ["optuna"])
@pytest.mark.parametrize("seconds", [0.0, AWAY])
def test_a_search_waits_for_a_server_that_is_restarted_and_loses_nothing(
    bench: Any, recorder: Any, postgres: Any, seconds: float
) -> None:
    outage = Outage(postgres, seconds)
    watcher = recorder(at_end=outage)
    try:
        result = bench.search(
            "steady", budget={"trials": 8}, execution={"workers": 2, "retries": 0}, watcher=watcher
        )
    finally:
        outage.wait()
    trials = bench.trials()
    assert [(t.number, t.state.name) for t in trials] == [(n, "COMPLETE") for n in range(8)]
    for trial in trials:
        noted = bench.notes(trial.number)
        assert [note["step"] for note in noted if "step" in note] == list(range(1, 10)), "in one attempt"
        assert list(trial.intermediate_values) == list(range(1, 10))
        assert trial.value == noted[0]["x"] == trial.params["x"]
    assert len(watcher.ended) == 8
    assert result.workspace.url == bench.url and not SECRET.search(repr(result).encode())
    if seconds:
        waited = [said for said in watcher.said if "the database cannot be used now" in said]
        assert len(waited) >= 2 and "nothing is lost, trying again" in waited[1]
    assert not SECRET.search(" ".join(watcher.said).encode())


@pytest.mark.slow
@pytest.mark.parametrize("backend_name", ["optuna"])
def test_a_search_in_a_server_is_listed_in_its_folder_and_stopped_from_another(
    bench: Any, command: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    search = command(budget={"trials": 20}, execution={"workers": 1, "retries": 0})
    process = search.start()
    search.begun(1)
    environment = {"HPSEARCH_STORAGE": bench.url}
    said = call(bench.folder, environment, [["list"], ["delete", "study", "--yes"]])
    assert "searching now" in said
    assert f"another search (process {process.pid}) is running the study" in said
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    said = call(elsewhere, environment, [["stop", "study"]])
    assert "asked the search to stop; running trials are requeued at their next report" in said
    output, _ = process.communicate(timeout=60)
    assert "stopped: asked by hpsearch stop" in output
    states = bench.states()
    assert set(states) <= {"COMPLETE", "WAITING"} and states.count("COMPLETE") < 20
    call(bench.folder, environment, [["delete", "study", "--yes"]])
    assert not (bench.folder / "runs" / "study").exists()
    assert list(elsewhere.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("storage_name", ["mariadb"])
@pytest.mark.parametrize("backend_name", ["optuna"])
def test_a_search_in_mysql_is_stopped_from_outside_restarted_with_its_server_and_finished(
    bench: Any, recorder: Any, mariadb: Any
) -> None:
    def stop(driver: Any) -> None:
        with bench.engine().begin() as connection:
            columns: Any = [sqlalchemy.column(name) for name in ("study_id", "key", "value_json")]
            table = sqlalchemy.table("study_user_attributes", *columns)
            key = f"{COMMAND_PREFIX}{driver.finished}"  # the second trial may end before the first word is taken
            row = {"study_id": 1, "key": key, "value_json": '{"do": "stop"}'}
            connection.execute(table.insert().values(row))

    long = "x" * 20_000  # an attribute of several KiB: MySQL's texts hold 64
    parameters = {"x": {"min": 0.0, "max": 1.0}, "long": long}
    fields: dict[str, Any] = {"budget": {"trials": 6}, "execution": {"workers": 2, "retries": 0}}
    stopped = bench.search("steady", parameters=parameters, watcher=recorder(at_end=stop), **fields)
    assert stopped.stop_reason == "asked by hpsearch stop"
    outage = Outage(mariadb, 1.0)
    try:
        bench.search("steady", parameters=parameters, watcher=recorder(at_end=outage), **fields)
    finally:
        outage.wait()
    trials = bench.trials()
    assert [(t.number, t.state.name) for t in trials] == [(n, "COMPLETE") for n in range(6)]
    for trial in trials:
        assert list(trial.intermediate_values) == list(range(1, 10))
        assert trial.value == trial.params["x"]


class Onlooker:
    """Reads what a search writes into a folder while it runs, and what its processes are called."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.found: set[str] = set()
        self.seen: set[str] = set()
        self._folder, self._process = folder, process
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def wait(self) -> None:
        self._thread.join()

    def _look(self) -> None:
        # The user typed it, and a fork has it too until it is something else.
        typed = psutil.Process(self._process.pid).cmdline()
        while self._process.poll() is None:
            self.found |= {str(path) for path in files_with_the_secret(self._folder)}
            for child in self._children():
                with suppress(psutil.Error):  # it has just ended
                    words = child.cmdline()
                    self.seen.add(child.name())
                    if words != typed and SECRET.search(" ".join(words).encode()):
                        self.found.add(" ".join(words))
            time.sleep(0.3)

    def _children(self) -> list[psutil.Process]:
        try:
            return list(psutil.Process(self._process.pid).children(recursive=True))
        except psutil.Error:
            return []


def files_with_the_secret(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        try:
            if path.is_file() and SECRET.search(path.read_bytes()):
                yield path
        except OSError:
            continue  # a socket, or gone already


def rows_with_the_secret(engine: sqlalchemy.Engine) -> list[Any]:
    with engine.connect() as connection:
        names = sqlalchemy.inspect(connection).get_table_names()
        tables = {name: connection.execute(sqlalchemy.text(f"SELECT * FROM {name}")).all() for name in names}
    assert len(tables["trials"]) == 3, "there is something to look at"
    return [row for rows in tables.values() for row in rows if SECRET.search(str(row).encode())]


COMMANDS = """\
import json, sys
from hpsearch.search.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["hpsearch", *words]
    print(">>>", words[0], flush=True)
    try:
        main()
    except SystemExit:
        sys.stdout.flush()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend_name", "given"),
    [("optuna", "environment"), pytest.param("ray", "option", marks=[pytest.mark.ray, pytest.mark.pair])],
)
def test_the_password_of_a_storage_url_shows_up_nowhere(bench: Any, command: Any, given: str) -> None:
    (bench.folder / "loose.py").write_text(TELLS_ALL)
    temporary = bench.folder / "t"
    temporary.mkdir()
    budget, baseline = {"trials": 3}, {"x": 0.5}
    search = command(objective="loose.py:train", budget=budget, baseline=baseline, execution={"retries": 0})
    environment = {"TMPDIR": str(temporary), "HPSEARCH_STORAGE": ""}
    where = ["--storage", bench.url]
    assert SECRET.search(bench.url.encode())
    if given == "environment":
        environment, where = environment | {"HPSEARCH_STORAGE": bench.url}, []

    process = search.start(*where, env=environment)
    onlooker = Onlooker(bench.folder, process)
    said: str = process.communicate(timeout=120)[0]
    onlooker.wait()
    assert any(name.startswith("raylet" if bench.backend == "ray" else "python") for name in onlooker.seen)
    assert onlooker.found == set()
    assert bench.states() == ["COMPLETE", "FAIL", "COMPLETE"], said
    commands = [
        ["run", "space.yaml", "--plain"],  # it is finished, and says how to extend it
        ["run", "space.yaml", "--backend", "nothing"],
        ["list"],
        ["list", "--json"],
        ["list", bench.url],
        ["show", "study"],
        ["show", "study", "--trial", "1"],
        ["show", "study", "--json"],
        ["show", "another"],
        ["trials", "study", "--csv"],
        ["best", "study", "--json"],
        ["export", "study"],
        ["export", "study", "-o", "best.yaml"],
        ["stop", "study"],
        ["dashboard", "--host", "256.0.0.1"],
        ["delete", "study"],
    ]
    said += call(bench.folder, environment, [[*words, *where] for words in commands])
    assert not SECRET.search(said.encode()), said
    assert list(files_with_the_secret(bench.folder)) == []
    assert rows_with_the_secret(bench.engine()) == []
    assert said.count(">>>") == len(commands)
    assert typed("export", "study", "-o", "best.yaml", *where) in said
    assert ("*** stands for the password" in said) == (given == "option")
    said = call(
        bench.folder, environment, [["delete", "study", "--yes", *where], ["--debug", "show", "it", *where]]
    )
    assert 'deleted the study "study"' in said and "Traceback" in said
    assert not SECRET.search(said.encode()), said


def call(folder: Path, environment: dict[str, str], commands: list[list[str]]) -> str:
    """What these commands say, in one process: starting takes longer than most of them."""
    return subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(commands)],
        cwd=folder,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    ).stdout
