"""What a database's errors mean: which pass by themselves, which last, and how to save the data."""

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

# SQLite's kinds of errors: those of a damaged file, others that last, and exceptions that pass after all,
# such as a full disk or no memory to share.
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR")
_LASTING = (*_DAMAGE, "SQLITE_ERROR")
_FULL = ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")
_PASSING = ("SQLITE_IOERR_SHM", "SQLITE_IOERR_LOCK", "SQLITE_IOERR_NOMEM", "SQLITE_IOERR_BLOCKED")


def give_up(file: Path, context: sqlalchemy.engine.ExceptionContext) -> None:
    """Raise `StorageError` for an SQLite error that lasts, whatever used the database."""
    error = context.original_exception
    if isinstance(error, sqlite3.Error) and _is_of(error, _LASTING) and not _is_of(error, _PASSING):
        raise StorageError(unusable(file, error)) from error


def refuse_damage(file: Path | None, error: BaseException | None) -> None:
    """Raise `StorageError` where a file cannot be opened because it is damaged."""
    original = getattr(error, "orig", None)
    if file is not None and isinstance(original, sqlite3.Error) and _is_of(original, _DAMAGE):
        raise StorageError(unusable(file, original)) from error


def _is_of(error: sqlite3.Error, kinds: tuple[str, ...]) -> bool:
    return str(getattr(error, "sqlite_errorname", "")).startswith(kinds)


def unusable(file: Path, error: sqlite3.Error) -> str:
    """That a database cannot be used, why, and how to save its data."""
    if not _is_of(error, ("SQLITE_IOERR",)):
        return damaged(file, str(error))
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    writes = _is_of(error, ("SQLITE_IOERR_WRITE", "SQLITE_IOERR_TRUNCATE"))
    if writes and limit != resource.RLIM_INFINITY:
        advice = f"this shell limits files to {limit:,} bytes (ulimit -f unlimited)"
    else:
        advice = "hpsearch backup saves what is there, if the disk can be read"
    return f"the database {file} cannot be read or written: {error}; {advice}"


def damaged(file: Path, what: str) -> str:
    """That a database is damaged, and how to save its data."""
    words = (
        ["sqlite3", str(file), ".dump"],
        ["sed", "s/^ROLLBACK.*/COMMIT;/"],  # a rollback would discard everything
        ["sqlite3", f"{file.stem}-saved.db"],
    )
    saving = " | ".join(map(shlex.join, words))
    return (
        f"the database {file} is damaged: {what}. To save what can still be read, with SQLite's own program: "
        f"{saving}"
    )


@contextmanager
def readable() -> Iterator[None]:
    """Raise `DatabaseUnavailable` where the database cannot be read or written now."""
    try:
        yield
    except optuna.exceptions.StorageInternalError as error:
        raise unavailable(error.__cause__ or error) from error
    except (exc.OperationalError, exc.InterfaceError, exc.InternalError) as error:
        raise unavailable(error) from error


def unavailable(error: BaseException) -> DatabaseUnavailable:
    """That the database cannot be read or written now; the code tells a full disk from the rest."""
    original = getattr(error, "orig", None) or error
    full = isinstance(original, sqlite3.Error) and _is_of(original, _FULL)
    return DatabaseUnavailable(cause(error), code="disk-full" if full else None)


def cause(error: BaseException) -> str:
    """The driver's message, on one line."""
    original = getattr(error, "orig", None) or error
    arguments: tuple[object, ...] = getattr(original, "args", ())
    text = str(arguments[1] if len(arguments) == 2 else original).strip()  # PyMySQL's are a number and a text
    first, *_, last = text.splitlines() * 2
    line = last if first.endswith(":") else first  # "All failures were:", for a host with several addresses
    line = re.sub(r"^.*?connection (failed|is bad): ", "", line)
    line = re.sub(r"^connection to server .* failed: FATAL: +", "", line)
    if re.match(r'database ".*" does not exist|Unknown database', line):
        line += "; hpsearch creates the tables in it, but not the database"
    return line
