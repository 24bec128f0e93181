"""What every request passes before a route sees it: who asks, from where, and how much.

Nothing ambient opens the service: a token is needed on loopback too, the one cookie reads optuna-dashboard
and opens nothing else, and a browser's page of another origin may change nothing. What is allowed is listed;
all else is refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import re
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from starlette.requests import cookie_parser

from ..backends.remote.leases import FORM as LEASE
from . import metrics
from .problems import MEDIA_TYPE, Problem, problem, problem_of
from .tokens import FORM, Caller, InvalidToken
from .visits import HOURS, is_below

if TYPE_CHECKING:
    from .service import Service

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
READING = ("GET", "HEAD")
WITHOUT_TOKEN = ("/healthz", "/readyz", "/", "/client.py")  # exact: nothing that a path can end with
WITHOUT_TOKEN_BELOW = ("/static/", "/problems/")
WITHOUT_HOST = ("/healthz", "/readyz")  # a prober asks by address
BODY = 1 << 20  # bytes
BODIES: list[tuple[re.Pattern[str], int]] = [  # paths whose bodies may be larger
    (re.compile(r"/v1/bundles/[0-9a-f]{64}"), 64 << 20),
    (re.compile(r"/v1/leases/[^/]+/checkpoint"), 16 << 30),
]
MOST_HEADERS, HEADER_BYTES = 64, 16 << 10
TARGET_BYTES = 8 << 10
SILENCE = 30.0  # seconds between two parts of a body
FAILURES, WINDOW = 10, 60.0  # wrong tokens of an address, in seconds
ADDRESSES = 4096  # of which wrong tokens are counted
STREAMS = 64
PAGE = (
    "default-src 'none'; script-src 'self'{hashes}; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
CLOSED = "default-src 'none'; frame-ancestors 'none'; sandbox"
HARDENED = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": CLOSED,
}
access = logging.getLogger("hpsearch.access")


class _Refused(Exception):
    """The answer is given already: this ends what the application still sends."""


class Guard:
    """The application behind its guard, as ASGI."""

    def __init__(self, app: App, service: Service) -> None:
        self.app, self.service = app, service
        self.settings = service.settings
        self.failures: dict[str, deque[float]] = defaultdict(deque)
        self.streams = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await _Exchange(self, scope, receive, send).answer()

    def caller(self, request: _Request) -> Caller | None:
        """Who asks; None where the path needs nobody. Raises `Problem`."""
        if request.path in WITHOUT_TOKEN or request.path.startswith(WITHOUT_TOKEN_BELOW):
            return None
        given = request.all("authorization")
        if len(given) > 1:
            raise problem("malformed", "there is more than one Authorization header")
        ticket = parse_qs(request.query).get("ticket")
        if not given and ticket and request.method == "GET":
            if caller := self.service.tickets.take(ticket[0], request.path):
                return caller
            raise self._failed(request, "the link was used already, or has expired")
        if not given and is_below(request.path):
            return self._visitor(request)
        if not given:
            raise problem("token-missing", "send the header Authorization: Bearer hps_...")
        kind, _, text = given[0].partition(" ")
        if kind.lower() != "bearer":
            raise self._failed(request, "the header Authorization needs the form: Bearer hps_...")
        try:
            return self.service.tokens.verify(text.strip())
        except InvalidToken as error:
            raise self._failed(request, str(error)) from error

    def _visitor(self, request: _Request) -> Caller:
        """Who looks at optuna-dashboard with the cookie of a visit. Raises `Problem`."""
        cookies = cookie_parser("; ".join(request.all("cookie")))
        visitor = self.service.visits.reader(cookies.get(self.service.visits.cookie, ""))
        # Another port of this host is the same site, and its pages' requests come with the cookie.
        if visitor is None or request.one("sec-fetch-site") not in ("", "same-origin", "none"):
            told = f"open optuna-dashboard from the page: a visit ends after {HOURS} hours, or with its token"
            raise problem("token-missing", told, reason=told)  # which the dashboard shows
        return visitor

    def _failed(self, request: _Request, detail: str) -> Problem:
        """A wrong token; the eleventh in a minute from an address is told to wait.

        A right one passes all the same: else anybody at the same address could lock its owner out.
        """
        now = time.monotonic()
        if request.address not in self.failures and len(self.failures) >= ADDRESSES:
            del self.failures[next(iter(self.failures))]
        times = self.failures[request.address]
        while times and times[0] <= now - WINDOW:
            times.popleft()
        if len(times) >= FAILURES:
            wait = str(int(times[0] + WINDOW - now) + 1 + secrets.randbelow(5))
            told = f"{FAILURES} wrong tokens within a minute"
            return problem("too-many", told, headers={"Retry-After": wait})
        times.append(now)
        return problem("token-invalid", detail)


class _Request:
    """What the guard looks at of a request."""

    def __init__(self, scope: MutableMapping[str, Any], guard: Guard) -> None:
        self.method: str = scope["method"]
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.query = scope["query_string"].decode("latin-1")
        self.raw: bytes = scope.get("raw_path") or scope["path"].encode()
        self.path: str = scope["path"]
        base = guard.settings.base_path
        if base and (self.path == base or self.path.startswith(f"{base}/")):  # the proxy left it on
            self.path = self.path.removeprefix(base) or "/"
        client = scope.get("client")
        self.address = client[0] if client else "socket"
        self.host = self.one("host")
        self.secure = scope.get("scheme") == "https"
        if guard.settings.behind_proxy and _same_address(self.address, guard.settings.behind_proxy):
            forwarded = self.one("x-forwarded-for").rpartition(",")[2].strip()
            self.address = forwarded or self.address
            self.host = self.one("x-forwarded-host") or self.host

    def all(self, name: str) -> list[str]:
        """The values of a header."""
        return [value.decode("latin-1") for key, value in self.headers if key == name.encode()]

    def one(self, name: str) -> str:
        """The value of a header that comes once; empty where there is none. Raises `Problem` for two."""
        values = self.all(name)
        if len(values) > 1:
            raise problem("malformed", f"there is more than one {name} header")
        return values[0] if values else ""


def check(request: _Request, allow_hosts: Iterable[str], allow_origins: Iterable[str]) -> None:
    """Raise `Problem` for a request that is refused whoever sends it."""
    if len(request.headers) > MOST_HEADERS or sum(len(k) + len(v) for k, v in request.headers) > HEADER_BYTES:
        raise problem(
            "headers-too-large", f"{MOST_HEADERS} headers and {HEADER_BYTES >> 10} KiB of them are allowed"
        )
    if len(request.raw) + len(request.query) > TARGET_BYTES:
        raise problem("headers-too-large", f"a path and its parameters may have {TARGET_BYTES >> 10} KiB")
    if request.path not in WITHOUT_HOST and not is_allowed_host(request.host, allow_hosts):
        raise problem("host-refused", f"this server does not answer to the host {request.host!r}")
    if request.method not in METHODS:
        allowed = {"Allow": ", ".join(METHODS)}
        raise problem("method-not-allowed", f"there is no {request.method[:20]} here", headers=allowed)
    refuse_path(request.raw, request.path)
    if request.method not in READING:
        _refuse_foreign(request, allow_origins)
        if request.one("content-encoding") not in ("", "identity"):
            raise problem("media-type", "send the body without Content-Encoding")


def is_allowed_host(header: str, names: Iterable[str]) -> bool:
    """Whether a Host header, with or without a port, is a loopback address or one of these names.

    Names are compared as wholes: by patterns 10.example.org would be one of 10.*.
    """
    bare = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]/@?#\s]+)(?::[0-9]{1,5})?", header)
    if bare is None:
        return False
    name = bare[1].strip("[]").lower()
    known = {each.lower().strip("[]") for each in names}
    if name == "localhost" or name in known:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def refuse_path(raw: bytes, path: str) -> None:
    """Raise `Problem` for a path that two programs could read as two different ones."""
    if re.search(rb"%(00|2f|5c)", raw, re.IGNORECASE):
        raise problem("malformed", "a part of a path holds no slash, coded or not (~ID names any study)")
    if "\ufffd" in path or re.search(r"[\x00-\x1f\x7f\\]", path):
        raise problem("malformed", "the path has characters that no path has")
    if any(part in (".", "..") for part in path.split("/")) or "//" in path:
        raise problem("malformed", "the path has empty parts, or dots in place of names")


def _refuse_foreign(request: _Request, allowed: Iterable[str]) -> None:
    origin = request.one("origin")
    if origin:
        same = urlsplit(origin).netloc.lower() == request.host.lower() and "://" in origin
        if not same and origin.lower() not in {each.lower() for each in allowed}:
            raise problem("origin-refused", f"a page of {origin[:200]} may not change anything here")
    elif request.one("sec-fetch-site") not in ("", "same-origin", "none"):
        raise problem("origin-refused", "a page of another website may not change anything here")


def _same_address(one: str, other: str) -> bool:
    try:
        return ipaddress.ip_address(one) == ipaddress.ip_address(other)
    except ValueError:
        return one == other


class _Exchange:
    """One request and its answer."""

    def __init__(self, guard: Guard, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        self.guard, self.scope = guard, scope
        self._receive, self._send = receive, send
        self.id = f"req_{secrets.token_hex(6)}"
        self.began = time.monotonic()
        self.status = self.sent = self.received = 0
        self.limit = BODY
        self.streams = False
        self.done = False  # the whole body has come
        self.over = False  # the answer was given in the application's place
        self.caller: Caller | None = None
        self.origin: str | None = None
        self.request: _Request | None = None
        self.refusal: Problem | None = None  # of its body

    async def answer(self) -> None:
        """Refuse the request, or let the application answer; then write it down."""
        try:
            await self._let_in()
        except Problem as refusal:
            await self._refuse(refusal)
        except OSError as error:  # the tokens cannot be read
            await self._refuse(problem_of(error))
        except Exception as error:
            if not self.over:
                if self.status:  # it broke off in the middle
                    raise
                logging.getLogger("hpsearch.service").error("%s %r", self.id, error)
                await self._refuse(problem_of(error))
        finally:
            if self.streams:
                self.guard.streams -= 1
            self._log()

    async def _let_in(self) -> None:
        settings = self.guard.settings
        self.request = request = _Request(self.scope, self.guard)
        origin = request.one("origin")
        if origin and origin.lower() in {each.lower() for each in settings.allow_origins}:
            self.origin = origin
            if request.method == "OPTIONS":
                return await self._preflight()
        check(request, settings.allow_hosts, settings.allow_origins)
        self.limit = next((most for pattern, most in BODIES if pattern.fullmatch(request.path)), BODY)
        length = request.one("content-length")
        if length and (not length.isdecimal() or int(length) > self.limit):
            raise self._too_large()
        # Reads a file where the tokens have changed, which is soon done.
        self.caller = self.guard.caller(request)
        scope = dict(self.scope) | {"path": request.path, "root_path": ""}
        scope["state"] = dict(scope.get("state") or {}) | {"caller": self.caller, "id": self.id}
        await self.guard.app(scope, self.receive, self.send)

    async def receive(self) -> Message:
        """The next part of the body, which may be neither too long nor too slow."""
        if self.done:  # now it says when the client leaves, which may last
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), SILENCE)
        except TimeoutError:
            self.refusal = problem("slow-request", f"nothing came for {SILENCE:.0f} s")
            raise self.refusal from None
        if message["type"] == "http.request":
            self.received += len(message.get("body", b""))
            self.done = not message.get("more_body", False)
            if self.received > self.limit:
                self.refusal = self._too_large()
                raise self.refusal
        return message

    async def send(self, message: Message) -> None:
        """Pass on a part of the answer, with the headers that all have; a 65th stream is refused."""
        if self.over:
            raise _Refused
        if message["type"] == "http.response.start":
            if self.refusal is not None:  # which the application took for a body that it cannot parse
                await self._refuse(self.refusal)
                self.over = True
                raise _Refused
            kind = dict(message["headers"]).get(b"content-type", b"")
            if kind.startswith(b"text/event-stream"):
                if self.guard.streams >= STREAMS:
                    detail = f"{STREAMS} streams are open already; close a tab, or poll by ?wait="
                    await self._refuse(problem("too-many", detail))
                    self.over = True
                    raise _Refused
                self.streams = True
                self.guard.streams += 1
            self.status = message["status"]
            message["headers"] = self._hardened(message["headers"])
        else:
            self.sent += len(message.get("body", b""))
        await self._send(message)

    def _hardened(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        kept = list(headers)
        names = {name.lower() for name, _ in kept}
        kept += [
            (name.encode(), value.encode())
            for name, value in (HARDENED | {"X-Request-Id": self.id} | self._cors()).items()
            if name.lower().encode() not in names
        ]
        return kept

    def _cors(self) -> dict[str, str]:
        if self.origin is None:
            return {}
        exposed = "ETag, Link, Location, Retry-After, X-Request-Id"
        return {
            "Access-Control-Allow-Origin": self.origin,
            "Access-Control-Expose-Headers": exposed,
            "Cross-Origin-Resource-Policy": "cross-origin",
            "Vary": "Origin",
        }

    async def _preflight(self) -> None:
        """Tell a browser what an allowed page may send. It never sends a token with this."""
        headers = {
            "Access-Control-Allow-Methods": ", ".join(METHODS),
            "Access-Control-Allow-Headers": "Authorization, Content-Type, If-Match, If-None-Match, "
            "Idempotency-Key, Last-Event-ID, Range",
            "Access-Control-Max-Age": "600",
        }
        await self.send({"type": "http.response.start", "status": 204, "headers": _encoded(headers)})
        await self.send({"type": "http.response.body", "body": b""})

    async def _refuse(self, refusal: Problem) -> None:
        if self.status:
            return
        self.status = refusal.status
        body = refusal.body(self.id, self.guard.settings.base_path)
        headers = {"content-type": MEDIA_TYPE, "content-length": str(len(body))} | refusal.headers
        bodies = (b"content-length", b"transfer-encoding")
        if not self.done and any(name in bodies for name, _ in self.scope["headers"]):
            headers["connection"] = "close"  # the rest of the body is not read
        self.sent = len(body)
        with suppress(OSError):  # the client has left
            hardened = self._hardened(_encoded(headers))
            await self._send({"type": "http.response.start", "status": refusal.status, "headers": hardened})
            head = self.scope["method"] == "HEAD"
            await self._send({"type": "http.response.body", "body": b"" if head else body})

    def _too_large(self) -> Problem:
        told = f"{self.limit >> 20} MiB" if self.limit < 1 << 30 else f"{self.limit >> 30} GiB"
        return problem("too-large", f"a body here may have {told}", limit=self.limit)

    def _log(self) -> None:
        """Write the request down, without its query and its headers: these hold secrets."""
        seconds = time.monotonic() - self.began
        method = self.scope["method"] if self.scope["method"] in METHODS else "other"
        metrics.count_request(method, self.status, seconds)
        request, caller = self.request, self.caller
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "id": self.id,
            "from": request.address[:100] if request else None,
            "by": caller.name if caller else None,
            "method": method,
            "path": _without_secrets(request.path[:1000]) if request else None,
            "status": self.status,
            "seconds": round(seconds, 4),
            "received": self.received,
            "sent": self.sent,
        }
        access.info(json.dumps(line))


def _without_secrets(path: str) -> str:
    """A path with the study and trial of a lease, but not what opens it."""
    return LEASE.sub(r"\1-\2-***", FORM.sub("hps_***", path))


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
