"""What `execution.pack: auto` measures."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
import torch

from hpsearch.trainer.config.models import LoraConfig
from hpsearch.trainer.tools import measure as measuring
from hpsearch.trainer.tools.measure import measure


def test_each_size_is_measured(tiny_lora: LoraConfig) -> None:
    found = measure([dataclasses.replace(tiny_lora, seed=seed) for seed in range(4)], [1, 2, 4])
    assert set(found["seconds"]) == set(found["memory_mb"]) == {"1", "2", "4"}
    assert all(seconds > 0 for seconds in found["seconds"].values())


def test_the_memory_of_a_size_excludes_larger_ones(
    tiny_lora: LoraConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "host_peak", itertools.count(1).__next__)  # it never falls
    configs = [dataclasses.replace(tiny_lora, seed=seed) for seed in range(4)]
    assert measure(configs, [4, 1, 2])["memory_mb"] == {"1": 1, "2": 2, "4": 3}


def test_runs_that_train_alone_are_left_out(tiny_lora: LoraConfig) -> None:
    found = measure([dataclasses.replace(tiny_lora, finetuning_type="full", lora_dropout=0.0)], [1, 2])
    assert found["seconds"] == {"1": 0, "2": 0}


def test_sizes_that_a_gpu_has_no_room_for_are_left_out(
    tiny_lora: LoraConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = measuring._seconds

    def limited(runs: Any) -> float:
        if len(runs) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return seconds(runs)

    monkeypatch.setattr(measuring, "_seconds", limited)
    found = measure([dataclasses.replace(tiny_lora, seed=seed) for seed in range(8)], [1, 2, 4, 8])
    assert set(found["seconds"]) == {"1", "2"}
