"""Lengths of time in words."""

from __future__ import annotations

import math


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
