"""Which servers of a database live: on PostgreSQL, each holds a lock of its name for as long as it does."""

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
        if self._engine.dialect.name != "postgresql":
            return
        with readable():
            try:
                if self._open is None:
                    self._open = self._engine.connect()
                    self._open.detach()  # closed here, not kept in a pool together with its lock
                    notice_gone_machine(self._open)
                if _key(self._server) not in held_locks(self._open, _CLASS):
                    lock = sqlalchemy.func.pg_try_advisory_lock(_CLASS, _key(self._server))
                    self._open.scalar(sqlalchemy.select(lock))
                self._open.commit()
            except BaseException:
                self.close()
                raise

    def is_gone(self, server: str) -> bool:
        """Whether another server does not live. Call `keep` before.

        A file has one server at a time, so any other is gone; of MySQL it is unknown. Raises
        `DatabaseUnavailable`.
        """
        if self._open is None:
            return self._engine.dialect.name == "sqlite"
        with readable():
            try:
                found = _key(server) not in held_locks(self._open, _CLASS)
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


def _key(server: str) -> int:
    return zlib.crc32(server.encode()) & 0x7FFFFFFF  # the key of a lock is a signed number
