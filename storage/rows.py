"""A study's rows, as Optuna writes them: which there are, which are missing, and how to write them.

The tables that hold a study are derived from Optuna's declarations: all that refer to a study, directly or
not. SQLite reuses the keys of deleted rows, so a row left behind would belong to the next study: therefore
rows are removed before a new study or trial gets their key.
"""

from __future__ import annotations

import gc
import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from itertools import takewhile
from typing import Any

import sqlalchemy
from optuna.distributions import distribution_to_json, json_to_distribution
from optuna.storages._rdb import models
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from .texts import from_json

TRIALS = models.TrialModel.__table__
PARAMS = models.TrialParamModel.__table__
VALUES = models.TrialValueModel.__table__
REPORTS = models.TrialIntermediateValueModel.__table__
_USER = models.TrialUserAttributeModel.__table__
_SYSTEM = models.TrialSystemAttributeModel.__table__
STUDIES = models.StudyModel.__table__
DIRECTIONS = models.StudyDirectionModel.__table__
STUDY_USER = models.StudyUserAttributeModel.__table__
STUDY_SYSTEM = models.StudySystemAttributeModel.__table__
_OF_NO_STUDY = {models.VersionInfoModel.__table__}

Rows = list[dict[str, Any]]
MOST_NAMED = 1000  # rows in a statement, as many as databases accept


def study_tables() -> list[sqlalchemy.Table]:
    """Optuna's tables that hold a study, each after those it refers to."""
    return [table for table in models.BaseModel.metadata.sorted_tables if table not in _OF_NO_STUDY]


def belongs(table: sqlalchemy.Table, study: int) -> sqlalchemy.ColumnElement[bool]:
    """The condition that a row belongs to the study with this key."""
    if table is STUDIES:
        return STUDIES.c.study_id == sqlalchemy.literal(study)
    return sqlalchemy.or_(
        *(
            key.parent.in_(sqlalchemy.select(key.column).where(belongs(key.column.table, study)))
            for key in table.foreign_keys
        )
    )


def delete_study(connection: sqlalchemy.Connection, study: int) -> None:
    """Delete all rows of a study, while none can be added. Raises `KeyError` where it does not exist.

    SQLite locks with the first deleted row; on a server, locks on the study and its trials keep out new rows
    that refer to them.
    """
    for table in (STUDIES, TRIALS):
        keys = sqlalchemy.select(*table.primary_key.columns).where(belongs(table, study))
        locked = connection.execute(keys.with_for_update()).all()
        if table is STUDIES and not locked:
            raise KeyError(study)
    for table in reversed(study_tables()):
        connection.execute(table.delete().where(belongs(table, study)))


def drop_leftovers(connection: sqlalchemy.Connection, new: sqlalchemy.Table) -> None:
    """Delete rows that would belong to the next row of `new`, which is a table of studies or trials."""
    if connection.dialect.name == "sqlite":  # servers leave no such rows, and never reuse keys
        for statement in _deletions(new, beyond=True):
            connection.execute(statement)


def drop_orphans(connection: sqlalchemy.Connection) -> None:
    """Delete all rows whose study or trial is gone: they were written during its deletion."""
    if connection.dialect.name == "sqlite":
        for statement in _deletions(STUDIES, beyond=False):
            connection.execute(statement)


@cache
def _deletions(parent: sqlalchemy.Table, *, beyond: bool) -> list[sqlalchemy.Delete]:
    """Statements that delete rows which refer to missing rows of a table, the deepest tables first."""

    def is_left(table: sqlalchemy.Table) -> sqlalchemy.ColumnElement[bool]:
        return sqlalchemy.or_(*map(leads_nowhere, table.foreign_keys))

    def leads_nowhere(key: sqlalchemy.ForeignKey) -> sqlalchemy.ColumnElement[bool]:
        keys = sqlalchemy.select(key.column)
        if beyond:  # the next key follows the highest, and indexes find rows beyond it
            highest = sqlalchemy.select(sqlalchemy.func.coalesce(sqlalchemy.func.max(key.column), 0))
            dangles = key.parent > highest.scalar_subquery()
        else:
            dangles = key.parent.not_in(keys)
        above = key.column.table
        return dangles if above is parent else dangles | key.parent.in_(keys.where(is_left(above)))

    def is_below(table: sqlalchemy.Table) -> bool:
        above = [key.column.table for key in table.foreign_keys]
        return parent in above or any(map(is_below, above))

    return [table.delete().where(is_left(table)) for table in reversed(study_tables()) if is_below(table)]


def largest_step(engine: sqlalchemy.Engine) -> int:
    """The largest step that a report may have in this database: servers' integers have 32 bits."""
    return 2**63 - 1 if engine.dialect.name == "sqlite" else 2**31 - 1


@dataclass(frozen=True)
class StoredTrial:
    """What the database holds of one trial."""

    row: int  # the trial's primary key
    life: Mapping[str, Any]  # its state and times
    params: frozenset[str] = frozenset()
    steps: frozenset[int] = frozenset()
    user: Mapping[str, Any] = field(default_factory=dict)
    system: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, trial: FrozenTrial, row: int) -> StoredTrial:
        """A whole trial, stored under this key."""
        params, steps = frozenset(trial.params), frozenset(trial.intermediate_values)
        return cls(row, _life(trial), params, steps, dict(trial.user_attrs), dict(trial.system_attrs))


def insert(connection: sqlalchemy.Connection, table: sqlalchemy.Table, values: Mapping[str, Any]) -> int:
    """Insert one row; its key."""
    result = connection.execute(table.insert().values(values))
    assert result.inserted_primary_key is not None
    return int(result.inserted_primary_key[0])


def insert_study(connection: sqlalchemy.Connection, name: str, direction: StudyDirection) -> int:
    """Create an empty study; its key."""
    drop_leftovers(connection, STUDIES)
    row = insert(connection, STUDIES, {"study_name": name})
    insert(connection, DIRECTIONS, {"study_id": row, "direction": direction, "objective": 0})
    return row


def write_trial(
    connection: sqlalchemy.Connection, study: int, trial: FrozenTrial, old: StoredTrial | None
) -> StoredTrial:
    """Write what changed of a trial since the database held `old`; what it holds now."""
    life = _life(trial)
    if old is None:
        drop_leftovers(connection, TRIALS)
        row = insert(connection, TRIALS, {"study_id": study, "number": trial.number, **life})
        old, has_new_values = StoredTrial(row, life), True
    else:
        has_new_values = life != old.life and not old.life["state"].is_finished()
        if life != old.life:
            connection.execute(TRIALS.update().where(TRIALS.c.trial_id == old.row).values(**life))
    key = {"trial_id": old.row}
    values = enumerate(trial.values or ()) if has_new_values else ()
    reports = trial.intermediate_values  # new ones are at its end: there may be thousands before them
    added = [*takewhile(lambda step: step not in old.steps, reversed(reports))][::-1]
    _insert_all(connection, VALUES, [key | _value_row(*each) for each in values])
    _insert_all(connection, PARAMS, [key | _param_row(trial, n) for n in trial.params if n not in old.params])
    _insert_all(connection, REPORTS, [key | _report_row(step, reports[step]) for step in added])
    new = StoredTrial.of(trial, old.row)
    write_attrs(connection, _USER, key, new.user, old.user)
    write_attrs(connection, _SYSTEM, key, new.system, old.system)
    return new


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the garbage collector, which looks at all objects again and again while they become many more."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def has_attr(name: str) -> sqlalchemy.ColumnElement[bool]:
    """The condition that a trial has a user attribute."""
    return sqlalchemy.exists().where(_USER.c.trial_id == TRIALS.c.trial_id, _USER.c.key == name)


@uncollected()
def read_trials(
    connection: sqlalchemy.Connection,
    study: int,
    states: Collection[TrialState] | None = None,
    rows: Collection[int] = (),
    after: int = -1,
    *,
    only: sqlalchemy.ColumnElement[bool] | None = None,
    last_reports: bool = False,
) -> list[FrozenTrial]:
    """The trials of a study by number, as Optuna's storage returns them.

    All, or those in some states, or `only` those that meet a condition; always those of the given rows and of
    rows `after` one. `last_reports`: each has the last of its reports alone. Optuna creates an object for
    every row first, which takes five times as long: a second for 1,000 trials.
    """
    wanted = [TRIALS.c.study_id == study] + ([] if only is None else [only])
    if states is not None:
        wanted.append(TRIALS.c.state.in_(states))
    if after > -1 and len(rows) <= MOST_NAMED:
        wanted.append(sqlalchemy.or_(TRIALS.c.trial_id > after, TRIALS.c.trial_id.in_(rows)))
    # Before the rows that belong to them: a trial that is complete here has its value there.
    trials = connection.execute(TRIALS.select().where(*wanted).order_by(TRIALS.c.number)).all()
    if not trials:
        return []
    mine = sqlalchemy.select(TRIALS.c.trial_id).where(*wanted)

    def by_trial(table: sqlalchemy.Table, order: str, *columns: str) -> Mapping[int, Sequence[Any]]:
        query = sqlalchemy.select(*table.c["trial_id", *columns]).where(table.c.trial_id.in_(mine))
        groups: dict[int, list[Any]] = defaultdict(list)
        for key, *row in connection.execute(query.order_by(table.c.trial_id, table.c[order])).all():
            groups[key].append(row)
        return groups

    params = by_trial(PARAMS, "param_id", "param_name", "param_value", "distribution_json")
    reports = stored_reports(connection, REPORTS.c.trial_id.in_(mine), only_last=last_reports)
    values = by_trial(VALUES, "objective", "value", "value_type")
    user, system = (by_trial(table, "key", "key", "value_json") for table in (_USER, _SYSTEM))
    distribution = cache(json_to_distribution)  # the same few distributions occur again and again
    value_of = models.TrialValueModel.stored_repr_to_value

    def trial_of(row: Any) -> FrozenTrial:
        key = row.trial_id
        distributions = {name: distribution(text) for name, _, text in params[key]}
        return FrozenTrial(
            number=row.number,
            state=row.state,
            value=None,
            values=[value_of(*stored) for stored in values[key]] or None,
            datetime_start=_local(row.datetime_start),
            datetime_complete=_local(row.datetime_complete),
            params={name: distributions[name].to_external_repr(value) for name, value, _ in params[key]},
            distributions=distributions,
            user_attrs={name: from_json(text) for name, text in user[key]},
            system_attrs={name: from_json(text) for name, text in system[key]},
            intermediate_values=reports[key],
            trial_id=key,
        )

    return [trial_of(row) for row in trials]


def stored_reports(
    connection: sqlalchemy.Connection, wanted: sqlalchemy.ColumnElement[bool], *, only_last: bool = False
) -> dict[int, dict[int, float]]:
    """The reports that meet a condition, by the keys of their trials and by step, which rises.

    Raises an error of `attributes.UNREADABLE` for what is none.
    """
    kind = sqlalchemy.type_coerce(REPORTS.c.intermediate_value_type, sqlalchemy.String)  # an enum takes long
    query = sqlalchemy.select(REPORTS.c.trial_id, REPORTS.c.step, REPORTS.c.intermediate_value, kind)
    if only_last:
        other = REPORTS.alias()
        last = sqlalchemy.select(sqlalchemy.func.max(other.c.step))
        wanted &= REPORTS.c.step == last.where(other.c.trial_id == REPORTS.c.trial_id).scalar_subquery()
    kinds, found = models.TrialIntermediateValueModel.TrialIntermediateValueType, defaultdict[Any, Any](dict)
    value_of = models.TrialIntermediateValueModel.stored_repr_to_intermediate_value
    rows = connection.execute(query.where(wanted).order_by(REPORTS.c.trial_id, REPORTS.c.step))
    for key, step, stored, name in rows.all():
        found[key][step] = float(stored if name == "FINITE" else value_of(stored, kinds[name]))
    return found


def _life(trial: FrozenTrial) -> dict[str, Any]:
    return {
        "state": trial.state,
        "datetime_start": _utc(trial.datetime_start),
        "datetime_complete": _utc(trial.datetime_complete),
    }


def _utc(moment: datetime | None) -> datetime | None:
    """Optuna keeps naive local time in memory and naive UTC in the database."""
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None)


def _local(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(tzinfo=UTC).astimezone().replace(tzinfo=None)


def _param_row(trial: FrozenTrial, name: str) -> dict[str, Any]:
    distribution = trial.distributions[name]
    return {
        "param_name": name,
        "param_value": distribution.to_internal_repr(trial.params[name]),
        "distribution_json": distribution_to_json(distribution),
    }


def _value_row(objective: int, value: float) -> dict[str, Any]:
    stored, kind = models.TrialValueModel.value_to_stored_repr(value)
    return {"objective": objective, "value": stored, "value_type": kind}


def _report_row(step: int, value: float) -> dict[str, Any]:
    stored, kind = models.TrialIntermediateValueModel.intermediate_value_to_stored_repr(value)
    return {"step": step, "intermediate_value": stored, "intermediate_value_type": kind}


def _insert_all(connection: sqlalchemy.Connection, table: sqlalchemy.Table, rows: Rows) -> None:
    if rows:
        connection.execute(table.insert(), rows)


def write_attrs(
    connection: sqlalchemy.Connection,
    table: sqlalchemy.Table,
    key: dict[str, int],
    new: Mapping[str, Any],
    old: Mapping[str, Any],
) -> None:
    """Write attributes that are new or changed, and delete those that no longer exist.

    A key that another process added stays, or is overwritten.
    """
    missing = object()
    ((column, row),) = key.items()
    delete, update, insert = _attr_statements(table, column)
    for name in old.keys() - new.keys():
        connection.execute(delete, {"owner": row, "name": name})
    for name, value in new.items():
        if old.get(name, missing) == value:
            continue
        stored = json.dumps(value)
        if connection.execute(update, {"owner": row, "name": name, "value_json": stored}).rowcount == 0:
            connection.execute(insert, {**key, "key": name, "value_json": stored})


@cache  # cached, since every report uses some
def _attr_statements(
    table: sqlalchemy.Table, column: str
) -> tuple[sqlalchemy.Delete, sqlalchemy.Update, sqlalchemy.Insert]:
    """Statements that delete, change and add an attribute of the row that the column identifies."""
    mine = table.c[column] == sqlalchemy.bindparam("owner"), table.c.key == sqlalchemy.bindparam("name")
    return table.delete().where(*mine), table.update().where(*mine), table.insert()
