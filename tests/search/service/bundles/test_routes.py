"""Bundles over HTTP: asked for, sent, refused."""

from __future__ import annotations

import hashlib
import io
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search.errors import SearchError, UsageError
from hpsearch.search.operations.submit import submit
from hpsearch.storage import StorageError
from hpsearch.storage.database import open_tables
from hpsearch.storage.wanted import read_wanted
from hpsearch.storage.workspace import Workspace

from ....support.online import Served, serving
from ....support.spaces import small


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("bundles")
    with serving(Workspace.at(str(folder / "x.db")), folder) as served:
        yield served


def zipped(name: str, content: bytes = b"1") -> tuple[str, bytes]:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as packed:
        packed.writestr(name, content)
    return hashlib.sha256(stream.getvalue()).hexdigest(), stream.getvalue()


def test_a_bundle_is_sent_once(served: Served, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("print(1)")
    with served.client("code") as server:
        first, second = server.send_bundle(folder=tmp_path), server.send_bundle(folder=tmp_path)
    assert (first.new, second.new) == (True, False) and first.sha256 == second.sha256
    kept = served.service.bundles.path(first.sha256)
    assert (kept / "mine.py").read_text() == "print(1)"


@pytest.mark.parametrize(
    ("name", "wrong_hash", "said"),
    [("../x", False, "leaves its folder"), ("x", True, "has the SHA-256")],
    ids=["hostile", "of another hash"],
)
def test_what_is_refused_is_told_as_a_problem(served: Served, name: str, wrong_hash: bool, said: str) -> None:
    sha256, content = zipped(name)
    place = f"/v1/bundles/{'0' * 64 if wrong_hash else sha256}"
    with served.client("code") as server, pytest.raises(UsageError, match=said):
        server.connection.call("PUT", place, content=content)
    before = {path.name for path in served.service.home.bundles.iterdir()}
    assert not any(each.startswith(".") or each == sha256 for each in before)


def test_a_token_to_write_brings_no_code_and_a_name_is_a_hash(served: Served) -> None:
    sha256, content = zipped("x")
    with served.client("write") as server:
        with pytest.raises(UsageError, match='needs the scope "code"'):
            server.connection.call("PUT", f"/v1/bundles/{sha256}", content=content)
        with pytest.raises(UsageError, match="the token may not do this"):
            server.connection.call("HEAD", f"/v1/bundles/{sha256}")
    with served.client("code") as server, pytest.raises(UsageError, match="sha256"):
        server.connection.call("PUT", "/v1/bundles/xyz", content=content)


def test_a_bundle_that_is_not_there_is_missing(served: Served) -> None:
    with served.client("code") as server, pytest.raises(SearchError, match="send it first") as refused:
        server.submit(space=small(name="unsent", objective="mine.py:train"), bundle="0" * 64)
    assert refused.value.code == "no-such-bundle"


def test_a_space_runs_with_the_code_of_a_study(served: Served, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def train(trial): return 0.0")
    database = open_tables(served.service.workspace.url)
    like = small(name="like", objective="mine.py:train")

    def body(of: str, objective: str = "mine.py:train") -> dict[str, Any]:
        space = small(name="like", objective=objective, budget={"trials": 9})
        return {"space": space.to_json(), "code_of": of, "hold": True}

    with served.client("code") as server:
        sent = server.send_bundle(folder=tmp_path).sha256
        server.submit(space=like.override(name="sent"), bundle=sent, hold=True)
        submit(workspace=served.service.workspace, space=like.in_folder(tmp_path), cwd=tmp_path, hold=True)
        for of, bundle, folder in (
            ("sent", sent, served.service.bundles.path(sent)),
            ("like", None, tmp_path),
        ):
            server.connection.call("PUT", f"/v1/studies/again_{of}", body=body(of))
            wanted = read_wanted(database, f"again_{of}")
            assert wanted is not None
            assert (wanted.bundle, wanted.cwd) == (bundle, str(folder))
        with pytest.raises(StorageError, match='there is no study "nobody"'):
            server.connection.call("PUT", "/v1/studies/none", body=body("nobody"))
        with pytest.raises(UsageError, match=r"'gone\.py' is not in the bundle"):
            server.connection.call("PUT", "/v1/studies/none", body=body("sent", "gone.py:train"))
        shutil.rmtree(tmp_path)
        with pytest.raises(SearchError, match='the code of "like" is gone'):
            server.connection.call("PUT", "/v1/studies/none", body=body("like"))
    with served.client("write") as server, pytest.raises(UsageError, match="the scope"):
        server.connection.call("PUT", "/v1/studies/none", body=body("sent"))
