"""A model of which each process keeps a part: torch's `fully_shard`, known as FSDP2 and ZeRO 3.

A block's weights are gathered before it computes and given up after it. What each process needs beside its
part is the largest block, what is outside of blocks, and what its own rows take.

| what trains | what is shared out | what each process has whole |
|---|---|---|
| all of the model | weights, gradients, the optimizer's state | nothing |
| adapters, or a head | the frozen weights | what is trained: it is small, and as with ddp |

Each matrix is cut by its rows. Optimizers that look at one number at a time need not know; those that look at
a whole matrix cannot train all of a model so (`TrainConfig.undivided`). Zhao et al. 2023, "PyTorch FSDP".
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
from ..ranks import Ranks
from .lora_pack import LoraPack, padded
from .whole_model import WholeModel


def share_out(
    model: nn.Module, blocks: Iterable[nn.Module], mesh: DeviceMesh, *, whole: Iterable[Tensor] = ()
) -> None:
    """Leave each process its part of a model's weights, and all of those that stay `whole`.

    Block by block they are brought to the mesh's device, where they are not there yet.
    """
    kept = cast(set[nn.Parameter], set(whole))
    for parameter in kept:
        parameter.data = parameter.data.to(mesh.device_type)
    for module in (*blocks, model):
        fully_shard(module, mesh=mesh, ignored_params=kept)
        sharded = cast(FSDPModule, module)
        sharded.set_force_sum_reduction_for_comms(True)  # a row counts what it counts in one process
        sharded.set_gradient_divide_factor(1.0)


def mesh_of(device: torch.device, ranks: Ranks) -> DeviceMesh:
    """The devices that a model is shared out to: one of each process."""
    return init_device_mesh(device.type, (ranks.count,))


class ShardedModel(WholeModel):
    """A pack of one run of all weights; its tensors are this process's parts of the model's."""

    def __init__(self, config: TrainConfig, ranks: Ranks) -> None:
        super().__init__(config, ranks)
        self._mesh = mesh_of(self.device, ranks)
        self._parts: dict[str, nn.Parameter] = {}

    def init_tensors(self, config: TrainConfig) -> Tensors:
        names = super().init_tensors(config).keys()
        share_out(self.model, self.model.blocks, self._mesh)
        self._parts = {name: part for name, part in self.model.named_parameters() if name in names}
        return {name: _local(part.data) for name, part in self._parts.items()}

    def load_for_eval(self, config: TrainConfig, trained: Tensors) -> None:
        """The model has what is trained: the same memory."""

    def gather(self, tensors: Tensors) -> Tensors:
        """On the CPU of the first process; nothing in the others."""
        found = {}
        for name, tensor in tensors.items():
            like = self._like(name, tensor)
            if like is not None:
                part = DTensor.from_local(
                    tensor, self._mesh, [Shard(0)], shape=like.shape, stride=like.stride()
                )
                tensor = part.full_tensor()
            if dist.get_rank() == 0:
                found[name] = tensor.cpu()
        return found

    def shard(self, tensors: Tensors) -> Tensors:
        found = {}
        for name, tensor in tensors.items():
            if self._like(name, tensor) is not None:
                whole = tensor.to(self.device)
                tensor = _local(distribute_tensor(whole, self._mesh, [Shard(0)], src_data_rank=None))
            found[name] = tensor
        return found

    def add_up(self, ranks: Ranks, gradient: Tensors) -> None:
        """The backward pass has done it."""

    def norm(self, gradients: Iterable[Tensor]) -> Tensor:
        square = torch.nn.utils.get_total_norm(gradients).square()
        dist.all_reduce(square)
        return square.sqrt()

    def _gradients(self, loss: Tensor) -> list[Tensor]:
        loss.backward()  # type: ignore[no-untyped-call]
        found = []
        for part in self._parts.values():
            assert part.grad is not None
            found.append(_local(part.grad))
            part.grad = None
        return found

    def _like(self, name: str, tensor: Tensor) -> Tensor | None:
        """The model's tensor that one of a run is shared out as; None for a number that all have."""
        found = self._parts.get(name)
        if found is None:  # of an optimizer's state
            found = self._parts[name.partition(".")[2]]
        return found if tensor.dim() else None


class ShardedBase(LoraPack):
    """A pack of one run of adapters."""

    def init_tensors(self, config: TrainConfig) -> Tensors:
        adapters = super().init_tensors(config)
        share_out(self.model, self.model.blocks, mesh_of(self.device, self.ranks))
        return adapters

    @torch.no_grad()
    def load_for_eval(self, config: TrainConfig, trained: Tensors) -> None:
        """The adapters stay beside the base: nobody has all of what they would be merged into."""
        assert isinstance(config, LoraConfig)
        stack = {name: padded(tensor, config.padded_rank) for name, tensor in trained.items()}
        self.lora.place([stack], self._scale)


class ShardedBody(WholeModel):
    """A pack of one run of a head."""

    def init_tensors(self, config: TrainConfig) -> Tensors:
        head = super().init_tensors(config)
        mesh = mesh_of(self.device, self.ranks)
        share_out(self.model, self.model.blocks, mesh, whole=head.values())
        return head


def _local(tensor: Any) -> Tensor:
    found: Tensor = tensor.to_local()
    return found.detach()
