"""Which servers of a database live: each holds a lock of its name for as long as it does."""

from __future__ import annotations

import zlib

import sqlalchemy

from .connection import POSTGRESQL_CLASS, held_locks, notice_gone_machine
from .damage import readable

_CLASS = POSTGRESQL_CLASS + 1  # studies have the other


class Presence:
    """That a server lives, for the other servers of its database to see."""

    def __init__(self, engine: sqlalchemy.Engine, server: str) -> None:
        self._engine = engine
        self._server = server
        self._open: sqlalchemy.Connection | None = None  # which holds the lock

    def keep(self) -> None:
        """Hold the lock, also after its connection was lost. Raises `DatabaseUnavailable`."""
        if self._engine.dialect.name == "sqlite":
            return
        with readable():
            try:
                if self._open is None:
                    self._open = self._engine.connect()
                    self._open.detach()  # closed here, not kept in a pool together with its lock
                    notice_gone_machine(self._open)
                if not _is_held(self._open, self._server):
                    if self._open.dialect.name == "postgresql":
                        lock = sqlalchemy.func.pg_try_advisory_lock(_CLASS, _key(self._server))
                    else:
                        lock = sqlalchemy.func.get_lock(_name(self._server), 0)
                    self._open.scalar(sqlalchemy.select(lock))
                self._open.commit()
            except BaseException:
                self.close()
                raise

    def is_gone(self, server: str) -> bool:
        """Whether another server does not live. Call `keep` before.

        A file has one server at a time, so any other is gone. Raises `DatabaseUnavailable`.
        """
        if self._open is None:
            return self._engine.dialect.name == "sqlite"
        with readable():
            try:
                found = not _is_held(self._open, server)
                self._open.commit()
            except BaseException:
                self.close()
                raise
        return found

    def close(self) -> None:
        """Be gone."""
        if self._open is not None:
            connection, self._open = self._open, None
            connection.close()


def _is_held(connection: sqlalchemy.Connection, server: str) -> bool:
    """Whether somebody holds the lock of a server."""
    if connection.dialect.name == "postgresql":
        return _key(server) in held_locks(connection, _CLASS)
    lock = sqlalchemy.func.is_used_lock(_name(server))
    return connection.scalar(sqlalchemy.select(lock)) is not None


def _name(server: str) -> str:
    return f"hpsearch-serve-{server}"


def _key(server: str) -> int:
    return zlib.crc32(server.encode()) & 0x7FFFFFFF  # the key of a lock is a signed number
