"""optuna-dashboard as an application, and on a port of this machine: read-only unless asked.

optuna-dashboard has no password, so any page in the user's browser could reach it: by a form posted to
localhost, by a name that resolves to 127.0.0.1 (DNS rebinding), or by an uploaded HTML artifact that runs as
the dashboard itself. `guarded` closes these ways before a request reaches it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from socketserver import ThreadingMixIn
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import bottle
import optuna
import optuna_dashboard
import psutil
import sqlalchemy
from optuna.artifacts.exceptions import ArtifactNotFound
from optuna.storages import BaseStorage, RDBStorage

from ...storage.database import open_storage
from ...storage.files import RunsArtifactStore
from ...storage.in_memory import REVIVED
from ...storage.workspace import Workspace
from ..errors import SearchError
from .front_end import under

if TYPE_CHECKING:
    from optuna.artifacts._protocol import ArtifactStore

ANY_ADDRESS = ("0.0.0.0", "::")
READING = ("GET", "HEAD", "OPTIONS")
# What an artifact may be to open in the browser; the rest is downloaded. No XML, for SVG and its kind run
# script, and no comma: of "image/png, text/html" a browser takes the last.
SHOWN = re.compile(r"(image|video|audio)/(?!.*xml)[\w.+-]+", re.IGNORECASE)


def serve(
    workspace: Workspace,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    write: bool = False,
    announce: Callable[[str], None],
) -> None:
    """Serve the studies of a workspace until Ctrl-C or SIGTERM, then return.

    Port 0 takes any free one; `announce` is told the address once the server listens there.
    Raises `StorageError` where there is no such database, `SearchError` where the address cannot be had.
    """
    with suppress(KeyboardInterrupt), ExitStack() as ending:
        if threading.current_thread() is threading.main_thread():  # no other may handle signals
            before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does
            ending.callback(signal.signal, signal.SIGTERM, before)
        storage = open_storage(workspace.url)
        ending.callback(storage.engine.dispose)
        server = ending.enter_context(_listen(host, port))
        port = server.server_port  # the free one where it was 0
        app = application(storage, runs=workspace.runs)
        server.set_app(guarded(app, hosts=allowed_hosts(host, port), write=write))
        shown = "localhost" if host in ANY_ADDRESS else _in_url(host)
        rights = "changes allowed" if write else "read-only; --write allows changes"
        announce(f"optuna-dashboard at http://{shown}:{port} ({rights}; Ctrl-C ends it)")
        if not (host in ("localhost", "::1") or host.startswith("127.")):
            rights = "read and change" if write else "read"
            announce(f"warning: there is no password: whoever reaches {host} can {rights} the studies")
        server.serve_forever()


def application(
    storage: BaseStorage | str,
    *,
    runs: Path,
    at: str = "",
    artifacts: ArtifactStore | None = None,
) -> WSGIApplication:
    """Build the dashboard over a storage or the URL of one, without what its files could do to its readers.

    `at` is the path of the website where it is served: "" or as "/optuna". Artifacts are the trials' files
    under `runs`, unless another store is given. Whoever serves it also decides who reaches it: `guarded`.
    Raises `SearchError` where this optuna-dashboard cannot be served at a path.
    """
    front = under(at) if at else None
    opened = open_storage(storage) if isinstance(storage, str) else storage
    if artifacts is None:
        artifacts = _TrialFiles(runs)

    def build() -> WSGIApplication:
        # `get_storage` adds Optuna's cache: refreshing a long study costs a quarter. It also takes away the
        # dashboard's page that upgrades the schema of a bare `RDBStorage`.
        # `base_url` is what its links to artifacts begin with, in JupyterLab and here.
        app: WSGIApplication = optuna_dashboard.wsgi(
            optuna.storages.get_storage(opened),
            artifacts,
            jupyterlab_extension_context=SimpleNamespace(base_url=at),
        )
        return app

    app = _Current(opened, build) if isinstance(opened, RDBStorage) else build()
    return _tamed(app if front is None else front.before(app))


def allowed_hosts(host: str, port: int) -> frozenset[str]:
    """The `Host` headers, in lower case, that mean a server at `host` and `port`."""
    names = {"localhost", "127.0.0.1", "::1", host}
    if host in ANY_ADDRESS:
        names |= {socket.gethostname(), socket.getfqdn()}
        names |= {address.address for card in psutil.net_if_addrs().values() for address in card}
    ports = ["", ":80"] if port == 80 else [f":{port}"]  # browsers leave out the port of the scheme
    return frozenset(f"{_in_url(name)}{port}".lower() for name in names for port in ports)


class _TrialFiles(RunsArtifactStore):
    """The trials' files. A missing one is answered with 404, where optuna-dashboard prints a traceback."""

    def open_reader(self, artifact_id: str) -> BinaryIO:
        try:
            return super().open_reader(artifact_id)
        except ArtifactNotFound as error:
            raise bottle.HTTPResponse("there is no such file\n", 404) from error


def _tamed(app: WSGIApplication) -> WSGIApplication:
    """Wrap the dashboard so that no answer can be framed or read by other sites, or is a traceback.

    Artifacts that might run script are downloaded.
    """

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        environ.setdefault("HTTP_ACCEPT_ENCODING", "identity")  # the dashboard fails without the header
        start = _hardening(start_response, artifact=environ["PATH_INFO"].startswith("/artifacts/"))
        refusal = _malformed(environ)
        return _say(environ, start, *refusal) if refusal else app(environ, start)

    return answer


def guarded(app: WSGIApplication, *, hosts: frozenset[str], write: bool) -> WSGIApplication:
    """Wrap the dashboard so that only its own pages reach it and, without `write`, only to read.

    A foreign `Host` is answered 403, so is a change another website asks for, and every change 405 where
    `write` is not set.
    """

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        refusal = _refusal(environ, hosts, write)
        if refusal is None:
            return app(environ, start_response)
        return _say(environ, _hardening(start_response), *refusal)

    return answer


def _malformed(environ: WSGIEnvironment) -> tuple[str, str] | None:
    """The status and the reason for a request that the dashboard would answer with a traceback."""
    try:
        environ["PATH_INFO"].encode("latin-1").decode()
    except UnicodeDecodeError:  # the dashboard drops such bytes and would see another path than we do
        return "400 Bad Request", "the path is not UTF-8"
    after = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True).get("after", ["0"])
    if not all(re.fullmatch("[0-9]{1,9}", number) for number in after):
        return "400 Bad Request", "after is a number of trials"
    if re.search("[0-9]{19}", environ["PATH_INFO"]) and environ["PATH_INFO"].startswith(("/api/", "/csv/")):
        return "404 Not Found", "no study and no trial has such a number"
    return None


def _refusal(environ: WSGIEnvironment, hosts: frozenset[str], write: bool) -> tuple[str, str] | None:
    """The status and the reason for a request of who may not ask for this; None lets it pass."""
    if environ.get("HTTP_HOST", "").lower() not in hosts:
        return "403 Forbidden", f"this dashboard answers only at {', '.join(sorted(hosts))}"
    if environ["REQUEST_METHOD"] in READING:
        return None
    # Browsers send at least one of these with a change; curl and its like send none and pass.
    source = environ.get("HTTP_ORIGIN") or environ.get("HTTP_REFERER")
    site = re.match("http://([^/?#]*)", source.lower()) if source else None
    foreign = source and (site is None or site[1] not in hosts)
    if foreign or environ.get("HTTP_SEC_FETCH_SITE", "none") not in ("same-origin", "none"):
        return "403 Forbidden", "another website may not change studies"
    if not write:
        return "405 Method Not Allowed", "this dashboard is read-only; start it with --write to allow changes"
    return None


def _hardening(start_response: StartResponse, artifact: bool = False) -> StartResponse:
    def start(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Callable[[bytes], object]:
        return start_response(status, _hardened(headers, artifact and status[:3] == "200"), *exc_info)

    return start


def _hardened(headers: list[tuple[str, str]], artifact: bool) -> list[tuple[str, str]]:
    kept = [header for header in headers if header[0].lower() != "access-control-allow-origin"]
    kept.append(("X-Content-Type-Options", "nosniff"))
    kept.append(("X-Frame-Options", "SAMEORIGIN"))
    kept.append(("Cross-Origin-Resource-Policy", "same-origin"))
    if artifact:
        kept.append(("Content-Security-Policy", "sandbox"))
        if not all(SHOWN.fullmatch(value) for name, value in kept if name.lower() == "content-type"):
            kept.append(("Content-Disposition", "attachment"))
    return kept


def _say(environ: WSGIEnvironment, start: StartResponse, status: str, reason: str) -> Iterable[bytes]:
    """Answer with one line; the page's own calls get it as the JSON whose reason it shows to the user."""
    api = environ["PATH_INFO"].startswith("/api/")
    headers = [("Content-Type", "application/json" if api else "text/plain; charset=utf-8")]
    if status.startswith("405"):
        headers.append(("Allow", ", ".join(READING)))
    start(status, headers)
    return [(json.dumps({"reason": reason}) if api else f"{reason}\n").encode()]


class _Current:
    """The dashboard over a database, built anew when a study it has cached was replaced by another.

    The caches go by id, and ids are given again once a study or the whole file was deleted: the new search
    would appear with the trials of the old one. Nor do they expect a trial that has ended to be tried again.
    """

    STUDIES = sqlalchemy.text(
        "SELECT s.study_id, s.study_name, t.trial_id, t.datetime_start, a.value_json FROM studies s"
        " LEFT JOIN trials t ON t.study_id = s.study_id AND t.number = 0"
        f" LEFT JOIN study_user_attributes a ON a.study_id = s.study_id AND a.key = '{REVIVED}'"
    )

    def __init__(self, database: RDBStorage, build: Callable[[], WSGIApplication]) -> None:
        self._engine, self._build, self._lock = database.engine, build, threading.Lock()
        url = self._engine.url
        self._path = str(url.database) if url.get_backend_name() == "sqlite" else None
        self._file: tuple[int, int] | None = None
        self._studies: dict[int, tuple[Any, ...]] = {}
        self._app = build()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            with self._lock:
                self._renew()
        except (OSError, sqlalchemy.exc.SQLAlchemyError) as error:
            reason = f"the database cannot be read: {getattr(error, 'orig', None) or error}"
            return _say(environ, start_response, "503 Service Unavailable", reason)
        return self._app(environ, start_response)

    def _renew(self) -> None:
        known, file = self._studies, self._file
        if self._path is not None:
            stat = os.stat(self._path)  # fails where the file is gone: connecting would make an empty one
            self._file = stat.st_dev, stat.st_ino
            if file not in (None, self._file):
                self._engine.dispose()  # its connections still read the deleted file
        with self._engine.connect() as connection:
            self._studies = {row[0]: tuple(row[1:]) for row in connection.execute(self.STUDIES)}
        if any(self._studies.get(key) != study for key, study in known.items()):
            self._app = self._build()


class _Server(ThreadingMixIn, WSGIServer):
    """The standard library's server with a thread per request, so that a slow plot holds up no page."""

    daemon_threads = True
    allow_reuse_port = False
    allow_reuse_address = os.name == "posix"  # elsewhere it gives two servers the same port

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _QuietHandler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a closed browser tab is no news
            super().handle_error(request, client_address)


class _QuietHandler(WSGIRequestHandler):
    """Answers without a line per request: an open page asks every few seconds."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _listen(host: str, port: int) -> _Server:
    try:
        return _Server(host, port)
    except (OSError, OverflowError) as error:
        hint = str(error)
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            hint = "another program has this port; choose another with --port (0 takes any free one)"
        raise SearchError(f"cannot serve at {_in_url(host)}:{port}: {hint}") from error


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
