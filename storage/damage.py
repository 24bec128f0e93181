"""What a database's errors mean: what passes by itself, what does not, and how to save what is there."""

from __future__ import annotations

import re
import resource
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
import sqlalchemy
from sqlalchemy import exc

from . import DatabaseUnavailable, StorageError

# SQLite's kinds of errors: what no waiting mends, and what of that it does all the same. Of a full disk it
# says that it is full, or has no memory to share.
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR")


_LASTING = (*_DAMAGE, "SQLITE_ERROR")


_PASSING = ("SQLITE_IOERR_SHM", "SQLITE_IOERR_LOCK", "SQLITE_IOERR_NOMEM", "SQLITE_IOERR_BLOCKED")


def give_up(file: Path, context: sqlalchemy.engine.ExceptionContext) -> None:
    """Raise `StorageError` where SQLite says what does not pass, in whatever use of the database."""
    error = context.original_exception
    if isinstance(error, sqlite3.Error) and _is_of(error, _LASTING) and not _is_of(error, _PASSING):
        raise StorageError(unusable(file, error)) from error


def refuse_damage(file: Path | None, error: BaseException | None) -> None:
    """Raise `StorageError` where a file cannot be opened as it is damaged."""
    original = getattr(error, "orig", None)
    if file is not None and isinstance(original, sqlite3.Error) and _is_of(original, _DAMAGE):
        raise StorageError(unusable(file, original)) from error


def _is_of(error: sqlite3.Error, kinds: tuple[str, ...]) -> bool:
    return str(getattr(error, "sqlite_errorname", "")).startswith(kinds)


def unusable(file: Path, error: sqlite3.Error) -> str:
    """That a database cannot be used, why, and how to save what is there."""
    if not _is_of(error, ("SQLITE_IOERR",)):
        return damaged(file, str(error))
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    writes = _is_of(error, ("SQLITE_IOERR_WRITE", "SQLITE_IOERR_TRUNCATE"))
    if writes and limit != resource.RLIM_INFINITY:
        told = f"this shell limits files to {limit:,} bytes (ulimit -f unlimited)"
    else:
        told = "hpsearch backup saves what is there, if the disk can be read"
    return f"the database {file} cannot be read or written: {error}; {told}"


def damaged(file: Path, what: str) -> str:
    """That a database is damaged, and how to save what is there."""
    words = (
        ["sqlite3", str(file), ".dump"],
        ["sed", "s/^ROLLBACK.*/COMMIT;/"],  # it would keep nothing
        ["sqlite3", f"{file.stem}-saved.db"],
    )
    saving = " | ".join(map(shlex.join, words))
    return (
        f"the database {file} is damaged: {what}. To save what can be read of it, by SQLite's own program: "
        f"{saving}"
    )


@contextmanager
def readable() -> Iterator[None]:
    """Raise `DatabaseUnavailable` where the database cannot be read or written now."""
    try:
        yield
    except optuna.exceptions.StorageInternalError as error:
        raise DatabaseUnavailable(cause(error.__cause__ or error)) from error
    except (exc.OperationalError, exc.InterfaceError, exc.InternalError) as error:
        raise DatabaseUnavailable(cause(error)) from error


def cause(error: BaseException) -> str:
    """What the driver said, on one line."""
    original = getattr(error, "orig", None) or error
    arguments: tuple[object, ...] = getattr(original, "args", ())
    text = str(arguments[1] if len(arguments) == 2 else original).strip()  # PyMySQL's: a number and a text
    first, *_, last = text.splitlines() * 2
    line = last if first.endswith(":") else first  # "All failures were:", of a host with several addresses
    line = re.sub(r"^.*?connection (failed|is bad): ", "", line)
    line = re.sub(r"^connection to server .* failed: FATAL: +", "", line)
    if re.match(r'database ".*" does not exist|Unknown database', line):
        line += "; hpsearch makes the tables in it, not the database"
    return line
