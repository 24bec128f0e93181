"""The tables of Optuna's schema, made and compared as Optuna does, but without Alembic.

Alembic takes as long to load as all else in a short command. Only tables of another version need it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path

import optuna
from optuna.storages._rdb import models
from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, exc, insert, select

# As Alembic makes it.
_VERSION = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
_VERSION.primary_key.name = "alembic_version_pkc"


@cache
def newest() -> str:
    """The version of the tables that this Optuna reads: the last of its migrations."""
    migrations = Path(optuna.storages.__file__).parent.glob("_rdb/alembic/versions/v*.py")
    return max(path.stem.rstrip("_") for path in migrations)


def is_newest(engine: Engine) -> bool:
    """Whether a database has the tables of this version; False, too, where it cannot be read."""
    with suppress(exc.SQLAlchemyError), engine.connect() as connection:
        return connection.scalar(select(_VERSION.c.version_num)) == newest()
    return False


def make_tables(connection: Connection) -> None:
    """Make the tables of this version in an empty database."""
    models.BaseModel.metadata.create_all(connection)
    version = {"schema_version": models.SCHEMA_VERSION, "library_version": optuna.__version__}
    connection.execute(insert(models.VersionInfoModel).values(version))
    _VERSION.create(connection)
    connection.execute(insert(_VERSION).values(version_num=newest()))
