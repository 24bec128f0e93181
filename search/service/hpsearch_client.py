"""Train the trials of a study that a server of hpsearch searches, on any machine with Python 3.8 or newer.

One file of the standard library: curl -s http://SERVER:8765/client.py -o hpsearch_client.py

    from hpsearch_client import Study

    for trial in Study("http://127.0.0.1:8765", "mine", token="hps_...").trials():
        for step in range(trial.reported + 1, 11):
            loss = train_one_epoch(trial.params)
            if not trial.report(loss, step):  # pruned, paused or stopped: leave it
                break
        else:
            trial.complete(loss)

A trial is lent. While it trains, a thread says now and then that its worker lives. A server that is away for
a while is no reason to stop: calls are repeated, which is harmless, for up to five times the lease.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import ssl
import tempfile
import threading
import time
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Iterator, Optional, TypeVar
from urllib.parse import quote, urlsplit

__all__ = ["Away", "Refused", "Server", "Study", "Trial"]

GIVES_UP_AFTER = 5.0  # times the lease, that a call is repeated
SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 15.0  # seconds between two attempts of a call
PASSES = (408, 429, 502, 503, 504)  # statuses of a server or a proxy that may answer later
LARGEST_ANSWER = 8 << 20
Answer = Dict[str, Any]
T = TypeVar("T")


class Refused(Exception):
    """The server refuses a request. `status` and `type` are its problem's, `body` is all of it."""

    def __init__(self, status: int, body: Answer, retry_after: Optional[float] = None) -> None:
        super().__init__(str(body.get("detail") or body.get("title") or f"status {status}"))
        self.status = status
        self.type = str(body.get("type", "")).rpartition("/")[2]
        self.body = body
        self.retry_after = retry_after

    @property
    def passes(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in PASSES


class Away(Exception):
    """The server did not answer for too long."""


class Server:
    """A server, by its address: http://HOST:PORT, https://HOST/PREFIX."""

    def __init__(self, url: str, token: Optional[str] = None, timeout: float = 30.0) -> None:
        """`token`: by default that in HPSEARCH_TOKEN, or of this user's own server on this machine."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{url!r} is no address of a server: http://HOST:PORT is one")
        self.url = url.rstrip("/")
        self.timeout = timeout
        self.token = token or os.environ.get("HPSEARCH_TOKEN") or _local_token(self.url)
        self._is_own = self.token is not None and self.token == _local_token(self.url)
        self._parts = parts
        self._mine = threading.local()

    def call(self, method: str, path: str, body: Optional[Answer] = None, wait: float = 0.0) -> Answer:
        """Make a request, whose answer may take `wait` seconds longer. Raises `Refused` or `OSError`."""
        data = None if body is None else json.dumps(_in_json(body)).encode()
        token = self.token
        status, headers, answer = self._exchange(method, path, data, self.timeout + wait)
        return self._checked(token, status, headers, answer)

    def send(self, path: str, file: BinaryIO) -> Answer:
        """Put a file. Raises `Refused` or `OSError`."""
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        headers = {"Content-Type": "application/zip", "Content-Length": str(size)}
        connection, token = self._connection(self.timeout + 60.0), self.token
        try:
            connection.request("PUT", self._path(path), file, self._headers(headers))
            response = connection.getresponse()
            answer = response.read(LARGEST_ANSWER)
        except (http.client.HTTPException, OSError) as error:
            self.close()
            raise _as_os_error(error) from error
        return self._checked(token, response.status, response.headers, answer)

    def fetch(self, path: str, file: BinaryIO) -> bool:
        """Write what is at a path into a file; False for nothing. Raises `Refused` or `OSError`."""
        connection, token = self._connection(self.timeout + 60.0), self.token
        try:
            connection.request("GET", self._path(path), headers=self._headers({}))
            response = connection.getresponse()
            if response.status != 200:
                self._checked(token, response.status, response.headers, response.read(LARGEST_ANSWER))
                return False
            expected = response.headers.get("Content-Length")
            received = 0
            while True:
                piece = response.read(1 << 20)
                if not piece:
                    break
                received += len(piece)
                file.write(piece)
            if expected is not None and received != int(expected):
                raise ConnectionError("the connection ended within a file")
        except (http.client.HTTPException, OSError) as error:
            self.close()
            raise _as_os_error(error) from error
        return True

    def _checked(self, token: Optional[str], status: int, headers: Any, content: bytes) -> Answer:
        """The answer to this token. This user's own server has another one where it was started anew."""
        if status == 401 and self._is_own:
            self.token = _local_token(self.url) or self.token
            if self.token != token:
                raise ConnectionError("the server was started anew")
        return _checked(status, headers, content)

    def close(self) -> None:
        """End this thread's connection."""
        connection = getattr(self._mine, "connection", None)
        if connection is not None:
            self._mine.connection = None
            connection.close()

    def _exchange(self, method: str, path: str, data: Optional[bytes], timeout: float) -> Any:
        """Send a request. A connection that was kept may have been closed: it is opened again, once."""
        headers = self._headers({"Content-Type": "application/json"} if data is not None else {})
        kept = getattr(self._mine, "connection", None) is not None
        try:
            return self._once(method, path, data, headers, timeout)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
            if not kept:
                raise _as_os_error(error) from error
        except (http.client.HTTPException, OSError) as error:
            raise _as_os_error(error) from error
        try:
            return self._once(method, path, data, headers, timeout)
        except (http.client.HTTPException, OSError) as error:
            raise _as_os_error(error) from error

    def _once(self, method: str, path: str, data: Optional[bytes], headers: Any, timeout: float) -> Any:
        try:
            connection = self._connection(timeout)
            connection.request(method, self._path(path), data, headers)
            response = connection.getresponse()
            return response.status, response.headers, response.read(LARGEST_ANSWER)
        except BaseException:
            self.close()
            raise

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        connection: Optional[http.client.HTTPConnection] = getattr(self._mine, "connection", None)
        if connection is not None:
            connection.timeout = timeout
            if connection.sock is not None:
                connection.sock.settimeout(timeout)
            return connection
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
        connection.connect()
        if connection.sock is not None:
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._mine.connection = connection
        return connection

    def _path(self, path: str) -> str:
        return self._parts.path.rstrip("/") + path

    def _headers(self, headers: Dict[str, str]) -> Dict[str, str]:
        headers["User-Agent"] = "hpsearch-client"
        if self.token:
            headers["Authorization"] = "Bearer " + self.token
        return headers


class Study:
    """A study whose trials are trained here."""

    def __init__(
        self,
        url: str,
        name: str,
        token: Optional[str] = None,
        worker: Optional[str] = None,
        lease: float = 60.0,
    ) -> None:
        """`worker`: its name in the study. `lease`: seconds, from 15 to 600, that it may be silent."""
        self.server = Server(url, token)
        self.name = name
        self.worker = worker or f"{socket.gethostname()[:100]}-{os.getpid()}"
        self.lease = lease
        self._run = f"{random.SystemRandom().getrandbits(32):08x}"  # requests of another run are others
        self._asked = 0

    def trials(self) -> Iterator[Trial]:
        """The trials to train, one after the other, until the study is over.

        One that is left without its end, by an exception or a `break`, is given back.
        """
        while True:
            trial = self.ask()
            if trial is None:
                return
            try:
                yield trial
            finally:
                trial.leave()
            if trial.study_over:
                return

    def ask(self) -> Optional[Trial]:
        """Wait for a trial; None where the study is over. Raises `Refused`, or `Away`."""
        self._asked += 1
        request = f"{self._run}-{self._asked}"
        wanted = {"worker": self.worker, "request": request, "lease": self.lease, "wait": 20.0}
        path = "/v1/studies/{}/ask".format(quote(self.name, safe=""))
        while True:
            try:
                answer = patiently(
                    lambda: self.server.call("POST", path, wanted, wait=20.0), GIVES_UP_AFTER * self.lease
                )
            except Refused as refusal:
                if refusal.type == "study-over":
                    return None
                raise
            if "lease" in answer:
                return Trial(self, answer)
            time.sleep(float(answer.get("retry_after", 1.0)) * random.uniform(0.5, 1.0))


class Trial:
    """One configuration to train. `params` is what it is, `reported` the last step that is known of it."""

    def __init__(self, study: Study, given: Answer) -> None:
        self.study = study
        self.number: int = given["trial"]
        self.params: Dict[str, Any] = given["params"]
        self.seed: int = given["seed"]
        self.reported: int = given["reported"]
        self.has_checkpoint: bool = given["checkpoint"]
        self.because: Optional[str] = None  # why it does not go on: pruned, paused, stopped, killed, diverged
        self.reason = ""
        self.study_over = False
        self.ended = False
        self._path = "/v1/leases/{}".format(given["lease"])
        self._lease = float(given["until"])
        self._said = time.monotonic()
        self._stop = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def report(self, value: float, step: int, **metrics: float) -> bool:
        """Report the study's metric at a step. Returns whether the trial goes on.

        Where it does not, `because` says why; training it further is in vain.
        """
        if not self.ended:
            body = {"step": int(step), "value": float(value)}  # type: Answer
            if metrics:
                body["metrics"] = {name: float(metric) for name, metric in metrics.items()}
            self._heed(self._call("report", body))
        return not self.ended

    def complete(self, value: float) -> None:
        """It ran to its end, with this value. Raises `Refused` where another end came before."""
        self._end("complete", {"value": float(value)})

    def fail(self, message: str, kind: str = "error") -> None:
        """The attempt failed; it is tried again, as often as the space says."""
        self._end("fail", {"message": message[:2000] or "failed", "kind": kind})

    def release(self) -> None:
        """Give it back, for this or another worker; that costs no attempt."""
        self._end("release", {})

    def leave(self) -> None:
        """Give it back, unless it has ended; no failure of that matters, as a lease ends by itself."""
        if not self.ended:
            try:
                self.ended = True
                self.study.server.call("POST", self._path + "/release", {})
            except (OSError, Refused):
                pass
        self._stop.set()

    def save_checkpoint(self, folder: str) -> None:
        """Send the files of a folder; with the next report they are the trial's checkpoint."""
        root = Path(folder)
        with tempfile.TemporaryFile() as packed:
            with zipfile.ZipFile(packed, "w", strict_timestamps=False) as archive:
                for path in sorted(root.rglob("*")):
                    if path.is_file() and not path.is_symlink():
                        archive.write(str(path), path.relative_to(root).as_posix())
            self._repeat(lambda: self.study.server.send(self._path + "/checkpoint", packed))

    def load_checkpoint(self, folder: str) -> bool:
        """Write the checkpoint from which the trial resumes into a folder; False where it has none."""
        if not self.has_checkpoint:
            return False
        with tempfile.TemporaryFile() as packed:

            def fetch() -> bool:
                packed.seek(0)
                packed.truncate()
                return self.study.server.fetch(self._path + "/checkpoint", packed)

            if not self._repeat(fetch):
                return False
            with zipfile.ZipFile(packed) as archive:
                archive.extractall(folder)  # which lets no name lead out of the folder
        return True

    def _call(self, verb: str, body: Answer) -> Answer:
        try:
            return self._repeat(lambda: self.study.server.call("POST", f"{self._path}/{verb}", body))
        except Refused as refusal:
            if verb in ("report", "beat") and refusal.type == "lease-over":
                reason = str(refusal.body.get("reason", refusal))
                return {"go_on": False, "because": "lost", "reason": reason}
            raise

    def _repeat(self, call: Callable[[], T]) -> T:
        result = patiently(call, GIVES_UP_AFTER * self._lease)
        self._said = time.monotonic()
        return result

    def _heed(self, answer: Answer) -> None:
        self.study_over = self.study_over or "over" in answer
        if not answer.get("go_on", True):
            self.because, self.reason = answer.get("because"), str(answer.get("reason", ""))
            self.ended = True
            self._stop.set()

    def _end(self, verb: str, body: Answer) -> None:
        self._stop.set()
        self._heed(self._call(verb, body))
        self.ended = True

    def _beat(self) -> None:
        """Say now and then that the worker lives, where reports do not."""
        while not self._stop.wait(self._lease / 6):
            if time.monotonic() - self._said < self._lease / 3:
                continue
            try:
                answer = self.study.server.call("POST", self._path + "/beat", {})
            except (OSError, Refused):
                continue  # the next report will tell
            self._said = time.monotonic()
            if not self._stop.is_set():
                self._heed(answer)
        self.study.server.close()


def patiently(
    call: Callable[[], T],
    seconds: float,
    sleep: Callable[[float], Any] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> T:
    """Repeat a call that may be repeated, while the server is away or busy, with growing, random pauses.

    Raises `Away` after so many seconds, and `Refused` at once for what will be refused again.
    """
    until = now() + seconds
    pause = SHORTEST_PAUSE
    while True:
        try:
            return call()
        except Refused as refusal:
            if not refusal.passes:
                raise
            why = str(refusal)
            least = refusal.retry_after or 0.0
        except OSError as error:
            why, least = str(error) or type(error).__name__, 0.0
        pause = min(LONGEST_PAUSE, 2 * pause)
        wait = max(least, pause) * random.uniform(0.5, 1.0)
        if now() + wait > until:
            raise Away(f"the server did not answer for {seconds:.0f} s ({why})")
        sleep(wait)


def _checked(status: int, headers: Any, content: bytes) -> Answer:
    """The answer of the server; raises `Refused` where it is none."""
    try:
        body = json.loads(content) if content else {}
    except ValueError:
        body = {"detail": content[:200].decode("utf-8", "replace")}
    if not isinstance(body, dict):
        body = {"value": body}
    after = _seconds(headers.get("Retry-After"))
    if status >= 300:
        raise Refused(status, body, after)
    if status == 204 and after is not None:
        body["retry_after"] = after
    return body


def _seconds(header: Optional[str]) -> Optional[float]:
    try:
        return min(60.0, max(0.0, float(header))) if header else None
    except ValueError:
        return None


def _in_json(value: Any) -> Any:
    """What JSON lacks, as the words that the server takes for it."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: _in_json(each) for key, each in value.items()}
    return [_in_json(each) for each in value] if isinstance(value, (list, tuple)) else value


def _as_os_error(error: Exception) -> OSError:
    return error if isinstance(error, OSError) else ConnectionError(str(error) or type(error).__name__)


def _local_token(url: str) -> Optional[str]:
    """The token of this user's own server, which it leaves in a file that nobody else can read."""
    parts = urlsplit(url)
    if parts.hostname not in ("127.0.0.1", "localhost", "::1") or parts.port is None:
        return None
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    home = os.environ.get("HPSEARCH_HOME") or os.path.join(state, "hpsearch")
    try:
        content = Path(home).expanduser().joinpath(f"serve-{parts.port}.json").read_text()
        token = json.loads(content)["token"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(token)
