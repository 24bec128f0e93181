"""Lengths of time, and numbers of things, in words."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

ENDING = re.compile(r"trial \d+ *(complete|pruned|fail) ")  # how the line begins that tells of a trial's end


def duration(seconds: float) -> str:
    """`45 s`, `30 min`, `1 h 30 min`."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (0 if hours else rest, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def option(seconds: float) -> str:
    """A round time of at least so long, as `--time` takes it: `90s`, `40m`, `3h`."""
    for unit, step, most in (("s", 10, 90), ("m", 60, 5400)):
        if seconds <= most:
            whole = math.ceil(seconds / step)
            return f"{whole * 10 if unit == 's' else whole}{unit}"
    return f"{math.ceil(seconds / 3600)}h"


def counted(numbers: int | Sequence[int], things: str, between: str = ", ") -> str:
    """A number of things, or several: `1 step`, `1,200 steps`, `1, 3, 9 steps`."""
    numbers = [numbers] if isinstance(numbers, int) else numbers
    said = between.join(f"{number:,}" for number in numbers)
    return f"{said} {things.removesuffix('s') if list(numbers) == [1] else things}"


def position(step: int, unit: str) -> str:
    """How far a training is, to be read after "at": `step 1,200`, `epoch 3`, `500 samples`."""
    return counted(step, unit) if unit == "samples" else f"{unit.removesuffix('s')} {step:,}"


def gibibytes(amount: float) -> str:
    """An amount of memory in words."""
    return f"{amount / 2**30:.3g} GiB" if amount >= 2**30 else f"{amount / 2**20:.3g} MiB"
