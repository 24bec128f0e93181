"""What a run holds, counted from its configuration: as much as it does hold, and more where more is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hpsearch.trainer.config.models import LoraConfig, PretrainConfig, TrainConfig
from hpsearch.trainer.config.shape import VOCABULARY
from hpsearch.trainer.config.training import OPTIMIZERS
from hpsearch.trainer.guides.footprint import COUNTED_PARAMETERS, FP32_BYTES, footprint, peak_bytes
from hpsearch.trainer.header import SHIPPED_BASE
from hpsearch.trainer.runs.run import GptRun
from hpsearch.trainer.tools.peak import STEPS, shortened

STATES = ("adamw", "sgd", "lion", "muon")  # those of adafactor are as small as rows and columns
KINDS: dict[str, dict[str, Any]] = {
    "lora": {"lora_r": 12},
    "lora, some": {"lora_r": 2, "target_modules": ["qkv", "down"]},
    "lora, dropout": {"lora_r": 8, "lora_dropout": 0.1},
    "lora, dora": {"lora_r": 8, "use_dora": True, "batch_size": 2},
    "full": {"finetuning_type": "full"},
    "pretrain": {"width": 64, "depth": 3},
    "pretrain, dropout": {"width": 64, "depth": 3, "dropout": 0.1, "batch_size": 8},
}


def config_of(kind: str, **more: Any) -> TrainConfig:
    known = PretrainConfig if kind.startswith("pretrain") else LoraConfig
    plain = {"batch_size": 4, "max_length": 64, "max_steps": 4, "train_file": "english", "device": "cpu"}
    return known.from_params({**plain, **KINDS[kind], **more})


def bytes_of(tensors: dict[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


@contextmanager
def counting(found: dict[int, int], known: set[int]) -> Iterator[None]:
    """Note the storages that are kept for a gradient, but for the known ones."""

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield


@pytest.mark.parametrize("optimizer", STATES)
@pytest.mark.parametrize("kind", ["lora", "lora, dora", "full", "pretrain"])
def test_the_counted_memory_is_what_a_run_keeps(kind: str, optimizer: str) -> None:
    config = config_of(kind, optimizer=optimizer)
    run = GptRun(config)
    mine = bytes_of(run.trained) + bytes_of(run.optimizer.tensors())
    if kind.startswith("lora"):  # the base, and the adapters as they are computed with
        mine += bytes_of(run.pack.model.state_dict()) + sum(leaf.nbytes for leaf in run.pack._leaves())
    if kind == "full":  # the base that it was copied from
        mine += bytes_of(run.pack.model.state_dict())
    assert footprint(config).kept == pytest.approx(mine, rel=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_the_counted_activations_are_those_of_autograd(kind: str) -> None:
    config = config_of(kind)
    run = GptRun(config)
    weights = [*run.pack.model.parameters(), *run.pack._leaves()]
    found: dict[int, int] = {}
    with counting(found, {tensor.untyped_storage().data_ptr() for tensor in weights}):
        run.train()
    rest = 3 * FP32_BYTES * VOCABULARY * config.rows_per_pass * config.max_length  # made after what is kept
    assert footprint(config).forward - rest == pytest.approx(sum(found.values()), rel=0.12)


@given(st.sampled_from(sorted(KINDS)), st.sampled_from(OPTIMIZERS), st.integers(1, 64), st.data())
def test_the_footprint_grows_with_every_parameter(
    kind: str, optimizer: str, batch: int, data: st.DataObject
) -> None:
    config = config_of(kind, optimizer=optimizer, batch_size=batch)
    more: dict[str, Any] = {"load_best_model_at_end": True, "max_length": config.max_length * 2}
    if isinstance(config, PretrainConfig):
        more |= {"width": config.width * 2, "depth": config.depth + 1, "dropout": 0.2}
    elif isinstance(config, LoraConfig) and config.finetuning_type == "lora":
        more = {"load_best_model_at_end": True, "lora_r": config.lora_r + data.draw(st.integers(0, 200))}
        more |= {"use_dora": True, "lora_dropout": 0.2, "target_modules": "all-linear"}
    if not isinstance(config, LoraConfig) or config.finetuning_type == "full":
        more["batch_size"] = batch + data.draw(st.integers(0, 64))
    name = data.draw(st.sampled_from(sorted(more)))
    assert footprint(replace(config, **{name: more[name]})).peak >= footprint(config).peak


@given(st.integers(1, 512), st.integers(1, 64))
def test_a_pass_of_adapters_holds_no_more_than_its_tokens(batch: int, accumulated: int) -> None:
    config = config_of("lora", batch_size=batch, gradient_accumulation_steps=accumulated)
    whole = footprint(config_of("lora", batch_size=8))  # 8 * 64 are all tokens of a pass
    assert footprint(config).forward <= whole.forward


def test_checkpointing_and_halves_hold_less_of_a_pass() -> None:
    config = config_of("pretrain", depth=6, batch_size=32)
    plain = footprint(config).forward
    assert footprint(replace(config, gradient_checkpointing=True)).forward < 0.7 * plain
    assert footprint(replace(config, precision="bf16")).forward < plain
    there = replace(config, device="cuda")
    assert footprint(there) == footprint(replace(there, precision="bf16"))
    assert footprint(replace(config, device="auto"), cuda=True) == footprint(there)
    assert footprint(replace(there, precision="fp32")).forward == plain


def test_a_gpu_takes_more_of_a_step_in_a_pass() -> None:
    config = config_of("lora", batch_size=64, eval_samples=64, precision="fp32")
    here, there = footprint(config), footprint(replace(config, device="cuda"))
    assert there.forward > 4 * here.forward and there.validate > 2 * here.validate
    assert footprint(config, cuda=True) == here, "it was asked for a CPU"


@pytest.mark.parametrize("kind", [*KINDS, "linear"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_nothing_else_is_looked_at(kind: str, optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"finetuning_type": "linear"} if kind == "linear" else {}
    config = config_of("full" if kind == "linear" else kind, optimizer=optimizer, **more)
    seen: set[str] = set()
    footprint(config)  # whose base is looked at once, by the rules of a configuration

    def look(self: TrainConfig, name: str) -> Any:
        seen.add(name)
        return object.__getattribute__(self, name)

    monkeypatch.setattr(TrainConfig, "__getattribute__", look, raising=False)
    footprint(config)
    monkeypatch.undo()
    assert seen & {entry.name for entry in fields(config)} <= COUNTED_PARAMETERS


def test_the_size_of_a_base_is_read_from_its_file(base_file: Path) -> None:
    small = {"base": str(base_file), "max_length": 16, "learning_rate": 5.0, "no such": 1}
    assert peak_bytes(LoraConfig, small) < peak_bytes(LoraConfig, {"max_length": 16})
    assert peak_bytes(LoraConfig, {"base": str(SHIPPED_BASE)}) == peak_bytes(LoraConfig, {})
    with pytest.raises(OSError):
        peak_bytes(LoraConfig, {"base": str(base_file) + "x"})


def test_a_shortened_run_needs_the_same_memory(tiny_lora: LoraConfig) -> None:
    config = replace(tiny_lora, max_samples=None, num_train_epochs=7, lr_scheduler="cosine", eval_samples=100)
    config = replace(config, early_stopping_patience=2, warmup_steps=1000)
    short = shortened(config)
    assert (short.total_steps, short.eval_interval) == (STEPS, 1)
    assert footprint(short).kept == footprint(config).kept
    assert footprint(short).forward == footprint(config).forward
