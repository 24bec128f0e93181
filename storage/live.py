"""A study in the driver's memory, written through to its database in small transactions.

Optuna's own `RDBStorage` spends 70 to 190 SQL statements on a trial. Here samplers and pruners read
memory, and `flush` writes what changed since the last one: one transaction for a new trial, one for a
report, one for an end. The rows are the ones Optuna would have written. When the database cannot be
written, nothing is lost: the difference stays, and the next `flush` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import optuna
import sqlalchemy
from optuna.distributions import distribution_to_json
from optuna.storages._rdb import models
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import exc

from . import StorageError

_TRIALS = models.TrialModel.__table__
_PARAMS = models.TrialParamModel.__table__
_VALUES = models.TrialValueModel.__table__
_REPORTS = models.TrialIntermediateValueModel.__table__
_USER = models.TrialUserAttributeModel.__table__
_SYSTEM = models.TrialSystemAttributeModel.__table__
_STUDIES = models.StudyModel.__table__
_STUDY_USER = models.StudyUserAttributeModel.__table__
_STUDY_SYSTEM = models.StudySystemAttributeModel.__table__

Rows = list[dict[str, Any]]


class DatabaseUnavailable(StorageError):
    """The database cannot be written now; what was not written is kept, and may be tried again."""


@dataclass(frozen=True)
class Written:
    """What the database holds of one trial."""

    row: int  # the trial's primary key
    life: Mapping[str, Any]  # its state and times
    params: frozenset[str] = frozenset()
    steps: frozenset[int] = frozenset()
    user: Mapping[str, Any] = field(default_factory=dict)
    system: Mapping[str, Any] = field(default_factory=dict)


class LiveStorage(optuna.storages.InMemoryStorage):
    """One study of a database, held in memory by its only writer."""

    def __init__(self, database: optuna.storages.RDBStorage, name: str) -> None:
        super().__init__()
        self._database = database
        self._row = database.get_study_id_from_name(name)  # the study's primary key
        self._written: dict[int, Written] = {}
        self._open: set[int] = set()  # numbers of trials that may still change
        self._study = self.create_new_study(database.get_study_directions(self._row), name)
        self._load()

    # Optuna's storage interface, where it differs from memory

    def create_new_study(self, directions: Sequence[StudyDirection], study_name: str | None = None) -> int:
        if self._studies:
            raise StorageError("a live storage holds one study")
        return super().create_new_study(directions, study_name)

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        trial_id = super().create_new_trial(study_id, template_trial)
        self._open.add(self.get_trial_number_from_id(trial_id))
        return trial_id

    def suspend(self, number: int) -> None:
        """Put a running trial back among the waiting ones; it keeps its parameters and reports."""
        trial_id = self.get_trial_id_from_study_id_trial_number(self._study, number)
        self.set_trial_state_values(trial_id, TrialState.WAITING)
        # Optuna remembers where the first waiting trial stood, and expects none to come before it.
        self._prev_waiting_trial_number[self._study] = 0

    # The database

    def flush(self) -> None:
        """Write everything that changed since the last flush, in one transaction.

        Raises `DatabaseUnavailable` where the database cannot be written now, and `StorageError` where
        somebody else wrote trials into this study or deleted it.
        """
        written: dict[int, Written] = {}
        try:
            with self._database.engine.begin() as connection:
                for number in sorted(self._open):
                    written[number] = self._write_trial(connection, self._trial(number))
                study_attrs = self._write_study(connection)
                self._check_exists(connection)
        except exc.OperationalError as error:
            raise DatabaseUnavailable(str(error.orig)) from error
        except exc.IntegrityError as error:  # a server checks foreign keys itself
            raise StorageError(f"the study was deleted or changed while it ran: {error.orig}") from error
        self._written.update(written)
        self._study_user, self._study_system = study_attrs
        self._open = {n for n in self._open if not self._trial(n).state.is_finished()}

    def stored_user_attrs(self) -> dict[str, Any]:
        """The study's user attributes as the database has them now: another process may have set some.

        Raises `StorageError` where the study is gone.
        """
        try:
            return self._database.get_study_user_attrs(self._row)
        except KeyError as error:
            raise StorageError("the study was deleted while it ran") from error
        except optuna.exceptions.StorageInternalError as error:
            raise DatabaseUnavailable(str(error.__cause__ or error)) from error

    def _trial(self, number: int) -> FrozenTrial:
        return self.get_trial(self.get_trial_id_from_study_id_trial_number(self._study, number))

    def _load(self) -> None:
        self._study_user = self._database.get_study_user_attrs(self._row)
        self._study_system = self._database.get_study_system_attrs(self._row)
        for key, value in self._study_user.items():
            self.set_study_user_attr(self._study, key, value)
        for key, value in self._study_system.items():
            self.set_study_system_attr(self._study, key, value)
        for trial in self._database.get_all_trials(self._row, deepcopy=False):
            self.create_new_trial(self._study, trial)
            self._written[trial.number] = Written(row=trial._trial_id, **_contents(trial))
        self._open = {n for n in self._open if not self._trial(n).state.is_finished()}

    def _write_study(self, connection: sqlalchemy.Connection) -> tuple[dict[str, Any], dict[str, Any]]:
        user = dict(self.get_study_user_attrs(self._study))
        system = dict(self.get_study_system_attrs(self._study))
        key = {"study_id": self._row}
        _write_attrs(connection, _STUDY_USER, key, user, self._study_user)
        _write_attrs(connection, _STUDY_SYSTEM, key, system, self._study_system)
        return user, system

    def _write_trial(self, connection: sqlalchemy.Connection, trial: FrozenTrial) -> Written:
        old = self._written.get(trial.number)
        if old is None:
            old = Written(row=self._insert(connection, trial), life=_life(trial))
            if trial.values is not None:
                self._write_values(connection, old.row, trial.values)
        elif (life := _life(trial)) != old.life:
            if trial.values is not None:
                self._write_values(connection, old.row, trial.values)
            connection.execute(_TRIALS.update().where(_TRIALS.c.trial_id == old.row).values(**life))
        new = replace(old, **_contents(trial))
        key = {"trial_id": old.row}
        _insert(
            connection, _PARAMS, [key | _param_row(trial, n) for n in trial.params if n not in old.params]
        )
        _insert(
            connection,
            _REPORTS,
            [key | _report_row(s, v) for s, v in trial.intermediate_values.items() if s not in old.steps],
        )
        _write_attrs(connection, _USER, key, new.user, old.user)
        _write_attrs(connection, _SYSTEM, key, new.system, old.system)
        return new

    def _insert(self, connection: sqlalchemy.Connection, trial: FrozenTrial) -> int:
        result = connection.execute(
            _TRIALS.insert().values(study_id=self._row, number=trial.number, **_life(trial))
        )
        # Counted after the insert, so that the write lock is already ours.
        count = connection.scalar(
            sqlalchemy.select(sqlalchemy.func.count()).where(_TRIALS.c.study_id == self._row)
        )
        if count != trial.number + 1:
            self._check_exists(connection)
            raise StorageError("another program wrote trials into this study while it ran")
        assert result.inserted_primary_key is not None
        return int(result.inserted_primary_key[0])

    def _check_exists(self, connection: sqlalchemy.Connection) -> None:
        """Rows without a study would become those of the next one, which SQLite gives the same key."""
        found = sqlalchemy.select(_STUDIES.c.study_id).where(_STUDIES.c.study_id == self._row)
        if connection.scalar(found) is None:
            raise StorageError("the study was deleted while it ran")

    def _write_values(self, connection: sqlalchemy.Connection, row: int, values: Sequence[float]) -> None:
        rows = []
        for objective, value in enumerate(values):
            stored, kind = models.TrialValueModel.value_to_stored_repr(value)
            rows.append({"trial_id": row, "objective": objective, "value": stored, "value_type": kind})
        _insert(connection, _VALUES, rows)


def _contents(trial: FrozenTrial) -> dict[str, Any]:
    return {
        "life": _life(trial),
        "params": frozenset(trial.params),
        "steps": frozenset(trial.intermediate_values),
        "user": dict(trial.user_attrs),
        "system": dict(trial.system_attrs),
    }


def _life(trial: FrozenTrial) -> dict[str, Any]:
    return {
        "state": trial.state,
        "datetime_start": _utc(trial.datetime_start),
        "datetime_complete": _utc(trial.datetime_complete),
    }


def _utc(moment: datetime | None) -> datetime | None:
    """Optuna keeps naive local time in memory and naive UTC in the database."""
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None)


def _param_row(trial: FrozenTrial, name: str) -> dict[str, Any]:
    distribution = trial.distributions[name]
    return {
        "param_name": name,
        "param_value": distribution.to_internal_repr(trial.params[name]),
        "distribution_json": distribution_to_json(distribution),
    }


def _report_row(step: int, value: float) -> dict[str, Any]:
    stored, kind = models.TrialIntermediateValueModel.intermediate_value_to_stored_repr(value)
    return {"step": step, "intermediate_value": stored, "intermediate_value_type": kind}


def _insert(connection: sqlalchemy.Connection, table: sqlalchemy.Table, rows: Rows) -> None:
    if rows:
        connection.execute(table.insert(), rows)


def _write_attrs(
    connection: sqlalchemy.Connection,
    table: sqlalchemy.Table,
    key: dict[str, int],
    new: Mapping[str, Any],
    old: Mapping[str, Any],
) -> None:
    """Write the attributes that are new or changed. A key that another process added is overwritten."""
    missing = object()
    changed: Iterable[tuple[str, Any]] = (
        (k, json.dumps(v)) for k, v in new.items() if old.get(k, missing) != v
    )
    for name, value in changed:
        ((column, row),) = key.items()
        update = table.update().where(table.c[column] == row, table.c.key == name).values(value_json=value)
        if connection.execute(update).rowcount == 0:
            connection.execute(table.insert().values(**key, key=name, value_json=value))
