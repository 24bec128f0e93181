"""Errors as problem documents: statuses, and what is not told."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpsearch.objectives import ObjectiveError
from hpsearch.search.errors import SearchError, UsageError
from hpsearch.search.service.problems import KINDS, problem_of
from hpsearch.search.values import NextStep
from hpsearch.spaces import Issue, SpaceError
from hpsearch.storage import DatabaseUnavailable, StorageError
from hpsearch.storage.workspace import Workspace

from ...support.remote import wait_for
from ...support.serving import Callers, callers
from ...support.spaces import small


def _from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


ERRORS: list[tuple[Exception, int, str]] = [
    (StorageError("no x", code="study-missing"), 404, "no-such-study"),
    (StorageError("no 7", code="trial-missing"), 404, "no-such-trial"),
    (StorageError("taken", code="name-taken"), 409, "name-taken"),
    (StorageError("searched", code="study-busy"), 409, "busy-elsewhere"),
    (StorageError("damaged"), 500, "failed"),
    (DatabaseUnavailable("locked"), 503, "database-unavailable"),
    (SearchError("pruned", code="trial-state"), 409, "wrong-state"),
    (SearchError("none is complete"), 409, "wrong-state"),
    (SearchError("silent", code="no-answer"), 503, "no-answer"),
    (UsageError("wrong"), 422, "request-invalid"),
    (ObjectiveError("unknown"), 422, "objective-invalid"),
    (SpaceError([Issue("s.yaml", 1, 2, "a", "b")]), 422, "space-invalid"),
    (OSError(errno.ENOSPC, "No space left on device"), 507, "disk-full"),
    (_from(SearchError("cannot write", code="home"), OSError(errno.ENOSPC, "No space")), 507, "disk-full"),
    (DatabaseUnavailable("database or disk is full", code="disk-full"), 507, "disk-full"),
    (OSError(errno.EIO, "Input/output error"), 500, "failed"),
    (RuntimeError("a bug, with a secret"), 500, "internal"),
]


def test_an_error_has_its_status_and_type(subtests: pytest.Subtests) -> None:
    for error, status, type in ERRORS:
        with subtests.test(repr(error)):
            found = problem_of(error)
            assert (found.status, found.type) == (status, type) and type in KINDS
            document = json.loads(found.body("req_1"))
            assert document["instance"] == "req_1" and "secret" not in str(document)
            assert ("Retry-After" in found.headers) == (status in (429, 503))


def test_an_issue_without_a_place_names_no_file() -> None:
    error = SpaceError([Issue("<dict>", 0, 0, "x.mim", "unknown key"), Issue("s.yaml", 6, 1, "y", "b")])
    assert json.loads(problem_of(error).body("req_1"))["issues"] == [
        {"path": "x.mim", "message": "unknown key"},
        {"file": "s.yaml", "line": 6, "column": 1, "path": "y", "message": "b"},
    ]


def test_a_document_says_what_may_help_and_no_password() -> None:
    error = SearchError(
        "cannot open postgresql://a:pass@b/c", next_steps=[NextStep("run", {"study": "a"}, "go on")]
    )
    document = json.loads(problem_of(error, ["postgresql://a:pass@b/c"]).body("req_1", "/hp"))
    assert document["next_steps"][0]["operation"] == "run"
    assert document["type"] == "/hp/problems/wrong-state" and "pass" not in document["detail"]


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callers]:
    folder = tmp_path_factory.mktemp("problems")
    with callers(Workspace.at(str(folder / "studies.db")), folder / "home") as found:
        yield found


def test_whatever_fails_is_answered_with_a_document(
    call: Callers,
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for error, status, _ in ERRORS:
        with subtests.test(repr(error)), monkeypatch.context() as patch:

            def fail(error: Exception = error, **given: Any) -> None:
                raise error

            patch.setattr("hpsearch.search.operations.studies.list_studies", fail)
            answer = call("GET", "/v1/studies", "read")
            assert answer.status_code == status
            assert answer.json()["instance"] == answer.headers["x-request-id"]
            assert answer.headers["x-content-type-options"] == "nosniff"
    assert "a bug, with a secret" in caplog.text, "the log has what the answer has not"


def test_a_full_disk_is_why_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace.at(str(tmp_path / "studies.db"))
    with callers(workspace, tmp_path / "home") as call:
        wait_for(lambda: call("GET", "/readyz", None).status_code == 204)
        monkeypatch.setattr("hpsearch.search.service.home.ROOM", 1 << 60)  # more than any disk has
        assert call("GET", "/readyz", None).status_code == 503
        space = small(name="k", objective="remote").to_json()
        assert call("PUT", "/v1/studies/k", json={"space": space, "backend": "remote"}).status_code == 201
        (study,) = call("GET", "/v1/queue").json()["studies"]
        told = f"the disk of {tmp_path / 'home'} is full: nothing is started until it has room"
        assert study["state"]["reason"] == told and study["begins"] is None


def test_a_database_that_goes_is_said(tmp_path: Path) -> None:
    workspace = Workspace.at(str(tmp_path / "studies.db"))
    with callers(workspace, tmp_path / "home") as call:
        wait_for(lambda: call("GET", "/readyz", None).status_code == 204)  # once its parts have looked
        (tmp_path / "studies.db").unlink()
        assert call("GET", "/readyz", None).status_code == 503
        assert call("GET", "/healthz", None).status_code == 204
        answer = call("GET", "/v1/studies", "read")
        assert answer.status_code == 503 and "studies.db" in answer.json()["detail"]
        call.service.home.tokens.write_text("nonsense\n")
        assert call("GET", "/v1", "read").status_code == 500
