"""A driver whose database is locked, or whose study is deleted."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import optuna
import pytest

from hpsearch.search.errors import SearchError
from hpsearch.storage import connection, database

from ...support.driving import DrivenStudy, asked


def test_the_driver_waits_for_a_locked_database_and_says_so(
    study: DrivenStudy, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    driver = study.driver(make_spec())
    asked(driver)
    holding, enough = threading.Event(), threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(study.file, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            holding.set()
            enough.wait(30)
            connection.execute("ROLLBACK")

    holder = threading.Thread(target=hold)
    holder.start()
    holding.wait(30)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        enough.set()
        holder.join()

    monkeypatch.setattr(connection, "time", SimpleNamespace(sleep=sleep))
    assert driver.report(0, 0.5, 1, {}) is None
    assert study.trials()[0].intermediate_values == {1: 0.5}
    assert pauses == [connection.RETRY_SECONDS]
    (said,) = study.watcher.said
    assert said.startswith("the database cannot be used now (database is locked)")


def test_a_study_deleted_under_the_driver_ends_it(study: DrivenStudy, make_spec: Any) -> None:
    driver = study.driver(make_spec())
    asked(driver)
    optuna.delete_study(study_name="study", storage=f"sqlite:///{study.file}")
    with pytest.raises(SearchError, match="deleted while it was searched"):
        driver.report(0, 0.5, 1, {})
    with pytest.raises(SearchError, match="deleted while it was searched"):
        driver.close()
    with closing(sqlite3.connect(study.file)) as connection:
        assert connection.execute("SELECT * FROM study_user_attributes").fetchall() == []
        assert connection.execute("SELECT * FROM trial_intermediate_values").fetchall() == []
