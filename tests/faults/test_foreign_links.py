"""Files whose names anybody can foresee: what others put there is neither followed nor waited for."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from typer.testing import CliRunner

from hpsearch.search.backends.worker.server import printing_to
from hpsearch.search.cli.app import app
from hpsearch.search.trials.reports import read_reports
from hpsearch.search.trials.trial import LocalTrial
from hpsearch.storage.connection import DriverConnection
from hpsearch.storage.files import (
    CHECKPOINT,
    METRICS,
    OUTPUT,
    drop_checkpoint,
    make_folder,
    opened,
    shorten,
    write,
)
from hpsearch.storage.locks import driver_running
from hpsearch.storage.workspace import Workspace
from hpsearch.trainer.anew import write_anew

from ..support.bench import HPSEARCH


@pytest.fixture
def others(tmp_path: Path) -> Path:
    file = tmp_path / "others"
    file.write_text("theirs")
    return file


def put(kind: str, place: Path, others: Path) -> None:
    """What another puts at a place: a link to a file of somebody's, one to nothing, or a pipe."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(others if kind == "link" else others.with_name("nothing"))


def is_untouched(others: Path) -> bool:
    return others.read_text() == "theirs" and not others.with_name("nothing").exists()


KINDS = pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])


@KINDS
@pytest.mark.parametrize(
    "flags", [os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_APPEND | os.O_CREAT]
)
def test_only_a_file_is_opened(tmp_path: Path, others: Path, kind: str, flags: int) -> None:
    put(kind, place := tmp_path / "x", others)
    with pytest.raises(OSError, match=r"it is a (link|pipe)"):
        opened(place, flags)
    assert is_untouched(others)


@KINDS
def test_what_a_trial_prints_and_reports_goes_into_its_own_files(
    tmp_path: Path, others: Path, kind: str
) -> None:
    put(kind, tmp_path / "0" / OUTPUT, others)
    put(kind, tmp_path / "0" / METRICS, others)
    with pytest.raises(OSError, match="it is a"), printing_to(tmp_path / "0"):
        pass
    with pytest.raises(OSError, match="it is a"):
        LocalTrial(
            params={}, seed=0, folder=tmp_path / "0", sealed=False, on_report=lambda _: None, say=print
        )
    for repair in (False, True):
        with pytest.raises(OSError, match="it is a"):
            read_reports(tmp_path / "0" / METRICS, repair=repair)
    shorten(tmp_path / "0" / OUTPUT)
    assert is_untouched(others)


@KINDS
def test_a_written_file_takes_the_place_of_what_was_there(tmp_path: Path, others: Path, kind: str) -> None:
    for name in ("config.json", ".config.json.part", "anew"):
        put(kind, tmp_path / "0" / name, others)
    write(tmp_path / "0" / "config.json", "ours")
    write_anew(tmp_path / "0" / "anew", "ours")
    assert is_untouched(others)
    for name in ("config.json", "anew"):
        path = tmp_path / "0" / name
        assert path.read_text() == "ours" and not path.is_symlink()


def test_no_folder_of_a_trial_leads_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "theirs" / CHECKPOINT).mkdir(parents=True)
    (tmp_path / "0").symlink_to(tmp_path / "theirs")
    drop_checkpoint(tmp_path / "0")
    assert (tmp_path / "theirs" / CHECKPOINT).is_dir()
    with pytest.raises(OSError, match="it is a link"):
        make_folder(tmp_path / "0")
    with pytest.raises(OSError, match="it is a link"), printing_to(tmp_path / "0"):
        pass


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])
def test_what_is_saved_of_a_deleted_database_takes_a_free_name(
    tmp_path: Path, others: Path, kind: str
) -> None:
    file = tmp_path / "x.db"
    with closing(sqlite3.connect(file)) as made:
        made.execute("CREATE TABLE t (i)")
        made.commit()
    put(kind, tmp_path / "x.db.rescued", others)
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    connection = DriverConnection(engine, 1)
    with connection.transaction():
        pass
    saved = connection.rescue()
    assert saved == tmp_path / "x.db.rescued-2"
    saved.unlink()
    saved.symlink_to(others)  # by now
    assert connection.rescue() == saved
    connection.close()
    engine.dispose()
    assert is_untouched(others) and not saved.is_symlink()
    with closing(sqlite3.connect(saved)) as read:
        assert read.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_a_pipe_in_place_of_a_drivers_number_is_not_waited_for(tmp_path: Path, others: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    from hpsearch.storage.locks import _lock_file, _owner_file

    put("pipe", _owner_file(_lock_file(Workspace(url, tmp_path / "runs"), "s")), others)
    assert driver_running(Workspace(url, tmp_path / "runs"), "s") is None


def test_a_link_to_nothing_is_no_free_name_for_output(tmp_path: Path, others: Path) -> None:
    put("dangling", tmp_path / "space.yaml", others)
    done = CliRunner().invoke(app, ["init", "lora", "-o", str(tmp_path / "space.yaml")])
    assert is_untouched(others)
    assert done.exit_code == 2 or "is a link" in str(done.exception)


def test_what_lies_where_a_trial_is_to_be_goes_and_is_not_followed(tmp_path: Path, others: Path) -> None:
    (tmp_path / "o.py").write_text(
        "import pathlib\n"
        "def train(trial):\n"
        "    later = trial.checkpoint.parent.parent / '4'\n"
        "    if trial.number == 0:\n"
        "        later.mkdir()\n"
        f"        (later / 'output.log').symlink_to({str(others)!r})\n"
        f"        (later / 'config.json').symlink_to({str(others)!r})\n"
        "    trial.report(1.0, step=1)\n"
        "    return trial.params['x']\n"
    )
    space: dict[str, Any] = {
        "version": 1,
        "name": "s",
        "objective": f"{tmp_path}/o.py:train",
        "metric": "loss",
    }
    space |= {"parameters": {"x": {"min": 0.0, "max": 1.0}}, "budget": {"trials": 6}, "confirm": {"top": 0}}
    (tmp_path / "s.yaml").write_text(json.dumps(space))
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to("disk")  # the user's own
    done = subprocess.run(
        [HPSEARCH, "run", "s.yaml", "--workers", "1"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" complete ") == 6, done.stdout
    assert is_untouched(others)
    assert not (tmp_path / "disk" / "s" / "4" / "config.json").is_symlink()
    assert (tmp_path / "disk" / "s" / "2" / "metrics.jsonl").is_file()
