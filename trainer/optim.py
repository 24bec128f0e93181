"""AdamW over the parameters that train: matrices decay, gains do not."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .config import TrainConfig


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """What the optimizer moves, by name, in the model's order."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def make_optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019, algorithm 2); its learning rate is set before every step."""
    trained = list(trained_parameters(model).values())
    groups = [
        {"params": [p for p in trained if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        fused=True,
    )
    grouped = [p for group in optimizer.param_groups for p in group["params"]]
    assert sorted(map(id, grouped)) == sorted(map(id, trained)), "a parameter is left out, or there twice"
    return optimizer


def optimizer_step(
    optimizer: torch.optim.Optimizer,
    parameters: list[nn.Parameter],
    *,
    learning_rate: float,
    max_grad_norm: float,
) -> Tensor:
    """Clip, step, clear. Returns the norm of the gradient before it was clipped: a scalar on the device."""
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm or float("inf"))
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()
    optimizer.zero_grad()
    return norm


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """AdamW's state by name: `exp_avg.<parameter>`, `exp_avg_sq.<parameter>` and `step.<parameter>`."""
    return {
        f"{key}.{name}": tensor
        for name, parameter in trained_parameters(model).items()
        for key, tensor in optimizer.state[parameter].items()
    }


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]
) -> None:
    """The inverse of `optimizer_tensors`. Raises `KeyError` where one is missing."""
    for name, parameter in trained_parameters(model).items():
        for key in ("step", "exp_avg", "exp_avg_sq"):
            optimizer.state[parameter][key] = tensors[f"{key}.{name}"].to(parameter.device)
