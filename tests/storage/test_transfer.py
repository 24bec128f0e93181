"""Studies copied between real databases, compared by SQL that knows nothing of the code under test."""

from __future__ import annotations

import math
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages._rdb import models
from optuna.trial import TrialState, create_trial

from hpsearch.storage import StorageError
from hpsearch.storage.database import open_storage
from hpsearch.storage.files import CLAIM, study_folder
from hpsearch.storage.locks import driver_lock
from hpsearch.storage.rows import _deletions, study_tables
from hpsearch.storage.studies import FOLDER, ID, SPEC
from hpsearch.storage.transfer import transfer
from hpsearch.storage.workspace import Workspace

STATES = [*TrialState]
SPACE = {
    "rate": FloatDistribution(1e-5, 1e-1, log=True),
    "layers": IntDistribution(1, 9),
    "kind": CategoricalDistribution(["sgd", None, True, 3, 0.5]),
}
OF_NO_STUDY = {"version_info", "alembic_version"}
REMARKS = "remarks"  # the table of a newer Optuna, in some tests
Rows = dict[str, list[tuple[Any, ...]]]


def rows(file: Path, study: str) -> Rows:
    """All rows of a study in all tables of the file, as SQLite quotes them, with trials by their number.

    A heartbeat is spelled alike: SQLite's own clock leaves the fractions out where they are zero.
    """
    found = {}
    with closing(sqlite3.connect(file)) as database:
        tables = [n for (n,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in set(tables) - OF_NO_STUDY - {REMARKS}:
            columns = [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
            picked = [f'quote({table}."{name}")' for name in columns if not name.endswith("_id")]
            if table == "trial_heartbeats":
                picked = ["strftime('%Y-%m-%d %H:%M:%f', heartbeat)"]
            join = " JOIN studies USING (study_id)" if table != "studies" else ""
            if "trial_id" in columns and table != "trials":
                join = f" JOIN trials USING (trial_id){join}"
                picked.insert(0, "trials.number")
            found[table] = database.execute(
                f"SELECT {', '.join(picked)} FROM {table}{join} WHERE study_name = ? ORDER BY {table}.rowid",
                [study],
            ).fetchall()
    return found


def fill(file: Path) -> None:
    """Three studies, of which each has what may stand in one."""
    storage = open_storage(f"sqlite:///{file}", create=True)
    before = optuna.create_study(study_name="before", storage=storage)
    before.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    study = optuna.create_study(study_name="lora", storage=storage, direction="maximize")
    study.set_user_attr(SPEC, {"name": "lora", "metric": "ünïcødé 数 \N{ROCKET} ' \" \\ %s :x \u0000"})
    study.set_user_attr("nothing", None)
    study._storage.set_study_system_attr(study._study_id, "note", "x" * 40_000)
    for state in STATES * 2:
        finished = state == TrialState.COMPLETE
        started = state != TrialState.WAITING
        values = [math.inf if len(study.get_trials(deepcopy=False)) > len(STATES) else -1 / 3]
        trial = create_trial(
            state=state,
            values=values if finished else None,
            params={"rate": 1.1e-5 + 2**-52, "layers": 7, "kind": [None, "sgd", True][state % 3]}
            if started
            else {},
            distributions=SPACE if started else {},
            intermediate_values={1: 0.1 + 0.2, 2: math.nan, 3: math.inf, 4: -math.inf, 5: 1e-310}
            if started
            else {},
            user_attrs={"reason": "数" * 500, "metrics": {"acc": [1, 2.5, None]}},
            system_attrs={"fixed_params": {"rate": 0.01}},
        )
        study.add_trial(trial)
    storage.record_heartbeat(study.get_trials(deepcopy=False)[0]._trial_id)
    two = optuna.create_study(study_name="two", storage=storage, directions=["minimize", "maximize"])
    two.optimize(lambda trial: (trial.suggest_int("n", 1, 9), -math.inf), n_trials=3)
    two.enqueue_trial({"n": 3})
    optuna.create_study(study_name="empty", storage=storage)
    storage.engine.dispose()


@contextmanager
def open_of(file: Path) -> Iterator[optuna.storages.RDBStorage]:
    """An open storage of a file, closed again."""
    storage = open_storage(f"sqlite:///{file}", create=True)
    yield storage
    storage.engine.dispose()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("filled") / "a.db"
    fill(file)
    return file


@pytest.fixture
def source(filled: Path, tmp_path: Path) -> Path:
    """A database of studies of every kind, in a folder of its own."""
    (tmp_path / "a").mkdir()
    shutil.copy(filled, tmp_path / "a" / "a.db")
    return tmp_path / "a" / "a.db"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "b").mkdir()
    return tmp_path / "b" / "b.db"


def home(file: Path) -> Workspace:
    return Workspace(f"sqlite:///{file}", file.parent / "runs")


def copy(name: str, source: Path, target: Path) -> Any:
    return transfer(name, home(source), home(target))


def with_files(file: Path, study: str) -> Path:
    """Give a study files like those of a search."""
    folder = study_folder(file.parent / "runs", study)
    (folder / "0" / "checkpoint").mkdir(parents=True)
    (folder / "0" / "checkpoint" / "model.bin").write_bytes(bytes(range(256)))
    (folder / "0" / "checkpoint" / ".hidden.lock").write_text("the objective's own")
    (folder / "0" / "metrics.jsonl").write_text("{}\n")
    (folder / "0" / "latest").symlink_to("checkpoint")
    return folder


def contents(folder: Path) -> dict[str, Any]:
    return {
        str(path.relative_to(folder)): path.readlink() if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def without_claim(folder: Path) -> dict[str, Any]:
    return {name: found for name, found in contents(folder).items() if name != CLAIM}


@pytest.mark.parametrize("name", ["lora", "two", "empty"])
def test_every_row_arrives_and_no_other_study_changes(source: Path, target: Path, name: str) -> None:
    with open_of(target) as other:  # keys in the target differ
        optuna.create_study(study_name="there", storage=other).optimize(lambda trial: 1.0, n_trials=5)
    before, there = rows(source, name), rows(target, "there")
    copied = copy(name, source, target)
    assert rows(target, name) == before == rows(source, name)
    assert rows(target, "there") == there
    assert (copied.trials, copied.rows) == (len(before["trials"]), sum(map(len, before.values())))
    assert not copied.cut
    if name == "lora":
        assert all(before.values()), "a table without rows compares nothing"
        assert {state for _, state, *_ in before["trials"]} == {f"'{state.name}'" for state in STATES}


def test_a_round_trip_brings_back_the_same_rows(source: Path, target: Path, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    back = tmp_path / "c" / "c.db"
    for name in ("two", "lora"):  # in another order than they were made in
        copy(name, source, target)
        copy(name, target, back)
        assert rows(back, name) == rows(source, name)


def test_optuna_reads_the_same_study(source: Path, target: Path) -> None:
    copy("lora", source, target)
    with open_of(source) as a, open_of(target) as b:
        one, other = (optuna.load_study(study_name="lora", storage=storage) for storage in (a, b))
        assert (one.directions, one.user_attrs) == (other.directions, other.user_attrs)
        assert a.get_study_system_attrs(one._study_id) == b.get_study_system_attrs(other._study_id)
        for old, new in zip(one.trials, other.trials, strict=True):
            assert repr(old).replace(f"trial_id={old._trial_id}", f"trial_id={new._trial_id}") == repr(new)
        assert one.ask().number == other.ask().number == STATES.index(TrialState.WAITING)


def test_tables_of_optuna_are_a_studys_or_known_to_be_none(source: Path) -> None:
    with closing(sqlite3.connect(source)) as database:
        there = {n for (n,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert {table.name for table in study_tables()} == there - OF_NO_STUDY


@pytest.fixture
def newer_optuna(request: pytest.FixtureRequest) -> Iterator[sqlalchemy.Table]:
    """An Optuna with one more table."""
    metadata = models.BaseModel.metadata
    parents = [sqlalchemy.Column(key, sqlalchemy.ForeignKey(f"{of}.{key}")) for of, key in request.param]
    key = sqlalchemy.Column("remark_id", sqlalchemy.Integer, primary_key=True)
    table = sqlalchemy.Table(REMARKS, metadata, key, *parents, sqlalchemy.Column("text", sqlalchemy.Text))
    _deletions.cache_clear()  # made of the tables there are
    yield table
    metadata.remove(table)
    _deletions.cache_clear()


@pytest.mark.parametrize(
    "newer_optuna", [[("trials", "trial_id")], [("trial_params", "param_id")]], indirect=True
)
def test_a_table_that_a_newer_optuna_adds_is_copied(
    source: Path, target: Path, newer_optuna: sqlalchemy.Table
) -> None:
    (key,) = newer_optuna.foreign_keys
    with open_of(source) as storage, storage.engine.begin() as connection:
        found = connection.scalars(sqlalchemy.select(key.column).order_by(key.column)).all()
        remarks = [{key.parent.name: row, "text": f"of {row}"} for row in reversed(found)]
        connection.execute(newer_optuna.insert(), remarks)
    copied = copy("lora", source, target)
    parent = key.column.table.name
    join = f"{parent} USING ({key.column.name})" + (" JOIN trials USING (trial_id)" * (parent != "trials"))
    found = []
    for file in (source, target):
        with closing(sqlite3.connect(file)) as database:
            query = f"SELECT number, text FROM remarks JOIN {join} JOIN studies USING (study_id)"
            query += " WHERE study_name = 'lora' ORDER BY remark_id"
            found.append(database.execute(query).fetchall())
    usual = rows(source, "lora")
    assert found[0] == found[1] and len(found[0]) == len(usual[parent])
    assert copied.rows == sum(map(len, usual.values())) + len(found[0])


@pytest.mark.parametrize(
    "newer_optuna", [[], [("trials", "trial_id"), ("studies", "study_id")]], indirect=True
)
def test_a_table_of_another_shape_is_refused(
    source: Path, target: Path, newer_optuna: sqlalchemy.Table
) -> None:
    with pytest.raises(StorageError, match="table remarks is not one that hpsearch can copy"):
        copy("lora", source, target)
    assert not any(rows(target, "lora").values())


def test_what_is_written_meanwhile_is_not_in_the_copy(source: Path, target: Path) -> None:
    """Another tool adds a trial, and ends one, after the copy has begun to read."""
    before = rows(source, "lora")
    wrote: list[bool] = []

    def interfere(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if "FROM trials" in statement and not wrote and str(source) in str(connection.engine.url):
            wrote.append(True)
            with closing(sqlite3.connect(source)) as other, other:
                other.execute("INSERT INTO trials (number, study_id, state) VALUES (99, 2, 'RUNNING')")
                other.execute("UPDATE trials SET state = 'FAIL'")
                other.execute("DELETE FROM trial_params")

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", interfere)
    try:
        copy("lora", source, target)
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", interfere)
    assert wrote and rows(source, "lora") != before
    assert rows(target, "lora") == before


@contextmanager
def spoilt(target: Path, table: str, column: str, instead: str) -> Iterator[None]:
    """An empty table of the target is another one for a while, with a column declared in this way instead."""
    with open_of(target), closing(sqlite3.connect(target)) as database:
        ((sql,),) = database.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,))
        assert column in sql
        for declared in (instead, column):
            database.execute(f"DROP TABLE {table}")
            database.execute(sql.replace(column, declared))
            if declared == instead:
                yield


@pytest.mark.parametrize(
    ("table", "column", "instead", "said"),
    [
        ("trial_params", "param_value FLOAT", "param_value TEXT", "did not keep a row of trial_params"),
        (
            "trial_user_attributes",
            '"key" VARCHAR(512)',
            '"key" VARCHAR(512) UNIQUE ON CONFLICT IGNORE',
            "trial_user_attributes: .* became None",
        ),
        (
            "trial_params",
            "param_value FLOAT",
            "param_value FLOAT CONSTRAINT room CHECK (param_value IS NULL)",
            'cannot copy the study "lora" .*b.db: CHECK constraint failed: room',
        ),
    ],
)
def test_a_target_that_does_not_keep_a_row_keeps_nothing(
    source: Path, target: Path, table: str, column: str, instead: str, said: str
) -> None:
    with_files(source, "lora")
    with spoilt(target, table, column, instead):
        with pytest.raises(StorageError, match=said):
            copy("lora", source, target)
        assert not any(rows(target, "lora").values())
        assert list((target.parent / "runs").iterdir()) == []
    copy("lora", source, target)
    there, here = rows(target, "lora"), rows(source, "lora")
    attrs = there["study_user_attributes"]
    assert [key for key, _ in attrs[-2:]] == ["'hpsearch:folder'", "'hpsearch:id'"]
    assert there | {"study_user_attributes": attrs[:-2]} == here


def test_files_go_along_to_another_folder(source: Path, target: Path) -> None:
    old = with_files(source, "lora")
    (old / ".0a1b2c3d.lock").touch()
    wanted = contents(old)
    del wanted[".0a1b2c3d.lock"]
    copied = copy("lora", source, target)
    assert copied.folder == target.parent / "runs" / "lora"
    assert without_claim(copied.folder) == wanted
    assert [path.name for path in (target.parent / "runs").iterdir()] == ["lora"]


def test_a_lock_in_the_targets_folder_is_no_file_of_a_study(source: Path, target: Path) -> None:
    """A driver leaves it there, where the database is a server's."""
    old, lock = with_files(source, "lora"), study_folder(target.parent / "runs", "lora") / ".0a1b2c3d.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    with spoilt(target, "trials", "number INTEGER", "number INTEGER CHECK (number IS NULL)"):
        with pytest.raises(StorageError, match="cannot copy the study"):
            copy("lora", source, target)
        assert list(lock.parent.iterdir()) == [lock]
    old.chmod(0o700)
    copied = copy("lora", source, target)
    assert without_claim(copied.folder) == contents(old) | {lock.name: b""}
    assert copied.folder.stat().st_mode & 0o777 == 0o700


def test_a_copy_beside_its_original_has_a_folder_of_its_own(source: Path) -> None:
    old = with_files(source, "lora")
    wanted, target = contents(old), source.with_name("b.db")
    copied = copy("lora", source, target)
    assert copied.folder == old.with_name("lora-2")
    assert contents(old) == wanted == without_claim(copied.folder)
    with open_of(target) as storage:
        attrs = optuna.load_study(study_name="lora", storage=storage).user_attrs
    assert attrs[FOLDER] == "lora-2" and (copied.folder / CLAIM).read_text() == f"{attrs[ID]}\n../../b.db\n"


def test_a_study_without_files_brings_none(source: Path, target: Path) -> None:
    study_folder(source.parent / "runs", "lora").mkdir(parents=True)
    (study_folder(source.parent / "runs", "lora") / ".0a1b2c3d.lock").touch()
    copied = copy("lora", source, target)
    assert copied.folder is None
    assert not (target.parent / "runs").exists()


def test_files_of_another_study_stay(source: Path, target: Path) -> None:
    with_files(source, "lora")
    there = with_files(target, "lora")
    (there / "0" / "metrics.jsonl").write_text("another's")
    wanted = contents(there)
    with pytest.raises(StorageError, match=r"files of a study lora already: .*b/runs/lora; choose another"):
        copy("lora", source, target)
    assert contents(there) == wanted
    assert not target.exists()


def test_a_folder_that_cannot_be_made_is_named(source: Path, target: Path) -> None:
    with_files(source, "lora")
    (target.parent / "runs").write_text("a file where the folder goes")
    with pytest.raises(StorageError, match=r"cannot write .*b/runs/lora/\.study: Not a directory"):
        copy("lora", source, target)
    assert not any(rows(target, "lora").values())


def test_a_study_of_that_name_stays_as_it_was(source: Path, target: Path) -> None:
    with_files(source, "lora")
    with open_of(target) as storage:
        optuna.create_study(study_name="lora", storage=storage)
    before = rows(target, "lora")
    with pytest.raises(StorageError, match=r'b.db has a study "lora" already; nothing was copied'):
        copy("lora", source, target)
    assert rows(target, "lora") == before
    assert not (target.parent / "runs").exists()


@pytest.mark.parametrize("by", ["its name", "a link"])
def test_the_same_database_is_refused(source: Path, tmp_path: Path, by: str) -> None:
    other = source
    if by == "a link":
        other = tmp_path / "link.db"
        other.symlink_to(source)
    before = source.read_bytes()
    with pytest.raises(StorageError, match="is the database that the study is in"):
        copy("lora", source, other)
    assert source.read_bytes() == before


def test_a_server_is_the_same_whatever_drives_it_and_shows_no_password() -> None:
    one = Workspace("postgresql+psycopg://me:secret@server/searches", Path("runs"))
    other = Workspace("postgresql+asyncpg://you:secret@server/searches", Path("runs"))
    with pytest.raises(StorageError, match="is the database that the study is in") as caught:
        transfer("lora", one, other)
    assert "secret" not in str(caught.value)


def test_a_study_that_is_searched_is_refused(source: Path, target: Path) -> None:
    with (
        driver_lock(home(source), "lora"),
        pytest.raises(StorageError, match="is running the study"),
    ):
        copy("lora", source, target)
    assert not target.exists()
    copy("two", source, target)
    with driver_lock(home(source), "lora"):
        pass  # let go after a copy, and after a refused one


def test_a_missing_study_makes_nothing(source: Path, target: Path) -> None:
    with pytest.raises(StorageError, match='no study "lara", did you mean "lora"'):
        copy("lara", source, target)
    assert list(target.parent.iterdir()) == []


def test_another_schema_is_refused_on_either_side(source: Path, target: Path) -> None:
    with open_of(target):
        pass
    with closing(sqlite3.connect(target)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = 'v2.6.0.a'")
    for one, other in ((source, target), (target, source)):
        with pytest.raises(StorageError, match=r"b\.db was made by an older Optuna"):
            copy("lora", one, other)
    with closing(sqlite3.connect(target)) as database:
        assert database.execute("SELECT count(*) FROM trials").fetchone() == (0,)
