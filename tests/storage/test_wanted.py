"""What is wanted of a study: kept in one attribute, of this study alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.storage import StorageError
from hpsearch.storage.database import open_storage
from hpsearch.storage.studies import SPEC, attrs_of, open_live
from hpsearch.storage.transfer import transfer
from hpsearch.storage.wanted import (
    KILLS,
    WANTED,
    WITHIN,
    Desired,
    Preempted,
    Slots,
    Wanted,
    all_wanted,
    change_wanted,
    is_wanted,
    read_wanted,
)
from hpsearch.storage.workspace import Workspace

from ..support.spaces import SMALL

moments = st.integers(1, 4_000_000_000).map(float) | st.floats(1, 4e9).map(lambda at: round(at, 6))
words = st.none() | st.text()
counts = st.none() | st.integers(0, 2**40)


@given(
    st.builds(
        Wanted,
        since=moments,
        desired=st.sampled_from(["run", "pause", "stop"]),
        priority=st.sampled_from(["high", "normal", "low"]),
        by=words,
        changed=moments,
        slots=st.none() | st.builds(Slots, counts, counts, counts),
        cwd=words,
        preempted=st.none()
        | st.builds(
            Preempted, st.text(), moments, st.none() | moments, st.none() | moments, counts.filter(bool)
        ),
        lost=st.floats(0, 1e9),
        failure=words,
        started=st.none() | moments,
        killed=st.lists(moments, max_size=3).map(tuple),
    )
)
def test_what_is_wanted_is_read_as_it_was_written(wanted: Wanted) -> None:
    stored = wanted.to_json()
    assert is_wanted(stored) and is_wanted(stored | {"of a later version": 1})
    read = Wanted.parse(stored)
    assert read.to_json() == stored
    assert read.since == pytest.approx(wanted.since, abs=1e-5)


def test_a_driver_that_is_killed_all_the_time_is_not_started_again() -> None:
    wanted = Wanted(since=0.0)
    for at in (*range(KILLS), 3 * WITHIN, *range(int(4 * WITHIN), int(4 * WITHIN) + KILLS)):
        wanted = wanted.killed_at(float(at), "signal 9")
        assert wanted.failure is None, at
    failed = wanted.killed_at(4 * WITHIN + 9.0, "signal 9")
    assert failed.failure == "its drivers were ended 4 times in 10 minutes, the last by signal 9"
    assert failed.begun("server", 5 * WITHIN) == failed.killed_at(5 * WITHIN, "signal 9") == failed
    again = failed.to("run", "anna", 5 * WITHIN)
    assert (again.failure, again.killed, again.begun("server", 9e9).started) == (None, (), 9e9)


@pytest.mark.parametrize("desired", ["pause", "stop"])
def test_who_is_paused_while_it_makes_room_has_made_room(desired: Desired) -> None:
    told = Wanted(since=0.0).begun("server", 1.0).preempted_by("high", 10.0).to(desired, "anna", 14.0)
    assert (told.preemptions, told.made_room_for, told.lost, told.preempted) == (1, "high", 4.0, None)


def test_it_waits_since_it_was_put_back() -> None:
    begun = Wanted(since=0.0).begun("server", 1.0)
    assert begun.queued is None and begun.to("run", "anna", 2.0).queued is None, "it went on all the time"
    assert begun.to("pause", "anna", 2.0).to("run", "anna", 3.0).queued == 3.0
    assert begun.killed_at(4.0, "signal 9").queued == 4.0
    assert replace(begun, failure="no data").to("run", "anna", 5.0).queued == 5.0
    assert begun.preempted_by("high", 6.0).times_preempted == 1


def test_a_driver_that_left_as_it_was_told_was_not_killed() -> None:
    started = Wanted(since=0.0).begun("server", 10.0)
    told = started.to("stop", "anna", 12.0).to("run", "anna", 13.0)
    assert told.killed_at(14.0, None) == told
    assert told.killed_at(14.0, "signal 9").killed == (14.0,)
    assert started.killed_at(14.0, None).killed == (14.0,)


@pytest.mark.parametrize(
    "wrong",
    [
        None, [], "run", {}, {"since": 3}, {"since": "yesterday"}, {"since": "2026-01-01", "desired": "fly"},
        {"since": "2026-01-01", "priority": 3}, {"since": "2026-01-01", "slots": {"cpus": -1}},
        {"since": "2026-01-01", "slots": [1]}, {"since": "2026-01-01", "killed": [1]},
        {"since": "2026-01-01", "preempted": {"by": "a"}}, {"since": "2026-01-01", "lost": float("nan")},
        {"since": "2026-01-01", "cwd": 3},
    ],
)  # fmt: skip
def test_another_programs_value_is_refused(wrong: Any) -> None:
    assert not is_wanted(wrong)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """One with a study that a service is to have."""
    found = Workspace.at(str(tmp_path / "a.db"))
    live = open_live(open_storage(found.url, create=True), "study", goal="minimize", attrs={SPEC: SMALL})
    live.close()
    return found


def test_a_copy_is_not_wanted(workspace: Workspace, tmp_path: Path) -> None:
    database = open_storage(workspace.url)
    change_wanted(database, "study", lambda wanted: wanted or Wanted(since=1.0))
    optuna.copy_study(
        from_study_name="study", from_storage=database, to_storage=database, to_study_name="copy"
    )
    assert all_wanted(database).keys() == {"study"}
    assert WANTED in (attrs_of(database, "copy") or {}), "Optuna copies the attribute"
    other = Workspace.at(str(tmp_path / "b.db"))
    transfer("study", workspace, other)
    assert read_wanted(open_storage(other.url), "study") is None
    assert WANTED not in (attrs_of(open_storage(other.url), "study") or {})
    assert read_wanted(database, "study") == Wanted(since=1.0)


def test_changes_at_the_same_time_are_all_made(workspace: Workspace) -> None:
    def add(number: int) -> None:
        change_wanted(
            open_storage(workspace.url),
            "study",
            lambda old: replace(
                old or Wanted(since=1.0), killed=(*(old.killed if old else ()), float(number))
            ),
        )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(1, 9)))
    wanted = read_wanted(open_storage(workspace.url), "study")
    assert wanted is not None and sorted(wanted.killed) == [float(number) for number in range(1, 9)]
    with pytest.raises(KeyError):
        change_wanted(open_storage(workspace.url), "other", lambda wanted: wanted)


def test_a_damaged_attribute_is_told_where_the_study_is_read(workspace: Workspace) -> None:
    database = open_storage(workspace.url)
    database.set_study_user_attr(database.get_study_id_from_name("study"), WANTED, {"since": 3})
    assert all_wanted(database) == {}
    with pytest.raises(StorageError, match="hpsearch:serve is"):
        attrs_of(database, "study")
