"""The database is full, locked, read-only, gone or changed by others while a search runs; and before it begins."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import alembic.command
import optuna
import pytest
from typer.testing import CliRunner

from hpsearch.search import open_study
from hpsearch.search.cli.app import app
from hpsearch.search.errors import SearchError
from hpsearch.storage import StorageError, connection, database, studies
from hpsearch.storage.backup import backup
from hpsearch.storage.files import trial_folder
from hpsearch.storage.workspace import Workspace

from ..support.bench import HPSEARCH

OBJECTIVES = Path(__file__).with_name("objectives.py")
# Of what the driver alone meets with, whatever runs its trials.
one_backend = pytest.mark.parametrize("backend_name", ["optuna"])


def space(bench: Any, pause: float = 0.2, **fields: Any) -> Any:
    constants = {"fault": "", "pause": pause, "folder": str(bench.folder)}
    return bench.make_spec(
        objective=f"{OBJECTIVES}:faulty",
        parameters={"x": {"min": 0.0, "max": 1.0}, **constants},
        **{"budget": {"trials": 4}, "execution": {"workers": 2, "retries": 0}} | fields,
    )


def file_of(bench: Any) -> Path:
    return bench.folder / "studies.db"  # type: ignore[no-any-return]


def once(condition: Callable[[Any], bool], action: Callable[[], Any]) -> Callable[[Any], None]:
    """For a watcher: do it at the first tick at which the driver is so."""
    done: list[bool] = []

    def at_tick(driver: Any) -> None:
        if not done and condition(driver):
            done.append(True)
            action()

    return at_tick


def halfway(driver: Any) -> bool:
    return any(running.reported >= 2 for running in driver.running.values())


def complete(bench: Any, name: str = "study", trials: int = 4) -> bool:
    """Whether all trials are complete, with all their reports."""
    found = bench.trials(name)
    return [(t.number, t.state.name, list(t.intermediate_values)) for t in found] == [
        (n, "COMPLETE", list(range(1, 10))) for n in range(trials)
    ]


@pytest.mark.any_backend
def test_a_database_that_another_program_locks_is_waited_for(bench: Any, recorder: Any) -> None:
    """`BEGIN EXCLUSIVE`, as by a backup or a browser of databases, for longer than a write waits silently."""
    holding = threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(file_of(bench), isolation_level=None, timeout=30)) as other:
            other.execute("BEGIN EXCLUSIVE")
            holding.set()
            time.sleep(4 * connection.WRITE_WAIT_SECONDS)
            other.execute("ROLLBACK")

    holder = threading.Thread(target=hold)

    def lock() -> None:
        holder.start()
        holding.wait(30)

    watcher = recorder(at_tick=once(halfway, lock))
    bench.search(space(bench), watcher=watcher)
    holder.join()
    assert any("cannot be used now (database is locked); nothing is lost" in said for said in watcher.said)
    assert complete(bench)


@pytest.mark.any_backend
@pytest.mark.parametrize("what", ["deleted", "replaced by another"])
def test_a_database_file_that_goes_is_saved_under_another_name(bench: Any, recorder: Any, what: str) -> None:
    bench.search(space(bench, name="earlier", budget={"trials": 1}))

    def go() -> None:
        file_of(bench).unlink()
        if what != "deleted":
            file_of(bench).write_text("something else")

    with pytest.raises(SearchError, match=f"was {what} while it was searched; nothing is lost") as raised:
        # Long enough that none comes to its end before the driver looks.
        bench.search(space(bench, pause=0.6), watcher=recorder(at_tick=once(halfway, go)))
    rescued = file_of(bench).with_name("studies.db.rescued")
    assert f"everything is in {rescued}" in str(raised.value)
    for left in file_of(bench).parent.glob("studies.db-*"):
        left.unlink()
    os.replace(rescued, file_of(bench))
    with closing(sqlite3.connect(file_of(bench))) as found:
        assert found.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert "RUNNING" not in bench.states() and any(t.intermediate_values for t in bench.trials())
    bench.search(space(bench, pause=0.6))
    assert complete(bench) and complete(bench, "earlier", 1)
    begins = [[n["begins"] for n in bench.notes(t.number) if "begins" in n] for t in bench.trials()]
    assert any(len(found) == 2 and found[1] > 0 for found in begins), "taken up from a checkpoint"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"this user may not mount: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Use up the space there is."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(b"x" * 4096)
        except OSError:
            pass
    return filler


@one_backend
@pytest.mark.any_backend
def test_a_full_disk_under_the_database_is_waited_for(bench: Any, recorder: Any, small_disk: Path) -> None:
    bench.url = f"sqlite:///{small_disk / 'studies.db'}"
    watcher = recorder()
    said: list[str] = []

    def say(message: str) -> None:  # while the driver waits it does not tick
        said.append(message)
        (small_disk / "filler").unlink(missing_ok=True)

    watcher.say = say
    watcher.at_tick = once(halfway, lambda: fill(small_disk))
    bench.search(space(bench), watcher=watcher)
    assert any("database or disk is full" in each or "disk I/O error" in each for each in said), said
    assert complete(bench)


def test_a_full_disk_under_the_trials_ends_the_search_and_loses_nothing(
    bench: Any, recorder: Any, small_disk: Path
) -> None:
    watcher = recorder(at_tick=once(halfway, lambda: fill(small_disk)))
    with pytest.raises(SearchError, match=r"cannot write: .*No space left on device; make room"):
        bench.run(space(bench), runs=small_disk / "runs", watcher=watcher)
    states = bench.states()
    assert "FAIL" not in states and "WAITING" in states, [trial.user_attrs for trial in bench.trials()]
    (small_disk / "filler").unlink()
    bench.run(space(bench), runs=small_disk / "runs")
    assert complete(bench)


@one_backend
@pytest.mark.any_backend
def test_a_database_that_may_only_be_read_is_refused_before_anything_is_asked(
    bench: Any, small_disk: Path
) -> None:
    """As a kernel mounts a disk on which it found an error."""
    bench.url = f"sqlite:///{small_disk / 'studies.db'}"
    bench.search(space(bench))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StorageError, match=r"the database .*studies\.db or its folder cannot be written"):
        bench.search(space(bench, budget={"trials": 8}))
    assert [found.states for found in studies.summaries(database.open_storage(bench.url))] == [
        {"complete": 4}
    ]
    assert len(open_study("study", storage=bench.url).trials) == 4
    assert backup(small_disk / "studies.db", bench.folder / "backup.db").trials == 4
    deleted = CliRunner().invoke(app, ["delete", "study", "--yes", "--storage", bench.url])
    assert isinstance(deleted.exception, StorageError) and "cannot lock the study" in str(deleted.exception)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert complete(bench)


def damage(file: Path, table: str) -> None:
    """Overwrite the first page of a table, as a failing disk or a torn copy does."""
    with closing(sqlite3.connect(file)) as found:
        found.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = found.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (size,) = found.execute("PRAGMA page_size").fetchone()
    with file.open("r+b") as stream:
        stream.seek((page - 1) * size)
        stream.write(b"\xa5" * size)


@one_backend
@pytest.mark.any_backend
def test_what_a_search_wrote_to_a_log_is_read_where_nothing_can_be_written(
    bench: Any, small_disk: Path
) -> None:
    """As of another user's search that runs now."""
    storage = database.open_storage(bench.url, create=True)
    optuna.create_study(study_name="there", storage=storage)
    for left in ("", "-wal", "-shm"):
        shutil.copy(f"{file_of(bench)}{left}", small_disk)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert (small_disk / "studies.db-wal").stat().st_size > 0
    there = database.open_storage(f"sqlite:///{small_disk / 'studies.db'}")
    assert [found.name for found in studies.summaries(there)] == ["there"]


@one_backend
@pytest.mark.any_backend
@pytest.mark.parametrize("table", ["studies", "trials", "trial_params", "study_user_attributes"])
def test_a_damaged_page_is_said_by_every_command_with_how_to_save_the_rest(bench: Any, table: str) -> None:
    bench.search(space(bench))
    damage(file_of(bench), table)
    with pytest.raises(
        StorageError, match=r"is damaged: .*malformed.* To save what can still be read"
    ) as raised:
        bench.search(space(bench, budget={"trials": 5}))
    for words in (
        ["list"],
        ["show", "study"],
        ["trials", "study"],
        ["backup", "-o", str(bench.folder / "b.db")],
    ):
        done = CliRunner().invoke(app, [*words, "--storage", bench.url])
        assert words == ["list"] or isinstance(done.exception, StorageError), done.output
        told = f"{done.output}{done.exception}"  # a list names the study, and goes on
        assert "is damaged: " in told and ".dump" in told
    if shutil.which("sqlite3") is None:
        pytest.skip("needs SQLite's own program (Debian: sqlite3)")
    saving = str(raised.value).partition("program: ")[2]
    subprocess.run(["sh", "-c", saving], cwd=bench.folder, check=False, capture_output=True)
    with closing(sqlite3.connect(bench.folder / "studies-saved.db")) as saved:
        assert saved.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        reports = saved.execute("SELECT count(*) FROM trial_intermediate_values").fetchone()
    assert reports == (4 * 9,)


@one_backend
@pytest.mark.any_backend
def test_a_page_that_is_damaged_while_it_is_searched_ends_the_search(bench: Any, recorder: Any) -> None:
    def act() -> None:
        damage(file_of(bench), "trial_intermediate_values")

    with pytest.raises(SearchError, match="is damaged: "):
        bench.search(space(bench), watcher=recorder(at_tick=once(halfway, act)))


@one_backend
@pytest.mark.any_backend
@pytest.mark.parametrize("blocks", [100, 1200])
def test_files_that_may_not_grow_end_a_search_with_the_cause(bench: Any, command: Any, blocks: int) -> None:
    """By `ulimit -f`, as the database is made, or as its log grows: what no waiting mends."""
    fields = space(bench, pause=0.0, budget={"trials": 40}).to_json()
    command(**{name: fields[name] for name in ("objective", "parameters", "budget")})
    done = subprocess.run(
        ["sh", "-c", f"ulimit -f {blocks}; exec {HPSEARCH} run space.yaml --plain"],
        cwd=bench.folder,
        env=os.environ | {"HPSEARCH_STORAGE": bench.url},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert f"limits files to {512 * blocks:,} bytes (ulimit -f unlimited)" in done.stderr


@one_backend
@pytest.mark.any_backend
def test_a_database_of_an_older_optuna_is_said_with_what_to_do(bench: Any) -> None:
    """Optuna 3.1 had the same tables, without an index on trials."""
    storage = database.open_storage(bench.url, create=True)
    with storage.engine.begin() as found:
        found.exec_driver_sql("DROP INDEX ix_trials_study_id")
    versions = optuna.storages.RDBStorage(bench.url)._version_manager
    alembic.command.stamp(versions._create_alembic_config(), "v3.0.0.d")
    said = r"was made by an older Optuna .*hpsearch backup.*optuna storage upgrade --storage sqlite:///"
    with pytest.raises(StorageError, match=said):
        bench.search(space(bench))


@one_backend
@pytest.mark.any_backend
def test_a_database_with_another_tools_studies_keeps_them(bench: Any) -> None:
    storage = database.open_storage(bench.url, create=True)
    theirs = optuna.create_study(study_name="theirs", storage=storage)
    theirs.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    before = [t.params for t in theirs.trials]
    bench.search(space(bench))
    assert complete(bench)
    assert [t.params for t in theirs.trials] == before
    with pytest.raises(StorageError, match='the study "theirs" was made by another program'):
        bench.search(space(bench, name="theirs"))


def through_the_dashboard(url: str, path: str, body: dict[str, Any]) -> None:
    """A change that a user makes in optuna-dashboard, in a process of its own."""
    script = (
        "import io, json, optuna, optuna_dashboard, sys\n"
        "app = optuna_dashboard.wsgi(optuna.storages.RDBStorage(sys.argv[1]))\n"
        "body = sys.argv[3].encode()\n"
        "environ = {'REQUEST_METHOD': 'POST', 'PATH_INFO': sys.argv[2], 'CONTENT_TYPE': 'application/json',\n"
        "    'CONTENT_LENGTH': str(len(body)), 'wsgi.input': io.BytesIO(body), 'SERVER_NAME': 'x',\n"
        "    'HTTP_ACCEPT_ENCODING': 'identity', 'SERVER_PORT': '80', 'wsgi.errors': sys.stderr,\n"
        "    'wsgi.url_scheme': 'http'}\n"
        "status = []\n"
        "b''.join(app(environ, lambda *given: status.append(given[0])))\n"
        "assert status[0].startswith('2'), status\n"
    )
    subprocess.run([sys.executable, "-c", script, url, path, json.dumps(body)], check=True, timeout=60)


def test_a_trial_that_the_dashboard_fails_ends_at_once(bench: Any, recorder: Any) -> None:
    def fail() -> None:
        through_the_dashboard(bench.url, "/api/trials/1/tell", {"state": "Fail"})

    watcher = recorder(at_tick=once(halfway, fail))
    bench.search(space(bench, pause=0.4), watcher=watcher)
    first = bench.trials()[0]
    assert first.state.name == "FAIL" and first.user_attrs["reason"] == "ended by another program"
    assert len(first.intermediate_values) < 9 and len(bench.notes(0)) < 10, "its worker was stopped"
    assert "trial 0 was ended as fail by another program" in watcher.said
    assert bench.states()[1:] == ["COMPLETE"] * 3


@pytest.mark.any_backend
def test_a_study_that_is_renamed_goes_on_under_its_new_name(bench: Any, recorder: Any) -> None:
    hyperband = {"method": "hyperband", "min": 1, "max": 9, "eta": 3}
    fields: dict[str, Any] = {"early_stopping": hyperband, "budget": {"trials": 8}}
    watcher = recorder(
        at_tick=once(
            halfway, lambda: through_the_dashboard(bench.url, "/api/studies/1/rename", {"study_name": "new"})
        )
    )
    result = bench.search(space(bench, **fields), watcher=watcher)
    assert result.name == "new"
    assert 'the study was renamed to "new", and continues under that name' in watcher.said
    assert optuna.get_all_study_names(bench.url) == ["new"]
    trials = bench.trials("new")
    assert len(trials) == 8 and all(t.state.is_finished() for t in trials)
    assert all(trial_folder(bench.folder / "runs", "study", t.number).is_dir() for t in trials), (
        "its first name's"
    )
    more = space(bench, name="new", **fields | {"budget": {"trials": 12}})
    assert bench.search(more).name == "new"
    calm = space(bench, name="study", **fields | {"budget": {"trials": 12}})
    bench.search(calm)  # the old name is free again, and another study's
    assert len(bench.trials("study")) == len(bench.trials("new")) == 12


@one_backend
@pytest.mark.any_backend
def test_a_new_study_takes_nothing_from_the_files_of_another(bench: Any) -> None:
    """One whose database is gone, or that was renamed, has its files where a new one would put its own."""
    bench.search(space(bench, search={"sampler": "random", "seed": 1}))
    old = [(t.params, t.value) for t in bench.trials()]
    file_of(bench).unlink()
    for left in bench.folder.glob("*.jsonl"):
        left.unlink()
    bench.search(space(bench, search={"sampler": "random", "seed": 2}))
    assert complete(bench)
    new = [(t.params, t.value) for t in bench.trials()]
    assert not [found for found in new if found in old]
    assert all(bench.notes(number)[0]["begins"] == 0 for number in range(4))
    assert (bench.folder / "runs" / "study-2" / "3").is_dir()
    through_the_dashboard(bench.url, "/api/studies/1/rename", {"study_name": "other"})
    bench.search(space(bench, search={"sampler": "random", "seed": 3}))
    opened = database.open_storage(bench.url)
    claim = studies.claim_on(opened, "other", Workspace(bench.url, bench.folder / "runs"))
    studies.delete_study(opened, "other", claim)
    assert sorted(path.name for path in (bench.folder / "runs").iterdir()) == ["study", "study-3"]


@one_backend
@pytest.mark.any_backend
def test_a_trial_that_is_deleted_is_written_again(bench: Any, recorder: Any) -> None:
    """By SQL: neither Optuna nor its dashboard can."""

    def delete() -> None:
        with closing(sqlite3.connect(file_of(bench), timeout=30)) as other, other:
            for table in ("trial_params", "trial_intermediate_values", "trials"):
                other.execute(f"DELETE FROM {table} WHERE trial_id = 1")

    watcher = recorder(at_tick=once(halfway, delete))
    bench.search(space(bench), watcher=watcher)
    assert "trial 0 was deleted from the database; it is written again" in watcher.said
    assert complete(bench)
