"""What docs/deploy/ holds works: scripts run, configurations serve, manifests say what the package has."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState
from ruamel.yaml import YAML

from hpsearch.spaces import loads
from hpsearch.storage.workspace import Workspace

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "docs" / "deploy"
BIN = Path(sys.executable).parent
OBJECTIVE = """
import pathlib, time

def train(trial):
    file = trial.checkpoint / "step"
    done = int(file.read_text()) if trial.resume_from else 0
    for step in range(done + 1, 41):
        time.sleep(0.02)
        trial.report(1 / step + trial.params["x"], step=step)
        file.write_text(str(step))
    return trial.params["x"]
"""
SPACE = """
version: 1
name: job
objective: "objective.py:train"
metric: loss
parameters: {x: {min: 0.0, max: 1.0}}
budget: {trials: 3}
execution: {workers: 1}
"""


def until(true: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What `true` returns once it is true. Fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return found


# Slurm: a fake scheduler warns the script as Slurm does, and takes note of what it asks for.


class Scheduler:
    """Runs the script as a job of Slurm's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._asked = folder / "asked"
        (folder / "bin").mkdir()
        control = folder / "bin" / "scontrol"
        control.write_text(f'#!/bin/sh\necho "$@" >> {self._asked}\n')
        control.chmod(0o755)

    @property
    def asked(self) -> list[str]:
        return self._asked.read_text().splitlines() if self._asked.exists() else []

    @contextmanager
    def job(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        environment = os.environ | {
            "PATH": f"{self.folder / 'bin'}:{BIN}:{os.environ['PATH']}",
            "HPSEARCH_HOME": str(self.folder / "home"),
            "HPSEARCH_STORAGE": str(self.folder / "studies.db"),
            "SLURM_JOB_ID": f"17{os.getpid()}",
        }
        command = ["bash", str(DEPLOY / "hpsearch.sbatch"), *words]
        with (self.folder / "job.log").open("ab") as log:
            job = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield job
        finally:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGTERM)
            job.wait(60)


@pytest.fixture
def scheduler(tmp_path: Path) -> Scheduler:
    (tmp_path / "objective.py").write_text(OBJECTIVE)
    (tmp_path / "space.yaml").write_text(SPACE)
    return Scheduler(tmp_path)


def states(folder: Path) -> list[TrialState]:
    from hpsearch.search.results.study import load_result

    result = load_result(Workspace.at(str(folder / "studies.db")), "job")
    return [trial.state for trial in result.study.get_trials(deepcopy=False)]


@pytest.mark.slow
def test_a_job_of_slurm_puts_its_trials_back_and_requeues_itself_until_the_search_is_over(
    scheduler: Scheduler,
) -> None:
    folder = scheduler.folder
    with scheduler.job("run", "space.yaml", "--plain", "--no-confirm") as job:
        until(lambda: list(folder.glob("runs/job/*/checkpoint/step")))
        job.send_signal(signal.SIGUSR1)
        assert job.wait(60) == 0, (folder / "job.log").read_text()
    assert scheduler.asked == [f"requeue 17{os.getpid()}"]
    assert TrialState.WAITING in states(folder) and TrialState.RUNNING not in states(folder)
    with scheduler.job("run", "space.yaml", "--plain", "--no-confirm") as job:
        assert job.wait(60) == 0, (folder / "job.log").read_text()
    assert states(folder) == [TrialState.COMPLETE] * 3
    assert len(scheduler.asked) == 1, "a search that is over leaves the queue"


def test_a_job_of_slurm_without_a_command_or_a_scheduler_says_so() -> None:
    script = ["bash", str(DEPLOY / "hpsearch.sbatch")]
    without = {name: value for name, value in os.environ.items() if name != "SLURM_JOB_ID"}
    for environment, wanted in ((without, "sbatch"), (without | {"SLURM_JOB_ID": "1"}, "nothing to run")):
        result = subprocess.run(script, env=environment, capture_output=True, text=True)
        assert result.returncode in (1, 2, 127) and wanted in result.stderr


# The others.


def test_the_image_has_all_packages_and_their_pins() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = {name for line in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE) for name in line.split()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    rooms = {name.split(".")[1] for name in project["tool"]["setuptools"]["packages"] if "." in name}
    assert copied == rooms | {"constraints.txt", "pyproject.toml", "README.md", "__init__.py", "py.typed"}
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", text, re.MULTILINE)
    assert set(extras.split(",")) <= set(project["project"]["optional-dependencies"])
    assert re.search(r"^USER [1-9]\d*$", text, re.MULTILINE), "it does not run as root"


def test_the_manifest_is_a_search_on_a_cluster_whose_parts_are_there() -> None:
    documents = list(YAML(typ="safe").load_all((DEPLOY / "kuberay.yaml").read_text()))
    kinds = {document["kind"]: document for document in documents}
    loads(kinds["ConfigMap"]["data"]["space.yaml"])
    job = kinds["RayJob"]["spec"]
    head = job["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    named = {mount["name"]: mount["mountPath"] for mount in head["containers"][0]["volumeMounts"]}
    assert f" {named['space']}/space.yaml " in job["entrypoint"]
    assert f"--runs {named['runs']} " in job["entrypoint"]
    claim, space = (volume for volume in reversed(head["volumes"]))
    assert claim["persistentVolumeClaim"]["claimName"] == kinds["PersistentVolumeClaim"]["metadata"]["name"]
    assert space["configMap"]["name"] == kinds["ConfigMap"]["metadata"]["name"]
    host = kinds["Service"]["metadata"]["name"]
    assert f"@{host}/" in kinds["Secret"]["stringData"]["storage"]
    ours = (ROOT / "constraints.txt").read_text()
    assert f"ray=={job['rayClusterSpec']['rayVersion']}" in re.sub(r"\[.*\]", "", ours)


def test_the_unit_starts_a_command_that_there_is() -> None:
    unit = (DEPLOY / "hpsearch.service").read_text()
    assert "ExecStart=%h/hpsearch/.venv/bin/hpsearch serve\n" in unit
    assert "KillMode=process\n" in unit, "searches outlive their server"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "hpsearch.service"
    started = BIN / "hpsearch"
    unit.write_text((DEPLOY / unit.name).read_text().replace("%h/hpsearch/.venv/bin/hpsearch", str(started)))
    environment = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)}
    command = ["systemd-analyze", "verify", "--user", str(unit)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


# Behind a proxy.


@contextmanager
def served(folder: Path, *options: str) -> Iterator[dict[str, Any]]:
    """A server, and the file by which its user finds it."""
    environment = os.environ | {"HPSEARCH_HOME": str(folder / "home")}
    command = [
        str(BIN / "hpsearch"),
        "serve",
        "--port",
        "0",
        "--storage",
        str(folder / "studies.db"),
        *options,
    ]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        until(lambda: list(folder.glob("home/serve-*.json")) or process.poll())
        (found,) = folder.glob("home/serve-*.json")
        yield json.loads(found.read_text())
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def nginx(folder: Path, port: int) -> Iterator[tuple[int, ssl.SSLContext]]:
    """nginx with docs/deploy/nginx.conf in front of a port; its own port, and how its certificate is checked."""
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    authority.issue_cert("lab.example.org").private_key_and_cert_chain_pem.write_to_path(folder / "cert.pem")
    with socket.create_server(("127.0.0.1", 0)) as free:
        own: int = free.getsockname()[1]
    block = (DEPLOY / "nginx.conf").read_text()
    for before, after in (
        ("listen 443", f"listen 127.0.0.1:{own}"),
        ("/etc/ssl/lab.example.org.pem", f"{folder}/cert.pem"),
        ("/etc/ssl/private/lab.example.org.key", f"{folder}/cert.pem"),
        ("127.0.0.1:8765", f"127.0.0.1:{port}"),
    ):
        assert before in block
        block = block.replace(before, after)
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}}\n"
        f"http {{ access_log off; {paths}\n{block}}}\n"
    )
    command = ["nginx", "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]
    tested = subprocess.run([*command, "-t"], capture_output=True, text=True)
    assert tested.returncode == 0, tested.stderr
    process = subprocess.Popen(command)

    def listens() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", own)):
            return True
        return False

    try:
        until(listens)
        context = ssl.create_default_context()
        authority.configure_trust(context)
        yield own, context
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def through(
    context: ssl.SSLContext, port: int, token: str | None, path: str, body: Any = None, **headers: str
) -> Iterator[http.client.HTTPResponse]:
    """An answer through the proxy, whose name leads to this machine. A body is posted."""
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname="lab.example.org") as stream,
        closing(http.client.HTTPSConnection("lab.example.org", port, timeout=20)) as connection,
    ):
        connection.sock = stream
        if body is None:
            connection.request("GET", path, headers=headers)
        else:
            headers |= {"Content-Type": "application/json", "Origin": f"https://lab.example.org:{port}"}
            connection.request("POST", path, json.dumps(body), headers)
        with connection.getresponse() as answer:
            yield answer


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_a_server_behind_nginx_has_its_prefix_and_streams(tmp_path: Path) -> None:
    options = ("--base-path", "/hpsearch", "--allow-host", "lab.example.org", "--behind-proxy", "127.0.0.1")
    with served(tmp_path, *options) as link, nginx(tmp_path, int(link["url"].rpartition(":")[2])) as way:
        port, tls = way
        for token, path, status, key, value in (
            (None, "/hpsearch/healthz", 204, None, None),
            (None, "/hpsearch/v1/studies", 401, "type", "/hpsearch/problems/token-missing"),
            (link["token"], "/hpsearch/v1", 200, "caller", "owner"),
            (link["token"], "/v1", 404, None, None),
        ):
            with through(tls, port, token, path) as answer:
                assert answer.status == status, path
                assert key is None or json.load(answer)[key] == value
        with through(tls, port, None, "/hpsearch/") as page:
            loaded = re.findall(r'(?:src|href)="\./([^"]+)"', page.read().decode())
        assert len(loaded) > 20
        for path in loaded:
            with through(tls, port, None, f"/hpsearch/{path}") as file:
                assert file.status == 200, path
        with through(tls, port, link["token"], "/hpsearch/v1/events") as events:
            assert events.status == 200
            assert events.read1(1), "the first event is not held back"
        with through(tls, port, link["token"], "/hpsearch/v1/visits", {}) as visit:
            cookie, _, about = visit.headers["set-cookie"].partition(";")
            place = json.load(visit)["link"]
        assert {"Secure", "HttpOnly", "Path=/hpsearch/optuna"} <= {each.strip() for each in about.split(";")}
        with through(tls, port, None, place, Cookie=cookie) as dashboard:
            loaded = re.findall(r'(?:src|href)="([^"]+)"', dashboard.read().decode())
        for path in (*loaded, "/hpsearch/optuna/api/studies"):
            with through(tls, port, None, path, Cookie=cookie) as file:
                assert path.startswith("/hpsearch/optuna/") and file.status == 200, path
