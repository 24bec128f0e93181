"""AdamW over the tensors that train: matrices decay, gains do not."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .config import TrainConfig

_STATE = ("exp_avg", "exp_avg_sq", "step")  # of each tensor: two of its shape, and a count


class AdamW:
    """AdamW (Loshchilov and Hutter 2019, algorithm 2), by torch's own kernel for all tensors at once.

    `torch.optim.AdamW` computes the same bits, but loads torch's compiler on the way: 1.4 seconds of each
    worker's start.
    """

    def __init__(self, config: TrainConfig, trained: Mapping[str, Tensor]) -> None:
        self._config = config
        self._trained = dict(trained)
        decaying = {name for name, tensor in self._trained.items() if tensor.dim() >= 2}
        by_kind: dict[tuple[float, float], list[str]] = {}
        for name in self._trained:
            decay = config.weight_decay if name in decaying else 0.0
            by_kind.setdefault((decay, config.rate_ratio(name)), []).append(name)
        # Their weight decay, what their learning rate is multiplied with, and who they are.
        self.groups = [(decay, ratio, names) for (decay, ratio), names in by_kind.items()]
        self._state = {
            name: {
                "exp_avg": torch.zeros_like(tensor),
                "exp_avg_sq": torch.zeros_like(tensor),
                "step": torch.zeros((), device=tensor.device),
            }
            for name, tensor in self._trained.items()
        }

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], learning_rate: float) -> Tensor:
        """Clip the gradients, which changes them, and step.

        Returns their norm before that: a scalar on the device.
        """
        config = self._config
        norm = torch.nn.utils.get_total_norm(gradients.values())
        if config.max_grad_norm:
            share = (config.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)  # as torch's `clip_grad_norm_`
            torch._foreach_mul_(list(gradients.values()), share)
        for decay, ratio, names in self.groups:
            mean, square, steps = ([self._state[name][key] for name in names] for key in _STATE)
            torch._foreach_add_(steps, 1)
            torch._fused_adamw_(
                [self._trained[name] for name in names],
                [gradients[name] for name in names],
                mean,
                square,
                [],
                steps,
                lr=learning_rate * ratio,
                beta1=config.adam_beta1,
                beta2=config.adam_beta2,
                weight_decay=decay,
                eps=config.adam_epsilon,
                amsgrad=False,
                maximize=False,
            )
        return norm

    def tensors(self) -> dict[str, Tensor]:
        """The state by name: `exp_avg.<tensor>`, `exp_avg_sq.<tensor>` and `step.<tensor>`."""
        return {f"{key}.{name}": held[key] for name, held in self._state.items() for key in _STATE}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of `tensors`. Raises `KeyError` where one is missing."""
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])
