"""From a configuration to a model at its first step, on the device where it will train."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import torch

from ..config.models import LoraConfig, PretrainConfig, TrainConfig
from ..config.training import TrainingConfig
from ..errors import ConfigError
from ..seeds import seed_of
from .base_file import Base, load_base
from .gpt import GPT

Config = TypeVar("Config", bound=TrainingConfig)


def base_model(base: Base, generator: torch.Generator | None = None) -> GPT:
    """A model with the weights of a base. They are shared with other models: do not modify them."""
    with torch.device("meta"):  # allocates nothing
        model = GPT(base.shape, generator=generator)
    model.load_state_dict(base.weights, assign=True)
    return model


def new_model(config: PretrainConfig, device: torch.device) -> GPT:
    """A new model; its weights are drawn on the CPU, so that all devices start from the same ones."""
    with torch.device("meta"):
        model = GPT(config.shape, dropout_p=config.dropout, generator=torch.Generator(device))
    model.to_empty(device="cpu")
    model.initialize(start_of(config))
    return model.to(device)


def base_of(config: LoraConfig) -> Base:
    """The base of a run. Raises `ConfigError` if the run's sequences are too long for it."""
    base = load_base(config.base)
    if config.max_length > base.shape.max_length:
        raise ConfigError(
            [f"max_length: found {config.max_length}, but the base was made for {base.shape.max_length}"]
        )
    return base


def start_of(config: TrainConfig) -> torch.Generator:
    """The generator that draws a run's initial weights."""
    return torch.Generator().manual_seed(seed_of("start", config.seed))


def on_device(config: Config) -> Config:
    """The configuration with `auto` replaced by the actual device. Raises `ConfigError`."""
    return dataclasses.replace(config, device=pick_device(config.device).type)


def pick_device(name: str) -> torch.device:
    """The device of this name; `auto` is the accelerator if there is one. Raises `ConfigError`."""
    usable = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, there in usable.items() if there))
    if not usable[name]:
        raise ConfigError([f"device: found {name!r}, but torch sees no such device here; use auto or cpu"])
    return torch.device(name)
