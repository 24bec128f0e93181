"""Changes an attribute of a study in one step, whoever else changes it: its search, a server, a notifier."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import sqlalchemy
from optuna.storages import RDBStorage

from . import DatabaseUnavailable
from .damage import readable
from .database import Tables
from .rows import STUDIES, STUDY_USER

MOST_TRIES = 20  # to change an attribute that others change at the same time


def change_attribute(
    database: RDBStorage | Tables, name: str, key: str, change: Callable[[int, str | None], str | None]
) -> None:
    """Change a user attribute of the study `name`.

    `change` is given the study's key and the text that is stored, and returns another one; None leaves it as
    it is. It may be called several times. Raises `KeyError` where there is no such study, and
    `DatabaseUnavailable`.
    """
    for _ in range(MOST_TRIES):
        with suppress(sqlalchemy.exc.IntegrityError), readable(), database.engine.begin() as connection:
            study = connection.scalar(
                sqlalchemy.select(STUDIES.c.study_id).where(STUDIES.c.study_name == name)
            )
            if study is None:
                raise KeyError(name)
            mine = STUDY_USER.c.study_id == study, STUDY_USER.c.key == key
            text = connection.scalar(sqlalchemy.select(STUDY_USER.c.value_json).where(*mine))
            new = change(study, text)
            if new is None:
                return
            if text is None:
                row = {"study_id": study, "key": key, "value_json": new}
                connection.execute(STUDY_USER.insert(), [row])  # an error where another has just added it
                return
            same = STUDY_USER.c.value_json == text
            if connection.execute(STUDY_USER.update().where(*mine, same).values(value_json=new)).rowcount:
                return
    raise DatabaseUnavailable(f'others change {key} of "{name}" all the time')
