"""A search is followed while its server restarts, and left alone by Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from hpsearch.search.cli.app import app
from hpsearch.search.errors import SearchError
from hpsearch.search.operations import control
from hpsearch.search.operations.steer import steer
from hpsearch.search.operations.studies import delete
from hpsearch.search.operations.submit import submit
from hpsearch.search.service import hpsearch_client
from hpsearch.search.service.app import make_app
from hpsearch.search.service.client import Server, connection
from hpsearch.search.service.client.following import FollowedSearch, follow
from hpsearch.search.service.home import Home, Settings
from hpsearch.search.service.service import Service
from hpsearch.storage import StorageError
from hpsearch.storage.workspace import Workspace

from ....support.online import listening
from ....support.spaces import small
from ....support.watchers import Recorder

SECONDS = 60.0
pytestmark = pytest.mark.slow


class Listener(Recorder):
    """Passes on what is said, to whom waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: SimpleQueue[str] = SimpleQueue()

    def say(self, message: str) -> None:
        super().say(message)
        self.heard.put(message)

    def until(self, words: str) -> None:
        """Return once something is said that has these words."""
        while words not in self.heard.get(timeout=SECONDS):
            pass


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace with a study that waits, for a server that starts nothing."""
    monkeypatch.setenv("HPSEARCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(connection, "WAIT_SECONDS", 0.01)
    workspace = Workspace.at(str(tmp_path / "studies.db"))
    submit(workspace=workspace, space=small(objective="remote"), backend="remote")
    return workspace


def drained(workspace: Workspace, folder: Path) -> Service:
    service = Service.at(workspace, Home.at(folder / "home"), Settings())
    service.queue.draining = True
    return service


def test_following_goes_on_while_the_server_restarts(workspace: Workspace, tmp_path: Path) -> None:
    listener = Listener()
    service = drained(workspace, tmp_path)
    token = service.tokens.create("tester", "read").token
    with ThreadPoolExecutor(1) as threads:
        with listening(make_app(service)) as url:
            server = Server(url, token)
            following = threads.submit(follow, server, "study", listener)
            listener.until("queued: the server is drained")
        listener.until("the search goes on, and this tries again")
        with listening(make_app(drained(workspace, tmp_path)), urlsplit(url).port or 0):
            control.stop(workspace=workspace, study="study", by="anna")
            search: FollowedSearch = following.result(timeout=SECONDS)
        server.close()
    assert (search.state, search.reason) == ("stopped", "stopped by anna; resume queues it again")


def test_a_study_is_followed_under_its_new_name_until_it_is_gone(
    workspace: Workspace, tmp_path: Path
) -> None:
    listener = Listener()
    service = drained(workspace, tmp_path)
    token = service.tokens.create("tester", "read").token
    with listening(make_app(service)) as url, Server(url, token) as server, ThreadPoolExecutor(1) as threads:
        following = threads.submit(follow, server, "study", listener)
        listener.until("queued: the server is drained")
        steer(workspace=workspace, study="study", name="new")
        listener.until('"study" is called "new" now')
        delete(workspace=workspace, study="new")
        with pytest.raises(StorageError, match='"new" can be followed no more: it was deleted, or renamed'):
            following.result(timeout=SECONDS)


def test_ctrl_c_leaves_the_search_alone(workspace: Workspace, tmp_path: Path) -> None:
    service = drained(workspace, tmp_path)
    token = service.tokens.create("tester", "write").token

    def interrupt() -> None:
        with service.queue.changed:
            assert service.queue.changed.wait_for(lambda: service.watch.watchers > 0, SECONDS)
        os.kill(os.getpid(), signal.SIGINT)

    with listening(make_app(service)) as url:
        threading.Thread(target=interrupt).start()
        words = ["--server", url, "run", "--study", "study", "--plain"]
        done = CliRunner(env={"HPSEARCH_TOKEN": token}).invoke(app, words)
        assert done.exit_code == 130
        assert f"detached; the search goes on at {url}" in done.stderr
        assert "to return: hpsearch --server" in done.stderr and "run --study study" in done.stderr
        with Server(url, token) as server:
            assert server.steer(study="study").wanted == "run"


def test_a_server_that_is_started_anew_is_found_with_its_new_token(
    workspace: Workspace, tmp_path: Path
) -> None:
    """As your own server, whose link and token are others then."""
    service = drained(workspace, tmp_path)
    home = tmp_path / "home"
    with listening(make_app(service)) as url:
        file = home / f"serve-{urlsplit(url).port}.json"
        link = {"url": url, "pid": os.getpid(), "uds": None}

        def started() -> str:
            token = service.tokens.create("owner", "read").token
            file.write_text(json.dumps(link | {"token": token}))
            return token

        first = started()
        with Server("local") as server, Server(url, first) as other:
            worker = hpsearch_client.Server(url)
            for made in (server, other):
                assert made.about()["caller"] == "owner"
            service.tokens.revoke("owner")
            started()
            assert server.about()["caller"] == "owner"
            answer = hpsearch_client.patiently(lambda: worker.call("GET", "/v1"), SECONDS)
            assert answer["caller"] == "owner"
            worker.close()
            worker.close()
            with pytest.raises(SearchError, match="this token is unknown here"):
                other.about()  # it was given that token
            file.unlink()
            service.tokens.revoke("owner")
            with pytest.raises(SearchError, match="this token is unknown here"):
                server.about()
