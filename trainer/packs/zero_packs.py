"""Packs for runs of hpsearch's own model that DeepSpeed trains: `zero` computes the gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from ..checkpoint import Tensors
from ..config.models import LoraConfig, TrainConfig
from ..model.lora import Lora, Mask
from ..optim.optimizers import Stepper
from .batch import Batch
from .lora_pack import LoraPack, padded
from .pack import Pack
from .whole_model import WholeModel
from .zero import Zero


class _ZeroPack(Pack):
    """A pack of one run that DeepSpeed trains."""

    recording = False
    _zero: Zero

    def stepper(self, config: TrainConfig, trained: Tensors) -> Stepper:
        return self._zero

    def refresh(self) -> None:
        self._zero.adopt()

    def load_for_eval(self, config: TrainConfig, trained: Tensors) -> None:
        """Nothing to do: the model shares the memory of the trained tensors."""

    @property
    def sharding(self) -> Zero:
        return self._zero

    def _logits(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self._zero(inputs)
        return logits.float()

    def set_batches(self, batches: Sequence[Batch]) -> Sequence[float]:
        super().set_batches(batches)
        return [batch.rate for batch in batches]

    def _gradients(self, loss: Tensor) -> Sequence[Tensor]:
        self._zero.backward(loss, last=self._batches[0].last)
        return []

    def _part(self, gradients: Sequence[Tensor], number: int) -> Tensors:
        return {}


class ZeroModel(_ZeroPack, WholeModel):
    """Trains all of a model, or its head."""

    def init_tensors(self, config: TrainConfig) -> Tensors:
        trained = super().init_tensors(config)
        self._zero = Zero(config, self.ranks, self.numerics, self.model, trained)
        return self._zero.trained


class ZeroAdapters(_ZeroPack, LoraPack):
    """Trains adapters of a base."""

    def init_tensors(self, config: TrainConfig) -> Tensors:
        assert isinstance(config, LoraConfig)
        self._adapted = _Adapted(self.model, self.lora, config, super().init_tensors(config))
        trained = dict(self._adapted.adapters)
        self._zero = Zero(config, self.ranks, self.numerics, self._adapted, trained)
        return self._zero.trained

    def _arrange(self) -> None:
        """Unlike other packs of adapters, make no copies of them."""
        Pack._arrange(self)
        self._set_strengths()

    def _forward(self, inputs: Tensor) -> Tensor:
        self._adapted.mask = self._mask if self._dropping else None
        return self._logits(inputs)

    def load_for_eval(self, config: TrainConfig, trained: Tensors) -> None:
        self._adapted.mask = None

    def update(self, number: int) -> None:
        """Nothing to do: there are no copies."""


class _Adapted(nn.Module):
    """A base with one run's adapters, as parameters of the module."""

    def __init__(self, model: nn.Module, lora: Lora, config: LoraConfig, adapters: Tensors) -> None:
        super().__init__()
        self.model = model
        self.adapters = nn.ParameterDict(adapters)
        self.mask: Mask | None = None
        self._lora, self._rank = lora, config.padded_rank
        self._scale = next(iter(adapters.values())).new_tensor([config.scale])

    def forward(self, inputs: Tensor) -> Any:
        stack = {name: padded(tensor, self._rank) for name, tensor in self.adapters.items()}
        self._lora.bind([stack], self._scale, self.mask)
        return self.model(inputs)
