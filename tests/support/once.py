"""What a user's process does once or twice, and a process of tests would do again for every one of them.

A command line is built, tables are made, SQL is compiled, and Optuna's versions of the tables are read: once.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import typer.main
import typer.testing
from optuna.storages._rdb.storage import _VersionManager
from sqlalchemy import util
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import Engine

from hpsearch.storage import database

make_tables = database._fill  # as it is for users: table by table


def do_once() -> None:
    _build_the_command_line_once()
    _compile_sql_once()
    _read_versions_once()
    database._fill = copy_tables


def copy_tables(file: Path) -> None:
    """Fill a file with a database that holds no study."""
    file.write_bytes(_empty())


@functools.cache
def _empty() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "empty.db"
        make_tables(file)
        return file.read_bytes()


def _build_the_command_line_once() -> None:
    build = functools.cache(typer.main.get_command)
    typer.main.get_command = typer.testing._get_command = build  # type: ignore[attr-defined]


def _compile_sql_once() -> None:
    """Let the engines of all SQLite files share their compiled statements: each has its own otherwise."""
    shared: Any = util.LRUCache(2000)
    begin = Engine.__init__

    def begin_sharing(self: Engine, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        if isinstance(self.dialect, SQLiteDialect_pysqlite):
            self._compiled_cache = shared

    Engine.__init__ = begin_sharing  # type: ignore[method-assign]
    # A statement is looked up with its dialect, which each engine makes anew.
    SQLiteDialect_pysqlite.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore[method-assign]
    SQLiteDialect_pysqlite.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]


def _read_versions_once() -> None:
    """Let all of Optuna's storages share what Alembic has read of their versions: a dozen modules each time."""
    read, known = _VersionManager._create_alembic_script, list[Any]()

    def read_once(self: _VersionManager) -> Any:
        if not known:
            known.append(read(self))
        return known[0]

    _VersionManager._create_alembic_script = read_once  # type: ignore[method-assign]
