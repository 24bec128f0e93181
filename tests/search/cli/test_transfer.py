"""`copy` and `backup` on the command line, with real searches before, beside and after them."""

from __future__ import annotations

import re
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial

from hpsearch.search import open_study, run
from hpsearch.search.cli import main
from hpsearch.search.errors import SearchError
from hpsearch.storage import StorageError
from hpsearch.storage.files import CLAIM

COMMAND = [sys.executable, "-c", "from hpsearch.search.cli import main; main()"]
OBJECTIVE = """
import time

def train(trial):
    for step in range(1, 10):
        time.sleep(trial.params["pause"])
        (trial.checkpoint / "step").write_text(str(step))
        trial.report((trial.params["x"] - 0.3) ** 2 + 1 / step, step=step, square=step**2)
    return (trial.params["x"] - 0.3) ** 2
"""
SPACE = """
version: 1
name: curves
objective: objective.py:train
metric: val_loss
parameters:
  x: {{min: -1.0, max: 1.0}}
  kind: [a, b]
  pause: {pause}
early_stopping: {{method: hyperband, min: 1, max: 9, eta: 3}}
search: {{sampler: tpe, seed: 4}}
budget: {{trials: {trials}}}
confirm: {{top: 0}}
execution: {{workers: {workers}}}
"""
Cli = Callable[..., tuple[int, str]]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, with no database named by the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HPSEARCH_STORAGE", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "objective.py").write_text(OBJECTIVE)
    return tmp_path


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command: its exit code and what it said on standard error; it prints nothing else."""

    def call(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["hpsearch", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert out == ""
        return int(ended.value.code or 0), err

    return call


def space(folder: Path, *, pause: float = 0.0, trials: int = 4, workers: int = 1) -> Path:
    (folder / "space.yaml").write_text(SPACE.format(pause=pause, trials=trials, workers=workers))
    return folder / "space.yaml"


def contents(trial: FrozenTrial) -> tuple[Any, ...]:
    """What must not depend on where a study is."""
    return trial.number, trial.state, trial.values, trial.params, trial.intermediate_values


def files(folder: Path) -> dict[str, bytes]:
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != CLAIM]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def trials_in(database: Path) -> list[FrozenTrial]:
    return open_study("curves", storage=str(database)).study.get_trials(deepcopy=False)


def test_a_copy_goes_on_as_the_original_would(here: Path, cli: Cli) -> None:
    run(space(here), storage="a.db")
    (here / "b").mkdir()
    code, said = cli("copy", "curves", "--storage", "a.db", "--to", "b/b.db")
    assert code == 0
    assert re.fullmatch(
        r'copied the study "curves" with 4 trials to sqlite:///b/b.db: [\d,]+ rows, each compared with its original\n'
        f"its files are in {here}/b/runs/curves\n",
        said,
    )
    assert files(here / "b" / "runs" / "curves") == files(here / "runs" / "curves") != {}
    for database in ("a.db", "b/b.db"):
        run(space(here, trials=9), storage=database)
    one, other = trials_in(here / "a.db"), trials_in(here / "b" / "b.db")
    assert len(one) == 9 and [contents(t) for t in one] == [contents(t) for t in other]
    best = open_study("curves", storage="b/b.db").best
    assert best.folder.is_dir() and best.folder.is_relative_to(here / "b")


def test_a_copy_beside_its_original_has_a_folder_of_its_own(here: Path, cli: Cli) -> None:
    run(space(here), storage="a.db")
    code, said = cli("copy", "curves", "--storage", "a.db", "--to", "b.db")
    assert (code, f"its files are in {here}/runs/curves-2" in said) == (0, True)
    original = files(here / "runs" / "curves")
    run(space(here, trials=9), storage="b.db")
    assert len(open_study("curves", storage="b.db").trials) == 9
    assert files(here / "runs" / "curves") == original
    assert cli("delete", "curves", "--yes", "--storage", "b.db")[0] == 0
    assert [path.name for path in (here / "runs").iterdir()] == ["curves"]
    code, said = cli("copy", "curves", "--storage", "a.db", "--to", "c.db", "--to-runs", "elsewhere")
    assert (code, files(here / "elsewhere" / "curves")) == (0, original)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["copy", "curves"], 2, "Missing option"),
        (["copy", "curves", "--to", ""], 2, "--to is empty"),
        (["copy", "curves", "--to", "a.db"], 1, "is the database that the study is in"),
        (["copy", "curve", "--to", "b.db"], 1, 'did you mean "curves"?'),
        (["copy", "curves", "--to", "no/where/b.db"], 1, "there is no folder"),
        (["copy", "curves", "--to", "objective.py"], 1, "is not a SQLite database"),
        (["backup", "-o", "a.db"], 2, "--force"),
        (["backup", "-o", "a.db", "--force"], 1, "is the database itself"),
        (["backup", "--storage", "none.db"], 1, "there is no database"),
    ],
)
def test_what_cannot_be_is_said(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, said: str
) -> None:  # fmt: skip
    optuna.create_study(study_name="curves", storage="sqlite:///a.db")
    monkeypatch.setenv("HPSEARCH_STORAGE", "a.db")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["hpsearch", *words])
    before = {path.name for path in here.iterdir()}
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr().err
    assert (ended.value.code, said in printed, "Traceback" in printed) == (code, True, False), printed
    left = {path.name for path in here.iterdir()} - before
    assert {name for name in left if not name.endswith((".lock", "-wal", "-shm"))} == set()


def test_passwords_are_not_printed(here: Path, cli: Cli) -> None:
    optuna.create_study(study_name="curves", storage="sqlite:///hpsearch.db")
    url = "postgresql+psycopg://me:secret@127.0.0.1:1/searches"
    code, said = cli("copy", "curves", "--to", url)
    assert (code, "secret" in said) == (1, False)
    assert "postgresql+psycopg://me:***@127.0.0.1:1/searches" in said
    code, said = cli("backup", "--storage", url)
    assert (code, "secret" in said) == (2, False)
    assert "pg_dump" in said and "mysqldump" in said and "hpsearch copy STUDY --to FILE" in said
    assert not (here / "runs").exists()


def test_a_backup_is_named_after_the_database_and_the_time(here: Path, cli: Cli) -> None:
    optuna.create_study(study_name="curves", storage="sqlite:///hpsearch.db").ask()
    code, said = cli("backup")
    (file,) = here.glob("hpsearch-*.db")
    assert re.fullmatch(r"hpsearch-\d{8}-\d{6}\.db", file.name)
    assert (code, said) == (
        0,
        f"wrote {file}: 1 study with 1 trial, {file.stat().st_size / 1e6:.1f} MB, checked\n",
    )
    optuna.create_study(study_name="more", storage="sqlite:///hpsearch.db")
    code, said = cli("backup", "-o", str(file))
    assert (code, "is there already" in said) == (2, True)
    code, said = cli("backup", "-o", str(file), "--force")
    assert (code, "2 studies with 1 trial" in said) == (0, True)
    assert optuna.get_all_study_names(f"sqlite:///{file}") == ["curves", "more"]


def test_a_disk_that_fills_up_leaves_no_half_study(here: Path) -> None:
    study = optuna.create_study(study_name="curves", storage="sqlite:///a.db")
    study.set_user_attr("much", "x" * 3_000_000)
    optuna.create_study(study_name="other", storage="sqlite:///b.db")
    (here / "runs" / "curves" / "0").mkdir(parents=True)
    (here / "runs" / "curves" / "0" / "output.log").write_text("printed")
    small = (2_000_000, resource.RLIM_INFINITY)
    ended = subprocess.run(
        [*COMMAND, "copy", "curves", "--storage", "a.db", "--to", "b.db", "--to-runs", "elsewhere"],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, small),
    )
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, False), ended.stderr
    assert f"the database {here / 'b.db'} cannot be read or written: disk I/O error" in ended.stderr
    assert "this shell limits files to 2,000,000 bytes" in ended.stderr
    assert optuna.get_all_study_names("sqlite:///b.db") == ["other"]
    assert list((here / "elsewhere").iterdir()) == []


@pytest.mark.slow
def test_backups_while_two_workers_write(here: Path, cli: Cli) -> None:
    """Each is whole, the last one is searched to its end, and the search never notices."""
    file = space(here, pause=0.1, trials=24, workers=2)
    search = subprocess.Popen(
        [*COMMAND, "run", str(file), "--plain", "--storage", "live.db"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    seen: list[list[FrozenTrial]] = []
    try:
        while search.poll() is None and len(seen) < 12:
            time.sleep(0.1)
            if not (here / "live.db").exists() or not _searching(here / "live.db"):
                continue
            backup = here / f"backup{len(seen)}.db"
            code, said = cli("backup", "--storage", "live.db", "-o", str(backup))
            assert code == 0, said
            with closing(sqlite3.connect(f"file:{backup}?mode=ro&immutable=1", uri=True)) as database:
                assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                assert database.execute("PRAGMA foreign_key_check").fetchall() == []
            seen.append(_whole(backup))
            assert f"1 study with {len(seen[-1])} trial" in said
            if len(seen) == 1:
                code, said = cli("copy", "curves", "--storage", "live.db", "--to", "copy.db")
                assert (code, "is running the study" in said) == (1, True), said
                assert not (here / "copy.db").exists()
        out, _ = search.communicate(timeout=120)
    finally:
        search.kill()
        search.wait()
    assert search.returncode == 0, out
    assert "locked" not in out
    assert len(seen) >= 3 and len(seen[0]) < len(seen[-1]), "the backups are of several moments"
    final = _whole(here / "live.db")
    assert len(final) == 24
    for trials in seen:
        for trial in trials:
            if trial.state.is_finished():
                assert contents(trial) == contents(final[trial.number])
    (here / "restored").mkdir()
    backup.rename(here / "restored" / "live.db")
    assert run(file, storage="restored/live.db").ran == 24 - sum(t.state.is_finished() for t in seen[-1])


def _searching(database: Path) -> bool:
    try:
        return bool(trials_in(database))
    except (SearchError, StorageError):  # the file is there before its tables and its study
        return False


def _whole(database: Path) -> list[FrozenTrial]:
    """The trials of a database, none of which is there in part."""
    found = trials_in(database)
    assert [trial.number for trial in found] == list(range(len(found)))
    for trial in found:
        assert set(trial.params) == {"x", "kind"}
        assert list(trial.intermediate_values) == list(range(1, len(trial.intermediate_values) + 1))
        assert trial.datetime_start is not None
        if trial.state.name == "COMPLETE":
            assert trial.value is not None and len(trial.intermediate_values) == 9
        if trial.state.name == "PRUNED":
            assert "reason" in trial.user_attrs
        if trial.state.is_finished():
            assert trial.datetime_complete is not None
    return found
