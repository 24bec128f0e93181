"""The newest complete checkpoint in a trial's folder, and words that name it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from hpsearch.objectives.base import ObjectiveError
from hpsearch.objectives.user.checkpoints import UNFINISHED, newest, problem_of_pattern
from hpsearch.objectives.user.macros import expand
from hpsearch.storage import files


def saved(path: Path, at: int | None = None, cut: int = 0) -> Path:
    """A file as PyTorch writes it, changed at a second, and cut short by some bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"weights": torch.zeros(3)}, path)
    if cut:
        path.write_bytes(path.read_bytes()[:-cut])
    if at is not None:
        os.utime(path, (at, at))
    return path


def of_a_trainer(folder: Path, step: int, *, whole: bool = True) -> Path:
    """A checkpoint of the Hugging Face Trainer, which writes trainer_state.json last."""
    checkpoint = folder / f"checkpoint-{step}"
    saved(checkpoint / "optimizer.pt")
    (checkpoint / "training_args.bin").write_bytes(b"x")
    save_file({"w": torch.zeros(2)}, checkpoint / "model.safetensors")
    if whole:
        (checkpoint / "trainer_state.json").write_text("{}")
    return checkpoint


def test_there_is_none_in_an_empty_folder_or_without_one(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        assert newest(folder, "last") is None
        assert newest(folder, "**/*.pt") is None


def test_checkpoints_of_the_trainer_go_by_number_and_are_whole(tmp_path: Path) -> None:
    of_a_trainer(tmp_path, 1000)
    last = of_a_trainer(tmp_path, 10000)
    of_a_trainer(tmp_path, 900)
    of_a_trainer(tmp_path, 20000, whole=False)
    of_a_trainer(tmp_path / "tmp-checkpoint-9", 30000)
    save_file({"w": torch.zeros(2)}, tmp_path / "model.safetensors")  # the weights, saved at the end
    assert newest(tmp_path, "last") == last
    assert newest(tmp_path, "checkpoint-*") == last
    (last / "optimizer.pt").rename(last / "optimizer.pt.incomplete")
    assert newest(tmp_path, "last") == tmp_path / "checkpoint-1000"


def test_other_kinds(tmp_path: Path, subtests: pytest.Subtests) -> None:
    cases = {
        "Lightning": (["logs/version_0/epoch=9-step=90.ckpt", "logs/version_1/epoch=1-step=10.ckpt"], 1),
        "Lightning's last.ckpt": (["epoch=1-step=10.ckpt", "last.ckpt"], 1),
        "nanoGPT": (["ckpt.pt"], 0),
        "nanoGPT before other files": (["ckpt.pt", "best.pt"], 0),
        "by number": (["ckpt_00010.pt", "ckpt_00009.pt"], 0),
        "by time": (["a.pth", "b.pth"], 1),
        "Keras": (["model.keras"], 0),
        "accelerate": (["epoch_1/state.pt", "epoch_2/state.pt"], 1),
    }
    for index, (name, (paths, expected)) in enumerate(cases.items()):
        with subtests.test(name):
            folder = tmp_path / str(index)
            for at, path in enumerate(paths):
                saved(folder / path, at=1_000_000 + at)
            found = newest(folder, "last")
            assert found is not None
            wanted = folder / paths[expected]
            assert found == (wanted.parent if name == "accelerate" else wanted)


def test_half_a_file_is_no_checkpoint(tmp_path: Path) -> None:
    first = saved(tmp_path / "model-1.pt")
    saved(tmp_path / "model-2.pt", cut=10)
    saved(tmp_path / "model-3.pt.tmp")
    (tmp_path / "model-4.pt").touch()
    assert newest(tmp_path, "model-*") == newest(tmp_path, "last") == first
    whole = tmp_path / "m1.safetensors"
    save_file({"w": torch.zeros(5)}, whole)
    (tmp_path / "m2.safetensors").write_bytes(whole.read_bytes()[:-1])
    (tmp_path / "m3.safetensors").write_bytes(b"\xff" * 9)
    (tmp_path / "m4.safetensors").write_bytes(b"\x02" + b"\0" * 7 + b"[]")
    assert newest(tmp_path, "*.safetensors") == whole


@pytest.mark.parametrize("which", ["last", "epoch_*"])
def test_the_newest_folder_has_the_files_of_the_one_before_it(tmp_path: Path, which: str) -> None:
    """As Accelerate saves: each file is whole, but the program was ended before the next one."""
    before: Path | None = None
    for epoch in (1, 2, 10):
        for name in ("model.pt", f"sampler_{epoch}.pt", "random_states_0.pt", "random_states_1.pt"):
            assert epoch == 1 or newest(tmp_path, which) == before
            saved(tmp_path / f"epoch_{epoch}" / name)
        before = newest(tmp_path, which)
        assert before == tmp_path / f"epoch_{epoch}"


def test_what_is_unfinished_is_what_the_search_takes_for_it() -> None:
    assert UNFINISHED.pattern == files.UNFINISHED.pattern
    assert UNFINISHED.flags == files.UNFINISHED.flags


@pytest.mark.parametrize("pattern", ["", " ", "/x", "../x", "a/../b", ".", "a**", "\0"])
def test_a_pattern_stays_in_the_folder(pattern: str) -> None:
    assert problem_of_pattern(pattern) is not None


@pytest.mark.parametrize("pattern", ["last", "*", "**/*.ckpt", "checkpoint-*", "[", "a b.pt"])
def test_patterns(tmp_path: Path, pattern: str) -> None:
    assert problem_of_pattern(pattern) is None
    newest(tmp_path, pattern)


WORDS = [
    *("train", "--out=${checkpoint}", "--resume", "${checkpoint:last}", "--from=${checkpoint:*.pt}"),
    *("ckpt=${checkpoint:last}", "--end"),
]


def test_words_that_name_a_checkpoint_are_left_out_while_there_is_none(tmp_path: Path) -> None:
    own = {"checkpoint": str(tmp_path), "run": str(tmp_path)}
    assert expand(WORDS, {}, own) == ["train", f"--out={tmp_path}", "--end"]
    path = saved(tmp_path / "model.pt")
    resumed = ["--resume", str(path), f"--from={path}", f"ckpt={path}"]
    assert expand(WORDS, {}, own) == ["train", f"--out={tmp_path}", *resumed, "--end"]


def test_a_shells_string_too(tmp_path: Path) -> None:
    own = {"checkpoint": str(tmp_path), "run": str(tmp_path)}
    command = ["bash", "-c", "cd x && t --resume ${checkpoint:last} --a; t --from=${checkpoint:last}"]
    assert expand(command, {}, own)[2] == "cd x && t --a; t"
    path = saved(tmp_path / "model.pt")
    assert expand(command, {}, own)[2] == f"cd x && t --resume {path} --a; t --from={path}"
    with pytest.raises(ObjectiveError, match="only a word can be left out"):
        expand(["bash", "-c", "cat <<E\n${checkpoint:*.none}\nE"], {}, own)


def test_a_configuration_file_has_null_while_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"lr": 1, "resume": "x"}')
    own = {"checkpoint": str(tmp_path / "checkpoint"), "run": str(tmp_path)}
    word = f"${{config:{tmp_path}/c.json resume=$checkpoint:last}}"
    [written] = expand([word], {"lr": 2}, own)
    assert json.loads(Path(written).read_text()) == {"lr": 2, "resume": None}
    path = saved(tmp_path / "checkpoint" / "model.pt")
    [written] = expand([word], {"lr": 2}, own)
    assert json.loads(Path(written).read_text()) == {"lr": 2, "resume": str(path)}
    with pytest.raises(ObjectiveError, match=r'has "\$checkpoint:\.\./x"'):
        expand([word.replace(":last", ":../x")], {"lr": 2}, own)
