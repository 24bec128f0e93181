"""Several processes that train one run together: who computes what of it, and how it becomes one again.

A step's passes are dealt out, and the rows of those that are left over: two processes have two passes each of
four, and of one pass half of its rows. Each of them has all that decides what the run does next.

| promise | kept by |
|---|---|
| the losses of one process, up to rounding | a row counts the same, and its dropout is the same |
| all go the same way | whatever decides is summed over them first, and so has the same bits in all |
| a checkpoint is that of one process | it holds whole tensors, and the first writes it |

`joined` is for processes that torchrun has started, or who does as it does. They compute with what the first
of them reads; nothing here notices one that is gone, but for those that wait for it.
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

BUCKET = 25 << 20  # bytes that are summed at once: so many are copied meanwhile


@dataclass(frozen=True)
class Share:
    """Some rows of a pass, one process's."""

    first: int
    rows: int
    whole: int  # rows of the pass

    def of(self, each: Tensor) -> Tensor:
        """Its part [rows, ...] of what each row of the pass has, [whole, ...]; zeros beyond the last."""
        own = each[self.first : self.first + self.rows]
        return torch.cat([own, own.new_zeros(self.rows - len(own), *own.shape[1:])])


class Ranks:
    """One process, which computes all of its run."""

    rank, count = 0, 1
    strategy = ""  # by which several share a run: ddp, fsdp or deepspeed
    zero_stage = 0  # of deepspeed

    @property
    def first(self) -> bool:
        """Whether this process writes what the run leaves."""
        return self.rank == 0

    def passes(self, passes: int, rows: int) -> list[tuple[int, Share | None]]:
        """The passes of a step that this process computes, or its share of one. All have as many."""
        dealt = passes - passes % self.count
        each = math.ceil(rows / self.count)
        share = Share(self.rank * each, each, rows)
        whole: list[tuple[int, Share | None]] = [(n, None) for n in range(self.rank, dealt, self.count)]
        return whole + [(n, share) for n in range(dealt, passes)]

    def looks(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The parts of a validation that this process computes; all have as many, some may count nothing."""
        rounds = range(math.ceil(len(parts) / self.count))
        return [parts[min(n * self.count + self.rank, len(parts) - 1)] for n in rounds]

    def together(self, losses: Tensor, parts: int) -> Tensor:
        """The losses of all parts in their order, from those of this process's `looks`."""
        if self.count == 1:
            return losses
        found = losses.new_zeros(self.count * len(losses))
        found[self.rank :: self.count] = losses
        self.sum([found])
        return found[:parts]

    def sum(self, tensors: Iterable[Tensor]) -> None:
        """Sum each tensor over all processes, in place."""

    @contextmanager
    def after_the_first(self) -> Iterator[None]:
        """Let the first process do something before the others do."""
        yield


ALONE = Ranks()


class Group(Ranks):
    """Several processes, which torch connects."""

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
        if bucket and sum(each.nbytes for each in bucket) + tensor.nbytes > BUCKET:
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


def joined(strategy: str, zero_stage: int = 0) -> Ranks:
    """This process among those of its run, by the variables of torchrun.

    They share it by the `strategy` ddp, fsdp, or deepspeed with a `zero_stage`.
    They talk by NCCL where their tensors are on GPUs, each on one of its own, and by gloo elsewhere.
    """
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend)
    return Group(dist.get_rank(), dist.get_world_size(), strategy, zero_stage)
