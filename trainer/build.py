"""From a configuration to a model at its first step, on the device where it will train."""

from __future__ import annotations

import torch

from .checkpoint import Tensors, load_base
from .config import LoraConfig, PretrainConfig, TrainConfig
from .data import seed_of
from .errors import ConfigError
from .lora import add_lora, initialize_adapters
from .model import GPT, Shape
from .optim import trained_parameters


def build_model(config: TrainConfig, device: torch.device) -> tuple[GPT, str | None]:
    """The model at step 0, and the sha256 of the base it starts from (None: from scratch).

    Built on torch's `meta` device, which allocates and draws nothing: a weight comes from the base or from
    `seed`, drawn on the CPU, so that all devices start from the same weights.
    """
    generator = torch.Generator(device)
    start = torch.Generator().manual_seed(seed_of("start", config.seed))
    if isinstance(config, LoraConfig):
        base = load_base(config.base)
        if config.max_length > base.shape.max_length:
            raise ConfigError(
                [f"max_length: found {config.max_length}, but the base was made for {base.shape.max_length}"]
            )
        with torch.device("meta"):
            model = GPT(base.shape, generator=generator)
        model.load_state_dict(base.weights, assign=True)
        add_lora(
            model, targets=config.targets, r=config.lora_r, scale=config.scale, dropout_p=config.lora_dropout
        )
        initialize_adapters(model, start)
        return model.to(device), base.sha256
    assert isinstance(config, PretrainConfig)
    shape = Shape(config.width, config.depth, config.heads, config.max_length)
    with torch.device("meta"):
        model = GPT(shape, dropout_p=config.dropout, generator=generator)
    model.to_empty(device="cpu")
    model.initialize(start)
    return model.to(device), None


@torch.no_grad()
def load_weights(model: GPT, weights: Tensors) -> None:
    """Copy what `Run.weights` gave back into the model."""
    for name, parameter in trained_parameters(model).items():
        parameter.copy_(weights[name])


def pick_device(name: str) -> torch.device:
    """The device of that name; `auto` takes the accelerator where there is one. Raises `ConfigError`."""
    usable = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, there in usable.items() if there))
    if not usable[name]:
        raise ConfigError([f"device: found {name!r}, but torch sees no such device here; use auto or cpu"])
    return torch.device(name)
