"""Extends ranges and lists of numbers beyond one end, where the best values press against it.

| parameter | what is added at the end |
|---|---|
| `log` | half of its decades |
| linear | half of its width |
| `step`, `factor` | half as many values as there are, at least one |
| choices that rise or fall evenly | the next value |

New ends are round numbers. Impossible values are left out: those below 0 or 1 where the range begins there,
and those that the objective does not accept.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from .fields import Plain
from .parameters import Choice
from .ranges import LARGEST_EXACT_INTEGER, Range

End = Literal["lower", "upper"]
LARGEST_END = 1e300  # of an extended range
PLAIN_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED_WORDS = ("true", "false", "null")


@dataclass(frozen=True)
class Interval:
    """The values that an objective accepts, in mathematical notation: `[0, 1)`."""

    interval: str = "(-inf, inf)"

    def allow(self, value: float) -> bool:
        """Whether a value is inside the interval."""
        low, high = self.ends
        above = value >= low if self.interval[0] == "[" else value > low
        below = value <= high if self.interval[-1] == "]" else value < high
        return above and below and -LARGEST_END <= value <= LARGEST_END

    @property
    def ends(self) -> tuple[float, float]:
        """The lower and the upper end, whether included or not."""
        low, high = (float(end) for end in self.interval[1:-1].split(","))
        return low, high


def widened(parameter: Range | Choice, end: End, limits: Interval | None = None) -> Range | Choice | None:
    """The parameter with more values beyond an end; None where nothing lies beyond it."""
    limits = limits or Interval()
    if isinstance(parameter, Choice):
        return _longer(parameter, end, limits)
    is_stepped = parameter.step is not None or parameter.factor is not None
    new = _further_value(parameter, end, limits) if is_stepped else _further(parameter, end, limits)
    if new is None:
        return None
    changed = {"min" if end == "lower" else "max": new}
    try:
        return Range.model_validate(parameter.model_dump(exclude_none=True) | changed)
    except ValueError:  # floats do not continue it exactly
        return None


def is_ordered(choice: Choice) -> bool:
    """Whether the choices are at least three numbers in rising or falling order, like batch sizes."""
    numbers = choice.choices
    if len(numbers) < 3 or not all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers):
        return False
    return numbers == sorted(numbers) or numbers == sorted(numbers, reverse=True)


def line(name: str, parameter: Range | Choice) -> str:
    """A parameter as a line of a space file: `lora_r: {min: 2, max: 64, factor: 2}`."""
    content = parameter.model_dump(exclude_none=True)
    if content.get("log") is False:
        del content["log"]
    if "when" in content:
        content["when"] = content.pop("when")  # moved to the end
    if isinstance(parameter, Choice) and content.keys() == {"choices"}:
        content = content["choices"]
    return f"{name}: {_flow(content)}"


def _further(parameter: Range, end: End, limits: Interval) -> int | float | None:
    """A new end for a continuous range, or one of all integers."""
    old, other = (parameter.min, parameter.max) if end == "lower" else (parameter.max, parameter.min)
    if old == 0 or (parameter.is_int and old == 1 and end == "lower"):
        return None  # a final end: there is no width of -1 or 0
    if parameter.log:
        share = 0.5 * (math.log10(old) - math.log10(other))
        exponent = math.log10(old) + share
        wanted = 10.0 ** min(max(exponent, -300.0), 300.0)
    else:
        wanted = old + (old / 2 - other / 2)
    if parameter.is_int:
        wanted = old + (1 if end == "upper" else -1) * max(1, round(abs(wanted - old)))
    if math.copysign(1, wanted) != math.copysign(1, old) and math.copysign(1, other) == math.copysign(1, old):
        wanted = 1 if parameter.is_int and old > 0 else 0  # a range of positive values stays positive
    if other == 0 and math.copysign(1, wanted) != math.copysign(1, old):
        return None
    wanted = _within(wanted, float(old), limits, whole=parameter.is_int)
    new = wanted if wanted in (0, 1, *limits.ends) else _rounded(wanted, float(old), log=parameter.log)
    if parameter.is_int:
        if abs(new) > LARGEST_EXACT_INTEGER:
            return None
        new = round(new)
    is_beyond = new < old if end == "lower" else new > old
    is_possible = new > 0 or not parameter.log
    return new if is_beyond and is_possible and limits.allow(new) else None


def _within(wanted: float, old: float, limits: Interval, *, whole: bool) -> float:
    """The value; where it is not accepted, the limit, or half way to a limit that is excluded."""
    if limits.allow(wanted):
        return wanted
    low, high = limits.ends
    limit = max(low, -LARGEST_END) if wanted < old else min(high, LARGEST_END)
    if limits.allow(limit):
        return limit
    if whole:
        return limit + (1 if wanted < old else -1)
    return (old + limit) / 2


def _rounded(value: float, old: float, *, log: bool) -> float:
    """A round number near a value: about as far from the old end, and on the same side."""

    def far(number: float) -> float:
        return math.log(number) - math.log(old) if log else number - old

    for digits in range(17):
        rounded = float(f"{value:.{digits}e}")
        if (rounded > 0 or not log) and 0.7 <= far(rounded) / (far(value) or math.inf) <= 1.3:
            return rounded
    return value


def _further_value(parameter: Range, end: End, limits: Interval) -> int | float | None:
    """A new end for a range with `step` or `factor`: one of the values that continue it."""
    count = parameter.count
    assert count is not None
    least = 1 if parameter.is_int and parameter.min >= 1 else 0 if parameter.min >= 0 else -LARGEST_END

    def at(index: int) -> int | float:
        return parameter.at(count - 1 + index if end == "upper" else -index)

    def refused(index: int) -> bool:
        value = at(index)
        if value < least or not limits.allow(value):
            return True
        if parameter.max <= 0 < value or (parameter.factor is not None and value <= 0):
            return True
        if not parameter.is_int:
            return False
        divides = end == "lower" and parameter.factor is not None
        has_rest = divides and int(parameter.min) % int(parameter.factor or 1) ** index != 0
        return has_rest or abs(value) > LARGEST_EXACT_INTEGER

    wanted = max(1, round((count - 1) / 2))
    allowed = bisect_left(range(1, wanted + 1), True, key=refused)
    return at(allowed) if allowed else None


def _longer(choice: Choice, end: End, limits: Interval) -> Choice | None:
    if not is_ordered(choice):
        return None
    falls = choice.choices[0] > choice.choices[-1]
    numbers = choice.choices[::-1] if falls else choice.choices
    new = _next(numbers if end == "upper" else numbers[::-1])
    is_beyond = new is not None and (new > numbers[-1] if end == "upper" else new < numbers[0])
    if new is None or not is_beyond or not limits.allow(new) or (numbers[0] >= 0 and new < 0):
        return None
    longer = [*numbers, new] if end == "upper" else [new, *numbers]
    return Choice.model_validate(
        choice.model_dump(exclude_none=True) | {"choices": longer[:: -1 if falls else 1]}
    )


def _next(numbers: Sequence[Any]) -> int | float | None:
    """The number that continues a list: by ratio where it is positive, unless it is evenly spaced."""
    *_, third, before, last = (Fraction(str(number)) for number in numbers)
    whole = all(isinstance(number, int) for number in numbers)
    evenly = last - before == before - third
    if last == 0 or (whole and last == 1 and before > 1):
        return None
    ratio = not evenly and before > 0 and last > 0
    new = last * last / before if ratio else 2 * last - before
    if whole:
        number = round(new)
        is_allowed = abs(number) <= LARGEST_EXACT_INTEGER and (number >= 1 or min(numbers) < 1)
        return number if is_allowed else None
    return _rounded(float(new), float(last), log=ratio) if abs(new) < LARGEST_END else None


def _flow(value: Plain) -> str:
    """Plain data as YAML on one line."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_flow(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, float):
        return _real(value)
    if isinstance(value, str) and PLAIN_WORD.fullmatch(value) and value.lower() not in RESERVED_WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


def _real(value: float) -> str:
    """A real number in a form that is read as one again: `0.5`, `3e-4`."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return repr(value)
    digits = next(digits for digits in range(17) if float(f"{value:.{digits}e}") == value)
    mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
    return f"{mantissa}e{int(exponent)}"
