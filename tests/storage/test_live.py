"""A study in memory and its rows: the same as Optuna's own storage would have written.

Every database is a real SQLite file; who holds its write lock is a real second connection.
"""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from hpsearch.storage import DatabaseUnavailable, StorageError, database
from hpsearch.storage.commands import StudyCommand
from hpsearch.storage.database import open_storage
from hpsearch.storage.live import LiveStorage

TABLES = {
    "studies": "study_name",
    "study_directions": "direction, objective",
    "study_user_attributes": "key, value_json",
    "study_system_attributes": "key, value_json",
    "trials": "number, state, datetime_start IS NULL, datetime_complete IS NULL",
    "trial_params": "trial_id, param_name, param_value, distribution_json",
    "trial_values": "trial_id, objective, value, value_type",
    "trial_intermediate_values": "trial_id, step, intermediate_value, intermediate_value_type",
    "trial_user_attributes": "trial_id, key, value_json",
    "trial_system_attributes": "trial_id, key, value_json",
}


def rows(file: Path) -> dict[str, list[Any]]:
    """All rows, except the keys nobody refers to and the times."""
    with closing(sqlite3.connect(file)) as connection:
        return {
            table: sorted(connection.execute(f"SELECT {columns} FROM {table}"), key=repr)
            for table, columns in TABLES.items()
        }


@contextmanager
def write_lock(file: Path) -> Iterator[None]:
    """Hold the database as another writer does."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait hardly for a lock."""
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.01)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., optuna.storages.RDBStorage]]:
    """Open (again) a database of this test that has a study "s"."""
    found: list[optuna.storages.RDBStorage] = []

    def make(name: str = "a.db") -> optuna.storages.RDBStorage:
        new = not (tmp_path / name).exists()
        storage = open_storage(f"sqlite:///{tmp_path / name}", create=True)
        if new:
            storage.create_new_study([StudyDirection.MINIMIZE], "s")
        found.append(storage)
        return storage

    yield make
    for storage in found:
        storage.engine.dispose()


def tell_a_story(storage: Any) -> None:
    """Trials of every state, with everything a trial can have."""
    study = optuna.load_study(study_name="s", storage=storage, sampler=optuna.samplers.RandomSampler(seed=0))
    study.set_user_attr("hpsearch:spec", {"name": "s", "list": [1, None, "ü"]})
    study.enqueue_trial({"x": 0.5}, user_attrs={"baseline": True})
    for number in range(6):
        trial = study.ask()
        trial.suggest_float("x", 1e-3, 1.0, log=True)
        trial.suggest_int("r", 2, 32, step=2)
        trial.suggest_categorical("c", ["a", None, True, 2, 0.5, '["q","v"]'])
        for step in (1, 3, 9):
            trial.report([0.5, math.inf, -math.inf, math.nan][(number + step) % 4], step)
        trial.set_user_attr("again", 1)
        trial.set_user_attr("again", "two")
        trial.set_constraint("memory", 1.0)
        match number:
            case 0:
                study.tell(trial, 0.25)
            case 1:
                study.tell(trial, state=TrialState.PRUNED)
            case 2:
                study.tell(trial, state=TrialState.FAIL)
            case 3:
                study.tell(trial, math.inf)
    study.enqueue_trial({"x": 0.75})


def test_the_rows_are_the_ones_optuna_writes(tmp_path: Path, opened: Any) -> None:
    tell_a_story(opened("optuna.db"))
    live = LiveStorage(opened("live.db"), "s")
    tell_a_story(live)
    live.flush()
    assert rows(tmp_path / "live.db") == rows(tmp_path / "optuna.db")


def test_the_rows_are_the_same_where_every_step_is_flushed(
    tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell_a_story(opened("optuna.db"))
    live = LiveStorage(opened("live.db"), "s")
    for name in ("set_trial_param", "set_trial_intermediate_value", "set_trial_user_attr"):
        original = getattr(live, name)

        def flushed(*args: Any, original: Any = original, **kwargs: Any) -> None:
            original(*args, **kwargs)
            live.flush()

        monkeypatch.setattr(live, name, flushed)
    tell_a_story(live)
    live.flush()
    assert rows(tmp_path / "live.db") == rows(tmp_path / "optuna.db")


class Seen(frozenset[int]):
    """Steps that count how often one is looked up."""

    looks = 0

    def __contains__(self, step: object) -> bool:
        self.looks += 1
        return super().__contains__(step)


def test_a_report_costs_the_same_however_many_came_before_it(tmp_path: Path, opened: Any) -> None:
    live = LiveStorage(opened(), "s")
    study = optuna.load_study(study_name="s", storage=live)
    trial = study.ask()
    for step in (*range(1, 200), 0):
        trial.report(0.5, step)
    live.flush()
    steps = Seen(live._written[0].steps)
    live._written[0] = dataclasses.replace(live._written[0], steps=steps)
    for step in (200, 201):
        trial.report(0.5, step)
    live.flush()
    assert steps.looks == 3, "of two new ones and the one before them"
    assert len(rows(tmp_path / "a.db")["trial_intermediate_values"]) == 202


def test_times_are_read_back_as_they_were(opened: Any) -> None:
    live = LiveStorage(opened(), "s")
    study = optuna.load_study(study_name="s", storage=live)
    study.tell(study.ask(), 1.0)
    live.flush()
    (kept,) = study.get_trials()
    (read,) = optuna.load_study(study_name="s", storage=opened()).get_trials()
    assert (read.datetime_start, read.datetime_complete) == (kept.datetime_start, kept.datetime_complete)
    (loaded,) = LiveStorage(opened(), "s").get_all_trials(0)
    assert loaded.datetime_start == kept.datetime_start


def test_an_unwritable_database_loses_nothing(tmp_path: Path, opened: Any, impatient: None) -> None:
    live = LiveStorage(opened(), "s")
    study = optuna.load_study(study_name="s", storage=live)
    before = rows(tmp_path / "a.db")
    with write_lock(tmp_path / "a.db"):
        trial = study.ask()
        trial.report(0.5, 1)
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable, match="database is locked"):
                live.flush()
        study.tell(trial, 0.25)
        study.set_user_attr("k", 1)
        with pytest.raises(DatabaseUnavailable):
            live.flush()
    assert rows(tmp_path / "a.db") == before
    live.flush()
    (read,) = optuna.load_study(study_name="s", storage=opened()).get_trials()
    assert (read.value, read.intermediate_values) == (0.25, {1: 0.5})


def test_a_reader_is_never_in_the_way(tmp_path: Path, opened: Any, impatient: None) -> None:
    live = LiveStorage(opened(), "s")
    study = optuna.load_study(study_name="s", storage=live)
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM trials").fetchall()
        study.tell(study.ask(), 1.0)
        live.flush()
        assert reader.execute("SELECT count(*) FROM trials").fetchone() == (0,), "its own moment"
    assert len(rows(tmp_path / "a.db")["trials"]) == 1


def test_a_requeued_trial_resumes_with_everything_it_has(opened: Any) -> None:
    live = LiveStorage(opened(), "s")
    study = optuna.load_study(study_name="s", storage=live)
    for _ in range(3):
        study.ask().report(0.5, 1)
    live.flush()
    live.requeue(2)
    live.requeue(0)
    live.flush()
    again = LiveStorage(opened(), "s")
    states = [t.state.name for t in again.get_all_trials(0)]
    assert states == ["WAITING", "RUNNING", "WAITING"]
    study = optuna.load_study(study_name="s", storage=again)
    assert [study.ask().number for _ in range(3)] == [0, 2, 3]
    assert study.trials[2].intermediate_values == {1: 0.5}


def test_trials_of_another_program_are_noticed_and_nothing_of_ours_is_mixed_in(
    tmp_path: Path, opened: Any
) -> None:
    live = LiveStorage(opened(), "s")
    optuna.load_study(study_name="s", storage=opened()).ask()
    optuna.load_study(study_name="s", storage=live).ask()
    before = rows(tmp_path / "a.db")
    with pytest.raises(StorageError, match="another program wrote trials"):
        live.flush()
    assert rows(tmp_path / "a.db") == before


@pytest.mark.parametrize("what", ["trial", "report", "attribute"])
def test_nothing_is_written_for_a_deleted_study(tmp_path: Path, opened: Any, what: str) -> None:
    """Its rows would become those of the next study, which SQLite gives the same key."""
    live = LiveStorage(opened(), "s")
    study = optuna.load_study(study_name="s", storage=live)
    trial = study.ask()
    live.flush()
    optuna.delete_study(study_name="s", storage=opened())
    match what:
        case "trial":
            study.ask()
        case "report":
            trial.report(0.5, 1)
        case "attribute":
            study.set_user_attr("hpsearch:elapsed_seconds", 5)
    with pytest.raises(StorageError, match="deleted while it was searched"):
        live.flush()
    assert all(not found for found in rows(tmp_path / "a.db").values())


def test_attributes_of_other_programs_are_seen_and_kept(opened: Any) -> None:
    live = LiveStorage(opened(), "s")
    study = optuna.load_study(study_name="s", storage=live)
    other = optuna.load_study(study_name="s", storage=opened())
    other.set_user_attr("theirs", 1)
    study.set_user_attr("ours", 2)
    live.flush()
    assert other.user_attrs == {"theirs": 1, "ours": 2}
    other.set_user_attr("ours", 3)
    live.flush()
    assert other.user_attrs == {"theirs": 1, "ours": 3}, "written again only when it changes"


def test_commands_to_a_process_are_for_the_driver_they_name(opened: Any) -> None:
    """What an earlier driver has not obeyed does not stop this one; what is about the study still holds."""
    other = optuna.load_study(study_name="s", storage=opened())
    other.set_user_attr("hpsearch:command:1", {"do": "stop", "driver": 1})
    other.set_user_attr("hpsearch:command:2", {"do": "pause"})
    other.set_user_attr("hpsearch:command:3", {"do": "pause", "driver": os.getpid()})
    other.set_user_attr("hpsearch:command:4", {"do": "kill", "trial": 3, "driver": 1})
    live = LiveStorage(opened(), "s")
    assert set(other.user_attrs) == {"hpsearch:command:3", "hpsearch:command:4"}
    assert not live.get_study_user_attrs(live.get_study_id_from_name("s"))
    other.set_user_attr("hpsearch:command:5", {"do": ["stop"]})
    early, left, odd = live.take_commands()
    assert early == StudyCommand("pause", driver=os.getpid()), "asked while this one began"
    assert left == StudyCommand("kill", 3, 1)
    assert odd.do == '{"do": ["stop"]}'
    assert live.take_commands() == []
    live.flush()
    assert other.user_attrs == {}


def test_a_study_in_a_damaged_database_is_not_taken_for_deleted(tmp_path: Path, opened: Any) -> None:
    live = LiveStorage(opened(), "s")
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("ALTER TABLE study_user_attributes RENAME TO elsewhere")
    with pytest.raises(StorageError, match="is damaged: no such table"):
        live.take_commands()


# Random stories

NUMBERS = st.floats(width=32).map(lambda value: value + 0.0)  # SQLite keeps no sign of a zero
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
KEYS = st.sampled_from(["a", "b", "hpsearch:x", ""])
EVENTS = st.one_of(
    st.tuples(st.just("ask")),
    st.tuples(st.just("report"), st.integers(0, 9), st.integers(1, 5), NUMBERS),
    st.tuples(st.just("attr"), st.integers(0, 9), KEYS, JSON),
    st.tuples(st.just("study attr"), KEYS, JSON),
    st.tuples(st.just("requeue"), st.integers(0, 9)),
    st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from(["COMPLETE", "PRUNED", "FAIL"])),
    st.tuples(st.just("flush")),
    st.tuples(st.just("failing flush")),
    st.tuples(st.just("reload")),
)


class Story:
    """A live study that things happen to."""

    def __init__(self, empty: Path, folder: Path) -> None:
        self.file = folder / "a.db"
        shutil.copy(empty, self.file)
        self.storage = open_storage(f"sqlite:///{self.file}")
        self.load()

    def load(self) -> None:
        self.live = LiveStorage(self.storage, "s")
        sampler = optuna.samplers.RandomSampler(seed=1)
        self.study = optuna.load_study(study_name="s", storage=self.live, sampler=sampler)

    def happen(self, event: tuple[Any, ...]) -> None:
        kind, *rest = event
        running = [t for t in self.study.get_trials() if t.state == TrialState.RUNNING]
        trial = running[rest[0] % len(running)] if running and rest and isinstance(rest[0], int) else None
        match kind:
            case "ask":
                asked = self.study.ask()
                asked.suggest_float("x", 0.0, 1.0)
                asked.suggest_categorical("c", ["a", None, 3])
                if asked.number % 2:
                    asked.suggest_int("conditional", 1, 9)
            case "report" if trial and rest[1] not in trial.intermediate_values:
                self.live.set_trial_intermediate_value(trial._trial_id, rest[1], rest[2])
            case "attr" if trial:
                self.live.set_trial_user_attr(trial._trial_id, rest[1], rest[2])
            case "study attr":
                self.study.set_user_attr(rest[0], rest[1])
            case "requeue" if trial:
                self.live.requeue(trial.number)
            case "end" if trial:
                state = TrialState[rest[1]]
                self.study.tell(trial.number, 0.5 if rest[1] == "COMPLETE" else None, state=state)
            case "flush":
                self.live.flush()
            case "failing flush":
                with write_lock(self.file):
                    try:
                        self.live.flush()
                    except DatabaseUnavailable:
                        return  # what there was to write is still there
            case "reload":
                self.live.flush()
                self.load()

    def check(self) -> None:
        """What a plain reader sees after a flush is what is in memory."""
        self.live.flush()
        plain = optuna.storages.RDBStorage(f"sqlite:///{self.file}")
        read = optuna.load_study(study_name="s", storage=plain)
        kept = [_told(t) for t in self.study.get_trials()]
        assert [_told(t) for t in read.get_trials()] == kept
        assert read.user_attrs == self.study.user_attrs
        plain.engine.dispose()
        self.load()
        assert [_told(t) for t in self.study.get_trials()] == kept


def _told(trial: FrozenTrial) -> str:
    """All of a trial but its key, as text, for NaN to equal itself."""
    attrs = (sorted(trial.user_attrs.items()), sorted(trial.system_attrs.items()))
    params = sorted(trial.params.items()), sorted(trial.distributions.items())
    times = (trial.datetime_start, trial.datetime_complete)
    reports = sorted(trial.intermediate_values.items())
    return repr((trial.number, trial.state, trial.values, params, reports, attrs, times))


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of an empty study, to be copied."""
    file = tmp_path_factory.mktemp("empty") / "a.db"
    storage = open_storage(f"sqlite:///{file}", create=True)
    storage.create_new_study([StudyDirection.MINIMIZE], "s")
    storage.engine.dispose()
    return file


class Watched(LiveStorage):
    """Remembers which trials it looks at one by one."""

    def __init__(self, database: optuna.storages.RDBStorage, name: str) -> None:
        self.looked: list[int] = []
        super().__init__(database, name)

    def _trial(self, number: int) -> FrozenTrial:
        self.looked.append(number)
        return super()._trial(number)


def test_a_flush_looks_at_what_changed_however_many_trials_are_open(opened: Any) -> None:
    """A search with promotion has hundreds that wait at their rungs."""
    live = Watched(opened(), "s")
    study = optuna.load_study(study_name="s", storage=live)
    trials = [study.ask() for _ in range(9)]
    live.flush()
    live.looked.clear()
    live.flush()
    assert not live.looked
    trials[4].report(0.5, 1)
    study.tell(trials[7], 0.25)
    live.flush()
    assert set(live.looked) == {4, 7}
    live.forget(3, "none such")
    live.requeue(8)
    live.looked.clear()
    live.flush()
    assert set(live.looked) == {3, 8}


def test_a_trial_requeued_and_resumed_between_two_flushes_is_written(opened: Any) -> None:
    live = LiveStorage(opened(), "s")
    study = optuna.load_study(study_name="s", storage=live)
    study.ask()
    live.flush()
    live.requeue(0)
    study.ask()
    live.flush()
    (read,) = optuna.load_study(study_name="s", storage=opened()).get_trials()
    assert read.datetime_start == study.get_trials()[0].datetime_start


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(EVENTS, max_size=25))
def test_whatever_happens_the_database_holds_it_after_a_flush(
    impatient: None, empty: Path, events: list[tuple[Any, ...]]
) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        story = Story(empty, Path(folder))
        try:
            for event in events:
                story.happen(event)
            story.check()
        finally:
            story.storage.engine.dispose()


def test_distributions_survive(opened: Any) -> None:
    live = LiveStorage(opened(), "s")
    study = optuna.load_study(study_name="s", storage=live)
    wanted = {
        "f": FloatDistribution(1e-5, 0.1, log=True),
        "s": FloatDistribution(0.0, 0.9, step=0.1),
        "i": IntDistribution(1, 64, log=True),
        "c": CategoricalDistribution(["a", 1, True, None, '["q"]']),
    }
    study.ask(fixed_distributions=wanted)
    live.flush()
    (read,) = optuna.load_study(study_name="s", storage=opened()).get_trials()
    assert read.distributions == wanted
    assert read.params == study.get_trials()[0].params


def test_a_study_recreated_under_the_same_name_is_another(opened: Any) -> None:
    """SQLite gives it the same key as well, and it has as many trials."""
    database = opened()
    database.set_study_user_attr(1, "identity", "mine")
    live = LiveStorage(database, "s", identity="identity")
    optuna.load_study(study_name="s", storage=live).ask()
    live.flush()
    other = opened()
    optuna.delete_study(study_name="s", storage=other)
    anew = optuna.create_study(study_name="s", storage=other)
    anew.set_user_attr("hpsearch:command:1", {"do": "stop"})
    anew.ask()
    for act in (live.take_commands, live.flush):
        with pytest.raises(StorageError, match='the study "s" was deleted while it was searched'):
            act()
    assert "hpsearch:command:1" in anew.user_attrs


ORPHANS = (
    "INSERT INTO trials (trial_id, number, study_id, state) VALUES (2, 7, 2, 'RUNNING')",
    *(
        sql.format(trial=trial)
        for trial in (1, 2)
        for sql in (
            "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) "
            "VALUES ({trial}, 'x', 7, '{{}}')",
            "INSERT INTO trial_values (trial_id, objective, value, value_type) VALUES ({trial}, 0, 7, 'FINITE')",
            "INSERT INTO trial_intermediate_values (trial_id, step, intermediate_value, "
            "intermediate_value_type) VALUES ({trial}, 1, 777, 'FINITE')",
            "INSERT INTO trial_user_attributes (trial_id, key, value_json) VALUES ({trial}, 'a', '7')",
            "INSERT INTO trial_system_attributes (trial_id, key, value_json) VALUES ({trial}, 'a', '7')",
        )
    ),
    "INSERT INTO study_directions (study_id, direction, objective) VALUES (2, 'MINIMIZE', 0)",
    "INSERT INTO study_user_attributes (study_id, key, value_json) VALUES (2, 'a', '7')",
    "INSERT INTO study_system_attributes (study_id, key, value_json) VALUES (2, 'a', '7')",
)


@pytest.fixture
def orphaned(tmp_path: Path, opened: Any) -> Path:
    """A database in which deletions left rows of a trial 1, and of a study 2 with a trial 2."""
    opened()
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        for sql in ORPHANS:
            connection.execute(sql)
    return tmp_path / "a.db"


@pytest.mark.parametrize("by", ["the driver", "Optuna's API", "Optuna's cache"])
def test_a_new_trial_begins_without_rows(opened: Any, orphaned: Path, by: str) -> None:
    with closing(sqlite3.connect(orphaned)) as connection, connection:
        connection.execute("DELETE FROM trials")
    database = opened()
    match by:
        case "the driver":
            live = LiveStorage(database, "s")
            live.create_new_trial(0)
            live.flush()
        case "Optuna's API":
            database.create_new_trial(1)
        case _:
            optuna.storages.get_storage(database).create_new_trial(1)
    (trial,) = optuna.load_study(study_name="s", storage=opened()).trials
    assert (trial._trial_id, trial.params, trial.values, trial.intermediate_values) == (1, {}, None, {})
    assert trial.user_attrs == trial.system_attrs == {}


def test_a_new_study_begins_without_rows(opened: Any, orphaned: Path) -> None:
    study = optuna.create_study(study_name="new", storage=opened(), direction="maximize")
    assert study._study_id == 2 and study.direction.name == "MAXIMIZE"
    assert study.user_attrs == study._storage.get_study_system_attrs(2) == {}
    assert study.trials == []


def test_rows_that_a_deletion_missed_are_deleted_by_the_search_it_ended(opened: Any, orphaned: Path) -> None:
    live = LiveStorage(opened(), "s")
    live.create_new_trial(0)
    with closing(sqlite3.connect(orphaned)) as connection, connection:
        connection.execute("DELETE FROM study_directions WHERE study_id = 1")
        connection.execute("DELETE FROM studies")
    with pytest.raises(StorageError, match="deleted while it was searched"):
        live.flush()
    assert not any(rows(orphaned).values())


def test_a_study_is_deleted_with_what_is_written_meanwhile(tmp_path: Path, opened: Any) -> None:
    """Optuna reads which rows there are, and deletes those; a search writes in between."""
    database, wrote = opened(), []
    study = optuna.load_study(study_name="s", storage=database)
    study.ask().report(1.0, 1)

    def interfere(*_: object) -> None:
        steps = "(SELECT 1 + max(step) FROM trial_intermediate_values)"
        report = f"(1, {steps}, 777, 'FINITE')"
        with (
            closing(sqlite3.connect(tmp_path / "a.db", timeout=0)) as other,
            other,
            suppress(sqlite3.OperationalError),  # by now it is locked
        ):
            columns = "trial_id, step, intermediate_value, intermediate_value_type"
            other.execute(f"INSERT INTO trial_intermediate_values ({columns}) VALUES {report}")
            wrote.append(report)

    sqlalchemy.event.listen(database.engine, "before_cursor_execute", interfere)
    optuna.delete_study(study_name="s", storage=database)
    assert wrote and not any(rows(tmp_path / "a.db").values())


def test_optunas_api_writes_nothing_for_what_is_gone(tmp_path: Path, opened: Any) -> None:
    database = opened()
    with pytest.raises(sqlalchemy.exc.IntegrityError), database.engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO trial_user_attributes (trial_id, key) VALUES (9, 'a')")
    with pytest.raises(KeyError):
        database.delete_study(9)


@pytest.mark.parametrize("what", ["step", "name", "end"])
def test_what_a_database_refuses_is_set_aside_and_the_rest_is_written(
    tmp_path: Path, opened: Callable[..., optuna.storages.RDBStorage], what: str
) -> None:
    live = LiveStorage(opened(), "s")
    first, odd, third = (live.create_new_trial(live._study) for _ in range(3))
    for trial_id in (first, odd):
        live.set_trial_state_values(trial_id, TrialState.RUNNING)
    live.set_trial_intermediate_value(odd, 1, 0.5)
    if what != "name":
        live.flush()  # else it is new
    live.set_trial_intermediate_value(first, 1, 0.25)
    live.set_trial_user_attr(odd, "kept", 1)
    if what == "step":
        live.set_trial_intermediate_value(odd, 2**63, 0.5)
    else:
        live.set_trial_user_attr(odd, "\ud83e", 1)
    if what == "end":
        live.set_trial_state_values(odd, TrialState.COMPLETE, [0.5])
    live.set_trial_state_values(third, TrialState.WAITING)
    live.flush()
    assert list(live.take_refused()) == [1] and live.take_refused() == {}
    for trials in (opened().get_all_trials(live._row), live.get_all_trials(live._study)):
        assert [t.state.name for t in trials] == ["RUNNING", "RUNNING", "WAITING"]
        assert trials[0].intermediate_values == {1: 0.25}
        assert trials[1].user_attrs == {} and trials[1].intermediate_values == (
            {} if what == "name" else {1: 0.5}
        )
    with pytest.raises(StorageError, match=r"too large|surrogates"):
        if what == "step":
            live.set_trial_intermediate_value(odd, 2**63, 0.5)
        else:
            live.set_trial_user_attr(odd, "\ud83e", 1)
        live.flush()  # who does not end it gets no second chance
    live.close()
