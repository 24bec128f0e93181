"""Parts of a large study: a page of its trials, some of its reports, without a look at the rest.

The number of statements depends on neither trials nor reports.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import sqlalchemy
from optuna.storages import RDBStorage
from optuna.storages._rdb.models import TrialIntermediateValueModel
from optuna.trial import FrozenTrial, TrialState

from . import StorageError, missing_study
from .attributes import check_trials, readable_rows
from .damage import readable
from .database import Tables, open_tables
from .figures import value_of
from .rows import (
    MOST_NAMED,
    REPORTS,
    STUDY_USER,
    TRIALS,
    VALUES,
    has_attr,
    read_trials,
    stored_reports,
    uncollected,
)
from .studies import SPEC, check_study, folder_in, study_keys
from .trial_attrs import AT_RUNG, CONFIRMS
from .workspace import Workspace

Order = Literal["number", "newest", "best"]
MOST_TRIALS = 2**53  # of a study
MOST_REPORTS = 100_000  # in one answer
FEWEST_POINTS = 5  # of a thinned curve: its ends and its extremes


@dataclass(frozen=True)
class StudyHead:
    """A study that hpsearch searched, without its trials."""

    workspace: Workspace
    database: Tables | RDBStorage
    name: str
    key: int
    attrs: dict[str, Any]  # its user attributes

    @property
    def engine(self) -> sqlalchemy.Engine:
        return self.database.engine

    @property
    def folder(self) -> str:
        """The name of its folder under runs."""
        return folder_in(self.attrs, self.name)


def study_head(workspace: Workspace, name: str) -> StudyHead:
    """The study of this name.

    Raises `StorageError` with the nearest name where there is none, and where another program made it.
    """
    tables = open_tables(workspace.url)
    keys = study_keys(tables)
    if name not in keys:
        with readable_rows(f'the study "{name}"'):  # a name may be no text
            raise missing_study(name, keys)
    rows = sqlalchemy.select(STUDY_USER.c.key, STUDY_USER.c.value_json).where(
        STUDY_USER.c.study_id == keys[name]
    )
    with readable(), readable_rows(f'the study "{name}"'), tables.engine.connect() as connection:
        attrs = {key: json.loads(text) for key, text in connection.execute(rows)}
    check_study(name, attrs)
    if SPEC not in attrs:
        raise StorageError(
            f'the study "{name}" was made by another program; hpsearch knows nothing of its space'
        )
    return StudyHead(workspace, tables, name, keys[name], attrs)


def read_page(
    head: StudyHead,
    *,
    state: str | None = None,
    order: Order = "number",
    minimize: bool = True,
    after: int | None = None,
    limit: int = MOST_NAMED,
) -> tuple[list[FrozenTrial], bool]:
    """The trials of a study that follow the trial `after` in an order; whether there are more.

    By number, the newest first, or the best first: complete trials by value, then those that confirm others,
    then the rest by number. Each has the last of its reports alone. Raises `StorageError` where they cannot
    be read.
    """
    with readable_rows(f'the study "{head.name}"'), readable(), head.engine.connect() as connection:
        numbers = _numbers(connection, head.key, state, order, minimize, after, limit + 1)
        page = numbers[:limit]
        trials = _trials(connection, head, page, last_reports=True)
    place = {number: index for index, number in enumerate(page)}
    return sorted(trials, key=lambda trial: place[trial.number]), len(numbers) > limit


def read_numbers(head: StudyHead, *, after: int | None, limit: int) -> tuple[list[int], bool]:
    """The numbers of the trials that follow the trial `after`; whether there are more."""
    with readable(), head.engine.connect() as connection:
        numbers = _numbers(connection, head.key, None, "number", True, after, limit + 1)
    return numbers[:limit], len(numbers) > limit


def read_values(head: StudyHead) -> list[tuple[int, datetime, float]]:
    """The complete trials of a study's search by when they ended: number, moment and value."""
    query = (
        sqlalchemy.select(TRIALS.c.number, TRIALS.c.datetime_complete, VALUES.c.value_type, VALUES.c.value)
        .join(VALUES, (VALUES.c.trial_id == TRIALS.c.trial_id) & (VALUES.c.objective == 0))
        .where(TRIALS.c.study_id == head.key, TRIALS.c.state == TrialState.COMPLETE, ~has_attr(CONFIRMS))
        .order_by(TRIALS.c.datetime_complete, TRIALS.c.number)
    )
    with readable_rows(f'the study "{head.name}"'), readable(), head.engine.connect() as connection:
        rows = connection.execute(query).all()
        return [
            (number, ended, value_of(getattr(kind, "name", kind), stored))
            for number, ended, kind, stored in rows
            if ended is not None
        ]


def read_trial(head: StudyHead, number: int) -> FrozenTrial:
    """The trial of a number. Raises `StorageError` with the numbers there are."""
    with readable_rows(f'the study "{head.name}"'), readable(), head.engine.connect() as connection:
        if found := _trials(connection, head, [number]):
            return found[0]
        count = sqlalchemy.select(sqlalchemy.func.count()).where(TRIALS.c.study_id == head.key)
        last = (connection.scalar(count) or 0) - 1
    there = f"they go from 0 to {last}" if last >= 0 else "it has none yet"
    raise StorageError(f"the study has no trial {number}; {there}", code="trial-missing")


def _trials(
    connection: sqlalchemy.Connection,
    head: StudyHead,
    numbers: Collection[int],
    *,
    last_reports: bool = False,
) -> list[FrozenTrial]:
    if not numbers:
        return []
    wanted = TRIALS.c.number.in_(numbers)
    trials = read_trials(connection, head.key, only=wanted, last_reports=last_reports)
    check_trials(head.name, trials, MOST_TRIALS)
    return trials


def _numbers(
    connection: sqlalchemy.Connection,
    study: int,
    state: str | None,
    order: Order,
    minimize: bool,
    after: int | None,
    limit: int,
) -> list[int]:
    """The numbers of a page and, where there is one, of the first trial of the next."""
    wanted = [TRIALS.c.study_id == study, *_in_state(state)]
    number = TRIALS.c.number
    if order == "best":
        again = has_attr(CONFIRMS).label("again")
        query = (
            sqlalchemy.select(number, TRIALS.c.state, again, VALUES.c.value_type, VALUES.c.value)
            .outerjoin(VALUES, (VALUES.c.trial_id == TRIALS.c.trial_id) & (VALUES.c.objective == 0))
            .where(*wanted)
            .order_by(number)
        )
        rows = connection.execute(query).all()
        ranked = sorted(rows, key=lambda row: _rank(row, minimize))
        numbers = [row.number for row in ranked]
        begin = 0 if after is None else numbers.index(after) + 1 if after in numbers else len(numbers)
        return numbers[begin : begin + limit]
    if after is not None:
        wanted.append(number > after if order == "number" else number < after)
    ordered = number if order == "number" else number.desc()
    return list(connection.scalars(sqlalchemy.select(number).where(*wanted).order_by(ordered).limit(limit)))


def _rank(row: Any, minimize: bool) -> tuple[Any, ...]:
    kind = row.value_type
    value = None if kind is None else value_of(getattr(kind, "name", kind), row.value)
    loss = (value or 0.0) if minimize else -(value or 0.0)
    return row.state != TrialState.COMPLETE, row.again, value is None, loss


def _in_state(state: str | None) -> list[sqlalchemy.ColumnElement[bool]]:
    """The condition that a trial is in a state as it is shown."""
    if state is None:
        return []
    if state in ("running", "paused"):
        at_rung = has_attr(AT_RUNG)
        return [TRIALS.c.state == TrialState.RUNNING, at_rung if state == "paused" else ~at_rung]
    return [TRIALS.c.state == TrialState[state.upper()]]


@dataclass
class CurvesRead:
    """The reports of some trials by number, each by step."""

    points: dict[int, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    last: int = 0  # the key of the newest report among them, from which one may read on
    more: bool = False  # whether there are further ones


@uncollected()
def read_reports(head: StudyHead, numbers: Collection[int] | None, since: int | None) -> CurvesRead:
    """Reports of a study: of some trials or all; those after a key, or the first `MOST_REPORTS`.

    Without `since` all reports of the trials are read, and `numbers` is needed. Raises `StorageError` where
    they cannot be read.
    """
    key = REPORTS.c.trial_intermediate_value_id
    every = sqlalchemy.select(TRIALS.c.trial_id, TRIALS.c.number).where(TRIALS.c.study_id == head.key)
    trials = every if numbers is None else every.where(TRIALS.c.number.in_(numbers))
    with readable_rows(f'the study "{head.name}"'), readable(), head.engine.connect() as connection:
        if since is None:
            # Before the rows: later ones may come twice. From the end, where it is soon found.
            mine = every.where(TRIALS.c.trial_id == REPORTS.c.trial_id).exists()
            last = connection.scalar(sqlalchemy.select(key).where(mine).order_by(key.desc()).limit(1)) or 0
            number_of: dict[int, int] = dict(connection.execute(trials).all())
            reports = stored_reports(connection, REPORTS.c.trial_id.in_(number_of))
            return CurvesRead({number_of[trial]: list(reports[trial].items()) for trial in reports}, last)
        columns = [*REPORTS.c["step", "intermediate_value", "intermediate_value_type"], key]
        query = trials.join_from(TRIALS, REPORTS).with_only_columns(TRIALS.c.number, *columns)
        reported = TrialIntermediateValueModel.stored_repr_to_intermediate_value
        found = CurvesRead(last=since)
        rows = connection.execute(query.where(key > since).order_by(key).limit(MOST_REPORTS + 1))
        for count, (number, step, stored, kind, row) in enumerate(rows):
            if count == MOST_REPORTS:
                found.more = True
                break
            found.last = row
            found.points[number].append((step, float(reported(stored, kind))))
    for points in found.points.values():
        points.sort()
    return found


def thinned(points: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """At most so many points of a curve, at least five: its ends, and the extremes of parts of equal length.

    The first value of a part that is no number is kept too.
    """
    most = max(most, FEWEST_POINTS)
    if len(points) <= most:
        return list(points)
    values = [value for _, value in points]
    odd = any(value != value for value in values)
    kept, inside = {0, len(points) - 1}, len(points) - 2
    parts = (most - 2) // (3 if odd else 2)
    for part in range(parts):
        begin = 1 + part * inside // parts
        some = values[begin : 1 + (part + 1) * inside // parts]
        sound = [value for value in some if value == value] if odd else some
        if sound:
            kept |= {begin + some.index(min(sound)), begin + some.index(max(sound))}
        if len(sound) < len(some):
            kept.add(begin + next(index for index, value in enumerate(some) if value != value))
    return [points[index] for index in sorted(kept)]
