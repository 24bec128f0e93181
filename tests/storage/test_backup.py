"""Backups of real databases: alone in their file, whole, and never over what they must not touch."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import pytest

from hpsearch.storage import StorageError
from hpsearch.storage.backup import backup
from hpsearch.storage.database import open_storage

MUCH = "x" * 200_000
FROM_A_SHELL = """\
import sys
from pathlib import Path
from hpsearch.storage import StorageError
from hpsearch.storage.backup import backup
try:
    backup(*map(Path, sys.argv[1:]))
except StorageError as error:
    print(error)
"""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Path]:
    """A database that is open, with a study in its log that is not in its file yet."""
    (tmp_path / "live").mkdir()
    file = tmp_path / "live" / "studies.db"
    storage = open_storage(f"sqlite:///{file}", create=True)
    study = optuna.create_study(study_name="lora", storage=storage)
    for _ in range(3):
        study.tell(study.ask(), 1.0)
    study.set_user_attr("much", MUCH)
    yield file
    storage.engine.dispose()


def dump(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as database:
        return list(database.iterdump())


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_backup_is_one_file_that_has_what_stood_in_the_log(live: Path, tmp_path: Path) -> None:
    assert live.with_name("studies.db-wal").stat().st_size > len(MUCH)
    output = tmp_path / "copy.db"
    held = backup(live, output)
    assert (held.studies, held.trials, held.bytes) == (1, 3, output.stat().st_size)
    assert names(tmp_path) == {"live", "copy.db"}
    assert dump(output) == dump(live)
    assert names(tmp_path) == {"live", "copy.db"}, "it needs no log to be read"
    with closing(sqlite3.connect(live)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",), "the original stays as it was"


def test_a_backup_can_be_searched_as_a_database(live: Path, tmp_path: Path) -> None:
    backup(live, tmp_path / "copy.db")
    storage = open_storage(f"sqlite:///{tmp_path / 'copy.db'}")
    study = optuna.load_study(study_name="lora", storage=storage)
    assert study.ask().number == 3 and study.user_attrs == {"much": MUCH}
    storage.engine.dispose()


def test_a_backup_is_as_it_was_when_it_began(
    live: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another connection adds to the database and removes from it after each page that is copied."""
    before = dump(live)
    writer = sqlite3.connect(live, isolation_level=None)
    steps: list[str] = []

    class Slow(sqlite3.Connection):
        def backup(self, target: sqlite3.Connection, **_: Any) -> None:
            self.step()
            super().backup(target, pages=1, progress=self.step)

        def step(self, *_: int) -> None:
            steps.append("a step")
            if len(steps) > 100:  # a copy that begins anew at each write would never end
                return
            writer.execute("INSERT INTO trials (number, study_id, state) VALUES (99, 1, 'RUNNING')")
            writer.execute("DELETE FROM study_user_attributes")

    connect = partial(sqlite3.connect, factory=Slow)
    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", connect)
        backup(live, tmp_path / "copy.db")
    writer.close()
    assert len(steps) > 10
    assert dump(tmp_path / "copy.db") == before != dump(live)


def test_an_older_schema_can_be_backed_up_before_its_upgrade(live: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(live)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = 'v2.6.0.a'")
    assert backup(live, tmp_path / "copy.db").trials == 3


def test_a_backup_is_as_private_as_the_original(live: Path, tmp_path: Path) -> None:
    live.chmod(0o600)
    backup(live, tmp_path / "copy.db")
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600


def test_an_existing_file_is_replaced_whole(live: Path, tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_bytes(b"an older, longer one" * 1_000_000)
    backup(live, tmp_path / "copy.db")
    assert dump(tmp_path / "copy.db") == dump(live)


@pytest.mark.parametrize("by", ["its name", "a link"])
def test_the_database_itself_is_not_written_over(live: Path, tmp_path: Path, by: str) -> None:
    output = live
    if by == "a link":
        output = tmp_path / "link.db"
        output.symlink_to(live)
    before = dump(live)
    with pytest.raises(StorageError, match="is the database itself"):
        backup(live, output)
    assert dump(live) == before


def test_a_database_in_use_is_not_written_over(live: Path, tmp_path: Path) -> None:
    """Its log would be played back into the backup."""
    other = tmp_path / "other.db"
    storage = open_storage(f"sqlite:///{other}", create=True)
    optuna.create_study(study_name="theirs", storage=storage)
    with pytest.raises(StorageError, match=r"other.db is a database in use: there is other.db-wal"):
        backup(live, other)
    storage.engine.dispose()
    with closing(sqlite3.connect(other)) as database:
        assert database.execute("SELECT study_name FROM studies").fetchall() == [("theirs",)]


def test_a_damaged_database_is_reported_as_such(live: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.db"
    backup(live, damaged)
    with closing(sqlite3.connect(damaged)) as database:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'ix_trials_study_id'"
        ((page,),) = database.execute(query)
        ((size,),) = database.execute("PRAGMA page_size")
    with damaged.open("r+b") as stream:
        stream.seek((page - 1) * size)
        stream.write(b"\xff" * size)
    with pytest.raises(StorageError, match=r"nothing was written: the database .*damaged.db is damaged: "):
        backup(damaged, tmp_path / "copy.db")
    assert names(tmp_path) == {"live", "damaged.db"}


@pytest.mark.parametrize(
    ("output", "said"),
    [("", "is a folder, not a file"), ("no/where/copy.db", "cannot write .*copy.db: No such file")],
)
def test_an_output_that_cannot_be_is_named(live: Path, tmp_path: Path, output: str, said: str) -> None:
    with pytest.raises(StorageError, match=said):
        backup(live, tmp_path / output)
    assert names(tmp_path) == {"live"}


def test_a_missing_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no database"):
        backup(tmp_path / "none.db", tmp_path / "copy.db")
    assert names(tmp_path) == set()


def test_a_full_disk_leaves_nothing_and_the_older_backup_stands(live: Path, tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("an older one")
    small = (100_000, resource.RLIM_INFINITY)
    done = subprocess.run(
        [sys.executable, "-c", FROM_A_SHELL, str(live), str(tmp_path / "copy.db")],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, small),
    )
    assert done.stdout.startswith(f"cannot back up {live} to {tmp_path / 'copy.db'}: "), done.stderr
    assert names(tmp_path) == {"live", "copy.db"}
    assert (tmp_path / "copy.db").read_text() == "an older one"


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which only root may")
def test_a_folder_without_write_permission_is_reported(live: Path) -> None:
    import tempfile

    folder = Path(tempfile.mkdtemp())  # pytest's own are closed to other users
    try:
        folder.chmod(0o777)
        (folder / "closed").mkdir(mode=0o755)
        shutil.copytree(live.parent, folder / "live")
        (folder / "live").chmod(0o777)
        for file in (folder / "live").iterdir():
            file.chmod(0o666)
        nobody = FROM_A_SHELL.replace("try:", "import os; os.setgid(65534); os.setuid(65534)\ntry:", 1)
        words = [str(folder / "live" / "studies.db"), str(folder / "closed" / "copy.db")]
        done = subprocess.run(
            [sys.executable, "-c", nobody, *words], capture_output=True, text=True, timeout=60
        )
        assert done.stdout == f"cannot write {words[1]}: Permission denied\n", done.stderr
        assert names(folder / "closed") == set()
    finally:
        shutil.rmtree(folder)
