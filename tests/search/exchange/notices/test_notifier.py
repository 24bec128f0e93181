"""What arrives at those who are notified, whatever happens to the search, to them, or in between."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search.engine import clock
from hpsearch.search.engine.driver import Driver
from hpsearch.search.errors import SearchError, UsageError
from hpsearch.search.exchange.notices import notifier, sender, webhook
from hpsearch.search.exchange.notices.base import Target
from hpsearch.search.exchange.notices.messages import notice_of_test
from hpsearch.search.exchange.notices.notifier import Notifier
from hpsearch.search.exchange.notices.targets import targets_of
from hpsearch.search.operations import run, show
from hpsearch.search.operations.submit import submit
from hpsearch.search.results.study import StudyResult, load_result
from hpsearch.spaces import Spec
from hpsearch.storage import StorageError
from hpsearch.storage.database import open_storage, open_tables
from hpsearch.storage.told import TOLD, Notice, all_told
from hpsearch.storage.wanted import change_wanted
from hpsearch.storage.workspace import Workspace

from ....support.bench import HPSEARCH
from ....support.in_process import InProcessBackend
from ....support.receiver import Receiver, receiving
from ....support.remote import wait_for
from ....support.spaces import small
from ....support.watchers import Recorder

FUNCTIONS = """\
import time


def loss(trial):
    return trial.params["x"]


def broken(trial):
    raise ValueError("no such file")


def slower(trial):
    time.sleep(0.0 if trial.number < 20 else 0.5)
    return trial.params["x"]
"""
SLOWER: dict[str, Any] = {"objective": "f.py:slower", "budget": {"trials": 100_000}}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    (tmp_path / "f.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "hpsearch.search.operations.run.make_backend", lambda name, *of: InProcessBackend(*of[:2])
    )
    return Workspace.at(str(tmp_path / "a.db"))


def space(**fields: Any) -> Spec:
    return small(**{"objective": "f.py:loss", "baseline": {"x": 0.999}} | fields)


def search(workspace: Workspace, *notify: str, watcher: Recorder | None = None, **fields: Any) -> StudyResult:
    watcher = watcher or Recorder()
    return run.run(workspace=workspace, space=space(**fields), watcher=watcher, notify=notify)


def told(workspace: Workspace) -> Any:
    return all_told(open_tables(workspace.url))["study"]["127.0.0.1"]


@pytest.mark.slow
def test_a_search_tells_that_it_is_better_and_finished(workspace: Workspace, receiver: Receiver) -> None:
    result = search(workspace, receiver.url("/200"))
    assert receiver.types == ["better", "finished"]
    finished = receiver.received[1].json
    assert result.winner is not None
    data = finished["data"]
    assert (data["study"], data["metric"], data["winner"]) == ("study", "loss", result.winner.number)
    assert data["best"] == result.winner.value and data["confirmed"] is False and data["link"] is None
    assert data["sentence"].startswith(
        f'"study" is finished: best loss {data["best"]:.6g} by trial {data["winner"]}, better than the baseline'
    )
    assert len(receiver.received[1].body) < 600 and told(workspace).pending == ()
    search(workspace, receiver.url("/200"))  # nothing is left to do
    assert len(receiver.received) == 2
    search(workspace, receiver.url("/200"), budget={"trials": 30})  # which takes a moment even here
    assert receiver.types == ["better", "finished", "finished"]


def test_a_search_tells_that_it_has_failed(workspace: Workspace, receiver: Receiver) -> None:
    with pytest.raises(SearchError):
        search(workspace, receiver.url("/200"), objective="f.py:broken")
    assert receiver.types == ["failed"]
    assert (
        "all failed the same way: ValueError: no such file" in receiver.received[0].json["data"]["sentence"]
    )


@pytest.mark.slow
def test_a_search_that_becomes_slower_tells_that_its_end_has_moved(
    workspace: Workspace, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real search of many hours by its own pace, which is stopped when that was told."""
    monkeypatch.setattr(notifier, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(clock, "SAVE_EVERY_SECONDS", 0.05)
    until = time.monotonic() + 60

    def enough(driver: Driver) -> None:
        if "end_moved" in receiver.types or time.monotonic() > until:
            driver.request_stop("enough")

    search(
        workspace,
        receiver.url("/200"),
        watcher=Recorder(at_tick=enough),
        baseline=None,
        **SLOWER,
    )
    assert receiver.types[0] == "end_moved"
    sentence = receiver.received[0].json["data"]["sentence"]
    assert re.fullmatch(r'"study" ends (later|earlier) than foreseen: \S+ .* UTC, not .* UTC', sentence)


@pytest.mark.slow
def test_what_a_killed_driver_had_still_to_tell_is_sent_by_the_next_run(
    workspace: Workspace, receiver: Receiver, tmp_path: Path
) -> None:
    """A process that ends by SIGKILL once the notice is in the study, and before its target takes it."""
    url = receiver.url("/503")
    words = ["--notify", url, "--storage", str(workspace.file), "--plain"]
    (tmp_path / "space.json").write_text(json.dumps(space(**SLOWER).to_json()))
    with subprocess.Popen([HPSEARCH, "run", "space.json", *words], cwd=tmp_path) as driver:
        try:
            wait_for(lambda: (workspace.file or Path()).exists() and bool(pending(workspace)))
        finally:
            driver.kill()
    assert driver.returncode == -signal.SIGKILL and receiver.received == []
    (better,) = pending(workspace)
    receiver.answers["/503"] = 200
    search(workspace, url, **SLOWER | {"budget": {"trials": 1}})
    assert receiver.received[0].headers["webhook-id"] == better.id
    assert receiver.types == ["better", "finished"] and pending(workspace) == []


def pending(workspace: Workspace) -> list[Notice]:
    """What is still to be sent of the study, where its database can be read already."""
    with suppress(StorageError):
        known = all_told(open_tables(workspace.url)).get("study", {})
        return [notice for each in known.values() for notice in each.pending]
    return []


@pytest.mark.slow
def test_what_was_not_taken_is_told_by_show_and_sent_by_the_next_run(
    workspace: Workspace, receiver: Receiver
) -> None:
    receiver.answers["/hook/s3cret"] = 503
    watcher = Recorder()
    search(workspace, receiver.url("/hook/s3cret"), watcher=watcher)
    assert watcher.said[-1].startswith(
        "127.0.0.1 could not be notified (better, finished): it answered 503; hpsearch show"
    )
    waiting = [notice.id for notice in told(workspace).pending]
    report = show.show(workspace=workspace, study="study")
    assert [(each.target, each.kinds) for each in report.untold] == [("127.0.0.1", ["better", "finished"])]
    everything = json.dumps([report.to_json(), watcher.said, search(workspace).to_json()])
    assert "s3cret" not in everything and "s3cret" not in repr(targets_of([receiver.url("/hook/s3cret")]))
    assert b"s3cret" not in (workspace.file or Path()).read_bytes()
    receiver.answers["/hook/s3cret"] = 200
    search(workspace, receiver.url("/hook/s3cret"))
    assert [each.headers["webhook-id"] for each in receiver.received] == waiting
    assert show.show(workspace=workspace, study="study").untold == []


@pytest.mark.slow
def test_no_search_waits_for_a_target_that_hangs(
    workspace: Workspace, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "LAST_SECONDS", 3.0)
    watcher, began = Recorder(), time.monotonic()
    search(workspace, receiver.url("/hang"), receiver.url("/200"), watcher=watcher)
    assert time.monotonic() - began < webhook.ANSWER_SECONDS
    assert "127.0.0.1 could not be notified (better, finished): it has not answered yet" in watcher.said[-1]
    assert receiver.types == ["better", "finished"]  # the other target does not wait


def test_a_wrong_target_is_refused_before_the_search(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="nobody to be notified"):
        search(workspace, "example.org")
    assert workspace.file is not None and not workspace.file.exists()


def test_trouble_of_a_notifier_ends_no_search(
    workspace: Workspace, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: Any, **more: Any) -> Any:
        raise RuntimeError("no")

    monkeypatch.setattr(notifier, "observe", unreadable)
    watcher = Recorder()
    assert search(workspace, receiver.url("/200"), watcher=watcher).winner is not None
    assert "for those who are notified: RuntimeError: no" in watcher.said[-1]


def test_a_refusal_is_tried_again(
    workspace: Workspace, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "FIRST_PAUSE", 0.05)
    receiver.answers["/hook"] = 503
    search(workspace)
    (target,) = targets_of([receiver.url("/hook")])
    later = sender.Sender(target, lambda waiting: None)
    later.add(sender.Waiting("study", notice_of_test()))
    until = time.monotonic() + 10
    while later.trouble is None and time.monotonic() < until:
        time.sleep(0.01)
    receiver.answers["/hook"] = 200
    while not receiver.received and time.monotonic() < until:
        time.sleep(0.01)
    assert receiver.types == ["test"]
    later.leave()
    assert later.left(5) == [] and later.trouble is None


def test_a_refusal_at_the_end_is_tried_again_while_there_is_time(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "FIRST_PAUSE", 0.02)
    receiver.answers["/hook"] = 500
    (target,) = targets_of([receiver.url("/hook")])

    class Answered(Target):
        """A target that takes notices at its third attempt."""

        attempts = 0

        def send(self, notice: Notice) -> None:
            self.attempts += 1
            receiver.answers["/hook"] = 500 if self.attempts < 3 else 200
            target.send(notice)

    answered = Answered(target.label)
    last = sender.Sender(answered, lambda waiting: None)
    last.add(sender.Waiting("study", notice_of_test()))
    last.leave(60)
    assert last.left(60) == [] and receiver.types == ["test"] and answered.attempts == 3
    without_time = sender.Sender(Answered(target.label), lambda waiting: None)
    without_time.add(sender.Waiting("study", notice_of_test()))
    without_time.leave()
    assert len(without_time.left(60)) == 1 and without_time.trouble == "it answered 500"


@pytest.mark.slow
def test_a_server_tells_of_a_study_that_was_over_before_its_next_look(
    workspace: Workspace, receiver: Receiver
) -> None:
    open_storage(workspace.url, create=True)
    server = Notifier(workspace, targets_of([receiver.url("/200")]))
    server.look()
    submit(workspace=workspace, space=space())
    search(workspace)
    server.start()
    wait_for(lambda: len(receiver.received) == 2)
    server.stop()
    assert receiver.types == ["better", "finished"]


@pytest.mark.slow
def test_a_study_that_was_copied_or_damaged_tells_nothing(
    workspace: Workspace, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "FIRST_PAUSE", 60.0)  # longer than the end of a search
    search(workspace, receiver.url("/503"))
    stored = open_result(workspace).study.user_attrs[TOLD]
    key = stored["of"]
    for damaged in (
        {**stored, "of": key + 1},
        {"of": key, "targets": 1},
        "text",
        {"of": key, "targets": {"127.0.0.1": {"pending": [1]}}},
    ):
        open_result(workspace).study.set_user_attr(TOLD, damaged)
        assert show.show(workspace=workspace, study="study").untold == []


def open_result(workspace: Workspace) -> StudyResult:
    return load_result(workspace, "study")


@pytest.mark.slow
def test_a_server_tells_of_all_its_studies(workspace: Workspace, receiver: Receiver) -> None:
    targets = targets_of([receiver.url("/200")])
    search(workspace, name="before")
    submit(workspace=workspace, space=space(name="before"))
    submit(workspace=workspace, space=space(name="waits"))
    first = Notifier(
        workspace,
        targets,
        is_mine=lambda study: study.name != "other",
        link=lambda study: f"https://host/#/studies/{study}",
    )
    submit(workspace=workspace, space=space(name="other"))
    first.look()
    search(workspace, name="waits")
    database = open_tables(workspace.url)
    change_wanted(
        database, "before", lambda wanted: wanted and replace(wanted, failure="its drivers were killed")
    )
    first.look()  # and is killed before it could send anything
    assert "other" not in all_told(database) and not receiver.received
    second = Notifier(workspace, targets)
    second.start()
    wait_for(lambda: len(receiver.received) == 3)
    second.stop()
    by_kind = {each.json["type"]: each.json["data"] for each in receiver.received}
    assert {kind: data["study"] for kind, data in by_kind.items()} == {
        "better": "waits", "finished": "waits", "failed": "before",
    }  # fmt: skip
    assert "its drivers were killed" in by_kind["failed"]["sentence"]
    assert by_kind["finished"]["link"] == "https://host/#/studies/waits"
    wait_for(
        lambda: not any(each.pending for study in all_told(database).values() for each in study.values())
    )
