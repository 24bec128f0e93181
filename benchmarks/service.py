"""How fast a server answers its workers: ask, report and tell, beside OSS Vizier's and Optuna's.

    python benchmarks/service.py [--peers PEERS/bin/python] [--clients 1 8 64] [--seconds 10] [--only ...]

`hpsearch` is `hpsearch serve` with a study whose workers come by HTTP (/client.py). `vizier` is OSS Vizier's
gRPC server, and `optuna` Optuna's gRPC proxy in front of its storage. Each has a SQLite file, samples two
parameters at random, and stores ten reports of a trial. Clients are threads of at most eight processes. Each
report of hpsearch is answered with whether the trial goes on; the peers would need a second call to know,
which is not made.

Then hpsearch alone: how soon an event is at 50 streams, and how long 10,000 trials take to list.

The peers need an environment of their own (Vizier 0.1.24 needs older JAX than pip resolves):

    python -m venv PEERS
    PEERS/bin/pip install 'google-vizier[jax]==0.1.24' optuna
    PEERS/bin/pip install --no-deps jax==0.4.38 jaxlib==0.4.38 flax==0.10.2 optax==0.2.4 chex==0.1.88 \\
        orbax-checkpoint==0.10.3 numpy==2.2.6 ml_dtypes==0.5.1 jaxtyping==0.2.36 \\
        tfp-nightly==0.26.0.dev20250201
"""

from __future__ import annotations

import argparse
import http.client
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import optuna
import service_peers
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import create_trial
from service_peers import REPORTS, STUDY, Call, value, work

from hpsearch.spaces import loads
from hpsearch.storage.database import open_storage
from hpsearch.storage.studies import PROVENANCE, SPEC, open_live

OURS = "hpsearch"
SIDES = (OURS, "vizier", "optuna")
CALLS = ("ask", "report", "tell")
PROCESSES = 8  # of clients at most
START_SECONDS = 120.0
SPACE = f"""
version: 1
name: {STUDY}
objective: remote
metric: loss
parameters:
  x: {{min: 0.0, max: 1.0}}
  y: {{min: 1e-4, max: 1.0, log: true}}
search: {{sampler: random}}
budget: {{trials: 1000000}}
"""


@contextmanager
def running(
    command: list[str], folder: Path, log: str, *, is_read: bool = True, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with the block; `is_read`: what it prints is read here, else it is in the log.

    A pipe that nobody reads would stop it once it is full.
    """
    with (folder / log).open("a") as stream:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if is_read else stream,
            stderr=stream,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def until(true: Callable[[], Any], process: subprocess.Popen[str], folder: Path) -> Any:
    """What `true` returns once it is true."""
    deadline = time.monotonic() + START_SECONDS
    while not (found := true()):
        if process.poll() is not None or time.monotonic() > deadline:
            logs = "".join(file.read_text()[-2000:] for file in folder.glob("*.log"))
            raise SystemExit(f"{' '.join(map(str, process.args))}: does not start\n{logs}")  # type: ignore[arg-type]
        time.sleep(0.05)
    return found


# Servers: a block that has one gives the words that its clients need.


@contextmanager
def server_of_ours(folder: Path) -> Iterator[dict[str, Any]]:
    """`hpsearch serve` on a workspace; the file by which its user finds it."""
    environment = {"HPSEARCH_HOME": str(folder / "home"), "HPSEARCH_STORAGE": str(folder / "studies.db")}
    command = [sys.executable, "-P", "-m", "hpsearch.search.cli", "serve", "--port", "0"]
    with running(command, folder, "server.log", is_read=False, **environment) as server:
        (link,) = until(lambda: list((folder / "home").glob("serve-*.json")), server, folder)
        yield json.loads(link.read_text())


@contextmanager
def remote_study(folder: Path) -> Iterator[dict[str, Any]]:
    """A server, and a study with workers that come by HTTP."""
    environment = {"HPSEARCH_HOME": str(folder / "home"), "HPSEARCH_STORAGE": str(folder / "studies.db")}
    (folder / "space.yaml").write_text(SPACE)
    command = [sys.executable, "-P", "-m", "hpsearch.search.cli", "run", "space.yaml", "--backend", "remote"]
    with (
        server_of_ours(folder) as link,
        running([*command, "--plain"], folder, "driver.log", is_read=False, **environment) as driver,
    ):
        until(lambda: list((folder / "home").glob("*.sock")), driver, folder)
        _, content = get(link, "/client.py")
        (folder / "hpsearch_client.py").write_bytes(content)
        yield link


@contextmanager
def server(name: str, python: str, folder: Path) -> Iterator[list[str]]:
    """The server of a side; the command that its clients begin with."""
    if name == OURS:
        with remote_study(folder) as link:
            client = [link["url"], link["token"], str(folder)]
            yield [sys.executable, __file__, "work", *client]
        return
    script = str(Path(service_peers.__file__))
    command = [python, script, "serve", name, f"sqlite:///{folder}/studies.db"]
    with running(command, folder, "server.log") as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise SystemExit(f"{name} does not start:\n{(folder / 'server.log').read_text()[-2000:]}")
        yield [python, script, "work", name, port]


def ours(url: str, token: str, folder: str) -> Callable[[int], Call]:
    """Makes clients as /client.py has them."""
    spec = importlib.util.spec_from_file_location("hpsearch_client", Path(folder) / "hpsearch_client.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)

    def make(number: int) -> Call:
        study = module.Study(url, STUDY, token=token, worker=f"worker-{number}")

        def trial(timed: Call) -> None:
            found = timed("ask", study.ask)
            try:
                for step in range(1, REPORTS + 1):
                    timed("report", found.report, value(step), step)
                timed("tell", found.complete, value(REPORTS))
            finally:
                found.leave()  # at the end of the time; the search would wait for it

        return trial

    return make


# Measuring.


def measured(name: str, python: str, clients: int, seconds: float) -> dict[str, Any]:
    """The seconds of the calls of a side, with so many clients."""
    with (
        tempfile.TemporaryDirectory(prefix="service-", ignore_cleanup_errors=True) as where,
        ExitStack() as ending,
    ):
        folder = Path(where)
        command = ending.enter_context(server(name, python, folder))
        shares = [range(clients)[first::PROCESSES] for first in range(min(clients, PROCESSES))]
        workers = [
            ending.enter_context(running([*command, str(seconds), *map(str, share)], folder, "clients.log"))
            for share in shares
        ]
        for worker in workers:
            assert worker.stdout is not None
            if worker.stdout.readline() != "ready\n":
                raise SystemExit(
                    f"no client of {name} starts:\n{(folder / 'clients.log').read_text()[-2000:]}"
                )
        begin = str(time.time() + 0.5)
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write(f"{begin}\n")
            worker.stdin.flush()
        found = [json.loads(worker.stdout.readline()) for worker in workers if worker.stdout is not None]
    return {
        "calls": {call: [each for one in found for each in one["calls"][call]] for call in CALLS},
        "failed": [each for one in found for each in one["failed"]],
        "seconds": max(one["seconds"] for one in found),
    }


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def row(name: str, clients: int, found: dict[str, Any]) -> str:
    calls = found["calls"]
    rate = sum(map(len, calls.values())) / found["seconds"]
    cells = "".join(
        f"{1e3 * statistics.median(calls[call]):10.1f}{1e3 * percentile(calls[call], 0.99):9.1f}"
        if calls[call]
        else f"{'-':>10}{'-':>9}"
        for call in CALLS
    )
    return f"{name:10}{clients:8}{rate:10.0f}{cells}{len(found['failed']):8}"


# Events and lists.


def get(link: dict[str, Any], path: str) -> tuple[http.client.HTTPMessage, bytes]:
    parts = urlsplit(link["url"])
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    connection.request("GET", path, headers={"Authorization": f"Bearer {link['token']}"})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"GET {path}: {answer.status} {content.decode()}")
    return answer.headers, content


def listen(link: dict[str, Any], heard: dict[int, float], ready: threading.Event) -> None:
    """Note when the news of each trial is here."""
    parts = urlsplit(link["url"])
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    connection.request(
        "GET", f"/v1/events?study={STUDY}", headers={"Authorization": f"Bearer {link['token']}"}
    )
    answer = connection.getresponse()
    if answer.status != 200:
        raise SystemExit(f"GET /v1/events: {answer.status} {answer.read().decode()}")
    ready.set()
    kind = ""
    while line := answer.readline():
        name, _, said = line.decode().strip().partition(": ")
        kind = said if name == "event" else kind
        if name == "data" and kind == "trial":
            row = json.loads(said)["trial"]
            if row["state"] == "complete":
                heard.setdefault(row["number"], time.perf_counter())


def events(streams: int, trials: int) -> str:
    """How soon the end of a trial is at every stream, after the worker has told it."""
    with (
        tempfile.TemporaryDirectory(prefix="service-", ignore_cleanup_errors=True) as where,
        remote_study(Path(where)) as link,
    ):
        heard: list[dict[int, float]] = [{} for _ in range(streams)]
        ready = [threading.Event() for _ in range(streams)]
        for each in zip(heard, ready, strict=True):
            threading.Thread(target=listen, args=(link, *each), daemon=True).start()
        if not all(each.wait(60) for each in ready):
            raise SystemExit("no stream opens")
        ours(link["url"], link["token"], where)
        study = sys.modules["hpsearch_client"].Study(link["url"], STUDY, token=link["token"])
        told = {}
        for _ in range(trials):
            trial = study.ask()
            trial.report(1.0, 1)
            trial.complete(1.0)
            told[trial.number] = time.perf_counter()
        deadline = time.monotonic() + 30
        while not all(len(each) >= trials for each in heard) and time.monotonic() < deadline:
            time.sleep(0.05)
        delays = [each[n] - at for each in heard for n, at in told.items() if n in each]
    missing = streams * trials - len(delays)
    middle, late = 1e3 * statistics.median(delays), 1e3 * percentile(delays, 0.99)
    times = f"{middle:.0f} ms, 99th percentile {late:.0f} ms"
    return f"{streams} streams, {trials} trials: {times}, {missing} missing"


def fill(database: Path, trials: int) -> None:
    """Make a study of complete trials with a report each, in one transaction."""
    spec = loads(SPACE)
    attrs = {SPEC: spec.to_json(), PROVENANCE: {"backend": "remote"}}
    live = open_live(open_storage(f"sqlite:///{database}", create=True), STUDY, goal=spec.goal, attrs=attrs)
    ranges: dict[str, BaseDistribution] = {
        "x": FloatDistribution(0.0, 1.0),
        "y": FloatDistribution(1e-4, 1.0, log=True),
    }
    study = optuna.load_study(study_name=STUDY, storage=live)
    reports = {step: 1 / step for step in range(1, REPORTS + 1)}
    for number in range(1, trials + 1):
        params = {"x": 1 / number, "y": max(1e-4, 1 / number)}
        study.add_trial(
            create_trial(params=params, distributions=ranges, intermediate_values=reports, value=1 / REPORTS)
        )
    live.flush()
    live.close()


def listed(trials: int) -> str:
    """How long all trials of a study take to list, a thousand a page."""
    with tempfile.TemporaryDirectory(prefix="service-", ignore_cleanup_errors=True) as where:
        fill(Path(where) / "studies.db", trials)
        with server_of_ours(Path(where)) as link:
            pages, numbers, size = [], [], 0
            path = f"/v1/studies/{STUDY}/trials?limit=1000"
            while path:
                began = time.perf_counter()
                headers, content = get(link, path)
                pages.append(time.perf_counter() - began)
                numbers += [each["number"] for each in json.loads(content)]
                size += len(content)
                following = headers.get("Link", "")
                after = following[following.find("<") + 1 : following.find(">")]
                path = f"/v1/studies/{STUDY}/trials{after}" if after.startswith("?") else after
    if numbers != list(range(trials)):
        raise SystemExit(f"{len(numbers)} of {trials} trials are listed")
    return (
        f"{trials} trials: {sum(pages):.2f} s for {len(pages)} pages, {size / 2**20:.1f} MiB; "
        f"the slowest page {1e3 * max(pages):.0f} ms"
    )


def main() -> None:
    if sys.argv[1:2] == ["work"]:
        url, token, folder, seconds, *numbers = sys.argv[2:]
        result = work(ours(url, token, folder), [int(each) for each in numbers], float(seconds))
        print(json.dumps(result), flush=True)
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers", help="the Python that has google-vizier and optuna; without: hpsearch alone"
    )
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=10.0, help="for each row")
    parser.add_argument("--only", nargs="+", choices=(*SIDES, "events", "listed"))
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--trials", type=int, default=10_000)
    options = parser.parse_args()
    wanted = options.only or [
        name for name in (*SIDES, "events", "listed") if name == OURS or options.peers or name not in SIDES
    ]
    if not options.peers and set(wanted) & {"vizier", "optuna"}:
        parser.error("--peers: needed for vizier and optuna (--help says how to install them)")
    if rows := [name for name in SIDES if name in wanted]:
        print(f"milliseconds, {options.seconds:g} s a row, {os.cpu_count()} cores")
        print(
            f"{'':10}{'clients':>8}{'calls/s':>10}"
            + "".join(f"{call:>10}{'99%':>9}" for call in CALLS)
            + f"{'failed':>8}"
        )
        for clients in options.clients:
            for name in rows:
                found = measured(name, options.peers, clients, options.seconds)
                print(row(name, clients, found), flush=True)
                for what in sorted(set(found["failed"]))[:3]:
                    print(f"  {what[:200]}", file=sys.stderr)
    if "events" in wanted:
        print("an event after its call:", events(options.streams, 20))
    if "listed" in wanted:
        print("listed:", listed(options.trials))


if __name__ == "__main__":
    main()
