"""The guard is tried on the real optuna-dashboard over a real SQLite study, and the server as a process."""

import gc
import http.client
import json
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import optuna
import pytest
from optuna.artifacts import FileSystemArtifactStore, upload_artifact
from optuna.storages import InMemoryStorage, RDBStorage
from optuna_dashboard import save_note

from hpsearch.search.errors import SearchError
from hpsearch.search.service.dashboard import allowed_hosts, application, guarded, serve
from hpsearch.storage import StorageError
from hpsearch.storage.live import LiveStorage
from hpsearch.storage.workspace import Workspace

Call = Callable[..., tuple[int, dict[str, str], bytes]]
TYPES = {
    "page.html": "text/html",
    "drawing.svg": "image/svg+xml",
    "page.xhtml": "application/xhtml+xml",
    "feed.xml": "text/xml",
    "paper.pdf": "application/pdf",
    "module.js": "text/javascript",
    "space.png": " image/png",
    "case.HTM": "TEXT/HTML; charset=utf-7",
    "rest.html": "multipart/x-mixed-replace; boundary=x",
    "two.png": "image/png, text/html",
    "log.txt": "text/plain",
    "plot.png": "image/png",
    "sound.wav": "audio/x-wav",
    "film.mp4": "video/mp4",
}
CHANGES = [
    ("POST", "/api/studies"),
    ("POST", "/api/studies/1/rename"),
    ("DELETE", "/api/studies/1"),
    ("PUT", "/api/studies/1/note"),
    ("POST", "/api/trials/1/tell"),
    ("POST", "/api/studies/1/preference/1"),
    ("POST", "/incompatible-rdb-schema"),
    ("PATCH", "/dashboard"),
]


def make_study(file: Path, name: str = "lora", low: float = 0.0) -> None:
    """A study of three complete and two pruned trials, with a note."""
    storage = RDBStorage(f"sqlite:///{str(file).replace('{', '{{').replace('}', '}}')}")
    study = optuna.create_study(storage=storage, study_name=name)
    for number in range(5):
        trial = study.ask()
        trial.report(trial.suggest_float("learning_rate", low, low + 1), step=1)
        pruned = optuna.trial.TrialState.PRUNED
        study.tell(trial, **({"state": pruned} if number % 2 else {"values": float(number)}))
    save_note(study, "# What was found\n")
    storage.engine.dispose()


def caller(app: Any) -> Call:
    """Ask a WSGI application as a server would, with the headers of curl; `HTTP_...` are added."""

    def call(
        path: str, method: str = "GET", body: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        sent = b"" if body is None else json.dumps(body).encode()
        environ: dict[str, Any] = {"PATH_INFO": path, "REQUEST_METHOD": method}
        environ |= {"HTTP_HOST": "localhost:8080", "CONTENT_LENGTH": str(len(sent))}
        environ |= {"CONTENT_TYPE": "application/json"} | headers
        setup_testing_defaults(environ)
        answer: list[Any] = []
        environ["wsgi.input"].write(sent)
        environ["wsgi.input"].seek(0)
        chunks = app(environ, lambda status, head, *_: answer.extend((status, head)))
        content = b"".join(chunks)
        getattr(chunks, "close", lambda: None)()
        return int(answer[0].split()[0]), {k.lower(): v for k, v in answer[1]}, content

    return call


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dashboard")
    make_study(folder / "studies.db")
    return folder


@pytest.fixture
def build(folder: Path) -> Iterator[Callable[..., Call]]:
    """Build a guarded dashboard over the study, or over another file."""
    opened: list[RDBStorage] = []

    def build(file: Path = folder / "studies.db", *, write: bool = False) -> Call:
        opened.append(RDBStorage(f"sqlite:///{file}"))
        (folder / "artifacts").mkdir(exist_ok=True)
        store = FileSystemArtifactStore(folder / "artifacts")  # takes files of every type
        app = application(opened[-1], runs=folder, artifacts=store)
        return caller(guarded(app, hosts=allowed_hosts("127.0.0.1", 8080), write=write))

    yield build
    for storage in opened:
        storage.engine.dispose()


@pytest.fixture
def own(folder: Path, tmp_path: Path) -> Path:
    """A database that the test may change."""
    return Path(shutil.copy(folder / "studies.db", tmp_path / "own.db"))


@pytest.mark.parametrize(
    ("path", "query", "code"),
    [
        ("/api/studies/1", "after=x", 400),
        ("/api/studies/1", "after=-1", 400),
        ("/api/studies/1", "%61fter=", 400),
        ("/api/studies/1", "after=" + "9" * 5000, 400),
        ("/api/studies/1", "after=2", 200),
        ("/api/studies/" + "9" * 20, "", 404),
        ("/csv/" + "9" * 20, "", 404),
    ],
)
def test_what_no_page_asks_for_is_refused_without_a_traceback(
    build: Callable[..., Call], capfd: pytest.CaptureFixture[str], path: str, query: str, code: int
) -> None:
    assert build()(path, QUERY_STRING=query)[0] == code
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "path",
    [
        "/dashboard",
        "/dashboard/studies/1",
        "/static/bundle.js",
        "/favicon.ico",
        "/api/meta",
        "/api/studies",
        "/api/studies/1",
        "/api/studies/1/param_importances",
        "/api/studies/1/plot/timeline",
        "/csv/1",
    ],
)
def test_everything_the_page_loads_passes_read_only_and_hardened(
    build: Callable[..., Call], path: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        status, headers, body = build()(path)
    assert status == 200
    assert body
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "SAMEORIGIN"
    assert "content-disposition" not in headers or path == "/csv/1"


def test_head_and_the_first_page(build: Callable[..., Call]) -> None:
    call = build()
    assert call("/")[0] == 302
    assert call("/dashboard", "HEAD")[0] == 200


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "LocalHost:8080"])
def test_own_names_are_answered(build: Callable[..., Call], host: str) -> None:
    assert build()("/api/studies", HTTP_HOST=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8080",
        "localhost",
        "localhost:8081",
        "localhost.evil.example:8080",
        "localhost:8080,evil.example",
        "localhost:8080@evil.example",
    ],
)
def test_a_foreign_host_is_refused(build: Callable[..., Call], host: str) -> None:
    for path in ("/dashboard", "/api/studies", "/static/bundle.js"):
        status, headers, body = build(write=True)(path, HTTP_HOST=host)
        assert status == 403
        assert b"answers only at" in body and b"localhost:8080" in body
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_read_only_refuses_every_change_and_names_the_option(
    build: Callable[..., Call], method: str, path: str
) -> None:
    status, headers, body = build()(path, method, {"study_name": "new", "directions": ["minimize"]})
    assert status == 405
    assert headers["allow"] == "GET, HEAD, OPTIONS"
    reason = json.loads(body)["reason"] if path.startswith("/api/") else body.decode()
    assert "--write" in reason


def test_write_allows_the_dashboards_own_changes(build: Callable[..., Call], own: Path) -> None:
    call = build(own, write=True)
    origin = {"HTTP_ORIGIN": "http://localhost:8080", "HTTP_SEC_FETCH_SITE": "same-origin"}
    body = {"study_name": "made by hand", "directions": ["minimize"]}
    assert call("/api/studies", "POST", body, **origin)[0] == 201
    assert call("/api/studies/1/note", "PUT", {"version": 2, "body": "mine"}, **origin)[0] == 204
    referer = {"HTTP_REFERER": "http://127.0.0.1:8080/dashboard"}
    assert call("/api/studies/2", "DELETE", {}, **referer)[0] == 204
    names = [s["study_name"] for s in json.loads(call("/api/studies")[2])["study_summaries"]]
    assert names == ["lora"]


@pytest.mark.parametrize(
    "headers",
    [
        {"HTTP_ORIGIN": "https://evil.example"},
        {"HTTP_ORIGIN": "null"},
        {"HTTP_ORIGIN": "http://localhost:3000"},
        {"HTTP_ORIGIN": "https://localhost:8080"},
        {"HTTP_ORIGIN": "http://localhost:8080.evil.example"},
        {"HTTP_ORIGIN": "http://localhost:8080@evil.example"},
        {"HTTP_REFERER": "https://evil.example/http://localhost:8080/"},
        {"HTTP_REFERER": "http://[evil"},
        {"HTTP_SEC_FETCH_SITE": "cross-site"},
        {"HTTP_SEC_FETCH_SITE": "same-site"},
        {"HTTP_ORIGIN": "http://localhost:8080", "HTTP_SEC_FETCH_SITE": "cross-site"},
    ],
)
@pytest.mark.parametrize("write", [False, True])
def test_other_websites_change_nothing(
    build: Callable[..., Call], headers: dict[str, str], write: bool
) -> None:
    call = build(write=write)
    body = {"study_name": "planted", "directions": ["minimize"]}
    for method, path in CHANGES:
        assert call(path, method, body, **headers)[0] == 403
    assert [s["study_name"] for s in json.loads(call("/api/studies")[2])["study_summaries"]] == ["lora"]


def test_no_request_upgrades_the_schema(build: Callable[..., Call], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RDBStorage, "upgrade", lambda self: pytest.fail("the schema was upgraded"))
    call = build(write=True)
    assert call("/incompatible-rdb-schema", "POST")[0] == 302
    assert call("/incompatible-rdb-schema")[0] == 302


@pytest.mark.parametrize(("name", "mimetype"), TYPES.items())
def test_artifacts_that_may_run_script_are_downloaded(
    build: Callable[..., Call], own: Path, folder: Path, name: str, mimetype: str
) -> None:
    call = build(own)
    (own.parent / name).write_bytes(b"<script>alert(1)</script>")
    storage = RDBStorage(f"sqlite:///{own}")
    study = optuna.load_study(study_name="lora", storage=storage)
    trial = study.ask()
    for target, path in ((study, "/artifacts/1/"), (trial, f"/artifacts/1/{trial._trial_id}/")):
        artifact = upload_artifact(
            artifact_store=FileSystemArtifactStore(folder / "artifacts"),
            file_path=str(own.parent / name),
            study_or_trial=target,
            mimetype=mimetype,
        )
        status, headers, body = call(path + artifact)
        assert (status, body) == (200, b"<script>alert(1)</script>")
        assert headers["content-type"] == mimetype
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"] == "sandbox"
        assert "access-control-allow-origin" not in headers
        shown = name in ("plot.png", "sound.wav", "film.mp4")
        assert headers.get("content-disposition") == (None if shown else "attachment")
        # The dashboard drops bytes that are not UTF-8; the guard must not see another path than it does.
        assert call(f"/arti\xff{path[5:]}{artifact}")[0] == 400
    storage.engine.dispose()


@pytest.mark.parametrize(
    "mimetype", ["image/png\r\nX-Planted: 1", "image/png\nContent-Type: text/html", None, 1, ["text/html"]]
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a file it opened and forgot
def test_a_type_that_is_none_brings_no_header_of_its_own(
    build: Callable[..., Call], own: Path, folder: Path, mimetype: Any
) -> None:
    (folder / "artifacts").mkdir(exist_ok=True)
    (folder / "artifacts" / "ab").write_bytes(b"<script>alert(1)</script>")
    storage = RDBStorage(f"sqlite:///{own}")
    meta = {"artifact_id": "ab", "filename": "x", "mimetype": mimetype, "encoding": None}
    storage.set_study_system_attr(1, "artifacts:ab", json.dumps(meta))
    storage.engine.dispose()
    status, headers, body = build(own)("/artifacts/1/ab")
    assert "x-planted" not in headers
    if status == 200:
        assert (
            headers["content-disposition"] == "attachment" and headers["content-security-policy"] == "sandbox"
        )
    else:
        assert status == 500 and b"<script>" not in body
    gc.collect()


@pytest.mark.parametrize(
    "path",
    [
        "/artifacts/1/../studies.db",
        "/artifacts/1/../../studies.db",
        "/artifacts/../studies.db",
        "/artifacts/1/1/../../studies.db",
        "/artifacts/1//etc/passwd",
        "/artifacts/1/..%2fstudies.db",
        "/artifacts/1/%2e%2e%2fstudies.db",
        "/artifacts/1/%2e%2e/studies.db",
        "/artifacts/1/..%5cstudies.db",
        "/artifacts/1/%252e%252e%252fstudies.db",
        "/static/../_app.py",
        "/static/..%2f_app.py",
        "/static/%2e%2e/%2e%2e/_app.py",
        "/static//etc/passwd",
    ],
)
def test_no_path_leads_out_of_the_artifacts(server: tuple[str, int], path: str) -> None:
    """Through the real server, which is what decodes a path."""
    status, body = fetch(*server, path)
    assert status in (403, 404)
    assert b"SQLite" not in body and b"root:" not in body and b"import" not in body


def test_reading_writes_nothing(build: Callable[..., Call], own: Path) -> None:
    def content() -> list[str]:
        with closing(sqlite3.connect(own)) as database:
            return list(database.iterdump())

    before = content()
    call = build(own)
    for path in ("/dashboard", "/api/studies", "/api/studies/1", "/api/studies/1/plot/slice", "/csv/1"):
        assert call(path)[0] == 200
    for method, path in CHANGES:
        assert call(path, method, {"state": "Fail", "version": 2, "body": ""})[0] == 405
    assert content() == before


def learning_rates(call: Call) -> list[float]:
    trials = json.loads(call("/api/studies/1")[2])["trials"]
    return [float(trial["params"][0]["param_internal_value"]) for trial in trials]


def test_a_new_study_under_a_used_id_shows_its_own_trials(build: Callable[..., Call], own: Path) -> None:
    call = build(own)
    assert max(learning_rates(call)) < 1
    storage = RDBStorage(f"sqlite:///{own}")
    optuna.delete_study(study_name="lora", storage=storage)
    storage.engine.dispose()
    make_study(own, low=5.0)
    assert min(learning_rates(call)) >= 5


def test_a_trial_that_is_tried_again_is_seen_to_wait(build: Callable[..., Call], own: Path) -> None:
    def states() -> list[str]:
        return [trial["state"] for trial in json.loads(call("/api/studies/1")[2])["trials"]]

    call = build(own)
    assert states()[1] == "Pruned"
    storage = RDBStorage(f"sqlite:///{own}")
    live = LiveStorage(storage, "lora")
    live.revive(1, [])
    live.flush()
    live.close()
    storage.engine.dispose()
    assert states()[1] == "Waiting"


def test_a_new_file_under_the_old_name_is_read(build: Callable[..., Call], own: Path) -> None:
    call = build(own)
    assert max(learning_rates(call)) < 1
    own.unlink()
    status, _, body = call("/api/studies")
    assert status == 503 and "cannot be read" in json.loads(body)["reason"]
    assert not own.exists()
    make_study(own, low=5.0)
    assert min(learning_rates(call)) >= 5


def test_any_storage_and_artifact_store_may_be_given(tmp_path: Path) -> None:
    store = FileSystemArtifactStore(tmp_path)
    app = application(InMemoryStorage(), runs=tmp_path / "runs", artifacts=store)
    assert caller(app)("/api/studies")[0] == 200
    assert not (tmp_path / "runs").exists()


def test_hosts() -> None:
    assert allowed_hosts("GPU-box", 90) == {"localhost:90", "127.0.0.1:90", "[::1]:90", "gpu-box:90"}
    assert {"localhost", "localhost:80"} <= allowed_hosts("127.0.0.1", 80)
    assert f"{socket.gethostname()}:90".lower() in allowed_hosts("0.0.0.0", 90)


# The server ------------------------------------------------------------------------------------------------

SERVE = """
import sys
from pathlib import Path
from hpsearch.search.service.dashboard import serve
from hpsearch.storage.workspace import Workspace
*urls, runs, host, write = sys.argv[1:]
say = lambda line: print(line, flush=True)
for url in urls:
    serve(Workspace(url, Path(runs)), host=host, port=0, write=write == "write", announce=say)
print("ended")
"""


def start(
    url: str, runs: Path, host: str = "127.0.0.1", *, write: bool = False, then: Sequence[str] = ()
) -> tuple[subprocess.Popen[str], int]:
    """A dashboard in a process of its own, and the port that it announced; when it has ended, those of `then`."""
    arguments = [url, *then, str(runs), host, "write" if write else "read"]
    process = subprocess.Popen(
        [sys.executable, "-W", "error::ResourceWarning", "-c", SERVE, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, announced(process)


def announced(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        pytest.fail(process.communicate()[1])
    return int(line.split(" (")[0].rpartition(":")[2])


def fetch(host: str, port: int, path: str) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection(host, port, timeout=60)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[tuple[str, int]]:
    process, port = start(f"sqlite:///{folder / 'studies.db'}", folder / "runs")
    yield "127.0.0.1", port
    process.kill()
    process.communicate()


@pytest.fixture(scope="module")
def writable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """A server that allows changes, of a study of its own."""
    folder = tmp_path_factory.mktemp("writable")
    make_study(folder / "studies.db")
    process, port = start(f"sqlite:///{folder / 'studies.db'}", folder / "runs", write=True)
    yield "127.0.0.1", port
    process.kill()
    process.communicate()


def exchange(server: tuple[str, int], request: str) -> str:
    """Send these very bytes, with `OWN` for the server's name, and return all that comes back."""
    with socket.create_connection(server, timeout=60) as bare:
        bare.sendall(request.replace("OWN", f"localhost:{server[1]}").encode("latin-1"))
        bare.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := bare.recv(65536):
            answer += chunk
    return answer.decode("latin-1")


def study_names(server: tuple[str, int]) -> list[str]:
    found = json.loads(fetch(*server, "/api/studies")[1])["study_summaries"]
    return [study["study_name"] for study in found]


META = "GET /api/meta HTTP/1.1\r\n"
DELETE = "DELETE /api/studies/1 HTTP/1.1\r\nHost: OWN\r\nContent-Length: 0\r\n"
CREATE = '{"study_name": "planted", "directions": ["minimize"]}'


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (META + "hOsT: LoCaLhOsT:PORT\r\n\r\n", "200"),
        (META + "Host: OWN\r\nHost: evil.example\r\n\r\n", "403"),
        (META + "Host: evil.example\r\nHost: OWN\r\n\r\n", "403"),
        (META + "Host: OWN\r\n evil.example\r\n\r\n", "403"),
        (META + "Host : OWN\r\n\r\n", "403"),
        (META + "Host: evil.example\r\nHTTP_HOST: OWN\r\nX-Forwarded-Host: OWN\r\n\r\n", "403"),
        (META + "Host: localhost.:PORT\r\n\r\n", "403"),
        (META + "\r\n", "403"),
        ("GET /api/meta HTTP/1.0\r\n\r\n", "403"),
        ("GET /api/meta\r\n\r\n", "this dashboard answers only at"),  # HTTP/0.9 has no status
        ("GET http://OWN/api/meta HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
        ("GET http://evil.example/api/meta HTTP/1.1\r\nHost: OWN\r\n\r\n", "404"),
        ("GET //evil.example/api/meta HTTP/1.1\r\nHost: OWN\r\n\r\n", "404"),
        ("GET /%2fapi/meta HTTP/1.1\r\nHost: OWN\r\n\r\n", "404"),
        ("GET /api/\x00meta HTTP/1.1\r\nHost: OWN\r\n\r\n", "404"),
        ("GET /api/%ffmeta HTTP/1.1\r\nHost: OWN\r\n\r\n", "400"),
        ("OPTIONS * HTTP/1.1\r\nHost: OWN\r\n\r\n", "404"),
        (f"GET /{'a' * 70_000} HTTP/1.1\r\nHost: OWN\r\n\r\n", "414"),
        (f"GET /api/studies/{'1' * 60_000} HTTP/1.1\r\nHost: OWN\r\n\r\n", "404"),
        (META + f"Host: OWN\r\nX-Long: {'a' * 70_000}\r\n\r\n", "431"),
        ("\x16\x03\x01\x02\x00\r\n\r\n", "400"),  # TLS
    ],
)
def test_odd_requests_are_answered_by_their_one_host(
    server: tuple[str, int], request_: str, status: str
) -> None:
    answer = exchange(server, request_.replace("PORT", str(server[1])))
    assert status in answer.split("\r\n")[0]
    assert ("artifact_is_available" in answer) == (status == "200")
    assert fetch(*server, "/api/meta")[0] == 200, "the server lives"


@pytest.mark.parametrize(
    "request_",
    [
        *(f"{method} /api/studies/1 HTTP/1.1\r\nHost: OWN\r\n\r\n" for method in ("PUT", "DELETE", "PATCH")),
        "delete /api/studies/1 HTTP/1.1\r\nHost: OWN\r\n\r\n",
        "PROXY /api/studies/1 HTTP/1.1\r\nHost: OWN\r\n\r\n",
        "POST //api/studies/1 HTTP/1.1\r\nHost: OWN\r\nX-HTTP-Method-Override: DELETE\r\n\r\n",
        "POST /api/studies HTTP/1.1\r\nHost: OWN\r\nX-HTTP-Method-Override: GET\r\n"
        f"Content-Length: {len(CREATE)}\r\n\r\n{CREATE}",
        "POST /api/studies HTTP/1.1\r\nHost: OWN\r\nTransfer-Encoding: chunked\r\n\r\n"
        f"{len(CREATE):x}\r\n{CREATE}\r\n0\r\n\r\n",
        "POST /api/studies HTTP/1.1\r\nHost: OWN\r\nContent-Length: -1\r\n\r\n",
    ],
)
def test_no_form_of_a_change_passes_read_only(server: tuple[str, int], request_: str) -> None:
    assert exchange(server, request_).startswith("HTTP/1.0 405 ")
    assert study_names(server) == ["lora"]


@pytest.mark.parametrize(
    "request_",
    [
        "GET /api/studies/1 HTTP/1.1\r\nHost: OWN\r\nX-HTTP-Method-Override: DELETE\r\n\r\n",
        "GET /api/studies/1?_method=DELETE HTTP/1.1\r\nHost: OWN\r\n\r\n",
        f"{META}Host: OWN\r\nContent-Length: 0\r\n\r\n{DELETE}\r\n",  # one request to a connection
        f"{META}Host: OWN\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{DELETE}\r\n",
    ],
)
@pytest.mark.parametrize("allowed", ["server", "writable"])
def test_what_reads_changes_nothing(request: pytest.FixtureRequest, allowed: str, request_: str) -> None:
    asked: tuple[str, int] = request.getfixturevalue(allowed)
    answer = exchange(asked, request_)
    assert answer.startswith("HTTP/1.0 200 ") and answer.count("HTTP/1.0") == 1
    assert study_names(asked) == ["lora"]


@pytest.mark.parametrize(
    "headers",
    [
        "oRiGiN: https://evil.example\r\n",
        "Origin: http://OWN\r\nOrigin: https://evil.example\r\n",
        "Origin: https://evil.example\r\nOrigin: http://OWN\r\n",
        "Origin: https://evil.example\r\nReferer: http://OWN/dashboard\r\n",
        "Origin: http://OWN\r\nSec-Fetch-Site: same-origin\r\nsec-fetch-site: cross-site\r\n",
        "Origin: http://OWN.evil.example\r\n",
    ],
)
def test_other_websites_change_nothing_where_changes_are_allowed(
    writable: tuple[str, int], headers: str
) -> None:
    assert exchange(writable, f"{DELETE}{headers}\r\n").startswith("HTTP/1.0 403 ")
    assert study_names(writable) == ["lora"]


def test_a_note_runs_no_script(server: tuple[str, int]) -> None:
    """The page forbids what a note could bring along; optuna-dashboard's own drawing needs its eval."""
    policy = exchange(server, "GET /dashboard/studies/1/note HTTP/1.1\r\nHost: OWN\r\n\r\n").split(
        "\r\n\r\n"
    )[0]
    assert "script-src 'self' 'unsafe-eval'" in policy and "object-src 'none'" in policy
    assert not json.loads(fetch(*server, "/api/meta")[1])["allow_unsafe"]


def test_each_signal_ends_the_server_without_a_traceback(folder: Path) -> None:
    url = f"sqlite:///{folder / 'studies.db'}"
    process, port = start(url, folder / "runs", then=[url])
    assert fetch("127.0.0.1", port, "/api/studies")[0] == 200
    process.send_signal(signal.SIGTERM)
    port = announced(process)
    assert fetch("127.0.0.1", port, "/api/studies")[0] == 200
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "ended\n", "")


def test_without_a_browsers_headers(server: tuple[str, int]) -> None:
    with socket.create_connection(server, timeout=60) as bare:
        bare.sendall(f"GET /static/bundle.js HTTP/1.0\r\nHost: localhost:{server[1]}\r\n\r\n".encode())
        assert bare.recv(15) == b"HTTP/1.0 200 OK"
    with socket.create_connection(server, timeout=60) as bare:
        bare.sendall(b"GET /dashboard HTTP/1.0\r\n\r\n")
        assert bare.recv(12) == b"HTTP/1.0 403"


def test_every_address_is_served_with_a_warning(folder: Path) -> None:
    process, port = start(f"sqlite:///{folder / 'studies.db'}", folder / "runs", host="0.0.0.0")
    assert fetch("127.0.0.1", port, "/api/studies")[0] == 200
    assert process.stdout is not None
    assert "no password: whoever reaches 0.0.0.0 can read the" in process.stdout.readline()
    process.terminate()
    assert process.communicate(timeout=60) == ("ended\n", "")


ODD_NAMES = ["a b.db", "ü-漢字.db", "{x}.db", "{SCHEMA_VERSION}.db", "100%.db", "wh?t#.db"]


def test_odd_file_names(tmp_path: Path) -> None:
    """Each is served when the one before has ended: a process takes long to start."""
    urls = []
    for name in ODD_NAMES:
        make_study(tmp_path / "plain.db", f"of {name}")
        (tmp_path / "plain.db").rename(tmp_path / name)
        urls.append(f"sqlite:///{tmp_path}/{name.replace('%', '%25').replace('?', '%3F')}")
    process, port = start(urls[0], tmp_path / "runs", then=urls[1:])
    shown: list[tuple[int, str]] = []
    while len(shown) < len(urls):
        status, body = fetch("127.0.0.1", port, "/api/studies")
        shown.append((status, json.loads(body)["study_summaries"][0]["study_name"]))
        process.terminate()
        if len(shown) < len(urls):
            port = announced(process)
    assert process.communicate(timeout=60) == ("ended\n", "")
    assert shown == [(200, f"of {name}") for name in ODD_NAMES]


def test_a_missing_database_is_said_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"no database .*gone\.db"):
        serve(Workspace(f"sqlite:///{tmp_path}/gone.db", tmp_path / "runs"), port=0, announce=pytest.fail)
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_named(folder: Path, server: tuple[str, int]) -> None:
    with pytest.raises(SearchError, match=rf":{server[1]}: another program .* --port"):
        serve(
            Workspace(f"sqlite:///{folder / 'studies.db'}", folder / "runs"),
            port=server[1],
            announce=pytest.fail,
        )


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 99999), ("no-such-host.invalid", 0)])
def test_an_address_that_cannot_be_had(folder: Path, host: str, port: int) -> None:
    with pytest.raises(SearchError, match=f"cannot serve at {host}:{port}: "):
        serve(
            Workspace(f"sqlite:///{folder / 'studies.db'}", folder / "runs"),
            host=host,
            port=port,
            announce=pytest.fail,
        )


def test_the_handler_of_sigterm_is_given_back(folder: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def stop(line: str) -> None:
        raise KeyboardInterrupt

    assert threading.current_thread() is threading.main_thread()
    serve(Workspace(f"sqlite:///{folder / 'studies.db'}", folder / "runs"), port=0, announce=stop)
    assert signal.getsignal(signal.SIGTERM) is before
