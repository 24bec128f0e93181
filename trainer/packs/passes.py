"""The interface between a pack and its runs: a run gives its next pass, and receives the gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..checkpoint import Tensors
from ..config.models import TrainConfig
from ..optim.numerics import LossScale
from ..optim.optimizers import Stepper
from ..ranks import Ranks, RowShare
from .recordings import Recordings


@dataclass(frozen=True)
class Pass:
    """A part of a step: its rows, on the host.

    `places` int64 [rows] are the starts of its windows in the text, `counts` [rows] the weights of their
    losses: 0 for a row that only pads the last pass. `rate` is the learning rate of the step.
    """

    places: Tensor
    counts: Tensor
    rate: float
    number: int  # counted from the start of the run
    first: bool  # of its step
    last: bool
    share: RowShare | None  # which rows of the pass these are, if other processes compute the others


class RunInPack(Protocol):
    """A run as its pack sees it: it gives the next pass, and receives the loss and gradients."""

    config: TrainConfig
    ranks: Ranks
    generator: torch.Generator
    optimizer: Stepper
    loss_scale: LossScale | None
    trained: Tensors
    held: Tensor  # uint8 [windows, length + 1]: the validation windows
    losses: Tensor  # of the parts of its validation
    validation_recordings: Recordings  # of its validation, on a GPU

    def next_pass(self) -> Pass:
        """The inputs of the next pass; the same again until `passed` is called."""
        ...

    def windows(self, places: Tensor, /) -> Tensor:
        """uint8 [len(places), length + 1]: the windows of the run's text."""
        ...

    def learn(self, done: Pass, loss: Tensor, gradient: Tensors, rate: float | Tensor, /) -> None:
        """Add the loss and gradients of a pass; after the last pass of a step, step at this rate."""
        ...

    def passed(self) -> None:
        """Advance to the next pass."""
        ...
