"""optuna-dashboard at /optuna/: who reads it with which cookie, and what it is served with."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from hpsearch.search.errors import SearchError
from hpsearch.search.service import front_end
from hpsearch.search.service.guard import access
from hpsearch.search.service.visits import HOURS, MOST
from hpsearch.storage.workspace import Workspace

from ...support.serving import Callers, callers, searched

API = "/optuna/api/studies"


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callers]:
    folder = tmp_path_factory.mktemp("visited")
    with callers(searched(folder), folder / "home") as found:
        yield found


def begin(call: Callers, token: str | None = None, **body: str) -> str:
    """The header with the cookie of a new visit."""
    answer = call("POST", "/v1/visits", "read", token, json=body)
    assert answer.status_code == 201, answer.text
    call.client.cookies.clear()
    return str(answer.headers["set-cookie"]).partition(";")[0]


def with_cookie(call: Callers, cookie: str, path: str = API, method: str = "GET", **headers: str) -> Any:
    return call(method, path, None, headers={"Cookie": cookie} | headers, follow_redirects=False)


def test_a_visit_reads_the_dashboard_and_opens_nothing_else(call: Callers) -> None:
    answer = call("POST", "/v1/visits", "read", json={"study": "curve"})
    assert answer.json() == {"link": "/optuna/dashboard/studies/1", "seconds": 3600.0 * HOURS}
    ((name, morsel),) = SimpleCookie(answer.headers["set-cookie"]).items()
    assert (morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, "strict", "/optuna")
    assert (morsel["secure"], morsel["max-age"], len(morsel.value)) == ("", str(3600 * HOURS), 43)
    call.client.cookies.clear()
    cookie = f"other=1; {name}={morsel.value}"
    studies = with_cookie(call, cookie).json()["study_summaries"]
    assert [study["study_name"] for study in studies] == ["curve"]
    assert with_cookie(call, cookie, "/optuna/csv/1").status_code == 200
    assert with_cookie(call, cookie, "/optuna").headers["location"] == "/optuna/dashboard"
    for path in ("/v1", "/v1/studies", "/openapi.json", "/optunas", "/metrics"):
        assert with_cookie(call, cookie, path).status_code == 401, path
    for method, path in (
        ("POST", API),
        ("DELETE", f"{API}/1"),
        ("PUT", f"{API}/1/note"),
        ("PATCH", "/optuna"),
    ):
        refused = with_cookie(call, cookie, path, method)
        assert refused.status_code == 405 and "only read here" in refused.json()["reason"]
    assert with_cookie(call, cookie, "/v1/visits", "POST").status_code == 401
    assert begin(call, study="gone") and call("GET", "/v1/studies/curve").status_code == 200


def test_pages_from_elsewhere_get_nothing_with_the_cookie(call: Callers) -> None:
    cookie = begin(call)
    for site in ("same-site", "cross-site"):
        assert with_cookie(call, cookie, **{"Sec-Fetch-Site": site}).status_code == 401
    for site in ("same-origin", "none"):
        assert with_cookie(call, cookie, **{"Sec-Fetch-Site": site}).status_code == 200
    assert with_cookie(call, cookie, Host="evil.example.org").status_code == 421
    for foreign in ({"Origin": "https://evil.example.org"}, {"Sec-Fetch-Site": "cross-site"}):
        assert call("POST", "/v1/visits", json={}, headers=foreign).status_code == 403
        assert with_cookie(call, cookie, API, "POST", **foreign).status_code == 403
    answer = with_cookie(call, cookie, Origin="http://localhost:1")
    assert "access-control-allow-origin" not in answer.headers
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_a_visit_ends_with_its_token_in_time_and_when_newer_ones_need_room(
    call: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = call("POST", "/v1/tokens", json={"name": "anna", "scope": "write"}).json()
    first, *others = [begin(call, made["token"]) for _ in range(MOST + 1)]
    mine = begin(call)
    assert [with_cookie(call, each).status_code for each in (first, *others)] == [401] + [200] * MOST
    assert call("DELETE", f"/v1/tokens/{made['id']}").status_code == 200
    refused = with_cookie(call, others[0])
    assert refused.status_code == 401 and "from the page" in refused.json()["reason"]
    assert with_cookie(call, mine).status_code == 200
    assert with_cookie(call, mine[:-1]).status_code == with_cookie(call, "").status_code == 401
    now = time.monotonic()
    monkeypatch.setattr("hpsearch.search.service.visits.time.monotonic", lambda: now + 3600 * HOURS + 1)
    assert with_cookie(call, mine).status_code == 401


def test_a_token_for_some_studies_is_refused(call: Callers) -> None:
    token = call.service.tokens.create("bound", "read", studies=["curve"]).token
    for answer in (call("POST", "/v1/visits", token=token, json={}), call("GET", API, token=token)):
        assert answer.status_code == 403 and "shows every study" in answer.json()["detail"]
        assert "set-cookie" not in answer.headers


def test_the_log_has_neither_cookie_nor_token(call: Callers, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", access.name):
        cookie = begin(call)
        with_cookie(call, cookie)
    assert len(caplog.records) == 2 and '"by": "read"' in caplog.text
    assert cookie.partition("=")[2] not in caplog.text and call.tokens["read"] not in caplog.text


def test_only_the_dashboard_own_script_runs(call: Callers) -> None:
    page = call("GET", "/optuna/dashboard/studies/1", "read")
    found = re.search(r'<script defer src="(/optuna/static/\w+\.js)" integrity="(sha256-\S+)">', page.text)
    assert found is not None and page.text.count("<script") == 1
    policy = page.headers["content-security-policy"]
    assert f"script-src '{found[2]}' 'unsafe-eval';" in policy and "script-src 'self'" not in policy
    for rule in ("default-src", "worker-src", "frame-ancestors", "form-action", "base-uri"):
        assert f"{rule} 'none'" in policy
    plain = call("GET", found[1], "read", headers={"Accept-Encoding": "identity"})
    zipped = call("GET", found[1], "read", headers={"Accept-Encoding": "gzip"})
    assert zipped.headers["content-encoding"] == "gzip" and zipped.content == plain.content
    assert int(zipped.headers["content-length"]) < len(plain.content) / 2
    assert "immutable" in plain.headers["cache-control"]
    assert call("GET", "/optuna/static/000000000000.js", "read").status_code == 404
    assert call("GET", "/optuna/favicon.ico", "read").status_code == 200
    assert "unsafe-eval" not in call("GET", "/", None).headers["content-security-policy"]


def test_a_file_of_a_trial_runs_nothing(call: Callers) -> None:
    trials = call("GET", f"{API}/1", "read").json()["trials"]
    artifacts = [(trial["trial_id"], each) for trial in trials for each in trial["artifacts"]]
    assert artifacts
    for trial, artifact in artifacts:
        answer = call("GET", f"/optuna/artifacts/1/{trial}/{artifact['artifact_id']}", "read")
        assert answer.status_code == 200 and answer.headers["content-security-policy"] == "sandbox"
        assert answer.headers["content-disposition"] == "attachment"


def test_another_dashboard_is_not_served_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for texts in (front_end.SCRIPT, front_end.DOCUMENT):
        for text, (other, times) in texts.items():
            with monkeypatch.context() as patch:
                patch.setitem(texts, text, (other, times + 1))
                with pytest.raises(SearchError, match="can be shown at /optuna; hpsearch dashboard"):
                    front_end.under("/optuna")
    monkeypatch.setitem(front_end.DOCUMENT, "<script async", ("", 1))
    with callers(Workspace.at(str(tmp_path / "studies.db")), tmp_path / "home") as call:
        for path in ("/optuna/", API):
            answer = call("GET", path, "read")
            assert (answer.status_code, answer.json()["type"]) == (501, "/problems/extra-missing")
            assert "hpsearch dashboard" in answer.json()["detail"]
