"""Ranges to search first, by what a number is called and what it is now.

    first_range("optimizer.lr", 1e-4)
    FirstRange({"min": 1e-05, "max": 0.001, "log": True}, "a factor of 10 each way around what it is now")

The rules are the training guides'. A range holds the present value, so that it can be the baseline.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LARGEST = 2**63  # integers of a study's database are below
Number = int | float
Rule = Callable[[Number | None], tuple[dict[str, Any], str] | None]


@dataclass(frozen=True)
class FirstRange:
    """A range as a space file has it, and why it is this one."""

    range: dict[str, Any]
    why: str


def first_range(name: str, value: Number | None) -> FirstRange | None:
    """The range for a number of this name; None where the guides know none that holds the value.

    `name` may be dotted and written with hyphens. `value` is what it is now; None where that is not known.
    """
    if value is not None and not abs(value) < LARGEST:  # NaN is none of these either
        return None
    last = name.rpartition(".")[2].lower().replace("-", "_")
    rule = next((rule for pattern, rule in RULES if pattern.fullmatch(last)), None)
    found = rule(value) if rule is not None else None
    return None if found is None or not _sound(found[0], value) else FirstRange(*found)


def _sound(found: dict[str, Any], value: Number | None) -> bool:
    low, high = found["min"], found["max"]
    if not (math.isfinite(low) and math.isfinite(high) and low < high) or abs(high) >= LARGEST:
        return False
    if isinstance(high, int) and high > 2**53:  # beyond which a space takes no integer
        return False
    if low <= 0 and ("log" in found or "factor" in found):
        return False
    return value is None or low <= value <= high


def _rate(value: Number | None) -> tuple[dict[str, Any], str] | None:
    if value is None:
        return {"min": 1e-5, "max": 1e-3, "log": True}, "guides: 5e-5 to 2e-4, at most 1e-3"
    if value <= 0:
        return None
    low, high = (float(f"{end:.3g}") for end in (value / 10, value * 10.0))
    return {"min": low, "max": high, "log": True}, "a factor of 10 each way around what it is now"


def _powers(low: int, high: int, why: str) -> Rule:
    def rule(value: Number | None) -> tuple[dict[str, Any], str] | None:
        if value is None:
            return {"min": low, "max": high, "factor": 2}, why
        if not isinstance(value, int) or value <= 0:
            return None
        least = value
        for _ in range(2):
            least = least // 2 if least % 2 == 0 else least
        return {"min": least, "max": 4 * value, "factor": 2}, f"halved and doubled; {why}"

    return rule


def _share(most: float, why: str) -> Rule:
    """From 0; more than `most` where it is more now."""

    def rule(value: Number | None) -> tuple[dict[str, Any], str] | None:
        if value is not None and not 0 <= value < 1:
            return None
        return {"min": 0.0, "max": max(most, min(0.9, 2.0 * (value or 0)), float(value or 0))}, why

    return rule


def _decay(value: Number | None) -> tuple[dict[str, Any], str] | None:
    why = "guides: 0.001 to 0.1, more for little data"
    if value == 0:
        return {"min": 0.0, "max": 0.1}, why
    if value is None:
        return {"min": 1e-3, "max": 0.1, "log": True}, why
    low, high = min(1e-3, float(f"{value / 10:.3g}")), max(0.1, float(f"{value * 10.0:.3g}"))
    return {"min": low, "max": high, "log": True}, why


def _warmup(value: Number | None) -> tuple[dict[str, Any], str] | None:
    if isinstance(value, float) and value < 1:
        return WARMUP_SHARE(value)  # as newer transformers write a share
    if value is not None and (value < 0 or value != int(value)):
        return None
    return {"min": 0, "max": max(100, 4 * int(value or 0))}, "guides: 5 to 10 % of the steps"


WARMUP_SHARE = _share(0.2, "guides: 0.03 to 0.1")
RULES: tuple[tuple[re.Pattern[str], Rule], ...] = tuple(
    (re.compile(pattern), rule)
    for pattern, rule in (
        (r"((peak|base|init|initial|max)_)?(lr|learning_rate)", _rate),
        (r"bs|((train|micro|per_device|per_device_train)_)?batch_size", _powers(4, 32, "guides: 4 to 32")),
        (r"r|lora_(r|rank)", _powers(8, 32, "guides: 8 to 32")),
        (r"lora_alpha", _powers(16, 64, "guides: 2 to 4 times the rank")),
        (r"lora_dropout", _share(0.2, "guides: 0.03 to 0.1")),
        (r"(\w+_)?(dropout|drop_rate)(_(rate|p|prob))?", _share(0.3, "guides: 0.1, or none")),
        (r"weight_decay|wd", _decay),
        (r"warmup_(ratio|fraction|proportion|frac)", WARMUP_SHARE),
        (r"(num_|n_)?warmup(_steps|_iters)?", _warmup),
        (r"label_smoothing(_factor)?", _share(0.2, "from none to what is usual")),
        (r"min_lr_ratio", _share(0.2, "guides: 0.01 to 0.1")),
    )
)
