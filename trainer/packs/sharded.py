"""A model sharded over processes by torch's `fully_shard`, known as FSDP2 and ZeRO 3.

The weights of a block are gathered before it computes and freed after it. Besides its own part, each process
needs memory for the largest block, the weights outside of blocks, and the activations of its rows.

| trained | sharded | whole in each process |
|---|---|---|
| all of the model | weights, gradients, the optimizer's state | nothing |
| adapters, or a head | the frozen weights | what is trained: it is small, and handled as with ddp |

Each matrix is split by rows. Elementwise optimizers are not affected; those that look at a whole matrix
cannot train all of a model this way (`TrainConfig.sharing_problems`). Zhao et al. 2023, "PyTorch FSDP".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from ..checkpoint import Tensors
from ..config.models import LoraConfig, TrainConfig
from ..ranks import Ranks, Sharding
from .lora_pack import LoraPack, padded
from .whole_model import WholeModel


def share_out(
    model: nn.Module, blocks: Iterable[nn.Module], mesh: DeviceMesh, *, whole: Iterable[Tensor] = ()
) -> None:
    """Shard a model's weights over the processes, except those that stay `whole`.

    They are moved to the mesh's device block by block, if they are not there yet.
    """
    kept = cast(set[nn.Parameter], set(whole))
    for parameter in kept:
        parameter.data = parameter.data.to(mesh.device_type)
    for module in (*blocks, model):
        fully_shard(module, mesh=mesh, ignored_params=kept)
        sharded = cast(FSDPModule, module)
        sharded.set_force_sum_reduction_for_comms(True)  # sum, not mean: rows are weighted already
        sharded.set_gradient_divide_factor(1.0)


def mesh_of(device: torch.device, ranks: Ranks) -> DeviceMesh:
    """The devices that a model is sharded over: one for each process."""
    return init_device_mesh(device.type, (ranks.count,))


class ShardedModel(WholeModel, Sharding):
    """A pack of one run that trains all weights; its tensors are this process's parts of them."""

    def __init__(self, config: TrainConfig, ranks: Ranks) -> None:
        super().__init__(config, ranks)
        self._mesh = mesh_of(self.device, ranks)
        self._parts: dict[str, nn.Parameter] = {}

    def init_tensors(self, config: TrainConfig) -> Tensors:
        names = super().init_tensors(config).keys()
        share_out(self.model, self.model.blocks, self._mesh)
        self._parts = {name: part for name, part in self.model.named_parameters() if name in names}
        return {name: _local(part.data) for name, part in self._parts.items()}

    @property
    def sharding(self) -> ShardedModel:
        return self

    def load_for_eval(self, config: TrainConfig, trained: Tensors) -> None:
        """Nothing to do: the model shares the memory of the trained tensors."""

    def gather(self, tensors: Tensors) -> Tensors:
        """The whole tensors, on the CPU of the first process; nothing in the others."""
        whole = {}
        for name, tensor in tensors.items():
            like = self._like(name, tensor)
            if like is not None:
                part = DTensor.from_local(
                    tensor, self._mesh, [Shard(0)], shape=like.shape, stride=like.stride()
                )
                tensor = part.full_tensor()
            if dist.get_rank() == 0:
                whole[name] = tensor.cpu()
        return whole

    def shard(self, tensors: Tensors) -> Tensors:
        parts = {}
        for name, tensor in tensors.items():
            if self._like(name, tensor) is not None:
                whole = tensor.to(self.device)
                tensor = _local(distribute_tensor(whole, self._mesh, [Shard(0)], src_data_rank=None))
            parts[name] = tensor
        return parts

    def add_up(self, gradient: Tensors) -> None:
        """Nothing to do: the backward pass has summed them."""

    def norm(self, gradients: Iterable[Tensor]) -> Tensor:
        square = torch.nn.utils.get_total_norm(gradients).square()
        dist.all_reduce(square)
        return square.sqrt()

    def _gradients(self, loss: Tensor) -> list[Tensor]:
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = []
        for part in self._parts.values():
            assert part.grad is not None
            gradients.append(_local(part.grad))
            part.grad = None
        return gradients

    def _like(self, name: str, tensor: Tensor) -> Tensor | None:
        """The model's tensor that this one is sharded like; None for a scalar, which all processes have."""
        parameter = self._parts.get(name)
        if parameter is None:  # of an optimizer's state
            parameter = self._parts[name.partition(".")[2]]
        return parameter if tensor.dim() else None


class ShardedBase(LoraPack):
    """A pack of one run that trains adapters of a sharded base."""

    def init_tensors(self, config: TrainConfig) -> Tensors:
        adapters = super().init_tensors(config)
        share_out(self.model, self.model.blocks, mesh_of(self.device, self.ranks))
        return adapters

    @torch.no_grad()
    def load_for_eval(self, config: TrainConfig, trained: Tensors) -> None:
        """Use the adapters unmerged: no process has the whole weights to merge them into."""
        assert isinstance(config, LoraConfig)
        stack = {name: padded(tensor, config.padded_rank) for name, tensor in trained.items()}
        self.lora.bind([stack], self._scale)


class ShardedBody(WholeModel):
    """A pack of one run that trains the head of a sharded model."""

    def init_tensors(self, config: TrainConfig) -> Tensors:
        head = super().init_tensors(config)
        mesh = mesh_of(self.device, self.ranks)
        share_out(self.model, self.model.blocks, mesh, whole=head.values())
        return head


def _local(tensor: Any) -> Tensor:
    part: Tensor = tensor.to_local()
    return part.detach()
