"""Hostile requests: whatever comes, nothing is let in, and nothing is said with a traceback."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.search.backends.remote.leases import new_token
from hpsearch.search.service.guard import (
    ADDRESSES,
    BODY,
    FAILURES,
    STREAMS,
    Guard,
    access,
    is_allowed_host,
    refuse_path,
)
from hpsearch.search.service.home import Home, Settings
from hpsearch.search.service.problems import Problem
from hpsearch.search.service.service import Service
from hpsearch.storage.workspace import Workspace

from ...support.serving import Callers, callers

ORIGIN = "https://pages.example.org"


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callers]:
    folder = tmp_path_factory.mktemp("guarded")
    settings = Settings(allow_hosts=("lab.example.org",), allow_origins=(ORIGIN,))
    with callers(Workspace.at(str(folder / "studies.db")), folder / "home", settings) as found:
        yield found


HOSTS = {
    "localhost": True, "LOCALHOST:8765": True, "127.0.0.1": True, "127.0.0.1:1": True, "127.9.9.9": True,
    "[::1]": True, "[::1]:8765": True, "lab.example.org": True, "Lab.Example.org:443": True,
    "": False, "example.org": False, "10.example.org": False, "127.example.org": False, "127.0.0.1.nip.io": False,
    "localhost.example.org": False, "xlocalhost": False, "lab.example.org.": False, "sub.lab.example.org": False,
    "lab.example.org@evil.org": False, "evil.org#lab.example.org": False, "lab.example.org/": False,
    "0.0.0.0": False, "[::]": False, "169.254.169.254": False, "10.0.0.1": False, "localhost:": False,
    "localhost:80:80": False, "localhost:99999999": False, "::1": False, "127.1": False, "2130706433": False,
    "localhost, example.org": False, " localhost": False, "[::ffff:10.0.0.1]": False, "[::1%25eth0]": False,
}  # fmt: skip


def test_a_host_is_compared_as_a_whole(subtests: pytest.Subtests) -> None:
    for host, allowed in HOSTS.items():
        with subtests.test(host):
            assert is_allowed_host(host, ["lab.example.org"]) == allowed


@given(st.text(max_size=40))
def test_no_other_host_is_allowed(host: str) -> None:
    name = host.lower().partition(":")[0]
    if is_allowed_host(host, ["lab.example.org"]):
        assert name in ("localhost", "lab.example.org") or name.startswith("127.") or "::1" in host


def test_a_foreign_host_is_told_nothing(call: Callers) -> None:
    for path in ("/v1", "/", "/problems/too-many", "/healthz/../v1", "/healthzz"):
        answer = call("GET", path, headers={"Host": "10.example.org"})
        assert answer.status_code in (421, 404), path
        assert answer.status_code == 421 or path == "/healthz/../v1"
    assert call("GET", "/healthz", None, headers={"Host": "10.example.org"}).status_code == 204
    assert call("GET", "/v1", headers={"Host": "lab.example.org:9"}).status_code == 200


def test_a_page_of_another_website_changes_nothing(call: Callers, subtests: pytest.Subtests) -> None:
    refused = [
        {"Origin": "https://evil.example.org"}, {"Origin": "null"}, {"Origin": "http://localhost.evil.org"},
        {"Origin": "localhost"}, {"Origin": "http://localhost:1"}, {"Origin": "http://user@localhost"},
        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example.org", "Sec-Fetch-Site": "same-origin"},
    ]  # fmt: skip
    passing = [{}, {"Origin": "http://localhost"}, {"Origin": ORIGIN}, {"Sec-Fetch-Site": "same-origin"}]
    for status, all_headers in ((403, refused), (201, passing)):
        for headers in all_headers:
            with subtests.test(str(headers)):
                answer = call("POST", "/v1/tickets", json={"path": "/v1"}, headers=headers)
                assert answer.status_code == status
    answer = call("GET", "/v1", headers={"Origin": "https://evil.example.org"})
    assert "access-control-allow-origin" not in answer.headers
    asked = {"Access-Control-Request-Method": "DELETE"}
    assert call("OPTIONS", "/v1", None, headers={"Origin": "https://evil.org"} | asked).status_code == 405
    preflight = call("OPTIONS", "/v1", None, headers={"Origin": ORIGIN} | asked)
    assert preflight.headers["access-control-allow-origin"] == ORIGIN
    assert "access-control-allow-credentials" not in preflight.headers


def test_only_listed_methods_exist(call: Callers) -> None:
    for method in ("OPTIONS", "TRACE", "CONNECT", "PROPFIND", "DELETEX"):
        answer = call(method, "/v1")
        assert (answer.status_code, answer.json()["type"]) == (405, "/problems/method-not-allowed")
        assert "GET" in answer.headers["allow"]


PATHS: list[tuple[bytes, str]] = [
    (b"/v1/studies/%2e%2e/%2e%2e/etc/passwd", "/v1/studies/../../etc/passwd"), (b"/v1/..", "/v1/.."),
    (b"/v1/studies/a%00b", "/v1/studies/a\0b"), (b"/v1/studies/a%2Fpause", "/v1/studies/a/pause"),
    (b"/v1/studies/a%5c..", "/v1/studies/a\\.."), (b"//v1", "//v1"), (b"/v1/./studies", "/v1/./studies"),
    (b"/v1/%ff", "/v1/\ufffd"), (b"/v1/a%0d%0aX: y", "/v1/a\r\nX: y"),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "path"), PATHS)
def test_a_path_that_can_be_read_in_two_ways_is_refused(raw: bytes, path: str) -> None:
    with pytest.raises(Problem) as caught:
        refuse_path(raw, path)
    assert caught.value.status == 400


def test_names_in_any_script_are_paths() -> None:
    refuse_path("/v1/studies/探索%20a".encode(), "/v1/studies/探索 a")
    refuse_path(b"/v1/studies/a..b", "/v1/studies/a..b")


def test_wrong_tokens_wait_and_right_ones_pass(call: Callers) -> None:
    good = call.tokens["read"]
    wrong = [
        good[:-1] + ("A" if good[-1] != "A" else "B"), good[:12], f"{good} ", "x" * 5000, "hps_", "", good.upper(),
        f"hps_{'0' * 8}_{'A' * 43}",
    ]  # fmt: skip
    headers = [{"Authorization": f"Bearer {text}x"} for text in wrong]
    headers += [{"Authorization": good}, {"Authorization": f"Basic {good}"}, {"Authorization": "Bearer"}]
    answers = [call("GET", "/v1", None, headers=each) for each in headers]
    assert [answer.status_code for answer in answers] == [401] * FAILURES + [429]
    assert all(answer.headers["www-authenticate"] == "Bearer" for answer in answers[:-1])
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert call("GET", "/v1", "read").status_code == 200
    assert call("GET", "/v1", None).status_code == 401, "no token is no attempt"
    assert call("GET", f"/v1?token={good}", None).status_code == 401, "a token stands in no address"
    doubled = [("Authorization", f"Bearer {good}"), ("Authorization", f"Bearer {good}")]
    assert call.client.get("/v1", headers=doubled).status_code == 400


def test_large_bodies_and_headers_are_refused(call: Callers) -> None:
    large = call("POST", "/v1/spaces/validate", content=b" " * (BODY + 1))
    assert (large.status_code, large.json()["limit"]) == (413, BODY)
    chunked = call("POST", "/v1/spaces/validate", content=iter([b" " * 65536] * 17))
    assert chunked.status_code == 413
    zipped = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    assert call("POST", "/v1/spaces/validate", content=b"\x1f\x8b", headers=zipped).status_code == 415
    many = {f"X-{number}": "a" for number in range(70)}
    assert call("GET", "/v1", headers=many).status_code == 431
    assert call("GET", "/v1", headers={"X-Long": "a" * 20_000}).status_code == 431


def test_what_is_written_down_holds_no_secret(call: Callers, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", access.name):
        call("GET", f"/v1/studies?ticket={call.tokens['read']}")
        call("GET", f"/v1/{call.tokens['read']}", None)
        call("PUT", "/v1", json={"password": "secret"})
        call("POST", f"/v1/leases/{(lease := new_token('0' * 16, 7))}/beat")
    assert len(caplog.records) == 4
    assert lease not in caplog.text and f"/v1/leases/{'0' * 16}-7-***/beat" in caplog.text
    assert "secret" not in caplog.text and '"by": "admin"' in caplog.text
    assert call.tokens["read"] not in caplog.text


def test_a_proxy_is_believed_by_its_address(tmp_path: Path) -> None:
    settings = Settings(allow_hosts=("lab.org",), behind_proxy="127.0.0.1", base_path="/hp")
    with callers(Workspace.at(str(tmp_path / "studies.db")), tmp_path / "home", settings) as call:
        headers = {"X-Forwarded-Host": "lab.org", "X-Forwarded-For": "6.6.6.6, 7.7.7.7", "Host": "inner"}
        assert call("GET", "/v1", headers=headers).status_code == 200
        assert call("GET", "/hp/v1", headers=headers).status_code == 200
        assert call("GET", "/hpx/v1", headers=headers).status_code == 404
        assert call("GET", "/hp/v1", None, headers=headers).json()["type"] == "/hp/problems/token-missing"
        origin = headers | {"Origin": "https://lab.org"}
        assert call("POST", "/hp/v1/tickets", json={"path": "/v1"}, headers=origin).status_code == 201
        guard = _guard_of(call.client.app)
        call("GET", "/v1", None, headers=headers | {"Authorization": "Bearer x"})
        assert list(guard.failures) == ["7.7.7.7"]
        for number in range(ADDRESSES + 10):
            guard.failures[str(number)].append(0.0) if len(guard.failures) < ADDRESSES else None
        call(
            "GET", "/v1", None, headers=headers | {"X-Forwarded-For": "8.8.8.8", "Authorization": "Bearer x"}
        )
        assert len(guard.failures) == ADDRESSES


def _guard_of(app: Any) -> Guard:
    layer = app.middleware_stack
    while not isinstance(layer, Guard):
        layer = layer.app
    return layer


def test_a_65th_stream_is_refused_and_a_closed_one_makes_room(tmp_path: Path) -> None:
    service = Service.at(Workspace.at(str(tmp_path / "studies.db")), Home.at(tmp_path / "home"), Settings())
    token = service.tokens.mint("test", "read")
    app = FastAPI()

    @app.get("/v1/events")
    async def events() -> StreamingResponse:
        async def forever() -> Any:
            while True:
                yield b": still here\n\n"
                await asyncio.sleep(0.01)

        return StreamingResponse(forever(), media_type="text/event-stream")

    guard = Guard(app, service)

    async def stream(statuses: list[int], leave: asyncio.Event) -> None:
        async def receive() -> dict[str, Any]:
            if not asked:
                asked.append(True)
                return {"type": "http.request", "body": b"", "more_body": False}
            await leave.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        asked: list[bool] = []
        scope = {
            "type": "http", "method": "GET", "path": "/v1/events", "raw_path": b"/v1/events", "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())],
            "client": ("127.0.0.1", 1), "scheme": "http", "asgi": {"spec_version": "2.3"},
        }  # fmt: skip
        await guard(scope, receive, send)

    async def scene() -> None:
        statuses: list[int] = []
        leave, later = asyncio.Event(), asyncio.Event()
        open_ones = [asyncio.create_task(stream(statuses, leave)) for _ in range(STREAMS)]
        while len(statuses) < STREAMS:
            await asyncio.sleep(0)
        await asyncio.gather(*(stream(statuses, leave) for _ in range(200 - STREAMS)))
        assert statuses == [200] * STREAMS + [429] * (200 - STREAMS)
        leave.set()
        await asyncio.gather(*open_ones)
        assert guard.streams == 0
        one_more = asyncio.create_task(stream(statuses, later))
        while len(statuses) < 201:
            await asyncio.sleep(0)
        assert statuses[-1] == 200
        later.set()
        await one_more

    asyncio.run(scene())
