"""A study in the driver's memory, written through to its database in small transactions.

Optuna's own `RDBStorage` spends 70 to 190 SQL statements on a trial. Here samplers and pruners read memory,
and `flush` writes what changed since the last one: one transaction for a new trial, one for a report, one for
an end. The rows are the ones Optuna would have written. When the database cannot be written, nothing is lost:
the next `flush` writes the difference. Changes by other programs are noticed: a renamed study is followed,
and a missing trial is written again.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterable
from typing import Any

import optuna
import sqlalchemy
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import exc

from . import DatabaseUnavailable, Refused, StorageError
from .commands import COMMAND_PREFIX, StudyCommand
from .connection import DriverConnection
from .damage import cause, readable
from .in_memory import StudyInMemory
from .rows import (
    STUDIES,
    STUDY_SYSTEM,
    STUDY_USER,
    TRIALS,
    StoredTrial,
    drop_orphans,
    largest_step,
    read_trials,
    uncollected,
    write_attrs,
    write_trial,
)


class _TrialRun(Exception):
    """Rolls back what was written only to find out whether it can be."""


class _ChangedByOthers(Exception):
    """Other programs changed the study since the last look."""


class LiveStorage(StudyInMemory):
    """One study of a database, held in memory by its only writer.

    `born` is the name the study began with, which samplers and pruners use whatever its present name.
    `identity` names an attribute that only this study has, by which it is found after it was renamed.
    """

    def __init__(
        self,
        database: optuna.storages.RDBStorage,
        name: str,
        *,
        born: str | None = None,
        identity: str | None = None,
    ) -> None:
        row = database.get_study_id_from_name(name)
        super().__init__(database.get_study_directions(row), born or name)
        self._database = database
        self.name = name  # the present one, in the database
        self._identity = identity
        self._row = row  # the study's primary key
        self._connection = DriverConnection(database.engine, self._row)
        self.largest_step = largest_step(database.engine)
        self._written: dict[int, StoredTrial] = {}
        self._unsure = False  # whether the last flush may have been written, since its answer was lost
        self._version: int | None = None  # of the file, when it agreed with memory
        self._news: list[str] = []
        self._refused: dict[int, str] = {}  # trials that were reset to the database's state, and why
        self._set_back: set[int] = set()  # trials whose end the database has not accepted since
        self._study_user: dict[str, Any] = {}  # the study's attributes in the database
        self._study_system: dict[str, Any] = {}
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    # The database

    def flush(self) -> None:
        """Write everything that changed since the last flush, in one transaction.

        Changes to a trial that the database refuses are left out (`take_refused`). Raises
        `DatabaseUnavailable` where the database cannot be written now, and `StorageError` where it never can:
        the study or its file was deleted, or another program wrote trials into it.
        """
        if (what := self._connection.lost_file()) is not None:
            self._give_up_file(what)
        if self._unsure:
            self._recall()
        try:
            try:
                self._write()
            except Refused as error:
                self._set_aside(error)
                self._write()
        except DatabaseUnavailable:
            self._unsure = self._connection.file is None  # a file reports whether it was written
            raise
        except (_ChangedByOthers, exc.IntegrityError):
            self._adapt()
            self._write_again()

    def take_refused(self) -> dict[int, str]:
        """Trials of which the database has refused something, and its messages, each once.

        They are reset to the database's state; what is not in it is lost.
        """
        refused, self._refused = self._refused, {}
        return refused

    def take_commands(self) -> list[StudyCommand]:
        """The commands of other processes since the last call, and what an earlier driver has left of them.

        Raises as `flush` does.
        """
        stored: list[str] = []
        try:
            with self._connection.transaction() as connection:
                if not self._is_mine(connection):
                    raise _ChangedByOthers
                for key, value in self._commands(connection):
                    self._drop_command(connection, key)
                    stored.append(value)
        except _ChangedByOthers:
            self._adapt()  # the next call finds the commands of the renamed study
        return [StudyCommand.parse(text) for text in stored]

    def _commands(self, connection: sqlalchemy.Connection) -> list[tuple[str, str]]:
        """The attributes that hold commands, and their values, in the order they were sent."""
        commands = STUDY_USER.c.key.startswith(COMMAND_PREFIX, autoescape=True)
        query = sqlalchemy.select(STUDY_USER.c.key, STUDY_USER.c.value_json)
        query = query.where(STUDY_USER.c.study_id == self._row, commands)
        in_order = query.order_by(STUDY_USER.c.study_user_attribute_id)
        return [(key, value) for key, value in connection.execute(in_order)]

    def _drop_command(self, connection: sqlalchemy.Connection, key: str) -> None:
        mine = STUDY_USER.c.study_id == self._row, STUDY_USER.c.key == key
        connection.execute(STUDY_USER.delete().where(*mine))

    def ended_elsewhere(self) -> list[FrozenTrial]:
        """Trials that are open here but ended by others, as those left them. Raises as `flush` does."""
        here = {self._written[number].row: number for number in self._open if number in self._written}
        if not here:
            return []
        query = sqlalchemy.select(TRIALS.c.trial_id, TRIALS.c.state).where(TRIALS.c.trial_id.in_(here))
        with self._connection.transaction() as connection:
            rows = {row for row, state in connection.execute(query) if state.is_finished()}
        ended = [t for t in self._their_trials(self._row) if t._trial_id in rows] if rows else []
        for trial in ended:
            self._written[trial.number] = StoredTrial.of(trial, trial._trial_id)
        return ended

    def take_news(self) -> list[str]:
        """News for the user of what others did to the study, each once."""
        news, self._news = self._news, []
        return news

    def close(self) -> None:
        """Close the database; the study stays in memory."""
        self._connection.close()
        self._database.engine.dispose()

    def _trial(self, number: int) -> FrozenTrial:
        return self.get_trial(self.trial_id(number))

    @uncollected()
    def _load(self) -> None:
        with self._connection.transaction() as connection:
            for key, value in self._commands(connection):
                sent = StudyCommand.parse(value)
                if sent.is_for_a_process and sent.driver != os.getpid():
                    self._drop_command(connection, key)  # an earlier one
        found = self._database.get_study_user_attrs(self._row)
        self._study_user = {key: value for key, value in found.items() if not key.startswith(COMMAND_PREFIX)}
        self._study_system = self._database.get_study_system_attrs(self._row)
        for key, value in self._study_user.items():
            self.set_study_user_attr(self._study, key, value)
        for key, value in self._study_system.items():
            self.set_study_system_attr(self._study, key, value)
        for trial in self._their_trials(self._row):
            self._written[trial.number] = StoredTrial.of(trial, trial._trial_id)
            self.adopt(trial)
        self._changed.clear()
        self._close_finished(set(self._open))

    def _write(self) -> None:
        written: dict[int, StoredTrial] = {}
        with self._connection.transaction() as connection:
            for number in sorted(self._changed):
                written[number] = write_trial(
                    connection, self._row, self._trial(number), self._written.get(number)
                )
            study_attrs = self._write_study(connection)
            # At the end, when the write lock is ours.
            version = self._connection.version()
            if version is None or version != self._version:
                new = sum(number not in self._written for number in written)
                self._check(connection, len(self._written) + new)
        self._version = version
        self._written.update(written)
        self._study_user, self._study_system = study_attrs
        self._changed.clear()
        self._close_finished(written.keys())

    def _close_finished(self, numbers: Iterable[int]) -> None:
        finished = {number for number in numbers if self._trial(number).state.is_finished()}
        self._open -= finished
        self._set_back -= finished

    def _recall(self) -> None:
        """Read what the database has of our changes: a server may have written them and lost the answer."""
        for trial in self._their_trials(self._row):  # we hold the lock again, so we wrote what is there
            if trial.number in self._changed:
                self._written[trial.number] = StoredTrial.of(trial, trial._trial_id)
        self._unsure = False

    def _write_again(self) -> None:
        try:
            self._write()
        except _ChangedByOthers as error:
            raise DatabaseUnavailable("others change the study at the same time") from error
        except exc.IntegrityError as error:
            raise StorageError(f"the study was changed while it was searched: {cause(error)}") from error

    def _set_aside(self, error: Refused) -> None:
        """Reset trials of which the database refuses something to the database's state.

        Raises the error where there is none, or where it has refused the rest of one as well.
        """
        refused = {n: why for n in sorted(self._changed) if (why := self._why_refused(n)) is not None}
        if not refused or not self._set_back.isdisjoint(refused):
            raise error
        self._set_back |= refused.keys()
        theirs = {trial.number: trial for trial in self._their_trials(self._row)}
        for number in refused:
            trial = theirs.get(number) or copy.copy(self._trial(number))
            if number not in theirs:  # not in the database: it starts with nothing
                trial.params, trial.distributions, trial.intermediate_values = {}, {}, {}
                trial.user_attrs, trial.system_attrs = {}, {}
                trial.state, trial.values, trial.datetime_complete = TrialState.RUNNING, None, None
            trial._trial_id = self.trial_id(number)
            self._set_trial(trial._trial_id, trial)
            self._open.add(number)
        self._refused |= refused

    def _why_refused(self, number: int) -> str | None:
        """Why the database refuses to store a trial; None where it accepts it."""
        try:
            with self._connection.transaction() as connection:
                write_trial(connection, self._row, self._trial(number), self._written.get(number))
                raise _TrialRun
        except Refused as error:
            return str(error)
        except _TrialRun:
            return None

    def _check(self, connection: sqlalchemy.Connection, trials: int) -> None:
        """Check that study and trials exist: SQLite would give orphaned rows to the next study."""
        count = sqlalchemy.select(sqlalchemy.func.count()).where(TRIALS.c.study_id == self._row)
        if not self._is_mine(connection) or connection.scalar(count) != trials:
            raise _ChangedByOthers

    def _is_mine(self, connection: sqlalchemy.Connection) -> bool:
        """Whether the study with our key is ours: another may have got the key, or even the name."""
        mine = STUDIES.c.study_id == self._row, STUDIES.c.study_name == self.name
        query = sqlalchemy.select(STUDIES.c.study_id).where(*mine)
        if self._identity in self._study_user:
            query = query.join(STUDY_USER).where(*self._identified())
        return connection.scalar(query) is not None

    def _identified(self) -> tuple[sqlalchemy.ColumnElement[bool], ...]:
        """The condition that a study has our identity."""
        mine = json.dumps(self._study_user[self._identity or ""])
        return STUDY_USER.c.key == self._identity, STUDY_USER.c.value_json == mine

    # Changes by others

    def _their_trials(self, study: int) -> list[FrozenTrial]:
        with self._connection.transaction() as connection:
            return read_trials(connection, study)

    def _adapt(self) -> None:
        """Find out what others changed and adapt to it, or raise `StorageError` where that is impossible."""
        with self._connection.transaction() as connection:
            is_mine = self._is_mine(connection)
            renamed = None if is_mine else self._renamed(connection)
            if not is_mine:
                drop_orphans(connection)  # the deletion may have missed our last rows
        if renamed is not None:
            self._follow(*renamed)
        elif not is_mine:
            raise StorageError(f'the study "{self.name}" was deleted while it was searched')
        trials = sqlalchemy.select(TRIALS.c.number, TRIALS.c.trial_id).where(TRIALS.c.study_id == self._row)
        with self._connection.transaction() as connection:
            rows: dict[int, int] = {number: row for number, row in connection.execute(trials)}
        if not rows.keys() <= self._written.keys():
            raise StorageError("another program wrote trials into this study while it was searched")
        for number in [n for n, old in self._written.items() if rows.get(n) != old.row]:
            del self._written[number]
            self._changed.add(number)
            self._news.append(f"trial {number} was deleted from the database; it is written again")

    def _renamed(self, connection: sqlalchemy.Connection) -> tuple[int, str] | None:
        """The key and name that the study has now; None where it is gone."""
        if self._identity not in self._study_user:
            return None
        query = sqlalchemy.select(STUDIES.c.study_id, STUDIES.c.study_name).join(STUDY_USER)
        row = connection.execute(query.where(*self._identified())).first()
        return None if row is None else (row.study_id, row.study_name)

    def _follow(self, row: int, name: str) -> None:
        """Continue the study under another name and key, and write what the copy lacks."""
        there = self._their_trials(row)
        with readable():
            user = self._database.get_study_user_attrs(row)
            system = self._database.get_study_system_attrs(row)
        self._connection.take(row)
        self._row, self.name = row, name
        self._written = {t.number: StoredTrial.of(t, t._trial_id) for t in there}
        self._changed = {t.number for t in self.get_all_trials(self._study, deepcopy=False)}
        # Attributes that the copy has stay as its maker set them.
        self._study_user = {k: v for k, v in self.get_study_user_attrs(self._study).items() if k in user}
        self._study_system = {
            k: v for k, v in self.get_study_system_attrs(self._study).items() if k in system
        }
        self._news.append(f'the study was renamed to "{name}", and continues under that name')

    def _give_up_file(self, what: str) -> None:
        """Save the content of an open file that has lost its name; always raises `StorageError`."""
        what_happened = f"the database {self._connection.file} was {what} while it was searched"
        self._write()  # to the open file, which has no name any more
        rescued = self._connection.rescue()
        raise StorageError(
            f"{what_happened}; nothing is lost: everything is in {rescued}. Move that back to its place, and "
            "run the same command again to continue"
        )

    def _write_study(self, connection: sqlalchemy.Connection) -> tuple[dict[str, Any], dict[str, Any]]:
        user = dict(self.get_study_user_attrs(self._study))
        system = dict(self.get_study_system_attrs(self._study))
        key = {"study_id": self._row}
        write_attrs(connection, STUDY_USER, key, user, self._study_user)
        write_attrs(connection, STUDY_SYSTEM, key, system, self._study_system)
        return user, system
