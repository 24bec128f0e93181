"""The copy of a checkpoint from which the next attempt resumes: whole, and as of the last report."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from hpsearch.search.trials.snapshot import CheckpointSnapshot
from hpsearch.storage.files import CHECKPOINT, SEALED
from hpsearch.trainer.checkpoint import kept_models, load_checkpoint, save_checkpoint


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / CHECKPOINT / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def read(folder: Path) -> dict[str, str]:
    found = folder / CHECKPOINT
    return {str(p.relative_to(found)): p.read_text() for p in found.rglob("*") if p.is_file()}


def test_an_attempt_gets_the_checkpoint_of_the_last_report(tmp_path: Path) -> None:
    seal = CheckpointSnapshot(tmp_path)
    seal.restore()
    assert read(tmp_path) == {}
    write(tmp_path, step="1", model__weights="a")
    seal.take()
    write(tmp_path, step="2", model__weights="")  # killed while writing
    (tmp_path / CHECKPOINT / "more").touch()
    for _ in range(2):  # an attempt that is killed immediately changes nothing
        CheckpointSnapshot(tmp_path).restore()
        assert read(tmp_path) == {"step": "1", "model/weights": "a"}


def test_all_that_the_trainer_keeps_comes_back(tmp_path: Path) -> None:
    """The trainer renames its files, so a name is another file at every report."""
    seal = CheckpointSnapshot(tmp_path)
    seal.restore()
    for number in range(1, 6):
        weights = {"a": torch.full((9,), float(number))}
        save_checkpoint(tmp_path / CHECKPOINT, weights, {}, {}, {"reported": number}, keep=4)
        if number < 5:  # killed before the last report
            seal.take()
    CheckpointSnapshot(tmp_path).restore()
    assert list(kept_models(tmp_path / CHECKPOINT)) == ["1", "2", "3", "4"]
    for place, (path, part) in kept_models(tmp_path / CHECKPOINT).items():
        assert torch.equal(load_checkpoint(path)[0][part]["a"], torch.full((9,), float(place)))


def test_an_unreported_checkpoint_is_not_resumed(tmp_path: Path) -> None:
    write(tmp_path, step="1")
    CheckpointSnapshot(tmp_path).restore()
    assert read(tmp_path) == {}


def test_a_file_that_is_written_in_place_does_not_change_the_copy(tmp_path: Path) -> None:
    seal = CheckpointSnapshot(tmp_path)
    seal.restore()
    write(tmp_path, step="1", base="b")
    seal.take()
    write(tmp_path, step="2")  # the same inode
    seal.take()
    kept = tmp_path / SEALED
    assert {p.name: p.read_text() for p in kept.iterdir()} == {"step": "2", "base": "b"}
    write(tmp_path, step="3", base="c")
    assert {p.name: p.read_text() for p in kept.iterdir()} == {"step": "2", "base": "b"}


@pytest.mark.parametrize("at", range(1, 5))
def test_a_kill_at_any_moment_of_a_copy_leaves_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    seal = CheckpointSnapshot(tmp_path)
    seal.restore()
    write(tmp_path, step="1", model="a")
    seal.take()
    write(tmp_path, step="2", model="b")
    moments = iter(range(1, 100))

    class Killed(BaseException):
        pass

    def dies(step: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            if next(moments) == at:
                raise Killed
            return step(*args, **options)

        return run

    # A copy makes two files, moves two folders, and removes one.
    monkeypatch.setattr(shutil, "copy2", dies(shutil.copy2))
    monkeypatch.setattr(Path, "rename", dies(os.rename))
    with pytest.raises(Killed):
        seal.take()
    monkeypatch.undo()
    CheckpointSnapshot(tmp_path).restore()
    assert read(tmp_path) == {"step": "1", "model": "a"}
    assert not list(tmp_path.glob(f"{SEALED}.*"))
