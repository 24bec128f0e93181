"""Several processes that train one run together: how the work is divided and the results combined.

The passes of a step are dealt out; the rows of any remaining pass are divided. With four passes, each of two
processes computes two; with a single pass, each computes half of its rows. Every process holds all the state
that decides what the run does next.

| promise | kept by |
|---|---|
| the same losses as with one process, up to rounding | each row has the same weight and dropout |
| all processes decide alike | whatever decides is summed over all first, so all have the same bits |
| the same checkpoint as with one process | it holds whole tensors, and the first process writes it |

`join_ranks` is for processes started by torchrun or in its manner. Nothing here detects a process that has
died: the others block while they wait for it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

BUCKET_BYTES = 25 << 20  # bytes that are summed at once, and copied for that

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class RowShare:
    """The rows of a pass that one process computes."""

    first: int
    rows: int
    whole: int  # rows of the pass

    def of(self, every: Tensor) -> Tensor:
        """The slice [rows, ...] of a tensor [whole, ...] for these rows, zeros beyond the last row."""
        own = every[self.first : self.first + self.rows]
        return torch.cat([own, own.new_zeros(self.rows - len(own), *own.shape[1:])])


class Ranks:
    """The processes of a run, seen from one of them; here a single process that computes everything."""

    rank, count = 0, 1
    strategy = ""  # how several processes share a run: ddp, fsdp or deepspeed
    zero_stage = 0  # of deepspeed

    @property
    def first(self) -> bool:
        """Whether this process writes the checkpoints."""
        return self.rank == 0

    def passes(self, passes: int, rows: int) -> list[tuple[int, RowShare | None]]:
        """The passes of a step, whole or in part, that this process computes: equally many for all."""
        dealt = passes - passes % self.count
        each = math.ceil(rows / self.count)
        share = RowShare(self.rank * each, each, rows)
        whole: list[tuple[int, RowShare | None]] = [(n, None) for n in range(self.rank, dealt, self.count)]
        return whole + [(n, share) for n in range(dealt, passes)]

    def validation_parts(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The parts of a validation that this process computes: equally many for all, by repetition."""
        rounds = range(math.ceil(len(parts) / self.count))
        return [parts[min(n * self.count + self.rank, len(parts) - 1)] for n in rounds]

    def all_losses(self, losses: Tensor, parts: int) -> Tensor:
        """The losses of all parts in order, combined from those of each process's `validation_parts`."""
        if self.count == 1:
            return losses
        combined = losses.new_zeros(self.count * len(losses))
        combined[self.rank :: self.count] = losses
        self.sum([combined])
        return combined[:parts]

    def sum(self, tensors: Iterable[Tensor]) -> None:
        """Sum each tensor over all processes, in place."""

    @contextmanager
    def after_the_first(self) -> Iterator[None]:
        """Run the block in the first process, then in the others."""
        yield


ALONE = Ranks()


class Sharding:
    """The part of a run's tensors that a process holds; here all of them."""

    def gather(self, tensors: Tensors) -> Tensors:
        """The whole tensors; only the first process needs the result."""
        return tensors

    def shard(self, tensors: Tensors) -> Tensors:
        """The inverse of `gather`: the parts that this process holds."""
        return tensors

    def close(self) -> None:
        """Free what only training needs."""


UNSHARDED = Sharding()


class ProcessGroup(Ranks):
    """Several processes, connected by torch.distributed."""

    def __init__(self, rank: int, count: int, strategy: str = "ddp", zero_stage: int = 0) -> None:
        self.rank, self.count = rank, count
        self.strategy, self.zero_stage = strategy, zero_stage

    def sum(self, tensors: Iterable[Tensor]) -> None:
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.flatten() for tensor in bucket])
            dist.all_reduce(flat)
            parts = torch.split(flat, [tensor.numel() for tensor in bucket])
            for tensor, part in zip(bucket, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    @contextmanager
    def after_the_first(self) -> Iterator[None]:
        if not self.first:
            dist.barrier()
        yield
        if self.first:
            dist.barrier()


def _buckets(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for tensor in tensors:
        if bucket and sum(each.nbytes for each in bucket) + tensor.nbytes > BUCKET_BYTES:
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


def join_ranks(strategy: str, zero_stage: int = 0) -> Ranks:
    """Join the other processes of the run, as the environment variables of torchrun say.

    The `strategy` is ddp, fsdp, or deepspeed with a `zero_stage`. Tensors on GPUs, one for each process, are
    exchanged by NCCL, others by gloo.
    """
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend)
    return ProcessGroup(dist.get_rank(), dist.get_world_size(), strategy, zero_stage)
