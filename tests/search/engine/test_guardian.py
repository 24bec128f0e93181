"""A guardian and the study of a killed driver; tests/faults kills real drivers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest

from hpsearch.search.engine import guardian
from hpsearch.search.engine.guardian import (
    MARK_VARIABLE,
    TEMPORARY_PREFIX,
    end_processes,
    ended_with_this_process,
    requeue_running,
)
from hpsearch.storage.database import open_storage
from hpsearch.storage.locks import driver_lock
from hpsearch.storage.workspace import Workspace


@pytest.fixture
def study(tmp_path: Path) -> Iterator[optuna.Study]:
    """A study that was renamed from "old", with a running trial."""
    storage = open_storage(f"sqlite:///{tmp_path / 'a.db'}", create=True)
    made = optuna.create_study(study_name="new", storage=storage)
    made.ask().report(0.5, 1)
    yield made
    storage.engine.dispose()


def states(study: optuna.Study) -> list[str]:
    return [trial.state.name for trial in study.get_trials()]


def test_running_trials_are_requeued_in_a_renamed_study(study: optuna.Study, tmp_path: Path) -> None:
    requeue_running(Workspace(f"sqlite:///{tmp_path / 'a.db'}", tmp_path / "runs"), "new", kept="old")
    assert states(study) == ["WAITING"]
    assert study.trials[0].intermediate_values == {1: 0.5}


def test_the_trials_of_a_newer_search_are_left_alone(study: optuna.Study, tmp_path: Path) -> None:
    url, runs = f"sqlite:///{tmp_path / 'a.db'}", tmp_path / "runs"
    with driver_lock(Workspace(url, runs), "old"):
        requeue_running(Workspace(url, runs), "new", kept="old")
    assert states(study) == ["RUNNING"]


def test_a_deleted_study_is_no_error(tmp_path: Path) -> None:
    requeue_running(Workspace(f"sqlite:///{tmp_path / 'none.db'}", tmp_path / "runs"), "new", kept="new")
    assert not (tmp_path / "none.db").exists()


def test_searches_of_several_threads_share_a_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever ends first; and what was there before, of a search whose trial searches, comes back."""
    monkeypatch.setenv(MARK_VARIABLE, "1-of-another")
    workspace = Workspace(f"sqlite:///{tmp_path / 'a.db'}", tmp_path / "runs")
    first, second = (guardian.guarded(workspace, name, kept=name) for name in ("a", "b"))
    with first:
        mark = os.environ[MARK_VARIABLE]
        second.__enter__()
    assert os.environ[MARK_VARIABLE] == mark and mark.startswith(f"{os.getpid()}-")
    second.__exit__(None, None, None)
    assert os.environ[MARK_VARIABLE] == "1-of-another"


def test_only_processes_with_the_mark_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / f"{TEMPORARY_PREFIX}4000000-x"
    left.mkdir()
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    ours, other = (subprocess.Popen(words, env={MARK_VARIABLE: f"4000000-{which}"}) for which in "ab")
    try:
        end_processes("4000000-a", 4000000)
        assert ours.poll() is not None and other.poll() is None
        assert not left.exists()
    finally:
        for process in (ours, other):
            process.kill()
            process.wait()


@pytest.mark.parametrize(("before", "signal"), [("", 15), ("trap '' TERM; ", 9)])
def test_a_process_ends_with_the_one_that_started_it_also_where_it_ignores_that(
    before: str, signal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["/bin/sh", "-c", f"{before}echo; read -r word"]
    with subprocess.Popen(words, stdin=-1, stdout=-1, start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.read(1) == b"\n"
        with ended_with_this_process(process.pid):
            pass
        assert process.poll() is None, "it was not killed"
        monkeypatch.setattr(guardian, "LEAVE_SECONDS", 0)
        monkeypatch.setattr(guardian, "_send", lambda *of: None)  # a killed process says no word
        with ended_with_this_process(process.pid):
            pass
        assert process.wait(60) == -signal
