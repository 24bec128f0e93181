"""Opens the database that holds the studies: SQLite by default, in Optuna's own schema.

SQLite is opened in WAL mode with a long busy timeout, so that a reader (a dashboard, another command) never
makes the search say "database is locked", and never waits for it either.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from sqlalchemy import exc

from . import DatabaseUnavailable, StorageError

DEFAULT_URL = "sqlite:///hpsearch.db"
BUSY_SECONDS = 60


class WalConnection(sqlite3.Connection):
    """A SQLite connection in WAL mode.

    The pragmas stand in the connection class because `RDBStorage` connects inside its constructor, before any
    listener could be attached to its engine.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA journal_mode=WAL")
        self.execute("PRAGMA synchronous=NORMAL")


def resolve_url(given: str | None) -> str:
    """The database URL: as given, else from HPSEARCH_STORAGE, else `sqlite:///hpsearch.db`.

    A plain path is taken as a SQLite file.
    """
    url = given or os.environ.get("HPSEARCH_STORAGE") or DEFAULT_URL
    if "://" in url:
        return url
    return "sqlite:///" + url.replace("%", "%25").replace("?", "%3F")  # what these mean in a URL


def sqlite_file(url: str) -> Path | None:
    """The file behind a SQLite URL, absolute; None where the URL names a server."""
    parsed = _parse(url)
    if parsed.get_backend_name() != "sqlite":
        return None
    return Path(str(parsed.database)).absolute()


def open_storage(url: str, *, create: bool = False) -> optuna.storages.RDBStorage:
    """Open the database at `url`; make it where `create` is set and it does not exist.

    Raises `StorageError` where it is missing, unwritable, no database, or of another Optuna's schema, and
    `DatabaseUnavailable` where another program has locked it for too long.
    """
    file = sqlite_file(url)
    options: dict[str, Any] = {}
    if file is not None:
        _check_file(file, create=create)
        options["connect_args"] = {"timeout": BUSY_SECONDS, "factory": WalConnection}
    try:
        # Optuna fills `{SCHEMA_VERSION}` into URLs with str.format, so a brace of the user's is doubled.
        return optuna.storages.RDBStorage(
            url.replace("{", "{{").replace("}", "}}"), engine_kwargs=options, skip_table_creation=not create
        )
    except exc.SQLAlchemyError as error:
        if "database is locked" in cause(error):  # SQLite's words
            raise DatabaseUnavailable(cause(error)) from error
        raise StorageError(f"cannot open the database {hidden(url)}: {cause(error)}") from error
    except ImportError as error:
        raise StorageError(
            f"the database {hidden(url)} needs a driver that is not installed: {error}"
        ) from error
    except (RuntimeError, optuna.exceptions.StorageInternalError) as error:  # another schema, or none at all
        raise StorageError(f"the database {hidden(url)} is not one this Optuna can read: {error}") from error


def hidden(url: str) -> str:
    """The URL with its password blanked out, for messages."""
    return _parse(url).render_as_string(hide_password=True)


def _parse(url: str) -> sqlalchemy.URL:
    try:
        parsed = sqlalchemy.make_url(url)
    except (exc.ArgumentError, ValueError) as error:  # ValueError: a port that is no number
        raise StorageError(
            f'"{url}" is not a database URL; write sqlite:///FILE or postgresql+psycopg://USER@HOST/DATABASE'
        ) from error
    if parsed.get_backend_name() == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise StorageError(f'"{url}" is in memory and gone when the command ends; write sqlite:///FILE')
        if parsed.query or "?" in url:
            raise StorageError(f'"{url}": a "?" in a SQLite URL starts options, of which none is taken here')
    return parsed


def _check_file(file: Path, *, create: bool) -> None:
    if file.is_dir():
        raise StorageError(f"{file} is a folder, not a database file")
    if not file.exists():
        if not create:
            raise StorageError(f"there is no database {file}; a search makes it (hpsearch run SPACE)")
        if not file.parent.is_dir():
            raise StorageError(f"there is no folder {file.parent} for the database {file.name}")
        if not os.access(file.parent, os.W_OK):
            raise StorageError(
                f"the folder {file.parent} cannot be written; the database {file.name} goes there"
            )
        return
    if not os.access(file, os.R_OK | os.W_OK) or not os.access(file.parent, os.W_OK):
        raise StorageError(f"the database {file} or its folder cannot be written")
    with file.open("rb") as stream:
        head = stream.read(16)
    if head and head != b"SQLite format 3\x00":
        raise StorageError(f"{file} is not a SQLite database")
    if not head and not create:
        raise StorageError(f"the database {file} is empty; a search fills it (hpsearch run SPACE)")
    if head:
        _check_tables(file)


def _check_tables(file: Path) -> None:
    """Refuse another application's database, before tables are added to it and its mode is changed."""
    try:
        with closing(sqlite3.connect(file, timeout=BUSY_SECONDS)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    except sqlite3.OperationalError as error:
        if "database is locked" in str(error):
            raise DatabaseUnavailable(str(error)) from error
        raise StorageError(f"cannot open the database {file}: {error}") from error
    except sqlite3.Error as error:
        raise StorageError(f"cannot open the database {file}: {error}") from error
    if tables and not {"studies", "version_info"} <= tables:
        raise StorageError(f"the database {file} is another application's; choose another file")


def cause(error: exc.SQLAlchemyError) -> str:
    """What the database said, without SQLAlchemy's statement and parameters."""
    return str(getattr(error, "orig", None) or error).strip()
