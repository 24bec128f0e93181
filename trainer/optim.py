"""AdamW over the parameters that train: matrices decay, gains do not."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from .config import TrainConfig

_STATE = ("exp_avg", "exp_avg_sq", "step")  # of each parameter: two of its shape, and a count


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """What the optimizer moves, by name, in the model's order."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


class AdamW:
    """AdamW (Loshchilov and Hutter 2019, algorithm 2), by torch's own kernel for all parameters at once.

    `torch.optim.AdamW` computes the same bits, but loads torch's compiler on the way: 1.4 seconds of each
    worker's start.
    """

    def __init__(self, config: TrainConfig, parameters: Mapping[str, nn.Parameter]) -> None:
        self._config = config
        self._parameters = dict(parameters)
        decaying = {name for name, p in self._parameters.items() if p.dim() >= 2}
        groups = [
            (config.weight_decay, [name for name in self._parameters if name in decaying]),
            (0.0, [name for name in self._parameters if name not in decaying]),
        ]
        self.groups = [(decay, names) for decay, names in groups if names]  # their weight decay, and who
        self._state = {
            name: {
                "exp_avg": torch.zeros_like(p),
                "exp_avg_sq": torch.zeros_like(p),
                "step": torch.zeros((), device=p.device),
            }
            for name, p in self._parameters.items()
        }

    @torch.no_grad()
    def step(self, learning_rate: float) -> Tensor:
        """Clip, step, clear. Returns the norm of the gradient before clipping: a scalar on the device."""
        config = self._config
        norm = nn.utils.clip_grad_norm_(self._parameters.values(), config.max_grad_norm or float("inf"))
        for decay, names in self.groups:
            mean, square, steps = ([self._state[name][key] for name in names] for key in _STATE)
            torch._foreach_add_(steps, 1)
            torch._fused_adamw_(
                [self._parameters[name] for name in names],
                [_gradient(self._parameters[name]) for name in names],
                mean,
                square,
                [],
                steps,
                lr=learning_rate,
                beta1=config.adam_beta1,
                beta2=config.adam_beta2,
                weight_decay=decay,
                eps=config.adam_epsilon,
                amsgrad=False,
                maximize=False,
            )
        for parameter in self._parameters.values():
            parameter.grad = None
        return norm

    def tensors(self) -> dict[str, Tensor]:
        """The state by name: `exp_avg.<parameter>`, `exp_avg_sq.<parameter>` and `step.<parameter>`."""
        return {f"{key}.{name}": held[key] for name, held in self._state.items() for key in _STATE}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of `tensors`. Raises `KeyError` where one is missing."""
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None, "every trained parameter has a part in the loss"
    return parameter.grad
