"""A trial's folder on another node is the one at home, whatever the trial does with it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import ray
import torch

from hpsearch.search.backends.ray import files
from hpsearch.search.backends.ray.files import RemoteFolder, files_in, temporary_folder
from hpsearch.trainer.checkpoint import kept_models, save_checkpoint

pytestmark = pytest.mark.ray


@pytest.fixture
def node(shared_ray: None) -> str:
    """The driver's."""
    return ray.get_runtime_context().get_node_id()


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in files_in(folder)}


def test_a_folder_comes_along_and_goes_home(node: str, tmp_path: Path) -> None:
    home = tmp_path / "runs" / "study" / "3"
    (home / "checkpoint" / "deep").mkdir(parents=True)
    (home / "config.json").write_text("{}")
    (home / "checkpoint" / "deep" / "model.bin").write_bytes(b"\0" * 1000)
    (home / "metrics.jsonl").write_text('{"step": 1}\n')
    here = RemoteFolder.fetch(home, node)
    assert content(here.path) == content(home)

    with (here.path / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 2}\n')
    (here.path / "output.log").write_text("hello\n")
    (here.path / "checkpoint" / "deep" / "model.bin").unlink()
    (here.path / "checkpoint" / "new").write_bytes(b"x")
    here.send_home()
    assert content(home) == content(here.path)

    with (here.path / "output.log").open("a") as stream:
        stream.write("again\n")
    part = here.path / "checkpoint" / "new.part"
    part.write_bytes(b"y")
    os.replace(part, here.path / "checkpoint" / "new")
    here.send_home()
    assert content(home) == content(here.path)
    assert (home / "output.log").read_text() == "hello\nagain\n"
    here.remove()
    assert not here.path.exists() and home.exists()


def test_only_what_changed_is_sent(node: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "large").write_bytes(b"1" * 10)
    here = RemoteFolder.fetch(home, node)
    (home / "large").write_bytes(b"2" * 10)  # as only this test does: a trial's folder has one trial
    (here.path / "small").write_bytes(b"3")
    here.send_home()
    assert content(home) == {"large": b"2" * 10, "small": b"3"}


def test_checkpoints_come_home_under_the_names_they_have_here(node: str, tmp_path: Path) -> None:
    """The trainer renames them, so that a name stands for another file at every report."""
    home = tmp_path / "home"
    home.mkdir()
    here = RemoteFolder.fetch(home, node)
    for number in range(1, 6):
        weights = {"a": torch.full((9,), float(number))}
        save_checkpoint(here.path / "checkpoint", weights, {}, {}, {"reported": number}, keep=4)
        here.send_home()
        assert content(home) == content(here.path)
    assert list(kept_models(home / "checkpoint")) == ["2", "3", "4", "5"]
    assert content(RemoteFolder.fetch(home, node).path) == content(home)


def test_growing_files_that_began_anew_are_sent_whole(node: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    here = RemoteFolder.fetch(home, node)
    (here.path / "output.log").write_text("a long line of output\n")
    here.send_home()
    (here.path / "output.log").write_text("short\n")
    here.send_home()
    assert (home / "output.log").read_text() == "short\n"


def test_folders_of_processes_that_are_gone_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST_ROOT", 1000)  # wherever temporary folders are here
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        gone = Path(folder) / "hpsearch-999999999-abc"
        other = Path(folder) / "hpsearch-notes"
        alive = Path(folder) / f"hpsearch-{os.getppid()}-abc"
        for each in (gone, other, alive):
            each.mkdir()
        made = temporary_folder()
        assert not gone.exists()
        assert other.exists() and alive.exists() and made.exists()
