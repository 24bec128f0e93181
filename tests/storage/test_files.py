"""The folders of trials, the lock of a driver, and files shown as artifacts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.artifacts.exceptions import ArtifactNotFound

from hpsearch.objectives.user.writing import set_aside
from hpsearch.storage import StorageError
from hpsearch.storage.files import (
    CHECKPOINT,
    CONFIG,
    METRICS,
    RunsArtifactStore,
    artifact_attrs,
    drop_checkpoint,
    has_checkpoint,
    is_of_a_checkpoint,
    remove_folder,
    scratch_folder,
    shorten,
    study_folder,
    trial_folder,
)
from hpsearch.storage.locks import driver_lock
from hpsearch.storage.workspace import Workspace


def test_what_is_cut_out_of_an_output_is_counted_over_all_cuts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpsearch.storage.files.LONGEST_OUTPUT", 1000)
    monkeypatch.setattr("hpsearch.storage.files.KEPT_OUTPUT", 100)
    output, printed = tmp_path / "output.log", b""
    for size in (900, 200, 500, 800, 3000):
        more = os.urandom(size).replace(b"\n", b" ")
        printed += more
        with output.open("ab") as stream:
            stream.write(more)
        shorten(output)
    note = b"\n[%d bytes are omitted here: the trial printed too much]\n" % (len(printed) - 200)
    assert output.read_bytes() == printed[:100] + note + printed[-100:]


# Any text: the loader refuses many of these names, other programs' studies may have them.
ODD = st.sampled_from(
    ["", ".", "..", "%", "%2E", "~", "-x", "../x", "a/b", "a\0b", "{}", "x" * 100, "é" * 50]
)
names = ODD | st.text(max_size=300) | st.builds("".join, st.lists(ODD, max_size=4))


@given(names, names)
def test_every_study_has_a_folder_of_its_own_right_inside_runs(one: str, other: str) -> None:
    runs = Path("/runs")
    folder = study_folder(runs, one)
    assert folder.parent == runs and Path(os.path.normpath(folder)) == folder
    assert folder.name not in ("", ".", "..") and not set(folder.name) & set("\0\n/\\:")
    assert len(folder.name.encode()) < 255, "as long as a file system takes"
    assert (folder == study_folder(runs, other)) == (one == other)


@pytest.mark.parametrize(
    ("files", "whole"),
    [
        ((), False),
        (("empty/",), False),
        (("state.pt",), True),
        (("checkpoint-5/model.safetensors",), True),
        ((".metadata",), True),
        (("template",), True),
        (("temperature.pt",), True),
        (("model.part1.pt",), True),
        (("state.pt.tmp", "state.pt"), True),
        (("state.pt.tmp", ".state.partial"), False),
        (("state.tmp.1234",), False),
        (("state~",), False),
        (("model.bin.part",), False),
        (("state.pt.incomplete",), False),
        (("tmp-checkpoint-500/model.safetensors",), False),
        (("tmpab12cd34",), False),
    ],
)
def test_a_file_named_as_incomplete_is_no_checkpoint(
    tmp_path: Path, files: tuple[str, ...], whole: bool
) -> None:
    for file in files:
        path = tmp_path / CHECKPOINT / file
        (path if file.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not file.endswith("/"):
            path.touch()
    assert has_checkpoint(tmp_path) == whole


def test_a_file_that_was_set_aside_is_no_checkpoint(tmp_path: Path) -> None:
    (file := tmp_path / CHECKPOINT / "state.pt").parent.mkdir()
    file.touch()
    set_aside([file, file])
    assert [path.name for path in file.parent.iterdir()] == ["state.pt.incomplete"]
    assert not has_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("runs/s/3/checkpoint/a/b", True),
        ("runs/s/3/a", False),
        ("x/checkpoint/b", False),
        ("3/checkpoint", True),
    ],
)
def test_a_file_of_a_checkpoint_is_known_by_its_place(path: str, found: bool) -> None:
    assert is_of_a_checkpoint(Path(path)) == found


def test_a_plain_name_is_its_folder() -> None:
    assert trial_folder(Path("/runs"), "lora v1.2", 3) == Path("/runs/lora v1.2/3")
    assert study_folder(Path("/runs"), "..").name == "%2E%2E"


def test_the_files_stand_beside_the_database_unless_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Workspace.at("sqlite:////a/b.db").runs == Path("/a/runs")
    assert Workspace.at("sqlite:///b.db").runs == tmp_path / "runs"
    assert Workspace.at("postgresql://h/d").runs == tmp_path / "runs"
    assert Workspace.at("sqlite:////a/b.db", "here").runs == tmp_path / "here"


def test_a_dropped_checkpoint_leaves_the_rest(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT / "deep").mkdir(parents=True)
    (tmp_path / METRICS).touch()
    drop_checkpoint(tmp_path)
    drop_checkpoint(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [METRICS]


def test_a_folder_is_removed_with_all_in_it_and_nothing_beside_it(tmp_path: Path) -> None:
    kept = tmp_path / "kept" / "file"
    kept.parent.mkdir()
    kept.touch()
    folder = tmp_path / "folder"
    for inner in ("a/b/c", "a/b/d", "e"):
        (folder / inner).mkdir(parents=True)
        (folder / inner / "file").touch()
    (folder / "a" / "link").symlink_to(kept.parent)
    remove_folder(folder)
    remove_folder(folder)
    assert not folder.exists() and kept.exists()
    (kept.parent / "inner").mkdir()
    folder.symlink_to(kept.parent)
    remove_folder(folder)
    assert kept.exists() and (kept.parent / "inner").exists(), "what a link leads to is not ours"


HOLDER = """\
import sys, time
from pathlib import Path
from hpsearch.storage.locks import driver_lock
from hpsearch.storage.workspace import Workspace
with driver_lock(Workspace(sys.argv[1], Path(sys.argv[2])), "study"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_the_lock_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    url, runs = f"sqlite:///{tmp_path / 'a.db'}", tmp_path / "runs"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, url, str(runs)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    with holder, holder.stdout:
        try:
            assert holder.stdout.readline() == "held\n"
            (tmp_path / "link.db").symlink_to("a.db")
            for same in (url, f"sqlite:///{tmp_path / 'link.db'}"):
                with (
                    pytest.raises(StorageError, match=rf"\(process {holder.pid}\) is running .*study"),
                    driver_lock(Workspace(same, runs), "study"),
                ):
                    pass
            with driver_lock(Workspace(url, runs), "another study"):
                pass
        finally:
            os.kill(holder.pid, signal.SIGKILL)
            holder.wait()
    with driver_lock(Workspace(url, runs), "study"):
        pass


def test_a_lock_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    with pytest.raises(StorageError, match="cannot lock the study"):
        driver_lock(Workspace("postgresql://h/d", tmp_path / "runs"), "study").__enter__()


def test_artifacts_are_the_files_of_trials_and_nothing_else(tmp_path: Path) -> None:
    store = RunsArtifactStore(tmp_path)
    folder = trial_folder(tmp_path, "a: b", 3)
    folder.mkdir(parents=True)
    (folder / METRICS).write_text("{}\n")
    (folder / CONFIG).touch()
    (folder / "secret").write_text("x")
    (folder / "output.log").symlink_to("secret")
    (folder.parent / "5" / METRICS).mkdir(parents=True)  # a folder, where a file should be
    elsewhere = tmp_path.parent / f"{tmp_path.name} elsewhere"  # another program's, outside of runs
    (elsewhere / "3").mkdir(parents=True)
    (elsewhere / "3" / METRICS).write_text("private")
    keys = {key.removeprefix("artifacts:") for key in artifact_attrs(tmp_path, "a: b", 3)}
    readable = {bytes.fromhex(key).decode().split(":")[2] for key in keys}
    assert METRICS in readable and CONFIG not in readable, "an empty file is not worth showing"
    study = folder.parent.name
    good = f"{study}:3:{METRICS}"
    with store.open_reader(good.encode().hex()) as stream:
        assert stream.read() == b"{}\n"
    for bad in (
        f"{study}:3:secret",
        f"{study}:3:output.log",
        f"..:3:{METRICS}",
        f"{study}:..:{METRICS}",
        f"{study}:4:{METRICS}",
        f"{study}/../{study}:3:{METRICS}",
        f"{elsewhere}:3:{METRICS}",
        f":3:{METRICS}",
        f"{study}\0:3:{METRICS}",
        f"{'x' * 5000}:3:{METRICS}",
        f"{study}:5:{METRICS}",
        "no colons",
    ):
        with pytest.raises(ArtifactNotFound):
            store.open_reader(bad.encode().hex())
    for bad in ("zz", "é", ""):
        with pytest.raises(ArtifactNotFound):
            store.open_reader(bad)
        with pytest.raises(ArtifactNotFound):
            store.remove(bad)
    store.remove(good.encode().hex())
    store.remove(good.encode().hex())
    assert not (folder / METRICS).exists()


def test_a_worker_loads_neither_optuna_nor_sqlalchemy() -> None:
    script = (
        "import sys, hpsearch.search.backends.worker\n"
        "print([m for m in ('optuna', 'sqlalchemy', 'torch', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_an_interrupt_that_comes_while_a_folder_is_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    make = Path.mkdir

    def interrupted(path: Path, *args: Any, **options: Any) -> None:
        make(path, *args, **options)
        raise KeyboardInterrupt

    with scratch_folder("a-") as folder:
        (folder / "file").touch()
        assert folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "mkdir", interrupted)
        with scratch_folder("a-"):
            pass
    assert not any(tmp_path.iterdir())


def test_the_number_of_a_driver_is_written_through_no_link(tmp_path: Path) -> None:
    url, mine = f"sqlite:///{tmp_path / 'a.db'}", tmp_path / "mine"
    mine.write_text("mine")
    with driver_lock(Workspace(url, tmp_path), "study"):
        [number] = tmp_path.glob(".*.pid")
    assert not number.exists()
    number.symlink_to(mine)
    with driver_lock(Workspace(url, tmp_path), "study"):
        assert number.read_text() == str(os.getpid()) and not number.is_symlink()
    assert mine.read_text() == "mine" and not number.exists()
