"""Serves until Ctrl-C or SIGTERM: the sockets, who may reach them, and where programs find the server."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import logging
import os
import secrets
import signal
import socket
import ssl
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from logging.handlers import RotatingFileHandler
from pathlib import Path

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...storage.workspace import Workspace
from ..errors import SearchError, UsageError, why
from .app import make_app
from .guard import HARDENED, HEADER_BYTES, access
from .home import Home, Settings
from .known import database_of
from .problems import MEDIA_TYPE, problem
from .service import Service

HEADER_SECONDS = 10.0  # from the first byte of a request, or from connecting, to the end of its headers
KEPT_ALIVE = 30  # seconds between two requests of a connection
LAST_SECONDS = 5  # for answers on their way when the server ends
CONNECTIONS = 1000
LOG_BYTES, LOGS = 10 << 20, 3


@dataclass(frozen=True)
class Address:
    """Where a server listens: a host and a port, or a Unix socket."""

    host: str = "127.0.0.1"
    port: int = 8765
    uds: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_private(self) -> bool:
        """Whether only this machine reaches it."""
        if self.uds is not None or self.host == "localhost":
            return True
        with suppress(ValueError):
            return ip_address(self.host).is_loopback
        return False


def serve(
    workspace: Workspace,
    *,
    home: Home,
    settings: Settings,
    address: Address,
    log: Path | None = None,
    announce: Callable[[str], None],
    opened: Callable[[str], object] | None = None,
) -> None:
    """Serve a workspace until Ctrl-C or SIGTERM, then return.

    `announce` is told the link once the server listens, and `opened` may open it in a browser. Raises
    `UsageError` for an address that is not to be served without TLS, and `SearchError` where it cannot be
    had, or another server has this home.
    """
    _refuse_open(address, settings)
    with ExitStack() as ending:
        if not ending.enter_context(home.locked("serve")):
            raise SearchError(_taken(home), code="home-taken")
        bound, port = ending.enter_context(_listening(address))
        if workspace.file is not None:  # drivers start in other folders
            workspace = Workspace.at(str(workspace.file.absolute()), workspace.runs.absolute())
        service = Service.at(workspace, home, settings)
        ending.enter_context(logging_to(home.log if log is None else log, announce))
        token = service.tokens.mint("owner", "admin")
        config = uvicorn.Config(
            make_app(service),
            http=_Patient,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=KEPT_ALIVE,
            timeout_graceful_shutdown=LAST_SECONDS,
            h11_max_incomplete_event_size=2 * HEADER_BYTES,
            ssl_certfile=address.certificate,
            ssl_keyfile=address.key,
        )
        _load(config, address)
        url = _url(address, port)
        service.url = _public_url(address, port, settings)
        link_file = home.link_file(port if address.uds is None else "uds")
        link = {
            "url": url,
            "uds": None if address.uds is None else str(address.uds.absolute()),
            "token": token,
            "pid": os.getpid(),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "storage": database_of(workspace),
        }
        home.write(link_file, json.dumps(link) + "\n")
        ending.callback(link_file.unlink, missing_ok=True)
        where = f"{url}/#token={token}" if address.uds is None else f"the socket {address.uds}"
        announce(f"serving {workspace.file or 'the database'} at {where} (Ctrl-C ends it)")
        file = home.settings_file
        announce(f"settings: {file}" + ("" if file.exists() else ", which is not there; the defaults hold"))
        if service.queue.draining:
            announce('it is drained, and starts nothing until POST /v1/drain says {"on": false}')
        if workspace.file is not None and not service.queue.has_queue():
            announce("another server has this database, and starts its studies; this one does once that ends")
        if opened is not None and address.uds is None:
            opened(f"{url}/#token={token}")
        server = _Server(config, service)
        with suppress(KeyboardInterrupt):
            asyncio.run(server.serve(sockets=[bound]))
        if not server.started:
            raise SearchError("the server could not start; its log says why", code="failed")


def _refuse_open(address: Address, settings: Settings) -> None:
    """Raise `UsageError` where tokens would cross a network in the clear."""
    if (address.certificate is None) != (address.key is None):
        raise UsageError("TLS needs both a certificate and its key", code="tls")
    if address.is_private or address.certificate is not None or settings.behind_proxy is not None:
        return
    raise UsageError(
        f"at {address.host} others on the network would read the tokens: give a certificate and its "
        "key, or name the proxy that ends TLS, or stay at 127.0.0.1 and let others come by ssh",
        code="open-address",
    )


def _taken(home: Home) -> str:
    there = next(iter(home.links()), None)
    who = f" (process {there['pid']}, {there['url']})" if there else ""
    return (
        f"another server{who} uses {home.folder}: end that one, or give this one a folder of its own by "
        "HPSEARCH_HOME"
    )


@contextmanager
def _listening(address: Address) -> Iterator[tuple[socket.socket, int]]:
    """The socket of a server and its port. Raises `SearchError` where it cannot be had."""
    if address.uds is not None:
        with _socket_file(address.uds) as bound:
            yield bound, 0
        return
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # With the protocol said, asyncio sends answers at once (TCP_NODELAY); without, each waits 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address.host, address.port))
        bound.listen(512)
    except (OSError, OverflowError) as error:
        bound.close()
        told = why(error) if isinstance(error, OSError) else str(error)
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            told = "another program has this port"
        raise SearchError(
            f"cannot serve at {_in_url(address.host)}:{address.port}: {told}", code="address-taken"
        ) from error
    with bound:
        yield bound, bound.getsockname()[1]


@contextmanager
def _socket_file(path: Path) -> Iterator[socket.socket]:
    """A Unix socket that only this user opens. One that a dead server left is replaced."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    own = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.is_symlink() or path.exists():
            if not stat.S_ISSOCK(path.lstat().st_mode):
                raise SearchError(f"{path} is there already, and is no socket; choose another path")
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other, suppress(OSError):
                other.connect(str(path))
                raise SearchError(f"another server listens at {path}", code="address-taken")
        before = os.umask(0o177)
        try:
            bound.bind(str(own))
        finally:
            os.umask(before)
        own.rename(path)
        bound.listen(512)
    except OSError as error:
        bound.close()
        own.unlink(missing_ok=True)
        raise SearchError(f"cannot serve at {path}: {why(error)}", code="address-taken") from error
    except SearchError:
        bound.close()
        raise
    try:
        yield bound
    finally:
        bound.close()
        path.unlink(missing_ok=True)


def _load(config: uvicorn.Config, address: Address) -> None:
    """Read the certificate. Raises `UsageError` where it is none."""
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"cannot use {address.certificate} and {address.key}: {error}") from error


def _url(address: Address, port: int) -> str:
    if address.uds is not None:
        return "http://localhost"
    host = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(address.host, address.host)
    return f"http{'s' * (address.certificate is not None)}://{_in_url(host)}:{port}"


def _public_url(address: Address, port: int, settings: Settings) -> str | None:
    """Where people reach the server; None over a Unix socket that no proxy is known to lead to."""
    if settings.behind_proxy is not None and settings.allow_hosts:
        return f"https://{_in_url(settings.allow_hosts[0])}"
    return None if address.uds is not None else _url(address, port)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _LogFile(RotatingFileHandler):
    """A log whose disk may be full: that is told once, until a line can be written again."""

    def __init__(self, log: Path, tell: Callable[[str], None]) -> None:
        super().__init__(log, maxBytes=LOG_BYTES, backupCount=LOGS, encoding="utf-8")
        self._tell = tell
        self._fails = False

    def _open(self) -> io.TextIOWrapper:
        """The file, at the start of a line: the last one may have been written in part."""
        stream = super()._open()
        if os.fstat(stream.fileno()).st_size:
            with open(self.baseFilename, "rb") as written:
                written.seek(-1, os.SEEK_END)
                stream.write("\n" * (written.read() != b"\n"))
        return stream

    def flush(self) -> None:
        """Called after each line."""
        super().flush()
        if self.stream is not None:
            self._fails = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Let the line go, and open the file anew for the next one."""
        error = sys.exception()
        stream, self.stream = self.stream, None
        if stream is not None:
            with suppress(OSError):  # what it could not write fails once more
                stream.close()
        if not self._fails:
            self._fails = True
            told = why(error) if isinstance(error, OSError) else repr(error)
            self._tell(f"cannot write {self.baseFilename}: {told}; requests are not logged until it works")


@contextmanager
def logging_to(log: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Write requests to a file that only this user reads; `-` is standard error."""
    handler: logging.Handler
    if str(log) == "-":
        handler = logging.StreamHandler()
    else:
        try:
            os.close(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
            handler = _LogFile(log, tell)
        except OSError as error:
            raise SearchError(f"cannot write the log: {why(error)}") from error
    loggers = [access, logging.getLogger("hpsearch.service"), logging.getLogger("uvicorn")]
    before = [(logger, logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(logging.WARNING if logger.name == "uvicorn" else logging.INFO)
    try:
        yield
    finally:
        for logger, level, propagate in before:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
        handler.close()


class _Server(uvicorn.Server):
    """Ends by Ctrl-C and SIGTERM as it should, where uvicorn's own then dies of the signal."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.leave()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [signal.SIGINT, signal.SIGTERM]
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Patient(H11Protocol):
    """Closes connections whose headers do not come in time, which uvicorn waits for without end.

    What is no HTTP is answered with a problem document, as all else.
    """

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        cycle = self.cycle
        super().data_received(data)
        if self.cycle is not cycle:  # the headers are complete
            self._no_more()
        elif self._waiting is None and (cycle is None or cycle.response_complete):
            self._expect()  # a further request has begun

    def connection_lost(self, exc: Exception | None) -> None:
        self._no_more()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        error = sys.exception()  # which h11 has raised
        refusal = problem("malformed", str(error or msg))
        body = refusal.body(f"req_{secrets.token_hex(6)}")
        about = HARDENED | {
            "Content-Type": MEDIA_TYPE,
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        headers = [(name.lower().encode(), value.encode()) for name, value in about.items()]
        for event in (
            h11.Response(status_code=refusal.status, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _expect(self) -> None:
        self._waiting = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if not self.transport.is_closing():
            self.transport.abort()
