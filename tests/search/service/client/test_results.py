"""What a server says of a study is what the operation says here."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from hpsearch.search.errors import SearchError
from hpsearch.search.operations import forecast, show, watch, winner
from hpsearch.search.operations.control import Tried
from hpsearch.search.queue.states import StudyState
from hpsearch.search.queue.view import QueuedStudy
from hpsearch.search.service.client import Server
from hpsearch.storage import StorageError
from hpsearch.storage.workspace import Workspace

from ....support.online import serving
from ....support.serving import searched


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Workspace]]:
    folder = tmp_path_factory.mktemp("results")
    workspace = searched(folder)
    log = workspace.runs / "curve" / "1" / "output.log"
    log.write_text("a line\nhalf a ł")
    with serving(workspace, folder) as served, served.client("read") as server:
        yield server, workspace


def test_each_method_says_what_its_operation_says(both: tuple[Server, Workspace]) -> None:
    server, workspace = both
    asked: list[tuple[Any, dict[str, Any]]] = [
        (winner.winner, {}),
        (forecast.forecast, {"trials": "+4", "slots": 2}),
        (show.figure, {"name": "history"}),
        (watch.files, {"trial": 1}),
        (watch.curves, {"trials": [0, 1], "points": 5}),
        (watch.curves, {"since": 2}),
        (watch.log, {"trial": 1}),
        (watch.log, {"trial": 1, "begin": 7}),
    ]
    for operation, given in asked:
        here = operation(workspace=workspace, study="curve", **given)
        there = getattr(server, operation.__name__)(study="curve", **given)
        now = {"ends": None}  # which moves with the clock
        assert there.to_json() | now == here.to_json() | now, operation.__name__


def test_the_answer_of_an_older_server_may_lack_what_is_new(both: tuple[Server, Workspace]) -> None:
    _, workspace = both
    queued = QueuedStudy("curve", StudyState("queued", "it waits"), "normal", id=7)
    for value, new in (
        (show.show(workspace=workspace, study="curve"), "made_room"),
        (queued, "id"),
        (Tried("curve", 3, {"x": 0.5}, searching=False, made=True, budget=4), "budget"),
    ):
        answer = value.to_json()
        del answer[new]
        assert getattr(type(value).from_json(answer), new) is None


def test_files_are_received_whole(both: tuple[Server, Workspace]) -> None:
    server, workspace = both
    opened = server.open_file(study="curve", trial=1, path="config.json")
    with os.fdopen(opened.descriptor, "rb") as stream:
        content = stream.read()
    assert content == (workspace.runs / "curve" / "1" / "config.json").read_bytes()
    assert len(content) == opened.bytes
    here, there = io.BytesIO(), io.BytesIO()
    with pytest.raises(SearchError) as refused:
        server.winner_zip(study="curve", output=there)
    assert refused.value.code == "not-confirmed" and not there.getvalue()
    made = server.winner_zip(study="curve", output=there, unconfirmed=True)
    assert made == winner.winner_zip(workspace=workspace, study="curve", output=here, unconfirmed=True)
    assert zipfile.ZipFile(there).namelist() == zipfile.ZipFile(here).namelist()


def test_a_log_that_has_no_more_and_a_file_that_is_not_there(both: tuple[Server, Workspace]) -> None:
    server, workspace = both
    ended = server.log(study="curve", trial=1, begin=16)
    assert (ended.begin, ended.end, ended.text) == (16, 16, "")
    nothing = server.log(study="curve", trial=0)
    assert nothing == watch.log(workspace=workspace, study="curve", trial=0) and not nothing.text
    for path in ("nothing", "../../../studies.db", "a{b}"):
        with pytest.raises((StorageError, SearchError)):
            server.open_file(study="curve", trial=1, path=path)
