"""A run small enough for a unit test: some tens of thousands of parameters, tenths of a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hpsearch.trainer.config.models import LoraConfig, PretrainConfig
from hpsearch.trainer.config.shape import Shape
from hpsearch.trainer.model.base_file import save_model
from hpsearch.trainer.model.gpt import GPT
from hpsearch.trainer.seeds import seed_of

TEXT = "".join(
    f"{number} and {number * 7 % 101} make {number + number * 7 % 101}.\n" for number in range(400)
)


@pytest.fixture(autouse=True)
def alone(one_thread: None) -> None:
    """Every test here computes with one thread."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of tokens that starts empty, where nothing of the user's is."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("HPSEARCH_CACHE", str(folder))
    return folder


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def base_file(tmp_path: Path) -> Path:
    """A base of random weights: 8 wide, 1 deep, for 16 tokens."""
    model = GPT(Shape(width=8, depth=1, heads=2, max_length=16))
    model.initialize(torch.Generator().manual_seed(seed_of("test", 0)))
    save_model(tmp_path / "base.safetensors", model.state_dict(), model.shape)
    return tmp_path / "base.safetensors"


@pytest.fixture
def tiny(text_file: Path, base_file: Path) -> dict[str, Any]:
    """Parameters that both objectives take, of a run of 12 steps of 4 samples and 6 reports."""
    return {
        "train_file": str(text_file),
        "max_samples": 48,
        "eval_every": 8,
        "eval_samples": 4,
        "batch_size": 4,
        "max_length": 16,
        "learning_rate": 3e-3,
        "device": "cpu",
    }


@pytest.fixture
def tiny_lora(tiny: dict[str, Any], base_file: Path) -> LoraConfig:
    return LoraConfig.from_params(tiny | {"base": str(base_file), "lora_r": 2, "lora_dropout": 0.1})


@pytest.fixture
def tiny_pretrain(tiny: dict[str, Any]) -> PretrainConfig:
    return PretrainConfig.from_params(tiny | {"width": 8, "depth": 1, "heads": 2, "dropout": 0.1})
