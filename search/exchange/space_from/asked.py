"""What one suggestion of Optuna's is in a space."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

ARGUMENTS: dict[str, tuple[str, ...]] = {  # of each suggest_ method
    "float": ("name", "low", "high", "step", "log"),
    "int": ("name", "low", "high", "step", "log"),
    "uniform": ("name", "low", "high"),
    "loguniform": ("name", "low", "high"),
    "discrete_uniform": ("name", "low", "high", "q"),
    "categorical": ("name", "choices"),
}


def says_of(kind: str, read: Mapping[str, Any]) -> Any:
    """What a suggestion is in a space: {min, max, ...}, a list of choices, or a constant."""
    if kind == "categorical":
        choices = [list(each) if isinstance(each, tuple) else each for each in read["choices"]]
        if not choices or any(isinstance(each, dict) for each in choices):
            raise ValueError("a space has choices that are values or lists")
        return choices if len(choices) > 1 else choices[0]
    whole = kind == "int"
    low, high = ((int if whole else float)(read[key]) for key in ("low", "high"))
    step = read.get("q") if kind == "discrete_uniform" else read.get("step")
    log = kind == "loguniform" or bool(read.get("log"))
    if low > high:
        raise ValueError(f"low {low} is above high {high}")
    if step is not None and not (whole and step == 1):
        exact = [Decimal(str(each)) for each in (low, high, step)]
        high = (int if whole else float)(exact[0] + (exact[1] - exact[0]) // exact[2] * exact[2])
    if low == high:
        return low
    says: dict[str, Any] = {"min": low, "max": high}
    if log:
        says["log"] = True
    elif step is not None and not (whole and step == 1):
        says["step"] = int(step) if whole else float(step)
    return says
