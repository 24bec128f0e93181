"""Workers by HTTP: in shell, in a few lines of Python, by the one-file client, and by hpsearch itself."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest

from hpsearch.search.backends.remote.address import socket_path
from hpsearch.search.backends.remote.backend import RemoteBackend
from hpsearch.spaces import Spec
from hpsearch.storage.claims import ID

from ...support.bench import HPSEARCH
from ...support.driving import DrivenStudy
from ...support.outputs import check_output
from ...support.remote import wait_for

pytestmark = pytest.mark.slow
SPACE = {
    "version": 1,
    "name": "mine",
    "objective": "remote",
    "metric": "loss",
    "parameters": {"x": {"min": 0.0, "max": 1.0}},
}
SHELL = """\
set -eu
say() { curl -sf -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" -d "$2" "$URL/v1/$1"; }
given=$(say studies/mine/ask '{"worker": "shell", "request": "1", "wait": 20}')
lease=$(printf %s "$given" | sed 's/.*"lease":"\\([^"]*\\)".*/\\1/')
for step in 1 2 3; do
    say "leases/$lease/report" "{\\"step\\": $step, \\"value\\": 0.$step}" | grep -q '"go_on":true'
done
say "leases/$lease/complete" '{"value": 0.25}'
"""
PLAIN = """\
import json, os, urllib.request

def say(path, **body):
    headers = {"Authorization": "Bearer " + os.environ["TOKEN"], "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["URL"] + "/v1/" + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)

given = say("studies/mine/ask", worker="plain", request="1", wait=20)
lease = "leases/" + given["lease"]
for step in range(1, 4):
    if not say(lease + "/report", step=step, value=given["params"]["x"] + 1 / step)["go_on"]:
        break
else:
    say(lease + "/complete", value=given["params"]["x"])
"""
CLIENT = """\
import os, pathlib, sys, tempfile
from hpsearch_client import Refused, Study

folder = pathlib.Path(tempfile.mkdtemp())
folder.joinpath("weights").write_text("1")
for trial in Study(os.environ["URL"], "mine", token=os.environ["TOKEN"], worker="client").trials():
    for step in range(trial.reported + 1, 4):
        trial.save_checkpoint(str(folder))
        if not trial.report(trial.params["x"] + 1 / step, step, accuracy=0.5):
            break
    else:
        trial.complete(trial.params["x"])
        try:
            trial.study.server.call("POST", trial._path + "/complete", {"value": 77.0})
        except Refused as refusal:
            print(refusal.status, refusal.type)
print(sys.version_info[:2])
"""
OBJECTIVE = """\
import time

def train(trial):
    done = int((trial.resume_from / "step").read_text()) if trial.resume_from else 0
    for step in range(done + 1, 7):
        time.sleep(0.2)
        (trial.checkpoint / "step").write_text(str(step))
        trial.report(trial.params["x"] + 1 / step, step=step)
    print("here I am")
    return trial.params["x"]
"""


@dataclass
class Place:
    """A folder with its own home, and the commands that run in it."""

    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        env = os.environ | {"HPSEARCH_HOME": str(self.folder / "home")} | self.env
        process = subprocess.Popen(
            list(map(str, words)),
            cwd=self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *words: str | Path) -> str:
        output, _ = (process := self.start(*words)).communicate(timeout=100)
        assert process.returncode == 0, output
        return output

    def search(self, trials: int) -> subprocess.Popen[str]:
        (self.folder / "space.yaml").write_text(json.dumps(SPACE | {"budget": {"trials": trials}}))
        return self.start(HPSEARCH, "run", "space.yaml", "--backend", "remote", "--plain")

    def socket(self) -> Path:
        found: Path = wait_for(lambda: next((self.folder / "home").glob("work-*.sock"), None))
        return found

    def serve(self) -> None:
        self.start(HPSEARCH, "serve", "--port", "0")
        link = wait_for(lambda: next((self.folder / "home").glob("serve-*.json"), None))
        content = wait_for(lambda: json.loads(link.read_text() or "null"))
        self.env = {"URL": content["url"], "TOKEN": content["token"]}

    def trials(self) -> list[optuna.trial.FrozenTrial]:
        storage = optuna.storages.RDBStorage(f"sqlite:///{self.folder / 'hpsearch.db'}")
        try:
            return optuna.load_study(study_name="mine", storage=storage).get_trials()
        finally:
            storage.engine.dispose()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_one_search_is_trained_from_shell_from_plain_python_and_by_the_client(place: Place) -> None:
    search = place.search(trials=4)
    place.serve()
    place.socket()
    with urllib.request.urlopen(f"{place.env['URL']}/client.py", timeout=30) as response:
        (place.folder / "hpsearch_client.py").write_bytes(response.read())
    (place.folder / "plain.py").write_text(PLAIN)
    (place.folder / "client.py").write_text(CLIENT)
    if shutil.which("curl") is not None:
        assert '"state":"complete"' in place.run("sh", "-c", SHELL)
    place.run(sys.executable, "plain.py")
    said = place.run(sys.executable, "client.py")
    assert "409 wrong-state" in said
    output, _ = search.communicate(timeout=60)
    assert search.returncode == 0, output
    trials = place.trials()
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 4
    for trial in trials:
        assert list(trial.intermediate_values) == [1, 2, 3]
    if shutil.which("curl") is not None:
        assert trials[0].value == 0.25
    assert trials[-1].user_attrs["accuracy"] == 0.5
    kept = [path.read_text() for path in place.folder.glob("runs/mine/*/checkpoint/weights")]
    assert "1" in kept, "a checkpoint that came by HTTP"


def test_a_search_that_is_killed_goes_on_with_the_workers_that_it_had(place: Place) -> None:
    (place.folder / "mine.py").write_text(OBJECTIVE)
    search = place.search(trials=3)
    socket = place.socket()
    work = ["work", f"unix:{socket}", "mine", "--objective", "mine.py:train", "--workers", "1"]
    workers = place.start(HPSEARCH, *work)
    metrics = place.folder / "runs/mine/0/metrics.jsonl"
    wait_for(lambda: metrics.exists() and len(metrics.read_text().splitlines()) >= 2)
    search.send_signal(signal.SIGKILL)
    search.wait()
    again = place.search(trials=3)
    output, _ = again.communicate(timeout=100)
    said, _ = workers.communicate(timeout=60)
    assert again.returncode == 0, output + said
    assert workers.returncode == 0, said
    assert "trains on" in said
    trials: Any = place.trials()
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 3
    assert [sorted(trial.intermediate_values) for trial in trials] == [[1, 2, 3, 4, 5, 6]] * 3
    assert "retries" not in trials[0].user_attrs
    assert "here I am" in (place.folder / "runs/mine/0/output.log").read_text()


def test_ctrl_c_gives_the_trial_back(place: Place) -> None:
    (place.folder / "mine.py").write_text(OBJECTIVE)
    search = place.search(trials=1)
    work = ["work", f"unix:{place.socket()}", "mine", "--objective", "mine.py:train"]
    first = place.start(HPSEARCH, *work)
    metrics = place.folder / "runs/mine/0/metrics.jsonl"
    wait_for(lambda: metrics.exists() and len(metrics.read_text().splitlines()) >= 2)
    first.send_signal(signal.SIGINT)
    said, _ = first.communicate(timeout=60)
    assert first.returncode == 130 and "given back" in said, said
    assert place.trials()[0].state.name == "WAITING"
    told = place.run(HPSEARCH, *work, "--json")
    worked = json.loads(told[told.index("{\n") :])
    check_output("work", worked)
    assert worked["over"]
    output, _ = search.communicate(timeout=60)
    assert search.returncode == 0, output
    (trial,) = place.trials()
    assert (trial.state.name, sorted(trial.intermediate_values)) == ("COMPLETE", [1, 2, 3, 4, 5, 6])
    assert "retries" not in trial.user_attrs


def test_a_worker_that_is_killed_leaves_nothing_and_its_trial_to_the_next(
    place: Place, study: DrivenStudy, make_spec: Callable[..., Spec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPSEARCH_HOME", str(place.folder / "home"))
    (place.folder / "mine.py").write_text(OBJECTIVE)
    spec = make_spec(objective="remote", budget={"trials": 1}, execution={"workers": 1, "retries": 1})
    ahead = 0.0  # of the search's clock
    driver = study.driver(spec, clock=lambda: time.monotonic() + ahead)
    driver.study.set_user_attr(ID, id := "5" * 32)
    backend = RemoteBackend(spec, {}, lambda: time.monotonic() + ahead)

    def kill_one_and_send_another() -> str:
        nonlocal ahead
        try:
            wait_for((socket := socket_path(id)).exists)
            work = ["work", f"unix:{socket}", "study", "--objective", "mine.py:train", "--workers", "1"]
            killed = place.start(HPSEARCH, *work)
            metrics = study.runs / "study/0/metrics.jsonl"
            wait_for(lambda: metrics.exists() and len(metrics.read_text().splitlines()) >= 2)
            trained = psutil.Process(killed.pid).children(recursive=True)
            killed.kill()
            assert trained and not psutil.wait_procs(trained, timeout=30)[1]
            ahead = 61.0  # its lease is over
            return place.run(HPSEARCH, *work)
        finally:
            ahead += 1e6  # whatever happened, the search does not wait
            driver.request_stop("the test is over")

    with ThreadPoolExecutor() as threads:
        sent = threads.submit(kill_one_and_send_another)
        backend.run(driver)
    driver.close()
    assert "trial 0" not in sent.result(), "its failure, or that it was stopped"
    (trial,) = study.trials()
    assert (trial.state.name, sorted(trial.intermediate_values)) == ("COMPLETE", [1, 2, 3, 4, 5, 6])
    assert trial.user_attrs["retries"] == 1
