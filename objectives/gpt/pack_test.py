"""Shows that runs of the objective lora compute together what each computes alone, on this machine.

    echo '[{...}, ...]' | python -m hpsearch.objectives.gpt.pack_test

Prints a line of JSON for each run that has trained alone, and then one with what was found. A process of its
own, with the threads of a worker: its caller loads no torch.

Where the two differ by more than rounding explains, the run itself is looked at: one whose learning rate is
too hot makes something big of any rounding. So it trains twice more, alone, from a start that is `NUDGE` away
to either side, and may differ by `TIMES` the more of what these change.
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
ELSEWHERE = 1e-4  # on devices whose kernels choose another way for another shape
NUDGE = 1e-7
TIMES = 10.0
PARTS = ("reports", "adapter")
Gap = dict[str, float]  # the greatest difference between two runs in each part


@dataclass(frozen=True)
class Compared:
    """A run that trained alone and with others."""

    others: int  # that trained with it at most
    value: float | None  # the last loss of the run alone; None where it diverged
    difference: Gap | None  # None where they ended differently
    identical: bool  # bit for bit
    sensitivity: Gap | None  # the most that a start `NUDGE` away changes; None where nobody had to know
    allowed: Gap

    @property
    def passed(self) -> bool:
        there = self.difference
        return there is not None and all(there[part] <= self.allowed[part] for part in PARTS)


def compare(configs: Sequence[LoraConfig], on_run: Callable[[int], None]) -> list[Compared]:
    """Train all alone, then all together; `on_run` hears how many have trained alone.

    Raises `TrainerError` where one cannot train.
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
    """The runs as a worker trains them, each begun a tick after the one before; how many others each met."""
    together, runs = PackedRuns(), list[GptRun]()
    results: dict[GptRun, FitResult] = {}
    others: dict[GptRun, int] = {}
    while len(runs) < len(configs) or together.busy:
        if len(runs) < len(configs):
            run = together.new_run(configs[len(runs)])
            # What is zero stays zero: of the slightest gradient Adam makes a whole first step.
            start = {name: tensor + nudge * (tensor != 0) for name, tensor in run.weights().items()}
            run.load_weights(start)
            together.join(run, drive(run, on_report=lambda report: None))
            runs.append(run)
        for run in runs:
            if run in run.pack.runs:
                others[run] = max(others.get(run, 0), len(run.pack.runs) - 1)
        for run, outcome in together.advance():
            if isinstance(outcome, BaseException):
                raise outcome
            results[run] = outcome
    return [results[run] for run in runs], [others[run] for run in runs]


def _compared(config: LoraConfig, alone: FitResult, packed: FitResult, others: int) -> Compared:
    device = next(iter(alone.weights.values())).device.type
    allowed = dict.fromkeys(PARTS, TOLERANCE.get(device, ELSEWHERE))
    difference, sensitivity = _gap(alone, packed), None
    if difference is not None and any(difference[part] > allowed[part] for part in PARTS):
        nudged = [train_together([config], nudge)[0][0] for nudge in (NUDGE, -NUDGE)]
        gaps = [gap for each in nudged if (gap := _gap(alone, each)) is not None]
        sensitivity = {part: max(gap[part] for gap in gaps) for part in PARTS} if gaps else None
        for part, changed in (sensitivity or {}).items():
            allowed[part] = max(allowed[part], TIMES * changed)
    value = alone.value if math.isfinite(alone.value) else None
    return Compared(others, value, difference, _identical(alone, packed), sensitivity, allowed)


def _gap(one: FitResult, other: FitResult) -> Gap | None:
    """How far apart two runs are; of one that diverged, only what it reported before it did."""
    if (one.stopped, one.steps, len(one.reports)) != (other.stopped, other.steps, len(other.reports)):
        return None
    told = [[torch.tensor(_told(report)) for report in result.reports] for result in (one, other)]
    pairs = {"reports": list(zip(*told, strict=True)), "adapter": list[tuple[Tensor, Tensor]]()}
    if one.stopped == "diverged":
        del pairs["reports"][-1]
    else:
        pairs["adapter"] = [(tensor, other.weights[name]) for name, tensor in one.weights.items()]
    gap = {part: max((_apart(*pair) for pair in pairs[part]), default=0.0) for part in PARTS}
    return gap if all(map(math.isfinite, gap.values())) else None


def _apart(one: Tensor, other: Tensor) -> float:
    """The greatest difference of two numbers; infinite where one of them is none."""
    found = ((one - other).abs() / one.abs().clamp(min=1.0)).max().item()
    return found if math.isfinite(found) else math.inf


def _identical(one: FitResult, other: FitResult) -> bool:
    told = [[_told(report) for report in result.reports] for result in (one, other)]
    weights = [(tensor, other.weights[name]) for name, tensor in one.weights.items()]
    same = (bool(((a == b) | (a.isnan() & b.isnan())).all()) for a, b in weights)
    return repr(told[0]) == repr(told[1]) and all(same)  # NaN is NaN here


def _told(report: Any) -> list[float]:
    """What a report says of the training; its other numbers are of the clock and the memory."""
    return [report.value, report.metrics["train_loss"]]


def main(asked: Sequence[Mapping[str, Any]]) -> None:
    """Compare what the caller asks for."""

    def tell(done: int) -> None:
        print(json.dumps({"alone": done}), flush=True)

    found = compare([LoraConfig.from_params(params) for params in asked], tell)
    print(json.dumps({"compared": [asdict(each) | {"passed": each.passed} for each in found]}))


if __name__ == "__main__":
    try:
        main(json.load(sys.stdin))
    except TrainerError as error:  # its message says what to change
        sys.exit(str(error))
