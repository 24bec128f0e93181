"""Who a server notifies: its owner says so, and nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpsearch.search.errors import UsageError
from hpsearch.search.queue.slots import Machine, Slice
from hpsearch.search.service.home import Home, Settings
from hpsearch.search.service.queue.drivers import environment
from hpsearch.search.service.server import Address, _public_url
from hpsearch.search.service.service import Service
from hpsearch.storage.workspace import Workspace

from ...support.receiver import receiving
from ...support.serving import callers


def test_only_serve_yaml_names_who_is_told_and_a_test_reaches_them(tmp_path: Path) -> None:
    home = Home.at(tmp_path / "home")
    with receiving() as receiver:
        (home.folder / "serve.yaml").write_text(
            f"notify: ['{receiver.url('/200')}#whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', '{receiver.url('/503?s3cret')}']\n"
        )
        settings = home.settings()
        assert "s3cret" not in repr(settings) and "whsec" not in repr(settings)
        receiver.answers["/503?s3cret"] = 503
        with callers(Workspace.at(str(tmp_path / "a.db")), tmp_path / "home", settings) as call:
            call.service.url = "https://host"
            answer = call("POST", "/v1/webhooks/test")
            assert answer.json() == {
                "targets": [
                    {"target": "127.0.0.1", "error": None},
                    {"target": "127.0.0.1 #2", "error": "it answered 503"},
                ]
            }
            assert receiver.received[0].json["data"]["link"] == "https://host/"
            named = call("POST", "/v1/webhooks/test", json={"targets": [receiver.url("/200")]})
            assert len(named.json()["targets"]) == 2 and receiver.types == [
                "test",
                "test",
            ]  # what is sent is passed over


def test_a_wrong_target_of_a_server_is_refused_at_its_start(tmp_path: Path) -> None:
    home, workspace = Home.at(tmp_path / "home"), Workspace.at(str(tmp_path / "a.db"))
    with pytest.raises(UsageError, match=r"notify in serve.yaml: this is nobody to be notified"):
        Service.at(workspace, home, Settings(notify=("s3cret",)))
    (home.folder / "serve.yaml").write_text("notify: {s3cret: 1}")
    with pytest.raises(UsageError, match="notify needs a list of texts, not something else"):
        home.settings()


def test_drivers_do_not_get_the_targets() -> None:
    given = environment({"HPSEARCH_NOTIFY": "https://a/s3cret"}, Slice(), Machine((0,), (), 1))
    assert "HPSEARCH_NOTIFY" not in given


def test_the_link_is_what_people_reach(tmp_path: Path) -> None:
    proxied = Settings(allow_hosts=("lab.org",), behind_proxy="127.0.0.1")
    assert _public_url(Address(), 8765, Settings()) == "http://127.0.0.1:8765"
    assert _public_url(Address(), 8765, proxied) == "https://lab.org"
    assert _public_url(Address(uds=tmp_path / "s"), 0, Settings()) is None
