"""Copies a SQLite database in use, as of one moment, into a single file that opens on its own."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from . import StorageError
from .damage import damaged
from .database import BUSY_SECONDS, check_file, uri_of

PAGES = 2_000  # copied at a time, so that Ctrl-C takes effect in between


@dataclass(frozen=True)
class Backup:
    """The contents of a backup."""

    studies: int
    trials: int
    bytes: int


def backup(file: Path, output: Path) -> Backup:
    """Copy the database `file` to `output`, whole or not at all, while searches continue to write.

    An existing file is replaced. Raises `StorageError` where the database cannot be read or is damaged, or
    where the copy cannot be written.
    """
    check_file(file, create=False)
    _check_output(file, output)
    try:
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}-") as beside:
            copy = Path(beside) / output.name
            contents = _copy(file, copy)
            shutil.copymode(file, copy)
            os.replace(copy, output)
    except sqlite3.Error as error:
        raise StorageError(f"cannot back up {file} to {output}: {error}") from error
    except OSError as error:
        raise StorageError(f"cannot write {output}: {error.strerror}") from error
    return contents


def _check_output(file: Path, output: Path) -> None:
    if output.is_dir():
        raise StorageError(f"{output} is a folder, not a file")
    if output.exists() and not output.is_file():
        raise StorageError(f"{output} is a device or a pipe, not a file")
    if output.exists() and output.samefile(file):
        raise StorageError(f"{output} is the database itself; write another file")
    for log in (output.with_name(f"{output.name}-wal"), output.with_name(f"{output.name}-journal")):
        if log.exists():  # SQLite would play it back into the new file
            raise StorageError(f"{output} is a database in use: there is {log.name}; write another file")


def _copy(file: Path, copy: Path) -> Backup:
    with (
        closing(
            sqlite3.connect(uri_of(file), uri=True, timeout=BUSY_SECONDS, isolation_level=None)
        ) as source,
        closing(sqlite3.connect(copy, isolation_level=None)) as target,
    ):
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master")  # from here on it sees the database as it is now
        source.backup(target, pages=PAGES, progress=lambda *_: None)
        target.execute("PRAGMA journal_mode=DELETE")  # otherwise the copy needs a log file to be read
        (fault,) = target.execute("PRAGMA integrity_check(1)").fetchone()
        if fault != "ok":
            raise StorageError(f"nothing was written: {damaged(file, ' '.join(fault.split()))}")
        (studies,) = target.execute("SELECT count(*) FROM studies").fetchone()
        (trials,) = target.execute("SELECT count(*) FROM trials").fetchone()
        (pages,) = target.execute("PRAGMA page_count").fetchone()
        (size,) = target.execute("PRAGMA page_size").fetchone()
    return Backup(studies, trials, pages * size)
