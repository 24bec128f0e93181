"""A pack of runs that train adapters of one frozen base."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checkpoint import Tensors
from ..config.models import LoraConfig, TrainConfig
from ..model.build import base_model, base_of, start_of
from ..model.gpt import random_bits
from ..model.lora import Lora
from ..ranks import ALONE, Ranks
from .pack import Pack


class LoraPack(Pack):
    """Runs that train adapters of the same linears of the same base."""

    def __init__(self, config: LoraConfig, ranks: Ranks = ALONE) -> None:
        super().__init__(config, ranks)
        base = base_of(config)
        self.origin = base.sha256
        self.model = base_model(base).to(self.device)
        self.lora = Lora(self.model, config.targets, dora=config.use_dora)
        self._stacks: list[Tensors] = []  # of neighbouring members whose padded ranks are equal
        self._place: list[tuple[int, int]] = []  # of each member: its stack, and the index in it
        self._scale = self._drop = self._keep = torch.empty(0)

    def init_tensors(self, config: TrainConfig) -> Tensors:
        adapters = self.lora.init_adapters(_lora(config).lora_r, start_of(config))
        return {name: tensor.to(self.device) for name, tensor in adapters.items()}

    def order(self, config: TrainConfig) -> int:
        return _lora(config).padded_rank

    @torch.no_grad()
    def _arrange(self) -> None:
        super()._arrange()
        self._stacks, self._place = [], []
        for rank, group in itertools.groupby(self.members, key=lambda member: self.order(member.config)):
            alike = list(group)
            self._place += [(len(self._stacks), place) for place in range(len(alike))]
            self._stacks.append(
                {
                    n: padded(t, rank).new_zeros(len(alike), *padded(t, rank).shape[1:])
                    for n, t in alike[0].trained.items()
                }
            )
        self.refresh()
        for stacked in self._leaves():
            stacked.requires_grad_()
        self._set_strengths()

    def _set_strengths(self) -> None:
        """Set the scale of each member's adapters, and their dropout."""
        configs = [_lora(member.config) for member in self.members]
        self._scale = torch.tensor([config.scale for config in configs], device=self.device)
        dropout = torch.tensor([config.lora_dropout for config in configs], device=self.device)
        self._drop = (dropout * 65536).round().to(torch.int32).sub_(32768).view(-1, 1, 1)
        self._keep = (1 / (1 - dropout)).view(-1, 1, 1)

    @torch.no_grad()
    def load_for_eval(self, config: TrainConfig, trained: Tensors) -> None:
        self.lora.bind_merged(trained, _lora(config).scale)

    @torch.no_grad()
    def merged(self, config: LoraConfig, trained: Tensors) -> Tensors:
        """The state of a plain model with one run's adapters merged."""
        weights = self.lora.merged(trained, config.scale)
        return self.model.state_dict() | {f"{name}.weight": weight for name, weight in weights.items()}

    def by_layer(self, trained: Tensors) -> Tensors:
        return self.lora.by_layer(trained)

    def stacked(self, named: Tensors) -> Tensors:
        return self.lora.side_by_side(named)

    def _forward(self, inputs: Tensor) -> Tensor:
        self.lora.bind(self._stacks, self._scale, self._mask if self._dropping else None)
        return super()._forward(inputs)

    @property
    def _dropping(self) -> bool:
        return any(_lora(member.config).lora_dropout for member in self.members)

    def _mask(self, x: Tensor) -> Tensor:
        """The dropout mask for x [K, tokens, in]; each member's part is drawn by its own generator."""
        kept = random_bits(x, self.generators, self._share) >= self._drop
        return kept.to(x.dtype).mul_(self._keep)

    def _leaves(self) -> list[Tensor]:
        return [tensor for stack in self._stacks for tensor in stack.values()]

    def _part(self, gradients: Sequence[Tensor], number: int) -> Tensors:
        trained, (stack, place) = self.members[number].trained, self._place[number]
        mine = gradients[stack * len(trained) : (stack + 1) * len(trained)]
        return {
            name: gradient[place, : tensor.view(-1, gradient.shape[2]).shape[0]].view(tensor.shape)
            for (name, tensor), gradient in zip(trained.items(), mine, strict=True)
        }

    @torch.no_grad()
    def update(self, number: int) -> None:
        stack, place = self._place[number]
        for name, tensor in self.members[number].trained.items():
            rows = tensor.view(-1, tensor.shape[-1])
            self._stacks[stack][name][place, : len(rows)] = rows


def _lora(config: TrainConfig) -> LoraConfig:
    assert isinstance(config, LoraConfig)
    return config


def padded(tensor: Tensor, rank: int) -> Tensor:
    """A stack of one tensor, padded to the rank: [1, rank, width]; [1, 1, width] if it has no rank."""
    return F.pad(tensor, (0, 0, 0, rank - len(tensor)))[None] if tensor.dim() == 2 else tensor[None, None]
