"""Ranges to search first, from a parameter's name and its current value.

    first_range("optimizer.lr", 1e-4)
    FirstRange({"min": 1e-05, "max": 0.001, "log": True}, "a factor of 10 around the current value")

The rules come from the training guides. A range includes the current value, so that it can be the baseline.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MAX_NUMBER = 2**63  # integers in a study's database are below
Number = int | float
RangeRule = Callable[[Number | None], tuple[dict[str, Any], str] | None]


@dataclass(frozen=True)
class FirstRange:
    """A range as a space file writes it, and the reason for it."""

    range: dict[str, Any]
    why: str


def first_range(name: str, value: Number | None) -> FirstRange | None:
    """The range for a number of this name; None if no rule gives one that includes the value.

    `name` may be dotted or hyphenated. `value` is the current one; None if unknown.
    """
    if value is not None and not abs(value) < MAX_NUMBER:  # also false for NaN
        return None
    last = name.rpartition(".")[2].lower().replace("-", "_")
    rule = next((rule for pattern, rule in RULES if pattern.fullmatch(last)), None)
    proposed = rule(value) if rule is not None else None
    return None if proposed is None or not _is_valid(proposed[0], value) else FirstRange(*proposed)


def _is_valid(proposed: dict[str, Any], value: Number | None) -> bool:
    low, high = proposed["min"], proposed["max"]
    if not (math.isfinite(low) and math.isfinite(high) and low < high) or abs(high) >= MAX_NUMBER:
        return False
    if isinstance(high, int) and high > 2**53:  # a space accepts no larger integers
        return False
    if low <= 0 and ("log" in proposed or "factor" in proposed):
        return False
    return value is None or low <= value <= high


def _rate(value: Number | None) -> tuple[dict[str, Any], str] | None:
    if value is None:
        return {"min": 1e-5, "max": 1e-3, "log": True}, "guides: 5e-5 to 2e-4, at most 1e-3"
    if value <= 0:
        return None
    low, high = (float(f"{end:.3g}") for end in (value / 10, value * 10.0))
    return {"min": low, "max": high, "log": True}, "a factor of 10 around the current value"


def _powers(low: int, high: int, why: str) -> RangeRule:
    def rule(value: Number | None) -> tuple[dict[str, Any], str] | None:
        if value is None:
            return {"min": low, "max": high, "factor": 2}, why
        if value <= 0 or value != int(value):
            return None
        least, kind = int(value), type(value)  # 16.0 stays a real number
        for _ in range(2):
            least = least // 2 if least % 2 == 0 else least
        return {"min": kind(least), "max": 4 * value, "factor": 2}, f"halved and doubled; {why}"

    return rule


def _share(most: float, why: str) -> RangeRule:
    """From 0 to `most`, or higher if the current value is large."""

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
        return WARMUP_SHARE(value)  # newer versions of transformers accept a share here
    if value is not None and (value < 0 or value != int(value)):
        return None
    return {"min": 0, "max": max(100, 4 * int(value or 0))}, "guides: 5 to 10 % of the steps"


WARMUP_SHARE = _share(0.2, "guides: 0.03 to 0.1")
RULES: tuple[tuple[re.Pattern[str], RangeRule], ...] = tuple(
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
        (r"label_smoothing(_factor)?", _share(0.2, "from none to the usual strength")),
        (r"min_lr_ratio", _share(0.2, "guides: 0.01 to 0.1")),
    )
)
