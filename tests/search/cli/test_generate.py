"""`hpsearch generate`: whose model it finds, and what each option does."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpsearch.search import run
from hpsearch.search.cli import generate as module
from hpsearch.search.cli import main
from hpsearch.search.training.run import train
from hpsearch.search.trials.document import load_document
from hpsearch.storage.files import CHECKPOINT, drop_checkpoint, trial_folder

SPACE = """\
version: 1
name: small
objective: pretrain
metric: val_loss
parameters:
  learning_rate: [1e-1, 1e-2]
  width: 8
  depth: 1
  heads: 2
  max_length: 16
  batch_size: 4
  max_steps: 8
  eval_every: 2
  save_total_limit: 3
  eval_samples: 4
  device: cpu
  train_file: "{text}"
search: {{sampler: grid}}
budget: {{trials: 2}}
execution: {{workers: 1}}
"""
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study of two trials, and trainings of both kinds; to be read."""
    folder = tmp_path_factory.mktemp("generate")
    text = folder / "text.txt"
    text.write_text("".join(f"{n} and {n * 7} é\n" for n in range(300)), encoding="utf-8")
    (folder / "small.yaml").write_text(SPACE.format(text=text), encoding="utf-8")
    run(folder / "small.yaml", storage=str(folder / "hpsearch.db"))
    size = {"max_length": 16, "batch_size": 4, "eval_samples": 4, "max_steps": 8, "device": "cpu"}
    size |= {"eval_every": 2, "save_total_limit": 3, "load_best_model_at_end": True, "learning_rate": 0.03}
    for name, more in (("lora", {"lora_r": 2}), ("pretrain", {"width": 8, "depth": 1, "heads": 2})):
        content = {"objective": name, "parameters": {**size, **more, "train_file": str(text)}}
        (folder / f"{name}.yaml").write_text(json.dumps(content), encoding="utf-8")
        train(load_document(folder / f"{name}.yaml"), folder / "trained" / name)
    return folder


@pytest.fixture
def cli(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run `hpsearch generate` there: its exit code, its output, and its errors."""
    monkeypatch.chdir(here)

    def run(*words: str, input: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hpsearch", "generate", *words])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(input)))
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


@pytest.fixture
def text(cli: Cli) -> Callable[..., str]:
    def written(*words: str, prompt: str = "12 and ", input: bytes = b"", most: str | None = "40") -> str:
        if most is not None:
            words = ("--max-tokens", most, *words)  # the last one counts
        code, out, error = cli(*words, "--prompt", prompt, input=input)
        assert code == 0, error
        return out

    return written


Text = Callable[..., str]


def test_each_kind_of_run_has_its_own_model(text: Text, here: Path) -> None:
    found = {
        run: text(*run.split())
        for run in ("trained/lora", "trained/pretrain", "small --trial 0", "small --trial 1")
    }
    assert len(set(found.values())) == 4
    assert all(out.startswith("12 and ") for out in found.values())
    assert text("trained/pretrain/model.safetensors") == found["trained/pretrain"]
    assert text("trained/lora/adapter.safetensors") == found["trained/lora"]
    assert text("trained/lora/checkpoint/checkpoint.safetensors") == found["trained/lora"]


def test_a_study_is_its_best_trial(text: Text, here: Path) -> None:
    best = run_best(here)
    assert text("small") == text("small", "--trial", str(best)) != text("small", "--trial", str(1 - best))


def run_best(here: Path) -> int:
    from hpsearch.search import open_study

    return open_study("small", storage=str(here / "hpsearch.db")).best.number


def test_the_database_and_the_files_are_found_where_they_are_said_to_be(
    cli: Cli, text: Text, here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wanted = text("small")
    monkeypatch.chdir(tmp_path)
    words = ("--prompt", "12 and ", "--max-tokens", "40", "--storage", str(here / "hpsearch.db"))
    code, out, _ = cli("small", *words)
    assert (code, out) == (0, wanted)
    code, _, error = cli(
        "small", "--prompt", "x", "--storage", str(here / "hpsearch.db"), "--runs", str(tmp_path)
    )
    assert code == 2 and "has no checkpoint here" in error


@pytest.mark.parametrize(
    ("run", "places"),
    [("trained/lora", "4 6 8 best"), ("trained/pretrain", "4 6 8 best"), ("small --trial 0", "4 6 8")],
)
def test_a_run_can_be_seen_as_it_was(text: Text, cli: Cli, run: str, places: str) -> None:
    short = [*run.split(), "--max-tokens", "60"]
    found = [text(*short, "--checkpoint", place) for place in places.split()]
    assert len(set(found[:3])) == 3 and text(*short) in (found[2], found[-1])
    code, _, error = cli(*run.split(), "--prompt", "x", "--checkpoint", "2")
    told = f"there is no checkpoint '2'; there are: {places.replace(' ', ', ')} (save_total_limit keeps more)"
    assert code == 2 and told in error


def test_a_training_can_be_seen_before_it_is_finished(cli: Cli, here: Path, tmp_path: Path) -> None:
    shutil.copytree(here / "trained" / "lora", tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    code, _, error = cli(str(tmp_path / "run"), "--prompt", "x")
    assert code == 2 and "or use its model at a checkpoint (--checkpoint PLACE)" in error
    assert cli(str(tmp_path / "run"), "--prompt", "x", "--checkpoint", "4")[0] == 0


def test_what_each_option_does(text: Text) -> None:
    run = "trained/lora"
    plain = text(run, "--max-tokens", "60")
    assert text(run, "--max-tokens", "60") == plain == text(run, "--max-tokens", "60", "--seed", "0")
    assert text(run, "--max-tokens", "60", "--device", "cpu") == plain
    assert text(run, "--max-tokens", "60", "--seed", "1") != plain
    greedy = text(run, "--max-tokens", "60", "--temperature", "0")
    assert greedy != plain
    assert text(run, "--max-tokens", "60", "--top-k", "1") == greedy
    assert text(run, "--max-tokens", "60", "--top-p", "1e-9") == greedy
    assert text(run, "--max-tokens", "60", "--top-k", "256", "--top-p", "1") == plain
    shorter = text(run, "--max-tokens", "9", "--temperature", "0")
    assert len(shorter.removesuffix("\n").encode()) == len("12 and ") + 9
    assert greedy.startswith(shorter.removesuffix("\n"))
    assert len(text(run, "--temperature", "0", most=None).removesuffix("\n")) == len("12 and ") + 200


def test_the_prompt_comes_from_standard_input(text: Text) -> None:
    assert text("trained/lora", prompt="-", input="ünd 3".encode()) == text("trained/lora", prompt="ünd 3")
    assert text("trained/lora", prompt="-", input=b"a\xff").startswith("a\ufffd")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere", "--prompt", "x"], "nowhere: no such file or folder, and not a study"),
        (["smal", "--prompt", "x"], 'did you mean "small"?'),
        (["trained", "--prompt", "x"], "trained: not a run of hpsearch train, and not a study"),
        (["small", "--trial", "7", "--prompt", "x"], "the study has no trial 7"),
        (["trained/lora", "--prompt", ""], "the prompt is empty"),
        (["trained/lora", "--prompt", "x", "--device", "mps"], "torch sees no such device here"),
        (["trained/lora", "--prompt", "x", "--device", "tpu"], "--device"),
        (["trained/lora", "--prompt", "x", "--top-p", "0"], "top_p 0 leaves nothing"),
        (["trained/lora", "--prompt", "x", "--temperature", "nan"], "--temperature"),
        (["trained/lora", "--prompt", "x", "--top-p", "nan"], "--top-p"),
        (["text.txt", "--prompt", "x"], "text.txt: cannot be read"),
        (["trained/lora"], "--prompt"),
        (
            ["trained/lora/adapter.safetensors", "--prompt", "x", "--checkpoint", "4"],
            "this is one model",
        ),
        (["trained/lora", "--prompt", "x", "--top-k", "0"], "--top-k"),
        (["trained/lora", "--prompt", "x", "--temperature", "-1"], "--temperature"),
        (["trained/lora", "--prompt", "x", "--max-tokens", "0"], "--max-tokens"),
    ],
)
def test_what_cannot_be_is_one_message(cli: Cli, words: list[str], told: str) -> None:
    code, out, error = cli(*words)
    assert (code, out) == (1 if "--trial" in words else 2, "")
    assert told in error and "Traceback" not in error


def test_a_training_that_is_not_finished_or_not_ours(cli: Cli, here: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text((here / "lora.yaml").read_text())
    code, _, error = cli(str(tmp_path), "--prompt", "x")
    assert code == 2 and f"not finished; continue it with {config}" in error
    config.write_text('{"objective": "mine.py:train", "parameters": {"x": 1}}')
    code, _, error = cli(str(tmp_path), "--prompt", "x")
    assert code == 2 and "trained by mine.py:train; only models of hpsearch" in error


def test_a_trial_without_its_checkpoint_says_how_to_have_it(cli: Cli, here: Path) -> None:
    other = 1 - run_best(here)
    folder = trial_folder(here / "runs", "small", other)
    kept = folder.with_name("kept")
    (folder / CHECKPOINT).rename(kept)
    try:
        drop_checkpoint(folder)
        code, _, error = cli("small", "--trial", str(other), "--prompt", "x")
    finally:
        kept.rename(folder / CHECKPOINT)
    assert code == 2 and f"hpsearch export small --trial {other} -o best.yaml" in error


def test_characters_come_whole_and_a_terminal_obeys_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written: list[str] = []
    monkeypatch.setattr(sys.stdout, "write", written.append)
    module._print(b"a\xc3", iter([0xA9, 0xE2, 0x82, 0xAC, 0x1B, 0x0A]))
    assert written == ["a", "é", "€", "\x1b", "\n"]
    written.clear()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    module._print(b"a\t", iter([0x1B, 0xE2]))
    assert "".join(written) == "a\t\u241b\ufffd\n"


@pytest.mark.slow
def test_text_is_there_before_its_end_is(here: Path) -> None:
    words = [sys.executable, "-c", "from hpsearch.search.cli import main; main()"]
    words += ["generate", "trained/lora", "--prompt", "x", "--max-tokens", "1000000", "--temperature", "0"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, cwd=here, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert len(process.stdout.read(20)) == 20
        process.kill()
