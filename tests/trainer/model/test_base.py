"""The base that ships is the one that `base.json` tells of."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import pytest
import torch

from hpsearch.trainer.config.models import LoraConfig, PretrainConfig
from hpsearch.trainer.data.corpus import inputs_and_targets, load_corpus, validation_windows
from hpsearch.trainer.header import SHIPPED_BASE
from hpsearch.trainer.model.base_file import load_base
from hpsearch.trainer.model.gpt import loss_sum
from hpsearch.trainer.output.export import load_model
from hpsearch.trainer.runs.run import GptRun
from hpsearch.trainer.tools.pretrain_base import RECIPE, main

ABOUT: dict[str, Any] = json.loads(SHIPPED_BASE.with_suffix(".json").read_text())


def test_it_is_the_file_that_was_written() -> None:
    content = SHIPPED_BASE.read_bytes()
    assert hashlib.sha256(content).hexdigest() == ABOUT["sha256"]
    assert len(content) <= 4_000_000
    assert load_base().sha256 == ABOUT["sha256"]


def test_its_recipe_is_the_one_in_the_module() -> None:
    config = PretrainConfig.from_params(ABOUT["config"])
    assert config == RECIPE
    shape = load_base().shape
    assert (shape.width, shape.depth, shape.heads) == (config.width, config.depth, config.heads)
    assert shape.max_length == config.max_length


def test_the_shipped_base_has_its_documented_loss() -> None:
    corpus = load_corpus(ABOUT["corpus"], validation_split=RECIPE.validation_split)
    if corpus.sha256 != ABOUT["corpus_sha256"]:
        pytest.skip(f"Python {platform.python_version()} has another text than {ABOUT['python']}'s")
    held = validation_windows(corpus.validation, RECIPE.eval_samples, RECIPE.max_length)
    total = loss_sum(load_model(SHIPPED_BASE), *inputs_and_targets(held))
    assert total.item() / held[:, 1:].numel() == pytest.approx(ABOUT["val_loss"], abs=1e-4)


def test_it_reads_english_better_than_chance_and_can_learn() -> None:
    config = LoraConfig(max_steps=1, train_file="english", device="cpu", eval_samples=4)
    run = GptRun(config)
    assert 1.0 < run.evaluate()[0] < 2.2


@pytest.mark.slow
def test_the_command_writes_a_base_and_its_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    main(["--corpus", "english", "--samples", "64", "--out", str(tmp_path / "b.safetensors")])
    torch.set_num_threads(threads)
    about = json.loads((tmp_path / "b.json").read_text())
    assert about["sha256"] == load_base(tmp_path / "b.safetensors").sha256
    assert about["command"].endswith("--corpus english --samples 64")
    assert "validation" in capsys.readouterr().out
