"""Databases from elsewhere: what is wrong in them is told in a sentence, and nothing that they hold is run."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages._rdb import models
from typer.testing import CliRunner, Result

from hpsearch.search import open_study, run
from hpsearch.search.cli.app import app, exit_code
from hpsearch.spaces import Spec
from hpsearch.storage import StorageError, studies
from hpsearch.storage.database import open_storage, resolve_url

SPACE: dict[str, Any] = {
    "version": 1,
    "name": "study",
    "metric": "loss",
    "parameters": {"x": {"min": 0.0, "max": 1.0}, "layers": [1, 2]},
    "early_stopping": {"method": "asha", "min": 1, "max": 3, "eta": 3},
    "budget": {"trials": 5},
    "confirm": {"top": 1, "seeds": 2},
    "execution": {"workers": 1, "retries": 0},
}
OBJECTIVE = """
def train(trial):
    if trial.number == 2:
        raise ValueError("no such data")
    for step in (1, 2, 3):
        trial.report(trial.params["x"] + 1 / step, step=step)
    return trial.params["x"]
"""
READING = (["list"], ["show", "study"], ["trials", "study"], ["best", "study"], ["export", "study"])


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("searched")
    (folder / "objective.py").write_text(OBJECTIVE)
    run(spec_of(folder / "studies.db"), storage=str(folder / "studies.db"))
    return folder / "studies.db"


@pytest.fixture
def database(searched: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(searched, tmp_path / "studies.db"))


def change(database: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        assert connection.execute(sql, values).rowcount, "the test changes nothing"


def call(database: Path, words: list[str]) -> Result:
    return CliRunner().invoke(app, [*words, "--storage", str(database)])


def refused(database: Path, told: str) -> None:
    """That every command that reads the study says so, in a sentence, or is not concerned."""
    said = []
    for words in READING:
        done = call(database, words)
        if isinstance(error := done.exception, Exception):
            assert exit_code(error) is not None, f"{words} ends in a traceback: {error!r}"
            assert len(str(error)) < 1000
            said.append(str(error))
        elif words[0] == "list":
            said += done.stderr.splitlines()  # it names a study that cannot be read, and goes on
    assert any(told in line for line in said), said


NONSENSE = ["null", "5", "-1", '"x"', "[]", "{}", "[1]", '{"a": 1}', "1e999", "not json", "1" + "0" * 400]
STUDY = {
    studies.SPEC: {"{}"},
    studies.PROVENANCE: {"{}", '{"a": 1}'},
    studies.ELAPSED: {"5"},
    studies.TEXTS: {"{}"},
    studies.FOLDER: {'"x"'},
    studies.PAUSED: set(),
}
TRIAL = {
    "confirms": {"0", "5"},
    "confirms_seed": {"5"},
    "audited": {"5"},
    "paused": {"5"},
    "retries": {"5"},
    "error": {'"x"'},
    "reason": {'"x"'},
    "traceback": {'"x"'},
    "events": {"[]"},
}
OF_A_STUDY = "UPDATE study_user_attributes SET value_json = ? WHERE key = ?"
OF_A_TRIAL = "INSERT OR REPLACE INTO trial_user_attributes (trial_id, value_json, key) VALUES (2, ?, ?)"
CASES = [
    (sql, key, value)
    for sql, kinds in ((OF_A_STUDY, STUDY), (OF_A_TRIAL, TRIAL))
    for key, sound in kinds.items()
    for value in NONSENSE
    if value not in sound
]


@pytest.mark.parametrize(("sql", "key", "value"), CASES[::3])
def test_an_attribute_that_is_none_of_ours_is_told(
    searched: Path, database: Path, sql: str, key: str, value: str
) -> None:
    change(database, sql, value, key)
    url = str(database)
    with suppress(StorageError):  # a mapping that is no space counts as one there
        studies.summaries(open_storage(resolve_url(url)))
    with pytest.raises(StorageError, match="stud"):
        open_study("study", storage=url)
    with pytest.raises(StorageError, match="stud"):
        run(spec_of(searched), storage=url)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (studies.SPEC, '{"a":' * 50_000 + "1" + "}" * 50_000),
        (studies.PROVENANCE, '{"backend": null}'),
        (studies.PROVENANCE, '{"versions": [1]}'),
    ],
    ids=["too deep", "no backend", "no versions"],
)
def test_what_is_worse_than_nonsense_is_told_too(database: Path, key: str, value: str) -> None:
    change(database, "DELETE FROM study_user_attributes WHERE key = ?", key)
    sql = "INSERT INTO study_user_attributes (study_id, value_json, key) VALUES (1, ?, ?)"
    change(database, sql, value, key)
    with pytest.raises(StorageError, match="stud"):
        open_study("study", storage=str(database))


@pytest.mark.parametrize(("sql", "key", "value"), CASES[:: len(NONSENSE)])
def test_every_command_tells_it_in_a_sentence(database: Path, sql: str, key: str, value: str) -> None:
    change(database, sql, value, key)
    refused(database, "the stud")


def spec_of(database: Path) -> Spec:
    return Spec.from_json(SPACE | {"objective": f"{database.parent}/objective.py:train"})


FIELDS = [
    (field, value)
    for field in (*SPACE, "search", "constraints", "baseline", "objective")
    for value in NONSENSE[:-2]
]


@pytest.mark.parametrize(("field", "value"), FIELDS[::4])
def test_a_space_that_is_none_is_told(database: Path, field: str, value: str) -> None:
    with closing(sqlite3.connect(database)) as connection:
        sql = "SELECT value_json FROM study_user_attributes WHERE key = ?"
        [(text,)] = connection.execute(sql, (studies.SPEC,))
    spec = json.loads(text) | {field: json.loads(value)}
    change(database, OF_A_STUDY, json.dumps(spec), studies.SPEC)
    with suppress(StorageError):  # some of it is sound
        study = open_study("study", storage=str(database))
        assert len(study.trials) and study.best_trial
    with suppress(StorageError):
        studies.summaries(open_storage(resolve_url(str(database))))


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE trial_params SET distribution_json = 'nonsense'",
        "UPDATE trial_params SET distribution_json = '{}'",
        'UPDATE trial_params SET distribution_json = \'{"name": "Nothing", "attributes": {}}\'',
        'UPDATE trial_params SET distribution_json = \'{"name": "CategoricalDistribution", '
        '"attributes": {"choices": []}}\'',
        "UPDATE trial_params SET param_value = 'nonsense'",
        "UPDATE trial_params SET param_value = 99",
        "UPDATE trial_params SET param_value = NULL",
        "UPDATE trial_values SET value = 'nonsense'",
        "UPDATE trial_values SET value_type = 'NONSENSE'",
        "UPDATE trial_intermediate_values SET intermediate_value = 'nonsense'",
        "UPDATE trial_intermediate_values SET step = -step",
        "UPDATE trials SET state = 'NONSENSE'",
        "UPDATE trials SET number = number + 100",
        "UPDATE trials SET datetime_start = NULL",
        "UPDATE trials SET datetime_start = 'nonsense'",
        "UPDATE study_directions SET direction = 'NONSENSE'",
        "DELETE FROM study_directions",
        "DELETE FROM trial_values",
        "DELETE FROM trial_params",
        "DELETE FROM trials WHERE number = 1",
    ],
)
def test_rows_that_are_none_end_in_no_traceback(database: Path, sql: str) -> None:
    change(database, sql)
    refused_or_read(database)


def refused_or_read(database: Path) -> None:
    for words in READING:
        error = call(database, words).exception
        if isinstance(error, Exception):
            assert exit_code(error) is not None, f"{words} ends in a traceback: {error!r}"


VALUES = ("'x'", "'1'", "x'80ff'", "NULL", "-1", "9223372036854775807", "1.5", "9e999")
COLUMNS = [
    (table.name, column.name)
    for table in models.BaseModel.metadata.sorted_tables
    for column in table.columns
    if table.name not in ("alembic_version", "trial_heartbeats")
]


@pytest.mark.slow
@pytest.mark.parametrize(("table", "column"), COLUMNS, ids=map(".".join, COLUMNS))
def test_no_value_of_any_column_ends_in_a_traceback(
    searched: Path, database: Path, table: str, column: str
) -> None:
    others = itertools.cycle((["list"], ["trials", "study"], ["retry", "study", "--failed"]))
    for value, other in zip(VALUES, others, strict=False):
        shutil.copy(searched, database)
        refused = suppress(sqlite3.IntegrityError)  # a key takes no other kind
        with closing(sqlite3.connect(database)) as connection, refused, connection:
            connection.execute(f"UPDATE OR IGNORE {table} SET {column} = {value}")
        for words in (["show", "study"], other):  # show reads all that there is
            error = call(database, words).exception
            if isinstance(error, Exception):
                assert exit_code(error) is not None, f"{value}: {words} ends in a traceback: {error!r}"
                assert len(str(error)) < 1000 and "\n" not in str(error)


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("UPDATE OR IGNORE trial_intermediate_values SET step = 'x'", "a step is 'x'"),
        ("UPDATE OR IGNORE trial_intermediate_values SET step = 1.5", "a step is 1.5"),
        ("UPDATE studies SET study_name = x'80ff'", r"its name is b'\x80\xff'"),
    ],
)
def test_a_value_of_another_kind_is_told(database: Path, sql: str, told: str) -> None:
    change(database, sql)
    refused(database, told)


# A database that is none, or that computes what it holds


ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT"
SLOW = "CREATE TABLE trials (trial_id INTEGER PRIMARY KEY, number INTEGER"


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        (f"CREATE VIEW trials AS {ENDLESS} t.* FROM old t, r", 'view "trials"'),
        (f"CREATE VIEW Trials AS {ENDLESS} t.* FROM old t, r", 'view "Trials"'),
        ("CREATE VIRTUAL TABLE trials USING fts5(trial_id, number, state)", 'virtual table "trials"'),
        (f"{SLOW}, state TEXT AS (hex(number)))", 'computed column "state" of the table "trials"'),
        (f"{SLOW}, state TEXT AS (hex(number)) STORED)", 'computed column "state" of the table "trials"'),
        (
            f"CREATE TRIGGER endless AFTER UPDATE ON studies BEGIN DELETE FROM old WHERE number IN "
            f"(SELECT count(*) FROM ({ENDLESS} n FROM r)); END",
            'trigger "endless"',
        ),
    ],
)
def test_what_computes_in_place_of_a_table_is_refused(
    searched: Path, database: Path, sql: str, told: str
) -> None:
    with closing(sqlite3.connect(database)) as connection:
        if "TRIGGER" not in sql:
            connection.execute("PRAGMA legacy_alter_table = ON")  # the others go on to name it
            connection.execute("ALTER TABLE trials RENAME TO old")
        else:
            connection.execute("CREATE TABLE old (number INTEGER)")
        connection.execute(sql)
    for words in (*READING, ["delete", "study", "--yes"], ["dashboard"]):
        error = call(database, words).exception
        assert isinstance(error, StorageError) and f"has a {told}" in str(error)
    with pytest.raises(StorageError, match=told):
        run(spec_of(searched), storage=str(database))


def test_views_of_other_names_are_whose_they_are(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE VIEW best AS SELECT min(value) FROM trial_values")
        connection.execute("CREATE INDEX mine ON trials (state)")
    assert call(database, ["show", "study"]).exit_code == 0


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_database_that_is_no_regular_file_is_not_waited_for(
    searched: Path, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "studies.db"
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    for words in (*READING, ["dashboard"], ["backup", "-o", str(tmp_path / "copy.db")]):
        error = call(file, words).exception
        assert isinstance(error, StorageError) and "is not a regular file" in str(error)
    with pytest.raises(StorageError, match="is not a regular file"):
        run(spec_of(searched), storage=str(file))


@pytest.mark.parametrize("log", ["journal", "wal", "shm"])
def test_a_log_that_is_no_regular_file_is_not_waited_for(database: Path, log: str) -> None:
    os.mkfifo(database.with_name(f"{database.name}-{log}"))
    refused(database, f"-{log} is not a regular file")


# What a study holds is not run


@pytest.fixture
def bomb(database: Path, tmp_path: Path) -> Path:
    """A file that is written where the objective of the study is run."""
    spec = open_study("study", storage=str(database)).spec.to_json()
    spec["objective"] = {"command": ["touch", str(tmp_path / "run")]}
    sql = "UPDATE study_user_attributes SET value_json = ? WHERE key = ?"
    change(database, sql, json.dumps(spec), studies.SPEC)
    return tmp_path / "run"


@pytest.mark.parametrize(
    "words",
    [
        *READING,
        ["show", "study", "--edges"],
        ["show", "study", "--trial", "0"],
        *(["export", "study", "--format", form] for form in ("json", "flags")),
        ["generate", "study", "--prompt", "x"],
        ["delete", "study", "--yes"],
        ["retry", "study", "--failed"],
    ],
)
def test_no_command_that_reads_a_study_runs_what_it_holds(
    database: Path, bomb: Path, words: list[str]
) -> None:
    call(database, words)
    time.sleep(0.05)
    assert not bomb.exists()


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_train_says_what_it_runs(database: Path, bomb: Path, tmp_path: Path, more: list[str]) -> None:
    exported = tmp_path / "best.yaml"
    assert call(database, ["export", "study", "-o", str(exported)]).exit_code == 0
    assert not bomb.exists()
    done = CliRunner().invoke(app, ["train", str(exported), "-o", str(tmp_path / "out"), *more])
    said = done.output if not more else done.stderr
    assert f"training touch {bomb} " in said and bomb.exists()


# Beside one that is damaged


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("UPDATE study_user_attributes SET value_json = 'not json' WHERE key = 'hpsearch:spec'", "JSONDecode"),
        ("UPDATE study_user_attributes SET value_json = '5' WHERE key = 'hpsearch:folder'", "hpsearch:folder is 5"),
        ("UPDATE study_user_attributes SET value_json = '{}' WHERE key = 'hpsearch:spec'", "a space that is none"),
        ("UPDATE trials SET state = 'NONSENSE' WHERE study_id = 1", "NONSENSE"),
        ("DELETE FROM study_directions WHERE study_id = 1", "it has no direction"),
    ],
)  # fmt: skip
def test_a_damaged_study_is_listed_with_the_reason_and_the_others_are_as_usual(
    database: Path, sql: str, reason: str
) -> None:
    storage = open_storage(resolve_url(str(database)))
    theirs = optuna.create_study(study_name="theirs", storage=storage)
    theirs.set_user_attr("confirms", "as another program has it")
    trial = optuna.create_trial(value=1.0, user_attrs={"confirms": "theirs"})
    theirs.add_trial(trial)
    change(database, sql)
    listed = call(database, ["list"])
    assert listed.exit_code == 0 and "study cannot be read" in " ".join(listed.stdout.split())
    assert reason in listed.stderr
    found = {study["name"]: study for study in json.loads(call(database, ["list", "--json"]).stdout)}
    assert reason in found["study"]["unreadable"]
    assert (found["theirs"]["best"], found["theirs"]["unreadable"]) == (1.0, None)
    other = SPACE | {"name": "other", "objective": f"{database.parent}/objective.py:train"}
    (database.parent / "objective.py").write_text(OBJECTIVE)
    assert len(run(Spec.from_json(other), storage=str(database)).trials) >= 5
    assert call(database, ["show", "other"]).exit_code == 0
    assert call(database, ["delete", "other", "--yes"]).exit_code == 0
    assert call(database, ["delete", "study", "--yes"]).exit_code == 0
    assert [study["name"] for study in json.loads(call(database, ["list", "--json"]).stdout)] == ["theirs"]
