"""What we do without Alembic is what Optuna does with it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import optuna

from hpsearch.storage.database import open_storage

from ..support.once import make_tables


def content(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as database:
        return list(database.iterdump())


def test_a_new_database_is_as_optuna_makes_it(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.db", tmp_path / "theirs.db"
    make_tables(ours)
    optuna.storages.RDBStorage(f"sqlite:///{theirs}").engine.dispose()
    assert content(ours) == content(theirs)


def test_a_storage_has_all_that_optunas_has(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    ours, theirs = open_storage(url, create=True), optuna.storages.RDBStorage(url)
    for storage in (ours, theirs):
        storage.engine.dispose()
    plain = {name for name, value in vars(theirs).items() if isinstance(value, str | bool | None)}
    assert vars(theirs).keys() - vars(ours).keys() == {"_version_manager"}, "which compares versions"
    assert {name: getattr(ours, name) for name in plain} == {name: getattr(theirs, name) for name in plain}


def test_a_database_is_made_and_opened_without_alembic(tmp_path: Path) -> None:
    program = """
import sys
from hpsearch.storage.database import open_storage, open_tables
open_storage(sys.argv[1], create=True)
open_tables(sys.argv[1])
assert "alembic" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program, f"sqlite:///{tmp_path / 'a.db'}"], check=True)
