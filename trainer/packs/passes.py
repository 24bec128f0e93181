"""What a pack sees of a run: its next pass, and where the gradients of it go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..checkpoint import Tensors
from ..config.models import TrainConfig
from ..optim.numerics import LossScale
from ..optim.optimizers import Stepper
from ..ranks import Ranks, Share
from .recordings import Recordings


@dataclass(frozen=True)
class Pass:
    """A part of a step: on the host, what its rows are.

    `places` int64 [rows] are those of its windows in the text, `counts` [rows] what the loss of each counts:
    a row that only fills the last pass up counts nothing. `rate` is the learning rate of the step.
    """

    places: Tensor
    counts: Tensor
    rate: float
    number: int  # counted from the beginning of the run
    first: bool  # of its step
    last: bool
    share: Share | None  # which rows of the pass these are, where other processes have the others


class RunInPack(Protocol):
    """A run as the pack that it trains in sees it: it gives the next pass, and takes in what came of it."""

    config: TrainConfig
    ranks: Ranks
    generator: torch.Generator
    optimizer: Stepper
    loss_scale: LossScale | None
    trained: Tensors
    held: Tensor  # uint8 [windows, length + 1]: what it is validated on
    losses: Tensor  # of the parts of its validation
    looks: Recordings  # of its validation, on a GPU

    def next_pass(self) -> Pass:
        """What the next pass computes from; the same again until it has `passed`."""
        ...

    def windows(self, places: Tensor, /) -> Tensor:
        """uint8 [len(places), length + 1]: the run's text there."""
        ...

    def learn(self, done: Pass, loss: Tensor, gradient: Tensors, rate: float | Tensor, /) -> None:
        """Take in the loss and gradients of a pass, and with the last of a step make it, at that rate."""
        ...

    def passed(self) -> None:
        """Go on to the next pass: this one is learned."""
        ...
