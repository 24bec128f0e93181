"""Damage to a checkpoint is found, whatever and wherever it is, and the one before it is used."""

from __future__ import annotations

import dataclasses
import io
import os
import pickle
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpsearch.trainer.checkpoint import (
    CHECKPOINT,
    PREVIOUS,
    Tensors,
    load_checkpoint,
    read_tensors,
    resume_checkpoint,
    save_checkpoint,
    write_tensors,
)
from hpsearch.trainer.config.models import LoraConfig
from hpsearch.trainer.errors import CheckpointError
from hpsearch.trainer.header import SHIPPED_BASE
from hpsearch.trainer.model.base_file import load_base
from hpsearch.trainer.output.export import export
from hpsearch.trainer.runs.base import FitResult, RunReport
from hpsearch.trainer.runs.run import fit

CLOCKED = {"tokens_per_second", "host_memory_mb"}
TENSORS: Tensors = {
    "weights.a": torch.arange(6.0).reshape(2, 3),
    "weights.b": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "optimizer.step": torch.tensor(3.0),
    "best.none": torch.empty(0, 4),
    "best.flags": torch.tensor([True, False]),
}
STATE = {"step": 3, "best": float("inf"), "reports": [{"value": 0.1, "text": "ä"}]}


@cache
def whole_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x")
        write_tensors(path, TENSORS, STATE)
        return path.read_bytes()


def same(left: Tensors, right: Tensors) -> bool:
    kinds = [{name: (t.dtype, t.shape) for name, t in tensors.items()} for tensors in (left, right)]
    return kinds[0] == kinds[1] and all(torch.equal(left[name], right[name]) for name in left)


def refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"^{re.escape(str(path))}: (cannot be read|damaged)"):
        read_tensors(path)


# Damage is found


def test_written_tensors_are_read_again(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", TENSORS, STATE)
    tensors, about = read_tensors(tmp_path / "x")
    assert same(tensors, TENSORS) and about == STATE


def test_a_bit_that_flips_is_found_in_every_byte(tmp_path: Path) -> None:
    content = whole_file()
    for place, byte in enumerate(content):
        changed = byte ^ 1 << place % 8
        refused(tmp_path / "x", content[:place] + bytes([changed]) + content[place + 1 :])


def test_every_shorter_file_is_found(tmp_path: Path) -> None:
    for length in range(len(whole_file())):
        refused(tmp_path / "x", whole_file()[:length])


@settings(max_examples=300)
@given(
    place=st.integers(0, len(whole_file())),
    taken=st.integers(0, 64) | st.just(len(whole_file())),
    put=st.binary(max_size=64) | st.integers(0, 4096).map(bytes),
)
def test_a_changed_stretch_is_found(
    tmp_path_factory: pytest.TempPathFactory, place: int, taken: int, put: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "stretch"
    path.write_bytes(whole_file()[:place] + put + whole_file()[place + taken :])
    try:
        tensors, about = read_tensors(path)
    except CheckpointError:
        return
    assert same(tensors, TENSORS) and about == STATE  # a blank for a blank in the header, say


@pytest.mark.parametrize("content", [b"", b"no tensors at all", bytes(len(whole_file())), os.urandom(4096)])
def test_files_without_tensors_are_refused(tmp_path: Path, content: bytes) -> None:
    refused(tmp_path / "x", content)


def test_a_pickle_is_refused_and_not_loaded(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "executed"),)

    saved = io.BytesIO()
    torch.save({"weights.a": Bomb()}, saved)
    for content in (pickle.dumps(Bomb()), saved.getvalue()):
        refused(tmp_path / "x", content)
    assert not (tmp_path / "executed").exists()


def test_the_base_that_ships_is_checked_too(tmp_path: Path) -> None:
    content = bytearray(SHIPPED_BASE.read_bytes())
    path = tmp_path / "base.safetensors"
    path.write_bytes(content)
    assert load_base(path).sha256 == load_base().sha256
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(0, 0))  # another file to a process that has seen the first
    with pytest.raises(CheckpointError, match=f"^{re.escape(str(path))}: damaged"):
        load_base(path)


# The one before it is used


def saved(folder: Path, *numbers: int, keep: int = 2) -> Path:
    for number in numbers:
        state = {"number": number, "reported": number * 10}
        save_checkpoint(folder, {"a": torch.full((9,), float(number))}, {}, {}, state, keep=keep)
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def number_in(folder: Path) -> int | None:
    """The number of the checkpoint to go on from."""
    found = resume_checkpoint(folder)
    if found is None:
        return None
    parts, state = found
    assert torch.equal(parts["weights"]["a"], torch.full((9,), float(state["number"])))
    number: int = state["number"]
    return number


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 4
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit": flipped,
    "cut in the middle": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}
damages = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)


def test_the_newest_two_are_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert number_in(tmp_path) is None
    assert number_in(saved(tmp_path, 1, 2, 3)) == 3
    assert names_in(tmp_path) == [PREVIOUS, CHECKPOINT]
    assert read_tensors(tmp_path / PREVIOUS)[1]["number"] == 2
    assert capfd.readouterr().err == ""


def test_as_many_are_kept_as_are_asked_for(tmp_path: Path) -> None:
    assert names_in(saved(tmp_path, 1, 2, 3, keep=4)) == ["checkpoint.10.safetensors", PREVIOUS, CHECKPOINT]
    older = [f"checkpoint.{place}.safetensors" for place in (100, 110)]  # by number: as text, 90 is the last
    assert names_in(saved(tmp_path, *range(4, 14), keep=4)) == [*older, PREVIOUS, CHECKPOINT]
    assert [load_checkpoint(tmp_path / name)[1]["number"] for name in names_in(tmp_path)] == [10, 11, 12, 13]
    assert names_in(saved(tmp_path, 14, keep=3)) == ["checkpoint.120.safetensors", PREVIOUS, CHECKPOINT]
    assert names_in(saved(tmp_path, 15)) == [PREVIOUS, CHECKPOINT]


def test_an_older_checkpoint_is_used_if_the_newest_two_are_damaged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path, 1, 2, 3, 4, keep=9)
    for name in (CHECKPOINT, PREVIOUS, "checkpoint.20.safetensors"):
        flipped(tmp_path / name)
    assert number_in(tmp_path) == 1
    assert capfd.readouterr().err.endswith("; resuming from the checkpoint at 10\n")
    assert names_in(saved(tmp_path, 2, 3, 4, keep=9)) == [
        *("checkpoint.10.safetensors", "checkpoint.20.safetensors"),
        *(PREVIOUS, CHECKPOINT),
    ]


@damages
def test_a_damaged_checkpoint_is_not_kept_as_an_older_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], damage: Callable[[Path], object]
) -> None:
    """A flipped bit of a tensor is not looked for: it is found where the file is used."""
    damage(saved(tmp_path, 1, 2, keep=3) / PREVIOUS)
    saved(tmp_path, 3, keep=3)
    told = capfd.readouterr().err
    if "checkpoint.10.safetensors" in names_in(tmp_path):
        assert damage is flipped and told == ""
        with pytest.raises(CheckpointError, match="damaged"):
            load_checkpoint(tmp_path / "checkpoint.10.safetensors")
    else:
        assert told.startswith(f"{tmp_path / PREVIOUS}: cannot be read") and told.endswith("; not kept\n")
    assert number_in(tmp_path) == 3


@damages
def test_the_checkpoint_before_a_damaged_one_is_used_with_a_notice(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], damage: Callable[[Path], object]
) -> None:
    damage(saved(tmp_path, 1, 2) / CHECKPOINT)
    assert number_in(tmp_path) == 1
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith(f"{tmp_path / CHECKPOINT}: ")
    assert line.endswith("; resuming from the checkpoint before it")


@damages
def test_without_a_whole_checkpoint_there_is_a_notice(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], damage: Callable[[Path], object]
) -> None:
    saved(tmp_path, 1, 2)
    damage(tmp_path / CHECKPOINT)
    damage(tmp_path / PREVIOUS)
    assert number_in(tmp_path) is None
    [line] = capfd.readouterr().err.splitlines()
    assert f"{tmp_path / CHECKPOINT}: " in line and f"{tmp_path / PREVIOUS}: " in line
    assert line.endswith("; resuming from the beginning")
    assert number_in(tmp_path) is None and capfd.readouterr().err == ""


class Killed(BaseException):
    """What stands for a kill between two calls of the operating system."""


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize(("place", "keep"), [*((n, 2) for n in range(3)), *((n, 4) for n in range(4))])
def test_a_save_cut_short_anywhere_leaves_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool, place: int, keep: int
) -> None:
    """Also where the newest had been damaged: it does not take the place of the one before it."""
    saved(tmp_path, 1, 2, keep=keep)
    if damaged:
        flipped(tmp_path / CHECKPOINT)
    left = number_in(tmp_path)
    assert left == (1 if damaged else 2)
    real, renames = os.replace, 0

    def counted(source: Path, target: Path) -> None:
        nonlocal renames
        renames += 1
        if renames > place:
            raise Killed
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", counted)
        try:
            saved(tmp_path, 3, keep=keep)
        except Killed:
            assert number_in(tmp_path) in (left, 3)
        else:
            assert number_in(tmp_path) == 3
    assert number_in(saved(tmp_path, 4, keep=keep)) == 4
    if keep == 4:
        numbers = {load_checkpoint(path)[1]["number"] for path in tmp_path.glob("checkpoint*")}
        assert numbers >= ({1, 4} if damaged else {1, 2, 4})  # whatever was cut short, none is lost


def test_a_failed_sync_is_raised_by_the_next_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, 1)

    def refuses(descriptor: int) -> None:
        raise OSError("no longer there")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuses)
        with pytest.raises(OSError, match="no longer there"):
            saved(tmp_path, 2, 3)
    assert number_in(tmp_path) in (1, 2)  # the first may have come to the disk before it began to refuse
    assert number_in(saved(tmp_path, 4, 5)) == 5


def test_a_folder_may_be_deleted_while_its_file_goes_to_the_disk(tmp_path: Path) -> None:
    shutil.rmtree(saved(tmp_path / "over", 1))
    assert number_in(saved(tmp_path / "next", 1, 2)) == 2


# A run


def values(result: FitResult) -> list[Any]:
    return [
        (report.step, report.value, {k: v for k, v in report.metrics.items() if k not in CLOCKED})
        for report in result.reports
    ]


def run(config: LoraConfig, folder: Path, stop: int | None = None) -> tuple[FitResult | None, list[int]]:
    """A run in a folder, up to its end or the report `stop`; the steps that it reported."""
    heard: list[int] = []

    def listen(report: RunReport) -> None:
        heard.append(report.step)
        if report.step == stop:
            raise Killed

    try:
        return fit(config, on_report=listen, checkpoint=folder, resume_from=folder), heard
    except Killed:
        return None, heard


@pytest.mark.parametrize(
    ("files", "again", "said"),
    [
        ([CHECKPOINT], [16, 24, 32, 40, 48], "resuming from the checkpoint before it"),
        ([CHECKPOINT, PREVIOUS], [8, 16, 24, 32, 40, 48], "resuming from the beginning"),
    ],
)
def test_a_run_with_damaged_checkpoints_has_the_same_curve(
    tiny_lora: LoraConfig,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    files: list[str],
    again: list[int],
    said: str,
) -> None:
    whole, _ = run(tiny_lora, tmp_path / "whole")
    assert run(tiny_lora, tmp_path / "run", stop=24) == (None, [8, 16, 24])
    for name in files:
        flipped(tmp_path / "run" / name)
    result, heard = run(tiny_lora, tmp_path / "run")
    assert heard == again
    assert whole is not None and result is not None
    assert values(result) == values(whole) and result.value == whole.value
    assert result.weights.keys() == whole.weights.keys()
    for name, tensor in whole.weights.items():
        assert torch.equal(result.weights[name], tensor), name
    assert said in capfd.readouterr().err


def test_the_number_of_kept_checkpoints_does_not_change_the_run(
    tiny_lora: LoraConfig, tmp_path: Path
) -> None:
    """And it may be changed while the run goes on."""
    whole, _ = run(tiny_lora, tmp_path / "whole")
    assert run(dataclasses.replace(tiny_lora, save_total_limit=9), tmp_path / "run", stop=32)[0] is None
    assert len(names_in(tmp_path / "run")) == 4
    result, heard = run(dataclasses.replace(tiny_lora, save_total_limit=3), tmp_path / "run")
    assert heard == [32, 40, 48]
    assert names_in(tmp_path / "run") == ["checkpoint.32.safetensors", PREVIOUS, CHECKPOINT]
    assert whole is not None and result is not None
    assert values(result) == values(whole) and result.value == whole.value
    states = [load_checkpoint(tmp_path / name / CHECKPOINT)[1]["identity"] for name in ("whole", "run")]
    assert states[0] == states[1]


def test_a_damaged_checkpoint_is_not_exported_nor_the_one_before_it(
    tiny_lora: LoraConfig, tmp_path: Path
) -> None:
    run(tiny_lora, tmp_path / "run")
    flipped(tmp_path / "run" / CHECKPOINT)
    with pytest.raises(CheckpointError, match="damaged"):
        export(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()
