"""What has changed in a database since the last look, without reading what has not.

SQLite says by `PRAGMA data_version` whether anything was written at all. If so, two `max(id)` queries and the
rows above them tell new trials and reports, and the states of open trials the rest.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy
from optuna.trial import TrialState

from .damage import readable
from .rows import REPORTS, STUDIES, STUDY_USER, TRIALS, VALUES, has_attr
from .studies import ELAPSED, PAUSED, PHASE, SPEC
from .trial_attrs import AT_RUNG
from .wanted import WANTED

WATCHED = (PAUSED, PHASE, ELAPSED, WANTED)  # attributes of studies whose changes are told; and their spaces
SPEC_SECONDS = 1.0  # between two looks at the spaces, which are long
OVERLAP = 1000  # keys of a server's rows that are looked at again: others may commit later with lower keys
_REPORT = REPORTS.c.trial_intermediate_value_id


@dataclass
class Changes:
    """What changed between two looks."""

    new: set[str] = field(default_factory=set)  # studies
    gone: set[str] = field(default_factory=set)
    studies: set[str] = field(default_factory=set)  # of which anything changed, the new ones included
    trials: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # keys of trials, by study
    reports: dict[int, list[tuple[int, float]]] = field(default_factory=dict)  # by the keys of trials
    states: set[str] = field(default_factory=set)  # studies with trials that began or ended, or attributes

    def __bool__(self) -> bool:
        return bool(self.studies or self.gone)


@dataclass
class _Seen:
    """What the last look saw."""

    studies: dict[int, str] = field(default_factory=dict)
    attrs: dict[tuple[int, str], str] = field(default_factory=dict)
    trial: int = 0  # the highest keys
    report: int = 0
    recent: set[int] = field(default_factory=set)  # keys of reports that a server may pass over
    open: dict[int, tuple[int, Any, bool]] = field(default_factory=dict)  # study, state, whether at a rung


class ChangeDetector:
    """Looks at a database again and again. For one thread at a time."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        self._engine = engine
        self._is_file = engine.dialect.name == "sqlite"
        self._connection: sqlalchemy.Connection | None = None
        self._version: int | None = None
        self._seen: _Seen | None = None
        self._specs_read = float("-inf")  # when
        self._owes_specs = False  # whether something was written since
        self.queries = 0  # statements so far

    def close(self) -> None:
        """Close the connection. A further look opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._version = None

    def look(self) -> Changes:
        """What has changed since the last look; nothing at the first.

        Raises `DatabaseUnavailable` or `StorageError` where the database cannot be read.
        """
        try:
            with readable():
                return self._look()
        except BaseException:
            self.close()
            raise

    def _look(self) -> Changes:
        if self._connection is None:
            self._connection = self._engine.connect()
        connection = self._connection
        try:
            if self._is_file:
                version = self._one(connection, sqlalchemy.text("PRAGMA data_version"))
                owes = self._owes_specs and time.monotonic() - self._specs_read >= SPEC_SECONDS
                if version == self._version and self._seen is not None and not owes:
                    return Changes()
                self._version = version  # before the rows: what is written meanwhile is found again
            return self._changes(connection)
        finally:
            connection.rollback()  # the next look sees what others write

    def _changes(self, connection: sqlalchemy.Connection) -> Changes:
        before, now, found = self._seen, _Seen(), Changes()
        # The states first: a trial that is ended here has its rows below.
        at_rung = has_attr(AT_RUNG)
        states = TRIALS.c.state.in_((TrialState.RUNNING, TrialState.WAITING))
        query = sqlalchemy.select(*TRIALS.c["trial_id", "study_id", "state"], at_rung).where(states)
        for key, study, state, paused in self._all(connection, query):
            now.open[key] = study, state, bool(paused)
        for key, name in self._all(connection, sqlalchemy.select(*STUDIES.c["study_id", "study_name"])):
            now.studies[key] = name
        names = list(WATCHED)
        self._owes_specs = time.monotonic() - self._specs_read < SPEC_SECONDS
        if not self._owes_specs:
            names.append(SPEC)
            self._specs_read = time.monotonic()
        elif before is not None:
            now.attrs = {key: text for key, text in before.attrs.items() if key[1] == SPEC}
        attrs = sqlalchemy.select(*STUDY_USER.c["study_id", "key", "value_json"])
        for key, name, text in self._all(connection, attrs.where(STUDY_USER.c.key.in_(names))):
            now.attrs[key, name] = text
        highest = sqlalchemy.select(sqlalchemy.func.max(TRIALS.c.trial_id))
        now.trial = self._one(connection, highest) or 0
        now.report = self._one(connection, sqlalchemy.select(sqlalchemy.func.max(_REPORT))) or 0
        if before is not None:
            self._compare(connection, before, now, found)
        self._seen = now
        return found

    def _compare(self, connection: sqlalchemy.Connection, before: _Seen, now: _Seen, found: Changes) -> None:
        for key in before.studies.keys() | now.studies.keys():
            old, new = before.studies.get(key), now.studies.get(key)
            if old != new:  # SQLite gives the key of a deleted study to the next
                found.gone.update([] if old is None else [old])
                found.new.update([] if new is None else [new])
        found.gone -= found.new
        found.studies |= found.new
        found.states |= found.new
        for study, _ in _differing(before.attrs, now.attrs):
            if study in now.studies:
                found.states.add(now.studies[study])
        of: dict[int, int] = {}  # the studies of trials
        for key in _differing(before.open, now.open):
            of[key] = (now.open.get(key) or before.open[key])[0]
            if of[key] in now.studies:
                found.states.add(now.studies[of[key]])
        reset = now.trial < before.trial or now.report < before.report  # rows were deleted
        since = 0 if reset else before.report
        if not self._is_file:
            since = max(0, since - OVERLAP)
        if now.trial != before.trial:
            above = sqlalchemy.select(*TRIALS.c["trial_id", "study_id"])
            for key, study in self._all(connection, above.where(TRIALS.c.trial_id > before.trial)):
                of[key] = study
                if study in now.studies:
                    found.states.add(now.studies[study])
        if now.report > since and not reset:
            of |= self._reports(connection, before, now, since, found)
        for key, study in of.items():
            if study in now.studies:
                found.trials[now.studies[study]].add(key)
        found.studies |= found.states | found.trials.keys()
        if reset:  # keys may be those of other rows by now
            found.studies |= set(now.studies.values())
            found.states |= set(now.studies.values())

    def _reports(
        self, connection: sqlalchemy.Connection, before: _Seen, now: _Seen, since: int, found: Changes
    ) -> dict[int, int]:
        """Read new reports into what was found; the studies of their trials."""
        columns = REPORTS.c["trial_id", "step", "intermediate_value", "intermediate_value_type"]
        query = sqlalchemy.select(_REPORT, *columns, TRIALS.c.study_id).join_from(REPORTS, TRIALS)
        of: dict[int, int] = {}
        for row, key, step, stored, kind, study in self._all(connection, query.where(since < _REPORT)):
            if not self._is_file:
                now.recent.add(row)
                now.report = max(now.report, row)
            elif row > now.report:  # it came meanwhile: the next look would tell it again
                now.report = row
            if row not in before.recent:
                found.reports.setdefault(key, []).append((step, _reported(stored, kind)))
                of[key] = study
        return of

    def _all(self, connection: sqlalchemy.Connection, query: Any) -> Iterable[Any]:
        self.queries += 1
        return connection.execute(query).all()

    def _one(self, connection: sqlalchemy.Connection, query: Any) -> Any:
        self.queries += 1
        return connection.execute(query).scalar()


def best_trial(connection: sqlalchemy.Connection, study: int, value: float) -> int | None:
    """The key of the first complete trial of a study with a value."""
    query = (
        sqlalchemy.select(sqlalchemy.func.min(TRIALS.c.trial_id))
        .join_from(TRIALS, VALUES)
        .where(TRIALS.c.study_id == study, TRIALS.c.state == TrialState.COMPLETE, VALUES.c.value == value)
    )
    key: int | None = connection.scalar(query)
    return key


def _differing(one: dict[Any, Any], other: dict[Any, Any]) -> list[Any]:
    """The keys under which two mappings differ."""
    changed = [key for key, value in other.items() if key not in one or one[key] != value]
    return changed + [key for key in one if key not in other]


def _reported(stored: float | None, kind: Any) -> float:
    from optuna.storages._rdb.models import TrialIntermediateValueModel as Model

    return float(Model.stored_repr_to_intermediate_value(stored, kind))
