"""Whether a server, its searches and their workers keep the guarantees of a search under random kills.

    python benchmarks/chaos.py --serve [--minutes 10] [--seed 0]

The real commands run in their own processes. `hpsearch serve` has a queue of local searches, of which one
runs at a time, and beside it one search whose trials two `hpsearch work` train. These reach the server by a
proxy that loses calls, loses answers, sends calls twice, and delivers calls late, after their repetitions.
Every few seconds SIGKILL comes to the server, to a driver, to a worker of a local search, to `hpsearch work`,
or to one of its processes. The server and `hpsearch work` are started again; drivers are the server's to
start again. When a search is over, another is submitted. In the end all finish undisturbed.

The objective is that of chaos.py. A report counts as heard once a local search has answered its worker, or
the server has answered the proxy. What a remote worker trains after its lease is over counts for nothing, so
that only the study is checked there, not how often a trial ran.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import psutil
from chaos import CHECKS, END_SECONDS, LAST, OBJECTIVE, Evidence

from hpsearch.search.backends.remote.address import short_id
from hpsearch.search.errors import SearchError
from hpsearch.search.preflight.kill_test import CLEANUP_SECONDS, MARK
from hpsearch.search.results.study import load_result
from hpsearch.search.service.client import Server
from hpsearch.storage.claims import ID
from hpsearch.storage.workspace import Workspace

PERIOD = (2.0, 7.0)  # seconds between two kills
TRIALS = {"local": 10, "remote": 16}  # of a search
WAITING = 2  # local searches in the queue
AGENTS = 2  # `hpsearch work` processes
LEASE = "15s"
DRIVER_KILLS = 2  # of a study: the server gives up one whose drivers end early three times in ten minutes
READY_SECONDS = 60.0  # for a server to be ready after it was killed
SILENT_SECONDS = 90.0  # of the server, for a call through the proxy
LOST, UNANSWERED, DOUBLED, LATE = 0.04, 0.04, 0.04, 0.04  # shares of calls
DELAY = (0.5, 5.0)  # seconds by which a late call comes
SPACE = """
version: 1
name: {name}
objective: {objective}
metric: loss
parameters:
  x: {{min: 0.0, max: 1.0}}
  y: {{min: 1e-4, max: 1.0, log: true}}
search: {{sampler: tpe, n_startup_trials: 5, seed: {seed}}}
early_stopping: {{method: hyperband, type: promotion, min: 3, max: {last}, eta: 3}}
budget: {{trials: {trials}}}
confirm: {{top: 1, seeds: 2}}
audit: 0.3
execution: {{workers: 2, retries: 100000}}
"""
SERVER, DRIVER, AGENT, WORKER = "search.cli serve", "search.cli run", "search.cli work", "backends.worker"
ONE_PROCESS = "no trial in two processes at once"
BOTH, LOCAL, REMOTE, SERVICE = ("local", "remote"), ("local",), ("remote",), ("service",)
APPLY = {  # the checks, and to what they apply
    **{check: LOCAL if check == ONE_PROCESS else BOTH for check in CHECKS},
    "winner confirmed": BOTH,
    "submitted again, the same study": BOTH,
    "queue order kept": LOCAL,
    "no ended trial lost": REMOTE,
    "no worker fails": REMOTE,
    "every search ends by itself": SERVICE,
    "no answer with status 500": SERVICE,
    "nothing still running at the end": SERVICE,
}
T = TypeVar("T")


@dataclass
class Tally:
    """What happened, and the faults found, by check and kind of search."""

    seconds: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)  # by what the proxy did to them
    slowest: float = 0.0  # seconds until a killed server was ready again
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    faults: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))

    def fault(self, check: str, what: str, kind: str = "service") -> None:
        self.faults[check, kind].append(what)


# The proxy.


class Proxy(ThreadingHTTPServer):
    """Between workers and a server: loses, doubles and delays calls while it is `bad`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, tally: Tally, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.target, self.tally, self.bad = port, tally, True
        self.answers: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = []  # lease, verb, body, answer
        self._rng, self._lock = random.Random(seed), threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def chosen(self) -> str:
        """What becomes of the next call."""
        shares = {"lost": LOST, "unanswered": UNANSWERED, "doubled": DOUBLED, "late": LATE}
        with self._lock:
            names, weights = [*shares, "passed"], [*shares.values(), 1 - sum(shares.values())]
            what = self._rng.choices(names, weights)[0] if self.bad else "passed"
            self.tally.calls[what] += 1
            return what

    def delay(self) -> float:
        with self._lock:
            return self._rng.uniform(*DELAY)

    def forward(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Any:
        """The server's status, headers and content. Raises `OSError`."""
        connection = HTTPConnection("127.0.0.1", self.target, timeout=SILENT_SECONDS)
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            content = answer.read()
        except HTTPException as error:
            raise ConnectionError(str(error)) from error
        finally:
            connection.close()
        self._note(path, body, answer.status, content)
        return answer.status, answer.headers, content

    def _note(self, path: str, body: bytes, status: int, content: bytes) -> None:
        """Keep what the server has acknowledged of a trial."""
        parts = path.strip("/").split("/")  # v1, leases, LEASE, VERB
        if status == 200 and parts[1:2] == ["leases"] and parts[-1] in ("report", "complete"):
            self.answers.append((parts[2], parts[3], json.loads(body), json.loads(content)))


class Handler(BaseHTTPRequestHandler):
    """One connection of a worker to the proxy."""

    protocol_version = "HTTP/1.1"
    server: Proxy

    def handle(self) -> None:
        with suppress(ConnectionError):  # its worker was killed
            super().handle()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: calls are counted."""

    def do_GET(self) -> None:
        self._pass_on()

    do_POST = do_PUT = do_GET

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        skipped = ("host", "connection", "content-length")
        headers = {name: value for name, value in self.headers.items() if name.lower() not in skipped}
        send = partial(self.server.forward, self.command, self.path, body, headers)
        what = self.server.chosen()
        self.close_connection = True
        if what == "lost":
            return
        if what == "late":
            threading.Thread(target=self._later, args=(send, self.server.delay()), daemon=True).start()
            return
        try:
            answer = send()
            if what == "doubled":
                answer = send()
        except OSError:  # the server is away
            return
        if what == "unanswered":
            return
        self.close_connection = False
        status, found, content = answer
        with suppress(OSError):  # the worker has left
            self.send_response(status)
            for name, value in found.items():
                if name.lower() not in ("connection", "content-length", "date", "server"):
                    self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def _later(self, send: Callable[[], Any], seconds: float) -> None:
        time.sleep(seconds)
        with suppress(OSError):
            send()


# The service and what belongs to it.


class Scene:
    """A folder with a server, its searches, and the workers of one that needs them."""

    def __init__(self, folder: Path, tally: Tally, seed: int) -> None:
        self.folder, self.tally, self.seed = folder, tally, seed
        self.workspace = Workspace.at(str(folder / "studies.db"), folder / "runs")
        self.submitted: dict[str, list[str]] = {"local": [], "remote": []}
        self._mark = secrets.token_hex(8)
        self._port = free_port()
        self.proxy = Proxy(self._port, tally, seed)
        token = ["token", "create", "chaos", "--scope", "admin"]
        made = subprocess.run(
            self._command(*token), env=self._env, capture_output=True, text=True, check=True
        )
        self._token = made.stdout.split()[-1]
        self.server = Server(f"http://127.0.0.1:{self._port}", self._token)
        self._serving = self._serve()
        self._agents: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        self._driver_kills: Counter[str] = Counter()

    @property
    def _env(self) -> dict[str, str]:
        own = {"HPSEARCH_HOME": str(self.folder / "home"), MARK: self._mark}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HPSEARCH_")}
        return kept | own

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-P", "-m", "hpsearch.search.cli", *words]

    def _started(self, log: str, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("ab") as stream:
            return subprocess.Popen(
                self._command(*words),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=self._env | environment,
                start_new_session=True,
            )

    def _serve(self) -> subprocess.Popen[bytes]:
        """Start the server, and wait until it is ready."""
        place = ["--storage", str(self.folder / "studies.db"), "--runs", str(self.folder / "runs")]
        began = time.monotonic()
        serving = self._started("server.log", "serve", "--port", str(self._port), *place)
        while not self._is_ready():
            took = time.monotonic() - began
            if serving.poll() is not None or took > READY_SECONDS:
                raise SystemExit(f"the server does not start: {tail(self.folder / 'server.log')}")
            time.sleep(0.1)
        self.tally.slowest = max(self.tally.slowest, time.monotonic() - began)
        return serving

    def _is_ready(self) -> bool:
        with suppress(OSError, HTTPException):
            connection = HTTPConnection("127.0.0.1", self._port, timeout=10)
            try:
                connection.request("GET", "/readyz", headers={"Host": "localhost"})
                return connection.getresponse().status == 204
            finally:
                connection.close()
        return False

    # Searches

    def submit(self, kind: str) -> None:
        """Queue another search."""
        number = len(self.submitted[kind])
        name = f"{kind}-{number}"
        folder = self.folder / "code" / name
        folder.mkdir(parents=True)
        (self.folder / "sent" / name).mkdir(parents=True)
        sent = f"pathlib.Path({str(self.folder / 'sent' / name)!r}) / f'{{trial.number}}.jsonl'"
        (folder / "objective.py").write_text(OBJECTIVE.replace("@SENT@", sent))
        objective = "remote" if kind == "remote" else '"objective.py:train"'
        given = {"trials": TRIALS[kind], "seed": self.seed + number, "last": LAST}
        (folder / "space.yaml").write_text(SPACE.format(name=name, objective=objective, **given))
        backend = "remote" if kind == "remote" else "optuna"
        for again in (False, True):
            made = self.call(lambda: self.server.submit(space=folder / "space.yaml", backend=backend))
            if made.study != name or (again and made.made):
                self.tally.fault("submitted again, the same study", f"{name}: {made}", kind)
        self.submitted[kind].append(name)

    def call(self, what: Callable[[], T]) -> T:
        """Call the server, again while it is away."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                return what()
            except SearchError:
                if time.monotonic() > deadline:
                    raise
                self.mend()
                time.sleep(0.2)

    def states(self) -> dict[str, str]:
        """The states of all studies."""
        queue = self.call(self.server.queue)
        return {study.study: study.state.state for study in queue.studies}

    def keep_busy(self) -> None:
        """Submit what is missing, so that there is always work."""
        states = self.states()
        for kind, least in (("local", WAITING), ("remote", 1)):
            open_ = [name for name in self.submitted[kind] if states[name] != "finished"]
            if len(open_) < least:
                self.submit(kind)

    def mend(self) -> None:
        """Start what was killed: the server, and the workers of the remote search that is open."""
        if self._serving.poll() is not None:
            self._serving = self._serve()
        names = self.submitted["remote"]
        for number in range(AGENTS if names else 0):
            study, agent = self._agents.get(number, ("", None))
            code = None if agent is None else agent.poll()
            if agent is not None and code is None:
                continue
            if code is not None and code > 0 and study == names[-1]:
                told = tail(self.folder / f"work-{number}.log")
                if "did not answer" in told:  # for longer than a worker waits
                    self.tally.kills["hpsearch work gave up"] += 1
                else:
                    self.tally.fault("no worker fails", f"it ended with {code}: {told}", "remote")
            if code == 0 and study == names[-1]:
                continue  # it is over
            objective = f"{self.folder / 'code' / names[-1] / 'objective.py'}:train"
            words = [self.proxy.url, names[-1], "--objective", objective, "--workers", "1", "--lease", LEASE]
            started = self._started(f"work-{number}.log", "work", *words, HPSEARCH_TOKEN=self._token)
            self._agents[number] = names[-1], started

    # Kills

    def processes(self) -> dict[str, list[psutil.Process]]:
        """All living processes of this scene, by what they are."""
        found = defaultdict(list)
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                ended = process.status() == psutil.STATUS_ZOMBIE
                if not ended and process.environ().get(MARK) == self._mark:
                    found[_role(process)].append(process)
        return found

    def kill(self, role: str, rng: random.Random) -> None:
        """Send SIGKILL to one process of a role."""
        there = self.processes()[role]
        if role == "drivers":
            there = [process for process in there if self._driver_kills[_study(process)] < DRIVER_KILLS]
        if not there:
            return
        process = rng.choice(there)
        with suppress(psutil.Error):
            if role == "drivers":
                self._driver_kills[_study(process)] += 1
            process.kill()
            self.tally.kills[f"{role} killed"] += 1
        if role == "servers":
            self._serving.wait()

    def end(self) -> None:
        """Kill all that is left."""
        self.proxy.shutdown()
        while left := [process for found in self.processes().values() for process in found]:
            for process in left:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, timeout=1)

    def leave(self) -> None:
        """End the server by Ctrl-C, once all searches are over; nothing may be left."""
        self._serving.send_signal(signal.SIGINT)
        self._serving.wait(CLEANUP_SECONDS * 3)
        deadline = time.monotonic() + CLEANUP_SECONDS * 3
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.2)
        for role, processes in left.items():
            for process in processes:
                with suppress(psutil.Error):
                    words = " ".join(process.cmdline())
                    self.tally.fault("nothing still running at the end", f"{role}: {process.pid} {words}")


def _role(process: psutil.Process) -> str:
    words = " ".join(process.cmdline())
    if SERVER in words:
        return "servers"
    if DRIVER in words:
        return "drivers"
    if AGENT in words:
        return "hpsearch work"
    if WORKER in words:
        parents = [" ".join(each.cmdline()) for each in process.parents()]
        return "its processes" if any(AGENT in each for each in parents) else "local workers"
    return "others"


def _study(driver: psutil.Process) -> str:
    return next((word for word in driver.cmdline() if word.startswith("--study=")), "")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-10:])


def disturb(scene: Scene, seconds: float, seed: int) -> None:
    """Kill something every few seconds, for so long."""
    rng, began = random.Random(seed), time.monotonic()
    roles = {"servers": 4, "drivers": 3, "local workers": 3, "hpsearch work": 2, "its processes": 3}
    next_kill = began + 10.0
    while time.monotonic() - began < seconds:
        scene.mend()
        scene.keep_busy()
        scene.mend()
        if time.monotonic() >= next_kill:
            for role in set(rng.choices(list(roles), list(roles.values()), k=rng.choice((1, 1, 1, 2)))):
                scene.kill(role, rng)
            next_kill = time.monotonic() + rng.uniform(*PERIOD)
        time.sleep(0.2)
    scene.tally.seconds = time.monotonic() - began


def finish(scene: Scene) -> None:
    """Let all searches end."""
    scene.proxy.bad = False
    deadline = time.monotonic() + END_SECONDS
    while (states := scene.states()) and set(states.values()) != {"finished"}:
        scene.mend()
        failed = [name for name, state in states.items() if state in ("failed", "stopped", "paused")]
        if failed or time.monotonic() > deadline:
            open_ = {name: state for name, state in states.items() if state != "finished"}
            scene.tally.fault("every search ends by itself", f"{open_}")
            return
        time.sleep(0.5)
    scene.leave()


# Checks.


def check(scene: Scene) -> None:
    """Compare the studies with what was sent and what was answered."""
    tally = scene.tally
    for kind, names in scene.submitted.items():
        for name in names:
            result = load_result(scene.workspace, name)
            trials = result.study.get_trials(deepcopy=False)
            notes = _notes(scene.folder / "sent" / name)
            if kind == "remote":  # its worker may train on while the server is away, and be killed
                notes = {n: [line for line in of if line["what"] != "heard"] for n, of in notes.items()}
                for number, verb, body, answer in _answers(scene.proxy, result.study.user_attrs[ID]):
                    if verb == "report" and answer["go_on"]:
                        heard = {"what": "heard", "step": body["step"], "value": body["value"]}
                        notes.setdefault(number, []).append(heard)
                    elif verb == "complete" and trials[number].value != answer["value"]:
                        what = f"trial {number} was {answer}, and is {trials[number]}"
                        tally.fault("no ended trial lost", f"{name}: {what}", kind)
            found = Evidence(trials, TRIALS[kind], notes, scene.folder / "studies.db")
            for check, of in CHECKS.items():
                for what in of(found) if kind in APPLY[check] else ():
                    tally.fault(check, f"{name}: {what}", kind)
            if result.confirmed is None:
                tally.fault("winner confirmed", f"{name}: it is not", kind)
            counts = tally.counts[kind]
            counts["searches"] += 1
            counts["trials"] += len(trials)
            counts["reports sent"] += len(found.reports("sends"))
            counts["reports heard"] += len(found.reports("heard"))
            counts["reports in the studies"] += len(found.stored())
    _check_order(scene)
    for line in (scene.folder / "home" / "access.log").read_text().splitlines():
        with suppress(ValueError):  # a kill cuts the last line short
            entry = json.loads(line)
            if entry["status"] == 500:
                tally.fault("no answer with status 500", f"{entry['method']} {entry['path']} {entry['id']}")


def _answers(proxy: Proxy, study: str) -> Iterator[tuple[int, str, dict[str, Any], dict[str, Any]]]:
    """What the server has acknowledged of the trials of a study."""
    for lease, verb, body, answer in proxy.answers:
        of, number, _ = lease.split("-", 2)
        if of == short_id(study):
            yield int(number), verb, body, answer


def _notes(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """What the objective has logged of the trials of a study."""
    notes: dict[int, list[dict[str, Any]]] = {}
    for file in folder.glob("*.jsonl"):
        lines = [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
        notes[int(file.stem)] = [json.loads(line) for line in lines]
    return notes


def _check_order(scene: Scene) -> None:
    """Local searches run one after the other, as they were submitted."""
    before, ended = "", None
    for name in scene.submitted["local"]:
        trials = load_result(scene.workspace, name).study.get_trials(deepcopy=False)
        began = min((t.datetime_start for t in trials if t.datetime_start), default=None)
        if began is None:
            continue
        if ended is not None and began < ended:
            told = f"{name} began at {began}, before {before} ended at {ended}"
            scene.tally.fault("queue order kept", told, "local")
        before, ended = name, max(t.datetime_complete for t in trials if t.datetime_complete)


def show(tally: Tally) -> None:
    def row(name: str, *cells: object) -> None:
        print(f"{name:36}" + "".join(f"{cell!s:>12}" for cell in cells))

    row("seconds of chaos", f"{tally.seconds:.0f}")
    for what, count in sorted(tally.kills.items()):
        row(what, count)
    row("slowest start of a server, s", f"{tally.slowest:.1f}")
    for what in ("passed", "lost", "unanswered", "doubled", "late"):
        row(f"calls {what}", tally.calls[what])
    kinds = list(TRIALS)
    row("", *kinds, "service")
    for what in ("searches", "trials", "reports sent", "reports heard", "reports in the studies"):
        row(what, *(tally.counts[kind][what] for kind in kinds))
    for check in APPLY:
        row(check, *(_verdict(tally, check, kind) for kind in (*kinds, "service")))
    for (check, kind), faults in tally.faults.items():
        for what in faults[:5]:
            print(f"{kind}: {check}: {what}")
        if len(faults) > 5:
            print(f"{kind}: {check}: and {len(faults) - 5} more")


def _verdict(tally: Tally, check: str, kind: str) -> str:
    if faults := tally.faults.get((check, kind)):
        return f"{len(faults)} faults"
    return "ok" if kind in APPLY[check] else "-"


def run(minutes: float, seed: int) -> Tally:
    """Disturb a service for so long, and check it. Its files stay where there are faults."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    tally = Tally()
    scene = Scene(folder, tally, seed)
    try:
        disturb(scene, 60 * minutes, seed)
        finish(scene)
        check(scene)
    finally:
        scene.end()
    show(tally)
    if tally.faults:
        print(f"all files are kept in {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder)
    return tally
