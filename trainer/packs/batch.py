"""What passes between runs and packs: values. A pack knows no run."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..checkpoint import Tensors
from ..config.models import TrainConfig
from ..ranks import RowShare


@dataclass(frozen=True, eq=False)
class Member:
    """What a pack computes for: the tensors that a run trains, and its configuration."""

    config: TrainConfig
    trained: Tensors


@dataclass(frozen=True, eq=False)
class Batch:
    """The rows of one pass, on the host, and what else decides its gradients. A step has one or several.

    `places` int64 [rows] are the starts of its windows in `tokens`, `counts` [rows] the weights of their
    losses: 0 for a row that only pads the last pass. `rate` is the learning rate of the step.
    """

    tokens: Tensor  # uint8 [bytes], on the device: the text
    places: Tensor
    counts: Tensor
    rate: float
    loss_scale: float | None
    dropout_seed: int
    first: bool  # of its step
    last: bool
    share: RowShare | None  # which rows of the pass these are, if other processes compute the others
