"""The way to a server: requests that are repeated where that is harmless, and answers that are looked at."""

from __future__ import annotations

import json
import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib import metadata
from typing import Any
from urllib.parse import quote, urlsplit

from ...errors import SearchError, UsageError
from ..known import Place, address, is_loopback
from .problems import ServerUnavailable, error_of

try:
    import httpx2
except ModuleNotFoundError as error:
    raise SearchError(
        "a server is reached with httpx2, which is not installed: pip install 'hpsearch[serve]'", code="extra"
    ) from error

HARMLESS = ("GET", "HEAD", "PUT", "PATCH", "DELETE")  # to repeat; a POST is so with an Idempotency-Key
TRIES = 5
WAIT_SECONDS = 0.25  # before the second try; twice as long before each further one
LONGEST_WAIT = 20.0  # that a server may ask for before the next try
BUSY = (429, 502, 503, 504)  # answers after which another try may be answered
SECONDS = 60.0  # for an answer, beside those that it was asked to wait
HEAD_PROBLEMS = {
    401: ("token-invalid", "the server does not know the token"),
    403: ("scope-missing", "the token may not do this"),
}
MOST_BYTES = 256 * 2**20  # of an answer that is read as a whole
CHUNK = 2**16


class Connection:
    """A server's address, and the token that it takes."""

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        uds: str | None = None,
        transport: Any = None,
        find: Callable[[], Place] | None = None,
    ) -> None:
        """`find`: finds the server again, which may have been started anew with another address or token."""
        self.url, self.token, self._reached = address(url), token, False
        self._find = find
        host = urlsplit(self.url).hostname or ""
        if transport is None and uds is not None:
            transport = httpx2.HTTPTransport(uds=uds)
        secure = self.url.startswith("https:")
        self._client = httpx2.Client(
            base_url=self.url,
            headers=_headers(token),
            timeout=httpx2.Timeout(SECONDS, connect=10.0),
            transport=transport,
            trust_env=not (uds or is_loopback(host)),  # no proxy leads to this machine
            verify=ssl.create_default_context() if secure else False,  # which takes a moment to make
            follow_redirects=False,  # the token is for this server alone
        )

    def close(self) -> None:
        """Close its sockets."""
        self._client.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait: float = 0.0,
        file: str | None = None,
    ) -> tuple[Any, httpx2.Response]:
        """What the server answers, as plain data, and the answer itself; None where it has no body.

        Raises the error that the server's operation has raised, and `ServerUnavailable`.
        """
        headers = dict(headers or {})
        if body is not None:
            content = json.dumps(body, allow_nan=False).encode()
            headers["Content-Type"] = "application/json"
        harmless = method in HARMLESS or "Idempotency-Key" in headers
        request = partial(
            self._client.stream,
            method,
            path,
            params=_parameters(query),
            content=content,
            headers=headers,
            timeout=httpx2.Timeout(SECONDS + wait, connect=10.0),
        )
        left = TRIES - 1
        while True:
            asked = self.url, self.token
            try:
                with request() as answer:
                    self._reached = True
                    data = self._read(answer)
                    if answer.status_code == 401 and self._is_found_anew(*asked):
                        continue  # whatever tries are left: the server has just started
                    if answer.status_code not in BUSY or not left or not (harmless or _is_untouched(answer)):
                        return self._checked(answer, data, file), answer
                    pause = _pause(answer, TRIES - left)
            except httpx2.ConnectError as error:  # nothing was sent
                if not left or not self._reached:
                    raise self._unavailable(error) from None
                if self._is_found_anew(*asked):
                    continue
                pause = _pause(None, TRIES - left)
            except (httpx2.RequestError, ssl.SSLError) as error:
                if not left or not harmless:
                    raise self._unavailable(error) from None
                pause = _pause(None, TRIES - left)
            left -= 1
            time.sleep(pause)

    @contextmanager
    def stream(
        self, path: str, *, query: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[httpx2.Response]:
        """An answer that is read as it comes. Raises as `call` does; nothing is repeated."""
        quiet = httpx2.Timeout(SECONDS, connect=10.0)
        asked = self.url, self.token
        try:
            with self._client.stream(
                "GET", path, params=_parameters(query), headers=dict(headers or {}), timeout=quiet
            ) as answer:
                self._reached = True
                if answer.status_code == 401 and self._is_found_anew(*asked):
                    raise ServerUnavailable(f"the server at {self.url} was started anew")
                if answer.status_code not in (200, 206):
                    self._checked(answer, self._read(answer), None)
                yield answer
        except (httpx2.RequestError, ssl.SSLError) as error:
            self._is_found_anew(*asked)
            raise self._unavailable(error) from None

    def _is_found_anew(self, url: str, token: str | None) -> bool:
        """Whether the server has another address or token than these now; they are taken over.

        Another thread may have done so.
        """
        place = None
        with suppress(SearchError):  # none of this user's lives, for now
            place = None if self._find is None else self._find()
        if place is not None and place.uds is None and (place.url, place.token) != (self.url, self.token):
            self.url, self.token = place.url, place.token
            self._client.base_url = place.url
            self._client.headers.update(_headers(place.token))
        return (self.url, self.token) != (url, token)

    def _read(self, answer: httpx2.Response) -> bytes:
        parts, size = [], 0
        for part in answer.iter_bytes(CHUNK):
            size += len(part)
            if size > MOST_BYTES:
                raise SearchError(
                    f"the answer of {self.url} is larger than {MOST_BYTES >> 20} MiB; ask for less of it",
                    code="answer-too-large",
                )
            parts.append(part)
        return b"".join(parts)

    def _checked(self, answer: httpx2.Response, data: bytes, file: str | None) -> Any:
        """The data of an answer that is one of ours, and tells of no problem."""
        status, kind = answer.status_code, answer.headers.get("content-type", "").partition(";")[0]
        if status in (204, 304) or (answer.request.method == "HEAD" and status in (200, 404)):
            return None
        if 300 <= status < 400:
            there = answer.headers.get("location", "elsewhere")[:200]
            raise UsageError(f"{self.url} leads to {there}: name that address", code="server-moved")
        if answer.request.method == "HEAD" and status in HEAD_PROBLEMS:  # whose document does not come along
            type, title = HEAD_PROBLEMS[status]
            raise error_of(status, {"type": type, "title": title})
        if kind not in ("application/json", "application/problem+json"):
            if status < 400 and kind:
                return data
            raise self._no_server(status, kind)
        try:
            content = json.loads(data)
        except (ValueError, RecursionError):
            raise self._no_server(status, kind) from None
        if status < 400:
            return content
        if not isinstance(content, dict) or "type" not in content:
            raise self._no_server(status, kind)
        if str(content["type"]).endswith(("/not-found", "/method-not-allowed")):
            asked = f"{answer.request.method} {answer.request.url.path}"
            raise SearchError(
                f"the server at {self.url} has no {asked}: it is of another version than this hpsearch "
                f"({metadata.version('hpsearch')})",
                code="server-version",
            )
        raise error_of(status, content, file)

    def _no_server(self, status: int, kind: str) -> SearchError:
        found = f"status {status}, {kind or 'no content'}"
        if status >= 500:
            return ServerUnavailable(f"{self.url} does not work now ({found})")
        return UsageError(
            f"{self.url} is no server of hpsearch, or something is between ({found})", code="no-server"
        )

    def _unavailable(self, error: Exception) -> ServerUnavailable:
        reason = str(error) or type(error).__name__
        if isinstance(error, httpx2.TimeoutException):
            reason = "it does not answer in time"
        elif "CERTIFICATE_VERIFY_FAILED" in reason:
            reason = f"its certificate is not trusted here ({reason}); SSL_CERT_FILE names further ones"
        elif isinstance(error, httpx2.ConnectError) and "refused" in reason:
            reason = "nothing listens there; hpsearch serve starts a server"
        return ServerUnavailable(f"cannot reach the server at {self.url}: {reason}")


def part(name: str | int) -> str:
    """A name as a part of a path; dots alone would be taken for folders."""
    coded = quote(str(name), safe="")
    return coded.replace(".", "%2E") if set(coded) == {"."} else coded


def _headers(token: str | None) -> dict[str, str]:
    headers = {"User-Agent": f"hpsearch/{metadata.version('hpsearch')}"}
    headers["Accept"] = "application/json, */*;q=0.5"
    if token is not None:
        if not token.isascii() or not token.isprintable() or " " in token:
            raise UsageError("the token has characters that no token has", code="token-invalid")
        headers["Authorization"] = f"Bearer {token}"
    return headers


def _parameters(query: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parameters that are given; a bool as the server reads it."""
    given = {name: value for name, value in (query or {}).items() if value is not None}
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}


def _is_untouched(answer: httpx2.Response) -> bool:
    """Whether a server says that it has not begun what it was asked."""
    return answer.status_code == 429 or (answer.status_code == 503 and "retry-after" in answer.headers)


def _pause(answer: httpx2.Response | None, tried: int) -> float:
    """Seconds before the next try, with jitter, and not before the server asks for it."""
    asked = 0.0
    if answer is not None:
        with suppress(ValueError):
            asked = float(answer.headers.get("retry-after", "0"))
    own: float = WAIT_SECONDS * 2 ** (tried - 1)
    return max(min(asked, LONGEST_WAIT), own) * random.uniform(1.0, 1.5)
