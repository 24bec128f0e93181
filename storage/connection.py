"""The driver's own connection to its database: one for the whole search, to lock and to watch it.

A server's lock on the study belongs to this connection: only its holder writes, and it ends with the process
or the connection. A SQLite file may be deleted or replaced while it is open; the open file is then copied to
another name, so that nothing is lost.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import sqlalchemy
from sqlalchemy import exc

from . import DatabaseUnavailable, Refused, StorageError
from .damage import cause, unavailable

WRITE_WAIT_SECONDS = 1.0  # for another program's write, before the user is told
RETRY_SECONDS = 1.0  # before the next attempt
# In which a server notices that the machine of a connection is gone, and releases its lock.
GONE_MACHINE_SECONDS = 60
POSTGRESQL_CLASS = 0x68707372  # separates our advisory locks from those of other applications
# The name of a study's lock, by its key: locks of MySQL belong to the whole server, not to a database.
MYSQL_LOCK = "CONCAT('hpsearch-', LPAD(LOWER(HEX(CRC32(CONCAT(DATABASE(), ':', {0})))), 8, '0'), '-', {0})"

T = TypeVar("T")


class DriverConnection:
    """A connection that reopens when it was lost, and holds the study's lock whenever it is open."""

    def __init__(self, engine: sqlalchemy.Engine, study: int) -> None:
        self._engine = engine
        self._study = study  # the primary key of the study to lock
        self._open: sqlalchemy.Connection | None = None
        sqlite = engine.dialect.name == "sqlite"
        self.file = Path(str(engine.url.database)).absolute() if sqlite else None
        self._identity: tuple[int, int] | None = None  # of the file that is open
        self._rescued: Path | None = None

    @contextmanager
    def transaction(self) -> Iterator[sqlalchemy.Connection]:
        """Everything inside is done together, or not at all.

        Raises `DatabaseUnavailable` where it can be retried, and `StorageError` where it cannot: `Refused`
        where the database rejects the values. `IntegrityError` passes: another program changed rows that the
        statement relies on.
        """
        try:
            connection = self._connected()
            with connection.begin():
                yield connection
        except exc.IntegrityError:
            raise
        except (exc.DataError, OverflowError, UnicodeError) as error:
            raise Refused(cause(error)) from error
        except (exc.OperationalError, exc.InterfaceError, exc.InternalError) as error:
            if self.file is None:
                self.close()
            raise unavailable(error) from error
        except exc.DatabaseError as error:
            raise StorageError(f"the database no longer works: {cause(error)}") from error

    def take(self, study: int) -> None:
        """Lock another study from now on: ours was renamed, which gave it a new key."""
        self._study = study
        if self._open is not None:
            self._lock(self._open)

    def lost_file(self) -> str | None:
        """What happened to the open file, if its name no longer leads to it."""
        if self.file is None or self._identity is None:
            return None
        try:
            stat = self.file.stat()
        except FileNotFoundError:
            return "deleted"
        except OSError:
            return None  # the folder cannot be read just now, but the open file is still usable
        return "replaced by another" if (stat.st_dev, stat.st_ino) != self._identity else None

    def version(self) -> int | None:
        """A number that is constant while no other program writes to the open file; None on a server."""
        if self.file is None or self._open is None:
            return None
        return int(self._open.exec_driver_sql("PRAGMA data_version").scalar_one())

    def rescue(self) -> Path:
        """Copy the open file to a new name, which is the same each time.

        Raises `StorageError` where no folder accepts it.
        """
        assert self.file is not None and self._open is not None
        folders = [self.file.parent, Path(tempfile.gettempdir())]
        names = [f"{self.file.name}.rescued{more}" for more in ("", *(f"-{n}" for n in range(2, 100)))]
        free = [f / n for f in folders for n in names if f.is_dir() and not os.path.lexists(f / n)]
        failed: Exception | None = None
        for path in [self._rescued] if self._rescued else free:
            try:
                _copy(self._open, path)
            except (sqlite3.Error, OSError) as error:
                failed = error
                continue
            self._rescued = path
            return path
        raise StorageError(f"and no copy of it could be written: {failed}")

    def close(self) -> None:
        """Close the connection, and with it release the lock."""
        if self._open is not None:
            connection, self._open = self._open, None
            connection.close()

    def _connected(self) -> sqlalchemy.Connection:
        if self._open is None:
            connection = self._engine.connect()
            try:
                connection.detach()  # closed with this object, not kept in a pool together with its lock
                self._lock(connection)
            except BaseException:
                connection.close()
                raise
            self._open = connection
            if self.file is not None:
                stat = self.file.stat()
                self._identity = stat.st_dev, stat.st_ino
        return self._open

    def _lock(self, connection: sqlalchemy.Connection) -> None:
        """Lock the study for this connection. For SQLite a file is locked instead (`locks.driver_lock`)."""
        free: bool | None = True
        match connection.dialect.name:
            case "sqlite":
                given = connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()  # milliseconds
                wait = min(round(1000 * WRITE_WAIT_SECONDS), given)
                connection.exec_driver_sql(f"PRAGMA busy_timeout = {wait}")
            case "postgresql":
                notice_gone_machine(connection)
                free = connection.scalar(
                    sqlalchemy.select(sqlalchemy.func.pg_try_advisory_lock(POSTGRESQL_CLASS, self._study))
                )
            case "mysql" | "mariadb":
                notice_gone_machine(connection)
                free = connection.exec_driver_sql(
                    f"SELECT GET_LOCK({MYSQL_LOCK.format(self._study)}, 0)"
                ).scalar()
            case other:
                raise StorageError(f"hpsearch stores studies in SQLite, PostgreSQL and MySQL, not in {other}")
        connection.commit()
        if not free:
            raise StorageError(
                "another search, perhaps on another machine, is running this study; wait for it, or end it "
                "(hpsearch stop); the database's server takes up to "
                f"{GONE_MACHINE_SECONDS} s to notice that a machine is gone",
                code="study-busy",
            )


def locked_studies(engine: sqlalchemy.Engine) -> set[int]:
    """The keys of the studies that drivers have locked on a database's server, from whichever machine.

    None of a SQLite file, whose locks are files.
    """
    if engine.dialect.name == "sqlite":
        return set()
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            return held_locks(connection, POSTGRESQL_CLASS)
        used = f"IS_USED_LOCK({MYSQL_LOCK.format('study_id')}) IS NOT NULL"
        return {key for (key,) in connection.exec_driver_sql(f"SELECT study_id FROM studies WHERE {used}")}


def held_locks(connection: sqlalchemy.Connection, of: int) -> set[int]:
    """The keys of a class of advisory locks that anybody holds in a database of PostgreSQL."""
    held = "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2"
    here = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    rows = connection.exec_driver_sql(f"{held} AND classid = {of} AND {here}")
    return {int(key) for (key,) in rows}


def notice_gone_machine(connection: sqlalchemy.Connection) -> None:
    """Let a database's server notice when this machine is gone, and release its locks."""
    if connection.dialect.name != "postgresql":
        connection.exec_driver_sql(f"SET SESSION wait_timeout = {GONE_MACHINE_SECONDS}")
        return
    every = GONE_MACHINE_SECONDS // 4
    for option, value in (("idle", 2 * every), ("interval", every), ("count", 2)):
        connection.exec_driver_sql(f"SET tcp_keepalives_{option} = {value}")


def patiently(action: Callable[[], T], say: Callable[[str], None]) -> T:
    """Perform an action, retrying while the database is unavailable and saying so."""
    while True:
        try:
            return action()
        except DatabaseUnavailable as error:
            say(f"the database cannot be used now ({error}); nothing is lost, trying again")
            time.sleep(RETRY_SECONDS)


def _copy(source: sqlalchemy.Connection, path: Path) -> None:
    original = source.connection.dbapi_connection
    assert isinstance(original, sqlite3.Connection)
    # The name is predictable, so a link that others put there is replaced, not followed.
    with tempfile.TemporaryDirectory(prefix=".hpsearch-", dir=path.parent) as beside:
        copy = Path(beside) / path.name
        with closing(sqlite3.connect(copy)) as target:
            original.backup(target)
        copy.replace(path)
