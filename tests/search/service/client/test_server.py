"""`Server`: the methods are the operations, and whatever answers, there is an error that says what to do."""

from __future__ import annotations

import inspect
import json
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import pytest

from hpsearch.objectives import ObjectiveError
from hpsearch.search.errors import SearchError, UsageError
from hpsearch.search.operations import OPERATIONS
from hpsearch.search.operations.submit import SpaceDiffers
from hpsearch.search.service import known
from hpsearch.search.service.client import Server, connection
from hpsearch.search.service.client.connection import part
from hpsearch.search.service.client.events import events
from hpsearch.search.service.client.problems import ServerUnavailable, error_of
from hpsearch.search.service.home import Home
from hpsearch.search.service.known import Place, address
from hpsearch.search.service.problems import problem_of
from hpsearch.search.service.worker.link import link_to
from hpsearch.spaces import SpaceError
from hpsearch.storage import StorageError
from hpsearch.storage.workspace import Workspace

from ....support.online import serving

NOT_THERE = {  # operations of this machine, or of the page
    *("run", "copy", "backup", "init", "lr-find", "train", "generate", "doctor"),
    *("doctor --kill-test", "doctor --pack-test"),
}
HERE = ("workspace", "by", "server")  # arguments that only who works here gives


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HPSEARCH_HOME", str(tmp_path / "home"))
    for name in ("HPSEARCH_SERVER", "HPSEARCH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(connection, "WAIT_SECONDS", 0.001)


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - NOT_THERE))
def test_a_method_has_the_signature_of_its_operation(name: str) -> None:
    function = OPERATIONS[name].function
    method = getattr(Server, function.__name__, None)
    if method is None:
        pytest.skip("no command uses it at a server yet")
    there = inspect.signature(method).parameters
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in HERE or parameter.kind == parameter.VAR_KEYWORD:
            continue
        if parameter.name in there:
            if not inspect.isfunction(parameter.default):  # each of which is another
                assert there[parameter.name].default == parameter.default, parameter.name
        else:
            assert parameter.default is not parameter.empty, f"{name} lacks {parameter.name}"


def answering(answer: Callable[[httpx2.Request], httpx2.Response]) -> Server:
    return Server("http://lab", "hps_x", transport=httpx2.MockTransport(answer))


def problem(status: int, type: str, **more: Any) -> httpx2.Response:
    content = {"type": f"/problems/{type}", "title": "T", "status": status} | more
    kind = {"content-type": "application/problem+json"}
    return httpx2.Response(status, headers=kind, content=json.dumps(content).encode())


ISSUE = {"file": "<space>", "line": 6, "column": 18, "path": "x.mim", "message": 'did you mean "min"?'}


@pytest.mark.parametrize(
    ("status", "type", "more", "kind", "code", "said"),
    [
        (404, "no-such-study", {"detail": "no study"}, StorageError, "study-missing", "no study"),
        (409, "wrong-state", {"code": "trial-state"}, SearchError, "trial-state", "T"),
        (507, "disk-full", {"code": "disk-full"}, SearchError, "disk-full", "T"),
        (401, "token-invalid", {}, UsageError, "token-invalid", "T"),
        (403, "scope-missing", {"needs": "code"}, UsageError, "scope-missing", "the scope code"),
        (422, "request-invalid", {"code": "usage"}, UsageError, "usage", "T"),
        (422, "objective-invalid", {"detail": "d"}, ObjectiveError, "objective-invalid", "d"),
        (422, "space-invalid", {"issues": [ISSUE]}, SpaceError, "space", "mine.yaml:6:18 x.mim"),
        (422, "space-invalid", {"issues": 3}, UsageError, "space-invalid", "T"),
        (503, "database-unavailable", {}, StorageError, "database-unavailable", "T"),
        (500, "internal", {"next_steps": [{"operation": "x"}]}, SearchError, "internal", "T"),
    ],
)
def test_a_problem_is_the_error_that_it_was(
    status: int, type: str, more: dict[str, Any], kind: Any, code: str, said: str
) -> None:
    document = {"type": f"/problems/{type}", "title": "T"} | more
    error: Any = error_of(status, document, "mine.yaml")
    assert isinstance(error, kind) and error.code == code and said in str(error)


def html(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-type": "application/json"}, content=b"<html>")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (html, "no server of hpsearch, or something is between"),
        (lambda request: httpx2.Response(404, html="<h1>nginx</h1>"), "no server of hpsearch"),
        (lambda request: httpx2.Response(502, html="<h1>nginx</h1>"), "does not work now"),
        (lambda request: httpx2.Response(301, headers={"location": "https://lab"}), "leads to https://lab"),
        (lambda request: httpx2.Response(200, json={"name": 3}), "is not understood .*another version"),
        (lambda request: httpx2.Response(200, json=[[]]), "is not understood"),
        (lambda request: problem(404, "not-found"), "has no GET /v1/studies.*another version"),
        (lambda request: problem(405, "method-not-allowed"), "another version"),
        (lambda request: httpx2.Response(200, content=b"[" * 100_000, headers={"content-type": "application/json"}), "no server"),
    ],
)  # fmt: skip
def test_odd_answers_are_told_in_words(
    answer: Callable[[httpx2.Request], httpx2.Response], said: str
) -> None:
    with answering(answer) as server, pytest.raises(SearchError, match=said):
        server.list_studies()


def test_a_huge_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_BYTES", 10_000)
    huge = httpx2.Response(200, json=["x" * 20_000])
    with answering(lambda request: huge) as server, pytest.raises(SearchError, match="is larger than"):
        server.list_studies()


def test_a_server_that_was_started_anew_is_found_by_the_last_try() -> None:
    tries: list[str] = []
    tokens = ["old"]  # of the servers that this user has started

    def answer(request: httpx2.Request) -> httpx2.Response:
        tries.append(request.headers["authorization"].removeprefix("Bearer "))
        if len(tries) == 1:
            return httpx2.Response(200, json=[])
        if len(tries) <= connection.TRIES:
            raise httpx2.ConnectError("refused")
        tokens.append("new")
        lost = problem(404, "no-such-plan", detail="a server that ends forgets its plans")
        return problem(401, "token-invalid") if tries[-1] == "old" else lost

    way = connection.Connection(
        "http://lab",
        "old",
        transport=httpx2.MockTransport(answer),
        find=lambda: Place("http://lab", tokens[-1]),
    )
    way.call("GET", "/v1/studies")
    with pytest.raises(SearchError, match="forgets its plans"):
        way.call("GET", "/v1/plans/p")
    assert tries == ["old"] * (connection.TRIES + 1) + ["new"]
    way.close()


def test_the_difference_of_a_space_is_told_once() -> None:
    document = problem_of(SpaceDiffers("k", ["x: 1 -> 2"])).body("req_1")
    told = error_of(409, json.loads(document) | {"difference": ["x: 1 -> 2"]})
    assert str(told).count("x: 1 -> 2") == 1


def test_what_is_harmless_is_repeated_and_nothing_else() -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.method)
        if len(asked) < 3:
            raise httpx2.ReadError("the connection broke", request=request)
        return httpx2.Response(200, json=[])

    with answering(answer) as server:
        assert server.list_studies().studies == () and asked == ["GET"] * 3
        asked.clear()
        with pytest.raises(ServerUnavailable, match="cannot reach the server"):
            server.stop(study="x")
        assert asked == ["POST"]


def test_a_busy_server_is_asked_again_after_what_it_says() -> None:
    asked: list[int] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(1)
        busy = httpx2.Response(503, headers={"retry-after": "0", "content-type": "text/html"})
        return busy if len(asked) < 3 else httpx2.Response(200, json={"study": "x", "searching": True})

    with answering(answer) as server:
        assert server.stop(study="x").searching and len(asked) == 3


def test_names_in_paths_and_pages() -> None:
    seen: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(str(request.url.raw_path, "ascii"))
        if "after" not in str(request.url):
            link = {"link": '<?after=a&limit=1000>; rel="next"'}
            return httpx2.Response(200, headers=link, json=[{"name": "a"}])
        return httpx2.Response(200, json=[{"name": "b"}])

    with answering(answer) as server:
        assert [study.name for study in server.list_studies().studies] == ["a", "b"]
        with pytest.raises(SearchError):
            server.show(study="ä b#?%")
    assert seen[1] == "/v1/studies?limit=1000&after=a" and "%C3%A4%20b%23%3F%25" in seen[2]
    assert part("..") == "%2E%2E"


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("lab:8765", "http://lab:8765"),
        ("https://lab/hpsearch/", "https://lab/hpsearch"),
        ("http://127.0.0.1:8765/#token=hps_1", "http://127.0.0.1:8765"),
        ("[::1]:80", "http://[::1]:80"),
    ],
)
def test_addresses_as_they_are_typed(typed: str, url: str) -> None:
    assert address(typed) == url


@pytest.mark.parametrize(
    "typed", ["", "ftp://x", "http://", "http://x:99999", "http://a:b@x", "x?y=1", "http://[x"]
)
def test_what_is_no_address_is_refused(typed: str) -> None:
    with pytest.raises(UsageError):
        address(typed)


def test_tokens_are_kept_for_their_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="hpsearch login http://lab stores one"):
        known.find("http://lab")
    with pytest.raises(UsageError, match="no server of yours runs"):
        known.find("local")
    file = known.store("http://lab", "hps_1")
    known.store("http://other", "hps_2")
    assert file.stat().st_mode & 0o777 == 0o600 and known.find("lab").token == "hps_1"
    monkeypatch.setenv("HPSEARCH_TOKEN", "hps_3")
    assert known.find("lab").token == "hps_3" and known.find("lab", "hps_4").token == "hps_4"
    monkeypatch.delenv("HPSEARCH_TOKEN")
    known.store("http://lab", None)
    with pytest.raises(UsageError):
        known.find("lab")
    file.chmod(0o644)
    with pytest.raises(UsageError, match="others may read"):
        known.find("other")
    file.chmod(0o600)
    for damaged in ("servers: 3", "- x", "servers: {a: b}", "{"):
        file.write_text(damaged)
        with pytest.raises(UsageError, match="is damaged"):
            known.find("other")


def test_workers_have_the_tokens_that_commands_have(monkeypatch: pytest.MonkeyPatch) -> None:
    known.store("http://lab", "hps_1")
    own = {"url": "http://127.0.0.1:8765", "token": "hps_2", "pid": os.getpid(), "uds": None}
    home = Home.at()
    home.write(home.link_file(8765), json.dumps(own))

    def token(url: str) -> str | None:
        return link_to(url, "s", None)._server.token  # type: ignore[attr-defined, no-any-return]

    assert (token("lab"), token("local")) == ("hps_1", "hps_2")
    assert token("http://localhost:8765") == "hps_2", "it is the same server by another name"
    for other in ("http://localhost:8766", "https://localhost:8765", "http://lab:8765"):
        with pytest.raises(UsageError, match="no token"):
            token(other)
    home.write(home.link_file(8765), json.dumps(own | {"uds": "/run/hp.sock"}))
    with pytest.raises(UsageError, match="where workers do not reach it"):
        token("local")


def test_a_wrong_token_and_a_token_that_may_not(tmp_path: Path) -> None:
    with serving(Workspace.at(str(tmp_path / "x.db")), tmp_path) as served:
        wrong = "hps_00000000_" + "x" * 43
        with Server(served.url, wrong) as server, pytest.raises(UsageError) as refused:
            server.list_studies()
        assert refused.value.code == "token-invalid"
        with served.client("read") as server, pytest.raises(UsageError, match='needs the scope "write"'):
            server.stop(study="x")
    with pytest.raises(UsageError, match="characters that no token has"):
        Server(served.url, "a b")


class _Streams(BaseHTTPRequestHandler):
    """An event a connection, which then breaks within the next one."""

    asked: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("Last-Event-ID"))
        number = len(self.asked)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        text = f'id: b-{number}\nevent: trial\ndata: {{"number": {number}}}\n\n: beat\n\n'
        self.wfile.write(text.encode() + b"id: x\nevent: tri")  # cut in the middle

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def streams() -> Iterator[str]:
    _Streams.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Streams)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_events_go_on_after_the_last_one_where_the_connection_breaks(streams: str) -> None:
    with Server(streams, "hps_x") as server:
        found = []
        for event in server.events(studies=["a"]):
            found.append((event.kind, event.data.get("number")))
            if event.data.get("number") == 3:
                break
    assert [number for kind, number in found if kind == "trial"] == [1, 2, 3]
    assert _Streams.asked == [None, "b-1", "b-2"]


def test_events_of_a_server_that_is_away_are_given_up() -> None:
    with Server("http://127.0.0.1:9", "hps_x") as server:
        stream = events(server.connection, {}, give_up=0.0)
        assert next(stream).kind == "reset"
        with pytest.raises(ServerUnavailable):
            list(stream)
