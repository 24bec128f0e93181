"""Shows that runs of the objective lora compute together what each computes alone, on this machine.

    echo '[{...}, ...]' | python -m hpsearch.objectives.pack_test

Prints a line of JSON for each run that has trained alone, and then one with what was found. A process of its
own, with the threads of a worker: its caller loads no torch.

Where the two differ by more than rounding explains, the run itself is looked at: one whose learning rate is
too hot makes something big of any rounding. So it trains once more, alone, from a start that is `NUDGE` away,
and may differ by `TIMES` what that changes.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ..trainer.config import LoraConfig
from ..trainer.errors import TrainerError
from ..trainer.loop import FitResult, Run, course, fit
from ..trainer.together import Together

TOLERANCE = {"cpu": 1e-6}  # of numbers up to 1, and relative above
ELSEWHERE = 1e-4  # on devices whose kernels choose another way for another shape
NUDGE = 1e-7
TIMES = 10.0


@dataclass(frozen=True)
class Compared:
    """A run that trained alone and with others."""

    others: int  # that trained with it at most
    value: float | None  # the last loss of the run alone; None where it diverged
    difference: float | None  # the greatest, in a report or the adapter; None where they ended differently
    identical: bool  # bit for bit
    sensitivity: float | None  # what a start `NUDGE` away changes; None where nobody had to know
    allowed: float

    @property
    def passed(self) -> bool:
        return self.difference is not None and self.difference <= self.allowed


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
    together, runs = Together(), list[Run]()
    results: dict[Run, FitResult] = {}
    others: dict[Run, int] = {}
    while len(runs) < len(configs) or together.busy:
        if len(runs) < len(configs):
            run = together.new_run(configs[len(runs)])
            # What is zero stays zero: of the slightest gradient Adam makes a whole first step.
            start = {name: tensor + nudge * (tensor != 0) for name, tensor in run.weights().items()}
            run.load_weights(start)
            together.join(run, course(run, on_report=lambda report: None))
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
    allowed = TOLERANCE.get(device, ELSEWHERE)
    difference, sensitivity = _difference(alone, packed), None
    if difference is not None and difference > allowed:
        [nudged], _ = train_together([config], NUDGE)
        sensitivity = _difference(alone, nudged)
        allowed = max(allowed, TIMES * (sensitivity or 0.0))
    value = alone.value if math.isfinite(alone.value) else None
    return Compared(others, value, difference, _identical(alone, packed), sensitivity, allowed)


def _difference(one: FitResult, other: FitResult) -> float | None:
    """The greatest difference of a number; of a run that diverged, only of those before it did."""
    if (one.stopped, one.steps, len(one.reports)) != (other.stopped, other.steps, len(other.reports)):
        return None
    reports = zip(one.reports, other.reports, strict=True)
    pairs = [(torch.tensor(_told(a)), torch.tensor(_told(b))) for a, b in reports]
    if one.stopped == "diverged":
        del pairs[-1]
    else:
        pairs += [(tensor, other.weights[name]) for name, tensor in one.weights.items()]
    found = [((a - b).abs() / a.abs().clamp(min=1.0)).max().item() for a, b in pairs]
    return max(found, default=0.0) if all(map(math.isfinite, found)) else None


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
