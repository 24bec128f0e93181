"""What a database says of all its studies at once: counts and extremes, without a look at each trial.

The number of statements depends on neither studies nor trials. States and kinds are read as the texts that
are stored: one that is none spoils its own study alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

import sqlalchemy
from optuna.storages._rdb.models import TrialValueModel
from optuna.trial import FrozenTrial, TrialState

from .attributes import check_trials, readable_rows
from .damage import readable
from .rows import DIRECTIONS, PARAMS, REPORTS, STUDIES, STUDY_USER, TRIALS, VALUES, has_attr, read_trials
from .trial_attrs import AT_RUNG, CONFIRMS, confirms

Rows = list[list[Any]]
Member = TypeVar("Member", bound=Enum)


@dataclass(frozen=True)
class StudyFigures:
    """The rows about one study, not decoded yet."""

    attrs: Rows = field(default_factory=list)  # user attributes: key, JSON
    directions: Rows = field(default_factory=list)  # of each objective
    trials: Rows = field(default_factory=list)  # state, marked as at a rung, as confirming, how many
    params: Rows = field(default_factory=list)  # the largest, so that damage to its table is noticed
    values: Rows = field(default_factory=list)  # of complete ones: marked as confirming, kind, least, most


def study_figures(
    connection: sqlalchemy.Connection, attrs: Collection[str], study: int | None = None
) -> dict[int, StudyFigures]:
    """The figures of all studies by their keys, or of one, with the user attributes of these names."""
    found: dict[int, StudyFigures] = defaultdict(StudyFigures)
    for name, query in _queries(attrs).items():
        of = query.selected_columns.study_id
        for key, *row in connection.execute(query if study is None else query.where(of == study)):
            getattr(found[key], name).append(row)
    return found


def report_counts(connection: sqlalchemy.Connection) -> dict[str, int]:
    """How many reports the trials of each study have made, by its name; of those with any."""
    query = sqlalchemy.select(STUDIES.c.study_name, sqlalchemy.func.count())
    query = (
        query.select_from(REPORTS).join(TRIALS).join(STUDIES).group_by(*STUDIES.c["study_id", "study_name"])
    )
    return {name: count for name, count in connection.execute(query.order_by(STUDIES.c.study_id))}


def counts_in(connection: sqlalchemy.Connection, attr: str) -> dict[str, int]:
    """The counts that studies have in a user attribute, by their names; of those that have one."""
    query = sqlalchemy.select(STUDIES.c.study_name, STUDY_USER.c.value_json).join(STUDY_USER)
    rows = connection.execute(query.where(STUDY_USER.c.key == attr).order_by(STUDIES.c.study_id))
    return {name: int(text) for name, text in rows if text.isdecimal()}


def member(kind: type[Member], text: Any) -> Member:
    """The member of an enum by its name. Raises an error of `attributes.UNREADABLE` where it is none."""
    if text not in kind.__members__:
        raise LookupError(f"{text!r:.50} is none of {', '.join(kind.__members__)}")
    return kind[text]


def value_of(kind: str, stored: Any) -> float:
    """A value from its columns. Raises an error of `attributes.UNREADABLE` where it is none."""
    value = TrialValueModel.stored_repr_to_value(stored, TrialValueModel.TrialValueType[kind])
    if type(value) is not float:
        raise TypeError(f"a value is {value!r:.100}")
    return value


def decisive_trials(
    connection: sqlalchemy.Connection, name: str, study: int, count: int
) -> list[FrozenTrial]:
    """The trials that confirm others, and then those that they confirm, of the `count` trials of a study.

    Raises `StorageError` where they cannot be read.
    """

    def read(only: sqlalchemy.ColumnElement[bool]) -> list[FrozenTrial]:
        with readable_rows(f'the study "{name}"'), readable():
            trials = read_trials(connection, study, only=only)
        check_trials(name, trials, count)
        return trials

    runs = read(has_attr(CONFIRMS))
    return runs + read(TRIALS.c.number.in_({confirms(run) for run in runs}))


def _queries(attrs: Collection[str]) -> dict[str, sqlalchemy.Select[Any]]:
    """A statement for each field of `StudyFigures`."""
    select, func, value = sqlalchemy.select, sqlalchemy.func, VALUES.c.value
    state, kind, direction = map(_text, (TRIALS.c.state, VALUES.c.value_type, DIRECTIONS.c.direction))
    at_rung, again = has_attr(AT_RUNG).label("at_rung"), has_attr(CONFIRMS).label("confirms")
    every = select(TRIALS.c["study_id", "number"], state.label("state"), at_rung, again).subquery().c
    alike = every["study_id", "state", "at_rung", "confirms"]
    complete = select(TRIALS.c["study_id", "trial_id"], again)
    ended = complete.where(TRIALS.c.state == TrialState.COMPLETE).subquery().c
    values = select(*ended["study_id", "confirms"], kind, func.min(value), func.max(value))
    return {
        "attrs": select(STUDY_USER.c["study_id", "key", "value_json"]).where(STUDY_USER.c.key.in_(attrs)),
        "directions": select(DIRECTIONS.c.study_id, direction).order_by(DIRECTIONS.c.objective),
        "trials": select(*alike, func.count()).group_by(*alike).order_by(func.min(every.number)),
        "params": select(TRIALS.c.study_id, func.max(PARAMS.c.param_value))
        .join_from(PARAMS, TRIALS)
        .group_by(TRIALS.c.study_id),
        "values": values.where(VALUES.c.trial_id == ended.trial_id, VALUES.c.objective == 0).group_by(
            *ended["study_id", "confirms"], VALUES.c.value_type
        ),
    }


def _text(column: sqlalchemy.Column[Any]) -> sqlalchemy.TypeCoerce[str]:
    """A column of names as it is stored."""
    return sqlalchemy.type_coerce(column, sqlalchemy.String)
