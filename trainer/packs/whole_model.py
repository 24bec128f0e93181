"""A pack of one run that trains all weights of a model, or its head alone."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from ..checkpoint import Tensors
from ..config.models import LoraConfig, PretrainConfig, TrainConfig
from ..model.build import base_model, base_of, new_model
from ..model.gpt import Dropout
from ..ranks import ALONE, Ranks
from .pack import Pack


class WholeModel(Pack):
    """A pack of one run that trains the weights of a new model or of a base, or the head of a base."""

    def __init__(self, config: TrainConfig, ranks: Ranks = ALONE) -> None:
        super().__init__(config, ranks)
        if isinstance(config, LoraConfig):
            base = base_of(config)
            self.origin = base.sha256
            self.model = copy.deepcopy(base_model(base, torch.Generator(self.device))).to(self.device)
        else:
            assert isinstance(config, PretrainConfig)
            self.model = new_model(config, self.device)
        self._dropouts = [layer for layer in self.model.modules() if isinstance(layer, Dropout)]

    def init_tensors(self, config: TrainConfig) -> Tensors:
        weights: Tensors = dict(self.model.named_parameters())
        if isinstance(config, LoraConfig) and config.finetuning_type == "linear":
            self.model.requires_grad_(False)
            weights = {"head.weight": self.model.head.weight.requires_grad_()}
        return weights

    def _generator(self) -> torch.Generator:
        return self.model.generator

    def _forward(self, inputs: Tensor) -> Tensor:
        if self.ranks.count > 1:
            for layer in self._dropouts:
                layer.share = self._share
        return super()._forward(inputs)

    @torch.no_grad()
    def load_for_eval(self, config: TrainConfig, trained: Tensors) -> None:
        weights = dict(self.model.named_parameters())
        for name, tensor in trained.items():
            if weights[name] is not tensor:
                weights[name].copy_(tensor)

    def _leaves(self) -> list[Tensor]:
        (member,) = self.members  # a whole model trains a single run
        return list(member.trained.values())

    def _part(self, gradients: Sequence[Tensor], number: int) -> Tensors:
        return dict(zip(self.members[0].trained, gradients, strict=True))
