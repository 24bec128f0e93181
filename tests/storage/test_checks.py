"""Whether a folder can hold a database."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from hpsearch.storage import checks


def test_a_folder_here_can_hold_a_database(tmp_path: Path) -> None:
    assert checks.sqlite_faults(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


class Unlocked(sqlite3.Connection):
    """SQLite as it is on a file system without locks, where it can have no WAL either."""

    def __init__(self, file: Path, **options: Any) -> None:
        super().__init__(f"file:{file}?nolock=1", uri=True, **options)


def test_locks_that_do_nothing_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "WalConnection", Unlocked)
    assert checks.sqlite_faults(tmp_path) == [
        "SQLite has no WAL here: its journal mode stays delete",
        "the lock of another process does not keep a second writer out",
    ]
    assert list(tmp_path.iterdir()) == []


def test_the_clock_of_the_files_is_ours_here(tmp_path: Path) -> None:
    assert abs(checks.clock_offset(tmp_path)) < 1
    assert list(tmp_path.iterdir()) == []


def test_another_clock_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 100)
    assert checks.clock_offset(tmp_path) == pytest.approx(-100, abs=30)


def test_the_file_system_of_a_folder_is_that_of_the_mount_above_it(tmp_path: Path) -> None:
    mounts = {part.mountpoint for part in psutil.disk_partitions(all=True)}
    assert "/" not in mounts or checks.file_system(tmp_path)
    if "/proc" in mounts:
        assert checks.file_system(Path("/proc/self")) == "proc"
