"""No parameter is ignored: a run with another value of it differs in what the parameter is about, and only there.

Each row of the tables says which other values it goes with, one of its own, and what that changes. A parameter
that the trainer passed over, or took its default for, would change nothing. What `needs` says is idle is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from hpsearch.trainer.config.models import LoraConfig, PretrainConfig, TrainConfig
from hpsearch.trainer.config.rules import rules
from hpsearch.trainer.config.shape import Shape
from hpsearch.trainer.errors import ConfigError
from hpsearch.trainer.model.base_file import save_model
from hpsearch.trainer.model.gpt import GPT, Block
from hpsearch.trainer.runs.run import fit

from ..conftest import TEXT

LEARNT = frozenset({"train loss", "loss", "value", "weights"})
RATED = LEARNT | {"rates"}
LONGER = RATED | {"places"}
STEPS = {"max_samples": None, "max_steps": 6, "eval_every": 2}
EPOCHS = {"max_samples": None, "num_train_epochs": 2, "samples_per_epoch": 16, "eval_every": 1}
FLAT = {"lr_scheduler": "reduce_on_plateau", "lr_plateau_patience": 0, "lr_plateau_min_delta": 100.0}
RISING = {"lr_scheduler": "one_cycle", "lr_rise_ratio": 0.9, "lr_start_divisor": 1000.0}
WORSE = RISING | {"learning_rate": 3.0}  # with every validation
NO_GAIN = {"early_stopping_min_delta": 100.0}  # but for the first validation
CLASSES: tuple[type[TrainConfig], ...] = (LoraConfig, PretrainConfig)


@dataclass(frozen=True)
class Row:
    """`value` of a parameter where others are `beside` it, and what it `changes`."""

    value: Any
    changes: Set[str] = LEARNT
    beside: dict[str, Any] | None = None


ALL: dict[str, Row | None] = {
    "learning_rate": Row(1e-3, RATED),
    "batch_size": Row(8, RATED),
    "gradient_accumulation_steps": Row(2, RATED),
    "max_samples": Row(32, LONGER),
    "max_steps": Row(8, LONGER, STEPS),
    "num_train_epochs": Row(3, LONGER, EPOCHS),
    "samples_per_epoch": Row(24, RATED, EPOCHS),
    "eval_every": Row(16, {"places", "rates", "train loss", "loss"}),
    "eval_samples": Row(8, {"loss", "value"}),
    "warmup_ratio": Row(0.5, RATED),
    "warmup_steps": Row(6, RATED),
    "lr_scheduler": Row("cosine", RATED),
    "min_lr_ratio": Row(0.5, RATED),
    "lr_cycles": Row(3, RATED, {"lr_scheduler": "cosine_with_restarts"}),
    "lr_power": Row(3.0, RATED, {"lr_scheduler": "polynomial"}),
    "lr_step_every": Row(0.5, RATED, {"lr_scheduler": "step"}),
    "lr_gamma": Row(0.5, RATED, {"lr_scheduler": "step"}),
    "lr_timescale": Row(0.5, RATED, {"lr_scheduler": "inverse_sqrt"}),
    "lr_decay_ratio": Row(0.5, RATED, {"lr_scheduler": "warmup_stable_decay"}),
    "lr_decay_type": Row("linear", RATED, {"lr_scheduler": "warmup_stable_decay", "lr_decay_ratio": 0.5}),
    "lr_rise_ratio": Row(0.5, RATED, {"lr_scheduler": "one_cycle"}),
    "lr_start_divisor": Row(5.0, RATED, {"lr_scheduler": "one_cycle"}),
    "lr_plateau_patience": Row(1, RATED, FLAT),
    "lr_plateau_factor": Row(0.1, RATED, FLAT),
    "lr_plateau_min_delta": Row(0.0, RATED, FLAT),
    "weight_decay": Row(0.5),
    "adam_beta1": Row(0.5),
    "adam_beta2": Row(0.9),
    "adam_epsilon": Row(1e-2),
    "max_grad_norm": Row(1e-3, LEARNT, {"optimizer": "sgd", "learning_rate": 1.0}),
    "max_length": Row(8),
    "early_stopping_patience": Row(2, LONGER | {"end"}, NO_GAIN),
    "early_stopping_min_delta": Row(100.0, LONGER | {"end"}, {"early_stopping_patience": 2}),
    "load_best_model_at_end": Row(True, {"value", "weights"}, WORSE),
    "save_total_limit": Row(4, {"files"}),
    "train_file": Row("letters.txt"),
    "validation_file": Row("letters.txt"),
    "validation_split": Row(0.3),
    "text_field": Row("letters", LEARNT, {"train_file": "both.jsonl"}),
    "device": None,  # by itself, below
    "seed": Row(1),
    "optimizer": Row("lion"),
    "momentum": Row(0.5, LEARNT, {"optimizer": "sgd", "learning_rate": 1.0}),
    "nesterov": Row(True, LEARNT, {"optimizer": "sgd", "learning_rate": 1.0}),
    "lion_beta1": Row(0.5, LEARNT, {"optimizer": "lion"}),
    "lion_beta2": Row(0.5, LEARNT, {"optimizer": "lion"}),
    "label_smoothing_factor": Row(0.2),
    "precision": Row("bf16"),
    "gradient_checkpointing": Row(True, {"blocks"}),
    "torch_compile": None,  # takes a compiler's time: test_compiled.py
    "deterministic": Row(True, {"deterministic"}),
}
OF_ONE: dict[type[TrainConfig], dict[str, Row | None]] = {
    LoraConfig: {
        "lora_r": Row(4),
        "lora_alpha": Row(8.0),
        "alpha_over_r": Row(4.0),
        "lora_dropout": Row(0.3),
        "target_modules": Row(["qkv"]),
        "use_rslora": Row(True),
        "loraplus_lr_ratio": Row(4.0),
        "use_dora": Row(True),
        "base": Row("other.safetensors"),
        "finetuning_type": Row("full"),
    },
    PretrainConfig: {
        "width": Row(16),
        "depth": Row(2, LEARNT | {"blocks"}),
        "heads": Row(1),
        "dropout": Row(0.3),
    },
}
# What a parameter is idle beside; with nothing more than the tiny run where it is not named.
IDLE: dict[str, dict[str, Any]] = {
    "min_lr_ratio": {"lr_scheduler": "constant"},
    "validation_split": {"validation_file": "letters.txt"},
    **{name: {"optimizer": "lion"} for name in ("adam_beta1", "adam_beta2", "adam_epsilon")},
    **{name: {"finetuning_type": "full"} for name in OF_ONE[LoraConfig]},
}
MUON = {"optimizer": "muon"}
OF_MUON: list[tuple[type[TrainConfig], str, dict[str, Any], bool]] = [  # and whether it is idle
    (LoraConfig, "adam_beta1", MUON, True),
    (LoraConfig, "adam_beta1", MUON | {"use_dora": True}, False),
    (LoraConfig, "adam_beta1", MUON | {"finetuning_type": "full"}, False),
    (LoraConfig, "adam_beta1", MUON | {"finetuning_type": "linear"}, False),
    (PretrainConfig, "adam_beta1", MUON, False),
    (LoraConfig, "momentum", MUON, False),
    (LoraConfig, "momentum", MUON | {"finetuning_type": "full"}, False),
    (LoraConfig, "momentum", MUON | {"finetuning_type": "linear"}, True),
    (PretrainConfig, "momentum", MUON, False),
    (PretrainConfig, "nesterov", MUON, True),
]
FILES = ("train_file", "validation_file", "base")
_seen: dict[str, dict[str, Any]] = {}


def rows_of(config: type[TrainConfig]) -> dict[str, Row | None]:
    return ALL | OF_ONE[config]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two texts, one file with both as fields, and two bases."""
    made = tmp_path_factory.mktemp("options")
    letters = "".join(chr(97 + number * number % 26) + " " * (number % 3 == 0) for number in range(8000))
    (made / "numbers.txt").write_text(TEXT, encoding="utf-8")
    (made / "letters.txt").write_text(letters, encoding="utf-8")
    records = [{"text": TEXT[at : at + 100], "letters": letters[at : at + 100]} for at in range(0, 8000, 100)]
    (made / "both.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")
    for seed, name in enumerate(("base", "other")):
        model = GPT(Shape(width=8, depth=1, heads=2, max_length=16))
        model.initialize(torch.Generator().manual_seed(seed))
        save_model(made / f"{name}.safetensors", model.state_dict(), model.shape)
    return made


def differences(
    folder: Path, config: type[TrainConfig], beside: dict[str, Any] | None, name: str, value: Any
) -> set[str]:
    """What a value changes in a run of 12 steps and 6 reports."""
    tiny = {"train_file": "numbers.txt", "max_samples": 48, "eval_every": 8, "eval_samples": 4}
    tiny |= {"batch_size": 4, "max_length": 16, "learning_rate": 3e-3, "device": "cpu"}
    of_one: dict[type[TrainConfig], dict[str, Any]] = {
        LoraConfig: {"base": "base.safetensors", "lora_r": 2, "lora_dropout": 0.1},
        PretrainConfig: {"width": 8, "depth": 1, "heads": 2, "dropout": 0.1},
    }
    params = tiny | of_one[config] | (beside or {})
    assert value != params.get(name), "the same value shows nothing"
    without, with_it = seen(folder, config, params), seen(folder, config, params | {name: value})
    return {aspect for aspect, found in without.items() if with_it[aspect] != found}


def seen(folder: Path, config: type[TrainConfig], params: dict[str, Any]) -> dict[str, Any]:
    """What can be seen of a run, each of which is the same whenever the run is made again."""
    key = json.dumps([config.objective, params], sort_keys=True)
    if key not in _seen:
        paths = {name: str(folder / params[name]) for name in FILES if name in params}
        _seen[key] = _looked_at(config.from_params(params | paths), folder / f"run-{len(_seen)}")
    return _seen[key]


def _looked_at(config: TrainConfig, folder: Path) -> dict[str, Any]:
    with watched() as calls:
        result = fit(config, on_report=lambda report: None, checkpoint=folder)
    reports = result.reports
    assert all(math.isfinite(report.value) for report in reports), "what is no number differs from itself"
    return {
        "places": [report.step for report in reports],
        "rates": [report.metrics["learning_rate"] for report in reports],
        "train loss": [report.metrics["train_loss"] for report in reports],
        "loss": [report.value for report in reports],
        "value": result.value,
        "weights": {name: tensor.tolist() for name, tensor in result.weights.items()},
        "end": result.stopped,
        "files": sorted(path.name.replace("checkpoint", "") for path in folder.iterdir()),
        "blocks": calls["Block"] / calls["GPT"],  # that are computed for a pass
        "deterministic": calls["deterministic"] > 0,
    }


@contextmanager
def watched() -> Iterator[dict[str, int]]:
    """Count how often models and blocks compute, and how often by deterministic algorithms alone."""
    calls = {"GPT": 0, "Block": 0, "deterministic": 0}

    def count(module: nn.Module, inputs: Any) -> None:
        if isinstance(module, GPT | Block):
            calls[type(module).__name__] += 1
            calls["deterministic"] += torch.are_deterministic_algorithms_enabled()

    hook = register_module_forward_pre_hook(count)
    try:
        yield calls
    finally:
        hook.remove()


@pytest.mark.parametrize("config", CLASSES)
def test_the_tables_name_every_parameter(config: type[TrainConfig]) -> None:
    assert rows_of(config).keys() == rules(config).keys()


@pytest.mark.parametrize("config", CLASSES)
def test_a_parameter_changes_what_it_is_about(
    subtests: pytest.Subtests, folder: Path, config: type[TrainConfig]
) -> None:
    for name, row in rows_of(config).items():
        if row is not None:
            with subtests.test(name):
                assert differences(folder, config, row.beside, name, row.value) == row.changes


@pytest.mark.parametrize("config", CLASSES)
def test_idle_parameters_have_no_effect(
    subtests: pytest.Subtests, folder: Path, config: type[TrainConfig]
) -> None:
    for name in config.needs:
        with subtests.test(name):
            row = rows_of(config)[name]
            assert row is not None
            assert differences(folder, config, IDLE.get(name), name, row.value) == set()


@pytest.mark.parametrize(("config", "name", "beside", "idle"), OF_MUON)
def test_muon_uses_the_options_of_what_it_steps(
    folder: Path, config: type[TrainConfig], name: str, beside: dict[str, Any], idle: bool
) -> None:
    row = rows_of(config)[name]
    assert row is not None
    values = {field: getattr(config, field) for field in rules(config)} | beside
    assert config.needs[name].met(values) is not idle
    assert differences(folder, config, beside, name, row.value) == (set() if idle else LEARNT)


@pytest.mark.parametrize("config", CLASSES)
def test_the_device_is_the_one_that_is_asked_for(folder: Path, config: type[TrainConfig]) -> None:
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    for device in (name for name, is_there in there.items() if not is_there):
        with pytest.raises(ConfigError, match=f"device: found '{device}', but torch sees no such device"):
            differences(folder, config, None, "device", device)
