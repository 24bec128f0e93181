"""The server as a process: its sockets, its link, its end, and clients that mean no good."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import filelock
import httpx2
import pytest
import trustme

from hpsearch.search.errors import SearchError
from hpsearch.search.service.guard import access
from hpsearch.search.service.home import Home, Settings
from hpsearch.search.service.server import Address, logging_to, serve
from hpsearch.storage.workspace import Workspace

from ...support.remote import wait_for

pytestmark = pytest.mark.slow
HPSEARCH = [sys.executable, "-m", "hpsearch.search.cli"]


def environment(folder: Path) -> dict[str, str]:
    """What a shell without settings has."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "HPSEARCH_HOME": str(folder / "home")}


@contextmanager
def serving(folder: Path, *options: str, port: str = "0") -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A server of this folder, its address and its token."""
    command = [*HPSEARCH, "serve", "--port", port, *options]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(folder),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        said = process.stdout.readline()
        assert said.startswith("serving "), process.stderr.read()
        link = json.loads(next((folder / "home").glob("serve-*.json")).read_text())
        yield process, link["url"], link["token"]
    finally:
        process.kill()
        process.communicate()


def run(folder: Path, *words: str) -> tuple[int, str]:
    """The exit code of a command, and what it says."""
    done = subprocess.run(
        [*HPSEARCH, *words], cwd=folder, env=environment(folder), text=True, capture_output=True, timeout=60
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, str]]:
    folder = tmp_path_factory.mktemp("server")
    with serving(folder) as (_, url, token):
        yield folder, url, token


def test_the_link_is_in_a_file_of_its_user(server: tuple[Path, str, str]) -> None:
    folder, url, token = server
    (file,) = (folder / "home").glob("serve-*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "home").stat().st_mode) == 0o700
    with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as client:
        assert client.get("/v1").json()["scopes"] == ["admin", "code", "read", "work", "write"]
        wait_for(lambda: client.get("/readyz").status_code == 204)  # once the queue has looked
        assert "server" not in client.get("/").headers
        code, said = run(folder, "token", "create", "anna", "--scope", "read")
        text = said.splitlines()[0]
        assert code == 0
        anna = {"Authorization": f"Bearer {text}"}
        assert client.get("/v1", headers=anna).json()["caller"] == "anna"
        assert run(folder, "token", "revoke", "anna")[0] == 0
        assert client.get("/v1", headers=anna).status_code == 401
    log = (folder / "home" / "access.log").read_text()
    assert '"by": "anna"' in log and text not in log and token not in log


def test_a_second_server_is_told_of_the_first(server: tuple[Path, str, str], tmp_path: Path) -> None:
    folder, url, _ = server
    code, said = run(folder, "serve", "--port", "0")
    assert (code, url in said, "HPSEARCH_HOME" in said) == (1, True, True)
    code, said = run(tmp_path, "serve", "--port", url.rpartition(":")[2])
    assert (code, "another program has this port" in said, "--port" in said) == (1, True, True)


REFUSED: list[tuple[Address, str]] = [
    (Address("0.0.0.0", 0), "others on the network would read the tokens"),
    (Address("::", 0), "others on the network would read the tokens"),
    (Address("example.org", 0), "others on the network would read the tokens"),
    (Address("0.0.0.0", 0, certificate=Path("a.pem")), "both a certificate and its key"),
    (Address("127.0.0.1", 0, certificate=Path("a.pem"), key=Path("b.pem")), "cannot use a.pem and b.pem"),
    (Address("127.0.0.1", 0, uds=Path("here")), "is no socket"),
    (Address("127.0.0.1", 0, uds=Path("nowhere/socket")), "cannot serve at nowhere/socket"),
    (Address("203.0.113.1", 0, certificate=Path("a.pem"), key=Path("b.pem")), "cannot serve at 203.0.113.1"),
]


@pytest.mark.parametrize(("address", "said"), REFUSED)
def test_what_cannot_be_served_is_said(
    address: Address, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").write_text("")
    home, workspace = Home.at(tmp_path / "home"), Workspace.at(str(tmp_path / "studies.db"))
    with pytest.raises(SearchError, match=said):
        serve(workspace, home=home, settings=Settings(), address=address, announce=print)
    assert not [*home.folder.glob("serve-*.json")] and Path("here").exists()


def test_a_server_says_at_its_start_why_it_starts_nothing(tmp_path: Path) -> None:
    home, said = Home.at(tmp_path / "home"), list[str]()
    other = filelock.FileLock(tmp_path / ".studies.db-serve.lock")
    home.drained.touch()

    def interrupt(url: str) -> None:
        raise KeyboardInterrupt

    with other, pytest.raises(KeyboardInterrupt):
        serve(
            Workspace.at(str(tmp_path / "studies.db")), home=home, settings=Settings(),
            address=Address(port=0), announce=said.append, opened=interrupt,
        )  # fmt: skip
    assert said[1] == f"settings: {tmp_path}/home/serve.yaml, which is not there; the defaults hold"
    assert said[2] == 'it is drained, and starts nothing until POST /v1/drain says {"on": false}'
    assert said[3].startswith("another server has this database")


def test_a_log_whose_disk_is_full_says_so_once_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    log, roomy = tmp_path / "access.log", tmp_path / "roomy"
    roomy.write_text('whole\n{"torn')
    log.symlink_to("/dev/full")
    told: list[str] = []
    with logging_to(log, told.append):
        for line in ("lost", "lost too"):
            access.info(line)
        (once,) = told
        assert once.startswith(f"cannot write {log}: No space left on device; ")
        log.unlink()
        log.symlink_to(roomy)
        access.info("there")
        assert roomy.read_text() == 'whole\n{"torn\nthere\n' and told == [once]


def connect(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def answer(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def test_a_body_of_a_gibibyte_is_not_read(server: tuple[Path, str, str]) -> None:
    _, url, token = server
    head = "POST /v1/spaces/validate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for how in (
        f"Authorization: Bearer {token}\r\nContent-Length: {1 << 30}\r\n\r\n",
        f"Content-Length: {1 << 30}\r\n\r\n",
    ):
        with connect(url) as connection:
            connection.sendall((head + how).encode())
            said = answer(connection)
            assert said.startswith((b"HTTP/1.1 413", b"HTTP/1.1 401"))
            assert b"Connection: close" in said or b"connection: close" in said


def test_what_is_no_http_ends_the_connection(
    server: tuple[Path, str, str], subtests: pytest.Subtests
) -> None:
    _, url, token = server
    bearer = f"Authorization: Bearer {token}\r\n".encode()
    here = b"Host: localhost\r\nConnection: close\r\n"
    requests = {
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n": b"400", b"GET / HTTP/9.9\r\n" + here + b"\r\n": b"",
        b"GET /v1 HTTP/1.1\r\nConnection: close\r\n\r\n": b"400",  # no Host
        b"GET /v1 HTTP/1.1\r\nHost: evil.org\r\n" + here + bearer + b"\r\n": b"400",
        b"GET http://evil.org/v1 HTTP/1.1\r\n" + here + bearer + b"\r\n": b"40",
        b"POST /v1 HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n" + here + bearer + b"\r\n0\r\n\r\n": b"40",
        b"GET /v1/studies/%2e%2e/%2e%2e/etc HTTP/1.1\r\n" + here + bearer + b"\r\n": b"400",
        b"GET /v1/studies/../../etc HTTP/1.1\r\n" + here + bearer + b"\r\n": b"400",
        b"GET /v1/studies/a%00 HTTP/1.1\r\n" + here + bearer + b"\r\n": b"400",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n" + here + b"\r\n": b"4",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n" + here + b"\r\n": b"4",
    }  # fmt: skip
    for sent, status in requests.items():
        with subtests.test(repr(sent[:60])), connect(url) as connection:
            connection.sendall(sent)
            said = answer(connection)
            assert said.startswith(b"HTTP/1.1 " + status), said[:200]
            assert not status or b"application/problem+json" in said
            assert b"Traceback" not in said
    assert httpx2.get(f"{url}/healthz").status_code == 204


def test_headers_that_do_not_come_end_the_connection(tmp_path: Path) -> None:
    shorter = (
        "import sys\nfrom hpsearch.search.service import server\nserver.HEADER_SECONDS = 0.5\n"
        "from hpsearch.search.cli import main\nsys.argv = ['hpsearch', 'serve', '--port', '0']\nmain()\n"
    )
    command = [sys.executable, "-c", shorter]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(tmp_path), text=True, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline().startswith("serving ")
            url = json.loads(next((tmp_path / "home").glob("serve-*.json")).read_text())["url"]
            silent, slow, again = connect(url), connect(url), connect(url)
            slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: local")
            again.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert again.recv(65536).startswith(b"HTTP/1.1 204")
            again.sendall(b"GET /healthz HTT")
            for connection in (silent, slow, again):
                with connection:
                    assert answer(connection) == b""
            assert httpx2.get(f"{url}/healthz").status_code == 204
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_cleanly_and_can_be_killed(number: signal.Signals, tmp_path: Path) -> None:
    with serving(tmp_path) as (process, url, token):
        kept = HTTPConnection(url.removeprefix("http://"))
        kept.request("GET", "/healthz")
        kept.getresponse().read()  # it stays open
        process.send_signal(number)
        code = process.wait(30)
        kept.close()
    links = list((tmp_path / "home").glob("serve-*.json"))
    assert (code, len(links)) == ((-9, 1) if number == signal.SIGKILL else (0, 0))
    if number == signal.SIGKILL:
        port = url.rpartition(":")[2]
        with serving(tmp_path, port=port) as (_, again, other):
            assert (again, other != token) == (url, True)


def test_a_unix_socket_is_its_users(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    for _ in range(2):  # the second finds what the killed first left
        with serving(tmp_path, "--uds", str(path)) as (_, url, token):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            transport = httpx2.HTTPTransport(uds=str(path))
            with httpx2.Client(transport=transport, base_url=url) as client:
                assert client.get("/v1", headers={"Authorization": f"Bearer {token}"}).status_code == 200
                assert client.get("/v1").status_code == 401


def test_another_address_is_served_with_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(tmp_path / "cert.pem", append=True)
    options = ("--host", "0.0.0.0", "--tls-cert", "cert.pem", "--tls-key", "key.pem", "--allow-host", "lab")
    with serving(tmp_path, *options) as (process, url, token):
        assert url.startswith("https://")
        context = ssl.create_default_context()
        authority.configure_trust(context)
        address = f"https://localhost:{url.rpartition(':')[2]}/v1"
        headers = {"Authorization": f"Bearer {token}"}
        with httpx2.Client(verify=context, headers=headers) as client:
            assert client.get(address).status_code == 200
            assert client.get(address, headers={"Host": "lab"}).status_code == 200
            assert client.get(address, headers={"Host": socket.gethostname()}).status_code in (200, 421)
            assert client.get(address, headers={"Host": "0.0.0.0"}).status_code == 421
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_help_and_local_commands_load_none_of_it(tmp_path: Path) -> None:
    names = ("fastapi", "starlette", "uvicorn", "httpx2", "prometheus_client")
    program = (
        "import sys\nfrom hpsearch.search.cli import main\nsys.argv = ['hpsearch', *sys.argv[1:]]\n"
        "try:\n    main()\nfinally:\n"
        f"    assert not {{*{names!r}}} & sys.modules.keys(), sys.modules.keys() & {{*{names!r}}}\n"
    )
    for words in (["serve", "--help"], ["validate", "lora"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr.decode()


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    program = (
        "import sys\nsys.modules['fastapi'] = None\nfrom hpsearch.search.cli import main\n"
        "sys.argv = ['hpsearch', *sys.argv[1:]]\nmain()\n"
    )
    for words in (["schema", "--openapi"],):
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
        )
        assert done.returncode == 1
        assert b"pip install 'hpsearch[serve]'" in done.stderr and b"Traceback" not in done.stderr
