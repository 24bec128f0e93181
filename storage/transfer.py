"""Copies a study into another database, row by row, and its files beside it.

A table that a later Optuna adds is copied as well, or refused; it is never left out in silence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import sqlalchemy
from optuna.storages import RDBStorage
from sqlalchemy import exc
from sqlalchemy.dialects import mysql

from . import StorageError
from .claims import ID, claim_new
from .damage import cause
from .database import open_storage, sqlite_file
from .files import copied_files, has_files, study_folder
from .locks import driver_lock
from .passwords import hidden
from .rows import STUDIES, STUDY_USER, TRIALS, belongs, drop_leftovers, insert, study_tables, write_attrs
from .studies import FOLDER, attrs_of, folder_in, load_study, study_keys
from .wanted import WANTED
from .workspace import Workspace

BATCH = 5_000  # rows in memory at a time

Values = dict[str, Any]


@dataclass(frozen=True)
class Copied:
    """What was copied of a study."""

    trials: int
    rows: int  # over all tables, each compared with its original
    cut: bool  # the target keeps whole seconds alone, as Optuna declares its tables in MySQL
    folder: Path | None = None  # where the files of the copy are; None where there are none


def transfer(name: str, source: Workspace, target: Workspace) -> Copied:
    """Copy the study `name` and its files to another database, which is made where it is missing.

    Raises `StorageError` where there is no such study, somebody searches it, or the target has one of that
    name or files of one. Nothing of the study is left behind in the target then.
    """
    if _same_database(source.url, target.url):
        raise StorageError(f"{hidden(target.url)} is the database that the study is in; name another one")
    opened = open_storage(source.url)
    load_study(opened, name)
    kept = folder_in(attrs_of(opened, name) or {}, name)
    old, new = study_folder(source.runs, kept), study_folder(target.runs, kept)
    with driver_lock(source, kept):
        beside = old.resolve() == new.resolve()
        if has_files(new) and not beside:
            message = f"there are files of a study {name} already: {new}; choose another folder"
            raise StorageError(message, code="runs-taken")
        to = open_storage(target.url, create=True)
        if name in study_keys(to):
            raise StorageError(f'{hidden(target.url)} has a study "{name}" already; nothing was copied')
        if not has_files(old):
            return copy_study(name, opened, to)
        with claim_new(target, kept) as claim, copied_files(old, claim.folder):
            copied = copy_study(name, opened, to, {FOLDER: claim.kept, ID: claim.study})
            return replace(copied, folder=claim.folder)


def copy_study(
    name: str, source: RDBStorage, target: RDBStorage, attrs: Mapping[str, Any] | None = None
) -> Copied:
    """Copy the rows of a study, in one transaction of the target, and compare them before it is committed.

    `attrs` are those that only the copy has. Raises `StorageError` where they cannot be written, or do not
    read back as they were.
    """
    try:
        with _snapshot(source) as old, target.engine.begin() as new:
            return _copy_rows(name, old, new, attrs or {})
    except exc.SQLAlchemyError as error:
        raise StorageError(
            f'cannot copy the study "{name}" to {hidden(target.url)}: {cause(error)}'
        ) from error


def _copy_rows(
    name: str, old: sqlalchemy.Connection, new: sqlalchemy.Connection, attrs: Mapping[str, Any]
) -> Copied:
    tables = study_tables()
    for table in tables:
        if len(table.foreign_keys) != (table is not STUDIES) or len(table.primary_key.columns) != 1:
            raise StorageError(f"this Optuna's table {table.name} is not one that hpsearch can copy")
    study = old.scalar(sqlalchemy.select(STUDIES.c.study_id).where(STUDIES.c.study_name == name))
    if study is None:
        raise StorageError(f'there is no study "{name}" any more')
    copier = _Copier(old, new, study)
    for table in tables:
        copier.insert(table)
    rows = sum(map(copier.compare, tables))
    copied = copier.keys[STUDIES][study]
    wanted = STUDY_USER.c.study_id == copied, STUDY_USER.c.key == WANTED
    new.execute(STUDY_USER.delete().where(*wanted))  # of the original alone
    write_attrs(new, STUDY_USER, {"study_id": copied}, attrs, {})
    return Copied(trials=len(copier.keys[TRIALS]), rows=rows, cut=copier.cut)


class _Copier:
    """Turns rows of the source into those of the target, which gives them keys of its own."""

    def __init__(self, old: sqlalchemy.Connection, new: sqlalchemy.Connection, study: int) -> None:
        self.keys: dict[sqlalchemy.Table, dict[int, int]] = defaultdict(dict)  # the source's to the target's
        self.cut = False
        self._old, self._new = old, new
        self._study = study  # its key in the source
        self._whole_seconds = _whole_second_columns(new)

    def insert(self, table: sqlalchemy.Table) -> None:
        is_parent = any(key.column.table is table for other in study_tables() for key in other.foreign_keys)
        if is_parent:
            drop_leftovers(self._new, table)
        for rows in _batches(self._old, table, self._study):
            values = [self._values(table, row) for row in rows]
            if is_parent:  # one by one: their new keys are asked for, and not every server returns several
                keys = (insert(self._new, table, each) for each in values)
                self.keys[table] |= zip((row[_own_key(table)] for row in rows), keys, strict=True)
            else:
                self._new.execute(table.insert(), values)

    def compare(self, table: sqlalchemy.Table) -> int:
        """How many rows both have, equal and in the same order. Raises `StorageError` where they differ."""
        count = 0
        originals = chain.from_iterable(_batches(self._old, table, self._study))
        copies = chain.from_iterable(_batches(self._new, table, self.keys[STUDIES][self._study]))
        for original, copy in zip_longest(originals, copies):
            wanted = original and self._values(table, original)
            stored = copy and {name: value for name, value in copy.items() if name != _own_key(table)}
            if wanted != stored:
                raise StorageError(
                    f"the other database did not keep a row of {table.name}: {wanted} became {stored}; "
                    "nothing was copied"
                )
            count += 1
        return count

    def _values(self, table: sqlalchemy.Table, row: Values) -> Values:
        """A row as the target is to hold it, without its own key there."""
        values = {name: value for name, value in row.items() if name != _own_key(table)}
        for key in table.foreign_keys:
            values[key.parent.name] = self.keys[key.column.table][values[key.parent.name]]
        for name, value in values.items():
            if isinstance(value, datetime) and (table.name, name) in self._whole_seconds:
                values[name] = value.replace(microsecond=0)
                self.cut |= values[name] != value
        return values


def _batches(
    connection: sqlalchemy.Connection, table: sqlalchemy.Table, study: int
) -> Iterator[list[Values]]:
    """The rows of a study in a table, in the order they were written."""
    statement = sqlalchemy.select(table).where(belongs(table, study)).order_by(table.c[_own_key(table)])
    with connection.execute(statement, execution_options={"yield_per": BATCH}) as result:
        for rows in result.mappings().partitions():
            yield [dict(row) for row in rows]


def _own_key(table: sqlalchemy.Table) -> str:
    return table.primary_key.columns[0].name


@contextmanager
def _snapshot(storage: RDBStorage) -> Iterator[sqlalchemy.Connection]:
    """A connection that sees the database as it is now, whoever writes in it meanwhile."""
    with storage.engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")  # Python's driver begins no transaction for what only reads
        else:
            connection.execution_options(isolation_level="REPEATABLE READ")
        yield connection


def _whole_second_columns(connection: sqlalchemy.Connection) -> frozenset[tuple[str, str]]:
    """Columns of times without fractions of a second: MySQL's, unless it was told otherwise.

    The fractions are cut off here, so that what becomes of them does not depend on the server's version.
    """
    inspector = sqlalchemy.inspect(connection)
    return frozenset(
        (table.name, column["name"])
        for table in study_tables()
        for column in inspector.get_columns(table.name)
        if isinstance(column["type"], mysql.DATETIME) and not column["type"].fsp
    )


def _same_database(one: str, other: str) -> bool:
    """Whether two URLs clearly name one database. A server that goes by two names has the study already."""
    files = sqlite_file(one), sqlite_file(other)
    if files[0] is not None and files[1] is not None:
        return files[0].resolve() == files[1].resolve()
    parsed = [sqlalchemy.make_url(url) for url in (one, other)]
    return len({(url.get_backend_name(), url.host, url.port, url.database) for url in parsed}) == 1
