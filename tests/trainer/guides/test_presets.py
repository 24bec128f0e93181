"""Presets: the guides' numbers, and configurations that the trainer takes."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from hpsearch.trainer.config.models import LoraConfig, PretrainConfig, TrainConfig
from hpsearch.trainer.config.shape import Shape
from hpsearch.trainer.errors import ConfigError
from hpsearch.trainer.guides.presets import (
    EPOCH_SAMPLES,
    PRESETS,
    SCENARIOS,
    SIZES,
    preset_values,
)
from hpsearch.trainer.model.gpt import GPT

# Epochs, batch size, accumulation, learning rate, early stopping: as the guides have them.
GUIDES: dict[str, tuple[int, int, int, float, int]] = {
    "quick": (1, 16, 1, 1e-3, 0),
    "standard": (3, 8, 2, 5e-4, 3),
    "production": (5, 4, 4, 2e-4, 5),
    "memory": (3, 2, 8, 5e-4, 0),
    "time": (1, 32, 1, 1e-3, 0),
}


@pytest.mark.parametrize(("config", "factor"), [(LoraConfig, 10), (PretrainConfig, 3)])
@pytest.mark.parametrize("name", GUIDES)
def test_a_scenario_is_the_guides(name: str, config: type[TrainConfig], factor: float) -> None:
    epochs, batch, parts, rate, patience = GUIDES[name]
    made = config.from_params(preset_values(config, [name]))
    assert made.gradient_checkpointing == (name == "memory")
    assert (made.max_samples, made.batch_size, made.gradient_accumulation_steps) == (
        epochs * EPOCH_SAMPLES,
        batch,
        parts,
    )
    assert made.learning_rate == pytest.approx(factor * rate, rel=1e-12)
    assert made.early_stopping_patience == patience
    assert 5 <= EPOCH_SAMPLES / made.eval_interval <= 10, "as often in an epoch as the guides say"
    assert GUIDES.keys() == SCENARIOS.keys()


@pytest.mark.parametrize("names", [*product(SCENARIOS, SIZES)])
def test_a_scenario_and_a_size_go_together_in_any_order(names: tuple[str, str]) -> None:
    values = preset_values(PretrainConfig, names)
    assert values == preset_values(PretrainConfig, names[::-1])
    made = PretrainConfig.from_params(values)
    size = SIZES[names[1]]
    assert {name: getattr(made, name) for name in size} == size
    assert made.batch_size == SCENARIOS[names[0]]["batch_size"]


@pytest.mark.parametrize(("size", "millions"), [("small", 0.48), ("medium", 19.2), ("large", 85.4)])
def test_the_weights_of_a_size_are_counted(size: str, millions: float) -> None:
    preset = SIZES[size]
    shape = Shape(preset["width"], preset["depth"], preset["heads"], 128)
    with torch.device("meta"):
        model = GPT(shape)
    assert shape.weights == sum(parameter.numel() for parameter in model.parameters())
    assert shape.weights / 1e6 == pytest.approx(millions, abs=0.05)


def test_given_parameters_are_left_out_of_a_preset() -> None:
    values = preset_values(LoraConfig, ["quick"], given=["learning_rate", "batch_size"])
    assert values.keys() == SCENARIOS["quick"].keys() - {"learning_rate", "batch_size"}


@pytest.mark.parametrize(
    ("given", "gone"),
    [
        ("max_steps", {"max_samples", "eval_every"}),
        ("max_samples", {"max_samples", "eval_every"}),
        ("warmup_steps", {"warmup_ratio"}),
    ],
)
def test_a_preset_does_not_contradict_given_parameters(given: str, gone: set[str]) -> None:
    values = preset_values(LoraConfig, ["production"], given=[given])
    assert SCENARIOS["production"].keys() - values.keys() == gone
    LoraConfig.from_params(values | {given: 64})


REFUSED: list[tuple[type[TrainConfig], list[str], str]] = [
    (
        LoraConfig,
        ["quik"],
        'there is no preset "quik", did you mean "quick"?; there is quick, standard, produc',
    ),
    (LoraConfig, ["xyz"], f'there is no preset "xyz"; there is {", ".join(PRESETS)}'),
    (LoraConfig, ["quick", "time"], "quick and time: found both, needs at most one of quick, standard"),
    (
        PretrainConfig,
        ["small", "large"],
        "small and large: found both, needs at most one of small, medium, large",
    ),
    (
        LoraConfig,
        ["medium"],
        r"medium is a size to train from scratch \(objective: pretrain\); lora adapts a base",
    ),
]


@pytest.mark.parametrize(("config", "names", "told"), REFUSED)
def test_invalid_parameters_are_refused(config: type[TrainConfig], names: list[str], told: Any) -> None:
    with pytest.raises(ConfigError, match=told.replace("?", r"\?")):
        preset_values(config, names)
