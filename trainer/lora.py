"""Low-rank adapters: W stays as it is, and the run learns a small change beside it.

            x [tokens, in]
            |-----------------------.
            |                    dropout
            |                       A  [r, in]     uniform at the start
      W [out, in]  frozen           B  [r, out]    zero at the start
            |                       * alpha / r
            '---------- + ----------'
                        y [tokens, out]

Hu et al. 2021, "LoRA", section 4.1. B is zero, so training starts exactly at the base. Both matrices have a
row for each rank (the paper's B is the transpose): so laid out, B's gradients are ten times faster on a CPU.

The layer owns the base's `weight` under the key that it had, so a base loads into an adapted model unchanged.
The change is added into W only on export (`merged_state_dict`): adding and subtracting it around every
validation would move the base a little each time.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .model import GPT, dropout


class LoraLinear(nn.Module):
    """A linear without bias whose `weight` [out, in] is frozen, with an adapter of rank `r` beside it."""

    def __init__(self, linear: nn.Linear, *, r: int, scale: float, drop: nn.Module) -> None:
        super().__init__()
        self.weight = linear.weight.requires_grad_(False)
        out_features, in_features = self.weight.shape
        self.scale = scale
        self.lora_A = nn.Parameter(self.weight.new_empty(r, in_features))
        self.lora_B = nn.Parameter(self.weight.new_empty(r, out_features))
        self.drop = drop

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """A uniform in +-1/sqrt(in), as `nn.Linear` starts its weight; B zero."""
        bound = self.lora_A.shape[1] ** -0.5
        self.lora_A.uniform_(-bound, bound, generator=generator)
        self.lora_B.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """x [tokens, in] -> x W' + scale * dropout(x) A' B [tokens, out]."""
        low_rank = F.linear(self.drop(x), self.lora_A)
        return torch.addmm(F.linear(x, self.weight), low_rank, self.lora_B, alpha=self.scale)

    def merged(self) -> Tensor:
        """W + scale * B' A: the weight of a plain linear that computes the same, up to rounding."""
        return torch.addmm(self.weight, self.lora_B.T, self.lora_A, alpha=self.scale).detach()


def add_lora(model: GPT, *, targets: tuple[str, ...], r: int, scale: float, dropout_p: float) -> None:
    """Freeze `model` and put adapters on the linears `targets` of every block, not yet initialised."""
    model.requires_grad_(False)
    for block in model.blocks:
        for name in targets:
            drop = dropout(dropout_p, model.generator)
            setattr(block, name, LoraLinear(getattr(block, name), r=r, scale=scale, drop=drop))
    declared = set(adapter_parameters(model))
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert declared == trained, f"adapters {sorted(declared)} are not what trains {sorted(trained)}"


def adapters(model: nn.Module) -> dict[str, LoraLinear]:
    """The adapted linears by their names in the model, in its order."""
    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLinear)}


def initialize_adapters(model: nn.Module, generator: torch.Generator) -> None:
    for layer in adapters(model).values():
        layer.initialize(generator)


def adapter_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """What an adapter file holds: `blocks.0.qkv.lora_A` [r, in], `blocks.0.qkv.lora_B` [r, out], ..."""
    found = {}
    for name, layer in adapters(model).items():
        found[f"{name}.lora_A"] = layer.lora_A
        found[f"{name}.lora_B"] = layer.lora_B
    return found


def merged_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """The state of a plain model that computes what this one does, under the base's keys."""
    own = adapter_parameters(model)
    state = {name: tensor.detach() for name, tensor in model.state_dict().items() if name not in own}
    return state | {f"{name}.weight": layer.merged() for name, layer in adapters(model).items()}
