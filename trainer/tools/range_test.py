"""The learning rate range test: one short run, in which the rate rises until the loss diverges.

Smith 2017, "Cyclical Learning Rates for Training Neural Networks", section 3.3. The rate rises exponentially,
the loss is smoothed with bias correction, and the run ends when it diverges, as in `lr_find` of fastai and
Lightning. One thing is our own: batches differ by more than an adapter learns in a few steps, so the curve of
a fine-tuning would be noise. A second run, with a rate of zero, sees the same batches with the same dropout,
and so measures how hard each is. The loss of a step is the loss of its batch, minus the untrained model's
loss on it, plus the untrained model's mean loss.

| suggestion | the rate |
|---|---|
| `steepest` | where the loss falls fastest (Lightning) |
| `valley` | two thirds into the longest fall (fastai) |
| `minimum_tenth` | a tenth of the rate at the lowest loss (fastai) |

The range to search goes from an order of magnitude below the steepest fall to where the fall is nearly done.
If the curve falls fastest at its end, the range starts an order of magnitude below that end instead. The
lowest loss itself may come much later: when a model no longer learns, its loss wanders.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..config.models import TrainConfig
from ..config.training import LENGTHS

if TYPE_CHECKING:
    from ..runs.run import GptRun

SMOOTHING = 0.8  # weight of the past; low, because the batches' hardness is already removed
DIVERGENCE_FACTOR = 2.0  # times the best loss; fastai's 4 is never reached from an untrained model's ln 256
MIN_FALL = 0.01  # relative to the loss at the start; a smaller fall does not count
NEARLY_DONE = 0.98  # of the fall
NO_RATE = 1e-30  # so small that it changes no weight


@dataclass(frozen=True)
class Point:
    """One step: its rate, the loss of its batch in nats per token, and the smoothed loss."""

    step: int
    learning_rate: float
    loss: float
    smoothed: float


@dataclass(frozen=True)
class Proposal:
    """The conclusions from a curve: three single rates, and a range to search."""

    steepest: float
    valley: float
    minimum_tenth: float
    low: float
    high: float


@dataclass(frozen=True)
class RangeTest:
    """A curve and its proposal, which is None if the loss does not fall."""

    points: tuple[Point, ...]
    diverged: bool  # whether the run ended before its last step
    proposal: Proposal | None


def range_test(
    config: TrainConfig,
    *,
    low: float,
    high: float,
    steps: int,
    on_point: Callable[[Point], None] = lambda point: None,
) -> RangeTest:
    """Train `steps` steps from the rate `low` to `high`, or fewer if the loss diverges.

    The learning rate, the schedule and the length of `config` are ignored. `on_point` is called for each
    step.
    """
    from ..runs.run import GptRun  # loads PyTorch, which `hpsearch plan` needs no more than a search does

    length: dict[str, int | None] = dict.fromkeys(LENGTHS) | {"max_steps": steps}
    flat = {"lr_scheduler": "constant", "warmup_ratio": 0.0, "warmup_steps": 0}
    plain = dataclasses.replace(config, **flat, **length)  # type: ignore[arg-type]   # each its own type
    run, untrained = GptRun(plain), GptRun(plain)
    rates = np.geomspace(low, high, steps).tolist()
    losses: list[float] = []
    hardness: list[float] = []
    points: list[Point] = []
    diverged = False
    for step, rate in enumerate(rates, start=1):
        loss, hard = loss_of_step(run, rate), loss_of_step(untrained, NO_RATE)
        if diverged := not math.isfinite(loss):
            break
        losses.append(loss)
        hardness.append(hard)
        points = _points(losses, hardness, rates)
        on_point(points[-1])
        if has_diverged([point.smoothed for point in points]):
            diverged = step < steps
            break
    proposed = proposal([point.learning_rate for point in points], [point.smoothed for point in points])
    return RangeTest(tuple(points), diverged, proposed)


def loss_of_step(run: GptRun, rate: float) -> float:
    """Train one step at a rate. Returns the loss of its batch before the step, in nats per token."""
    run.config = dataclasses.replace(run.config, learning_rate=rate)  # the schedule is constant
    run.loss_total.zero_()
    run.train()
    return run.loss_total.item()


def _points(losses: Sequence[float], hardness: Sequence[float], rates: Sequence[float]) -> list[Point]:
    typical = sum(hardness) / len(hardness) if hardness else 0.0
    corrected = [loss - hard + typical for loss, hard in zip(losses, hardness, strict=True)]
    return [
        Point(step, rates[step], loss, smooth)
        for step, (loss, smooth) in enumerate(zip(corrected, smoothed(corrected), strict=True))
    ]


def smoothed(losses: Sequence[float]) -> list[float]:
    """The exponential moving average of the losses, with bias correction."""
    mean, means = 0.0, []
    for count, loss in enumerate(losses, start=1):
        mean = SMOOTHING * mean + (1 - SMOOTHING) * loss
        means.append(mean / (1 - SMOOTHING**count))
    return means


def has_diverged(losses: Sequence[float]) -> bool:
    """Whether the last of the smoothed losses is far above the best, and worse than the first."""
    return losses[-1] > max(losses[0], DIVERGENCE_FACTOR * min(losses))


def proposal(rates: Sequence[float], losses: Sequence[float]) -> Proposal | None:
    """The proposal of a curve of smoothed losses; None if they do not fall."""
    if len(losses) < 3:
        return None
    lowest = int(np.argmin(losses))
    if losses[0] - losses[lowest] < MIN_FALL * losses[0]:
        return None
    nearly = losses[0] - NEARLY_DONE * (losses[0] - losses[lowest])
    done = next(place for place, loss in enumerate(losses) if loss <= nearly)
    slopes = np.gradient(np.asarray(losses), np.log(rates))[: lowest + 1]
    steepest = rates[int(np.argmin(slopes))]
    return Proposal(
        steepest=steepest,
        valley=rates[_valley(losses)],
        minimum_tenth=rates[lowest] / 10,
        low=max(rates[0], min(steepest, rates[done]) / 10),
        high=rates[done],
    )


def _valley(losses: Sequence[float]) -> int:
    """The place two thirds into the longest fall: the longest subsequence in which each loss is lower."""
    length, begin = [1] * len(losses), list(range(len(losses)))
    for here, loss in enumerate(losses):
        for before in range(here):
            if losses[before] > loss and length[before] >= length[here]:
                length[here], begin[here] = length[before] + 1, begin[before]
    end = int(np.argmax(length))
    return begin[end] + (end - begin[end]) * 2 // 3
