"""Tests that packed runs of the objective lora compute the same as each alone, on this machine.

    echo '[{...}, ...]' | python -m hpsearch.objectives.gpt.pack_test

Prints a line of JSON after each run alone, and then one with the comparison. It runs in its own process, with
the threads of a worker: the caller loads no torch.

If the two differ by more than rounding explains, the run's own sensitivity is measured, because a learning
rate that is too high amplifies any rounding. The run trains twice more, alone, from initial weights that are
`START_NUDGE` away in either direction, and may differ by `SENSITIVITY_FACTOR` the larger change.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ...trainer.config.models import LoraConfig
from ...trainer.errors import TrainerError
from ...trainer.runs.base import FitResult, drive
from ...trainer.runs.run import GptRun, fit
from ...trainer.runs.together import PackedRuns

TOLERANCE = {"cpu": 1e-6}  # of numbers up to 1, and relative above
GPU_TOLERANCE = 1e-4  # on other devices, whose kernels depend on the shape
START_NUDGE = 1e-7
SENSITIVITY_FACTOR = 10.0
PARTS = ("reports", "adapter")
Difference = dict[str, float]  # the largest difference between two runs in each part


@dataclass(frozen=True)
class PackComparison:
    """The comparison of a run alone with the same run in a pack."""

    others: int  # most runs that trained with it at a time
    value: float | None  # the last loss of the run alone; None if it diverged
    difference: Difference | None  # None if they ended differently
    identical: bool  # bit for bit
    sensitivity: Difference | None  # the largest change by `START_NUDGE`; None if not measured
    allowed: Difference

    @property
    def passed(self) -> bool:
        gap = self.difference
        return gap is not None and all(gap[part] <= self.allowed[part] for part in PARTS)


def compare(configs: Sequence[LoraConfig], on_run: Callable[[int], None]) -> list[PackComparison]:
    """Train each run alone, then all together; `on_run` is called with the number of runs trained alone.

    Raises `TrainerError` if a run cannot train.
    """
    alone = []
    for config in configs:
        alone.append(fit(config, on_report=lambda report: None))
        on_run(len(alone))
    together, others = train_together(configs)
    return [
        _compared(config, one, other, most)
        for config, one, other, most in zip(configs, alone, together, others, strict=True)
    ]


def train_together(configs: Sequence[LoraConfig], nudge: float = 0.0) -> tuple[list[FitResult], list[int]]:
    """Train runs like a worker, each started a tick after the one before; also how many others each met."""
    together, runs = PackedRuns(), list[GptRun]()
    results: dict[GptRun, FitResult] = {}
    others: dict[GptRun, int] = {}
    while len(runs) < len(configs) or together.busy:
        if len(runs) < len(configs):
            run = together.new_run(configs[len(runs)])
            # Zeros stay zero: Adam would turn the slightest gradient into a full first step.
            start = {name: tensor + nudge * (tensor != 0) for name, tensor in run.weights().items()}
            run.load_weights(start)
            together.join(run, drive(run, on_report=lambda report: None))
            runs.append(run)
        for run in runs:
            if run.member in run.pack.members:
                others[run] = max(others.get(run, 0), len(run.pack.members) - 1)
        for run, outcome in together.advance():
            if isinstance(outcome, BaseException):
                raise outcome
            results[run] = outcome
    return [results[run] for run in runs], [others[run] for run in runs]


def _compared(config: LoraConfig, alone: FitResult, packed: FitResult, others: int) -> PackComparison:
    device = next(iter(alone.weights.values())).device.type
    allowed = dict.fromkeys(PARTS, TOLERANCE.get(device, GPU_TOLERANCE))
    difference, sensitivity = _difference(alone, packed), None
    if difference is not None and any(difference[part] > allowed[part] for part in PARTS):
        nudged = [train_together([config], nudge)[0][0] for nudge in (START_NUDGE, -START_NUDGE)]
        gaps = [gap for each in nudged if (gap := _difference(alone, each)) is not None]
        sensitivity = {part: max(gap[part] for gap in gaps) for part in PARTS} if gaps else None
        for part, changed in (sensitivity or {}).items():
            allowed[part] = max(allowed[part], SENSITIVITY_FACTOR * changed)
    value = alone.value if math.isfinite(alone.value) else None
    return PackComparison(others, value, difference, _identical(alone, packed), sensitivity, allowed)


def _difference(one: FitResult, other: FitResult) -> Difference | None:
    """The difference between two runs; if they diverged, only of the reports before that."""
    if (one.stopped, one.steps, len(one.reports)) != (other.stopped, other.steps, len(other.reports)):
        return None
    losses = [[torch.tensor(_losses(report)) for report in result.reports] for result in (one, other)]
    pairs = {"reports": list(zip(*losses, strict=True)), "adapter": list[tuple[Tensor, Tensor]]()}
    if one.stopped == "diverged":
        del pairs["reports"][-1]
    else:
        pairs["adapter"] = [(tensor, other.weights[name]) for name, tensor in one.weights.items()]
    gap = {part: max((_apart(*pair) for pair in pairs[part]), default=0.0) for part in PARTS}
    return gap if all(map(math.isfinite, gap.values())) else None


def _apart(one: Tensor, other: Tensor) -> float:
    """The largest difference of two numbers; infinite if it is not finite."""
    difference = ((one - other).abs() / one.abs().clamp(min=1.0)).max().item()
    return difference if math.isfinite(difference) else math.inf


def _identical(one: FitResult, other: FitResult) -> bool:
    losses = [[_losses(report) for report in result.reports] for result in (one, other)]
    weights = [(tensor, other.weights[name]) for name, tensor in one.weights.items()]
    same = (bool(((a == b) | (a.isnan() & b.isnan())).all()) for a, b in weights)
    return repr(losses[0]) == repr(losses[1]) and all(same)  # as text, NaN equals NaN


def _losses(report: Any) -> list[float]:
    """The numbers of a report that do not depend on the clock or the memory."""
    return [report.value, report.metrics["train_loss"]]


def main(params_of_runs: Sequence[Mapping[str, Any]]) -> None:
    """Compare the runs with these parameters, and print the results."""

    def print_progress(done: int) -> None:
        print(json.dumps({"alone": done}), flush=True)

    compared = compare([LoraConfig.from_params(params) for params in params_of_runs], print_progress)
    print(json.dumps({"compared": [asdict(each) | {"passed": each.passed} for each in compared]}))


if __name__ == "__main__":
    try:
        main(json.load(sys.stdin))
    except TrainerError as error:  # its message says what to change
        sys.exit(str(error))
