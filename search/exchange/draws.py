"""How another tool draws a value, as a parameter of ours.

A distribution without a counterpart becomes an expression over a helper (`pass: false`) where that is exact,
or the nearest range with a remark that says what differs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from pydantic import ValidationError

from ...spaces.expressions import MOST_CHARACTERS
from ...spaces.fields import show
from ...spaces.parameters import MOST_CHOICES
from ...spaces.ranges import Range

RAW = "\0"  # in an expression: the name of the helper; no text that an expression holds has it
HELPER = "_raw"  # ends the name of a parameter that only an expression reads
SIGMAS = 3  # a normal distribution becomes the range this many standard deviations around its mean
CONFIDENCE = "medium"
NO_STEPS = "a logarithmic range takes no step here, so an expression rounds it, as is done there"
ENDS = "the first and the last value are rarer there, because less is rounded to them"


class Unsaid(ValueError):
    """What the language of space files cannot say; `key` is where the reason stands."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True)
class Draw:
    """A parameter's value as a space file writes it, the helper that it reads, and what is not exact."""

    value: Any
    helper: dict[str, Any] | None = None  # `RAW` in the value's expression
    remarks: tuple[str, ...] = field(default=())

    def remarked(self, *remarks: str) -> Draw:
        """The same draw with more remarks."""
        return replace(self, remarks=(*self.remarks, *remarks))

    @property
    def is_searched(self) -> bool:
        """Whether it is not a constant."""
        return not (isinstance(self.value, dict) and "value" in self.value)


def constant(value: Any) -> Draw:
    """One fixed value."""
    return Draw({"value": value})


def uniform(low: float, high: float) -> Draw:
    """Real numbers, all equally likely."""
    return _checked(_ordered(float(low), float(high)) or Draw({"min": float(low), "max": float(high)}))


def whole(low: int, high: int, step: int = 1) -> Draw:
    """Integers, both ends included; only those that `step` reaches."""
    high = low + (high - low) // step * step
    draw = _ordered(low, high) or Draw({"min": low, "max": high} | ({"step": step} if step > 1 else {}))
    return _checked(draw)


def log_whole(low: int, high: int) -> Draw:
    """Integers, orders of magnitude equally likely."""
    _above_zero(low)
    return _checked(_ordered(low, high) or Draw({"min": low, "max": high, "log": True}))


def stepped(low: float, high: float, step: float) -> Draw:
    """Real numbers on a grid from `low`, all equally likely; `high` where the grid reaches it."""
    if step <= 0:
        raise Unsaid(f"must be above 0, not {show(step)}", "step")
    exact = Decimal(str(step))
    last = float(_exact(low) + (_exact(high) - _exact(low)) // exact * exact)
    return _checked(_ordered(float(low), last) or Draw({"min": float(low), "max": last, "step": float(step)}))


def log_uniform(low: float, high: float) -> Draw:
    """Real numbers, orders of magnitude equally likely."""
    _above_zero(low)
    value = {"min": float(low), "max": float(high), "log": True}
    return _checked(_ordered(float(low), float(high)) or Draw(value))


def floored(first: int, last: int, q: int = 1) -> Draw:
    """`q` times an integer from `first` to `last`: a logarithmically uniform number, cut."""
    inner = log_uniform(first, last + 1)
    if first == last:
        return constant(first * q)
    text = f"min(floor({RAW}), {last})"
    text, remarks = (text, ()) if q == 1 else (f"{text} * {q}", (NO_STEPS,))
    return Draw({"expr": text}, helper=inner.value, remarks=remarks)


def power(base: float, exponent: float) -> float:
    """A bound that is written as an exponent."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        raise Unsaid(f"{show(base)} to the power of {show(exponent)} is too large for a number") from None


def rounded(
    low: float,
    high: float,
    q: float,
    *,
    log: bool = False,
    clipped: bool = False,
    whole_numbers: bool = False,
) -> Draw:
    """Multiples of `q`: a real number of a range, rounded to the nearest.

    `clipped`: what is rounded beyond the range becomes its end, which may be no multiple. `whole_numbers`:
    the results are integers.
    """
    if q <= 0:
        raise Unsaid(f"must be above 0, not {show(q)}", "q")
    inner = log_uniform(low, high) if log else uniform(low, high)
    if not inner.is_searched:
        only = _exact(low) if clipped else _multiple(low, q)
        return constant(int(only) if whole_numbers else float(only))
    exact, half = _exact(q), _exact(q) / 2
    first = ((_exact(low) + half) / exact).to_integral_value(ROUND_FLOOR) * exact
    last = ((_exact(high) - half) / exact).to_integral_value(ROUND_CEILING) * exact
    if first == last and not clipped:
        return constant(int(first) if whole_numbers else float(first))
    on_grid = first == _exact(low) and last == _exact(high)
    if not log and (on_grid or not clipped):
        number = int if whole_numbers else float
        grid = {"min": number(first), "max": number(last)}
        if not (whole_numbers and q == 1):
            grid["step"] = number(exact)
        widths = [first + half - _exact(low), *[exact] * (last - first > exact), _exact(high) - last + half]
        remark = f"multiples of {_written(q)}, all equally likely; {ENDS}"
        return _checked(Draw(grid, remarks=(remark,) if len(set(widths)) > 1 else ()))
    return _through(inner, q, (low, high) if clipped else None, whole_numbers=whole_numbers)


def multiples(low: float, high: float, step: float) -> tuple[float, float]:
    """The first and the last multiple of a step in a range: between these, Ray Tune draws multiples.

    A bound that is one but for rounding counts as one. Raises `Unsaid` if there is none.
    """
    if not (step > 0 and math.isfinite(high - low)):
        raise ValueError(step)
    ends = []
    for bound, towards in ((low, math.ceil), (high, math.floor)):
        nearest = round(bound / step)
        ends.append(nearest if math.isclose(bound / step, nearest) else towards(bound / step))
    if ends[0] > ends[1]:
        raise Unsaid(f"has no multiple of {step} within")
    exact = Decimal(repr(step))
    low, high = (type(low)(exact * end) for end in ends)
    return low, high


def normal(mean: float, deviation: float, q: float | None = None, *, whole_numbers: bool = False) -> Draw:
    """A normal distribution, which has no counterpart: the range around its mean, with a prior there."""
    if deviation < 0:
        raise Unsaid(f"must not be negative, but is {show(deviation)}", "sigma")
    if q is not None and q <= 0:
        raise Unsaid(f"must be above 0, not {show(q)}", "q")
    number = int if whole_numbers else float
    low, high = mean - SIGMAS * deviation, mean + SIGMAS * deviation
    remark = _about_normal(mean, deviation, "")
    if q is None:
        if low >= high:
            return constant(float(mean))
        return _checked(Draw(_with_prior(low, high, mean), remarks=remark))
    first, last = _multiple(low, q), _multiple(high, q)
    if first == last:
        return constant(number(first)).remarked(*remark)
    value = {"min": number(first), "max": number(last), "step": number(_exact(q))}
    return _checked(Draw(value | _prior(number(_multiple(mean, q))), remarks=remark))


def log_normal(mean: float, deviation: float, q: float | None = None, *, whole_numbers: bool = False) -> Draw:
    """A log-normal distribution, as `normal`; the mean and the deviation are those of the logarithm."""
    if deviation < 0:
        raise Unsaid(f"must not be negative, but is {show(deviation)}", "sigma")
    at = power(math.e, mean)
    low, high = (float(f"{power(math.e, mean + sign * SIGMAS * deviation):.12g}") for sign in (-1, 1))
    if low >= high:
        draw = constant(at)
    else:
        _above_zero(low)
        remark = _about_normal(mean, deviation, "the logarithm of ")
        draw = Draw(_with_prior(low, high, at) | {"log": True}, remarks=remark)
    if q is None:
        return draw
    if q <= 0:
        raise Unsaid(f"must be above 0, not {show(q)}", "q")
    if not draw.is_searched:
        value = _multiple(at, q)
        return constant(int(value) if whole_numbers else float(value))
    return _through(draw, q, None, whole_numbers=whole_numbers)


def choices(values: Sequence[Any], weights: Sequence[float] | None = None) -> Draw:
    """One of several values; with `weights` by an expression over a uniform helper, which is exact."""
    if len(values) > MOST_CHOICES:
        raise Unsaid(f"has {len(values):,} values; a list of choices has at most {MOST_CHOICES:,}")
    seen: dict[Any, Any] = {}
    for value in values:
        if isinstance(value, dict):
            raise Unsaid(
                f"holds a mapping, {show(value)}; a choice is a single value or a list. Give each key of the "
                'mapping a parameter with "when", or an "expr" over the choice'
            )
        label = json.dumps(value) if isinstance(value, list) else value
        if label in seen:
            other = f"equals {show(seen[label])} before it" if type(seen[label]) is not type(value) else ""
            other = other or "is listed twice, so it would be drawn twice as often"
            raise Unsaid(f"{show(value)} {other}; the choices of a space differ, and are equally likely")
        seen[label] = value
    if weights is None or len(set(weights)) == 1:
        return Draw(list(values))
    return _weighted(values, weights)


def one_of_mappings(index: str, values: Sequence[Any], present: Sequence[bool]) -> Any:
    """The value of a key of several mappings, one of which is chosen by its number: an expression, or a
    constant. With `when` where not all mappings have the key."""
    numbers = [number for number, is_in in enumerate(present, start=1) if is_in]
    found = [value for value, is_in in zip(values, present, strict=True) if is_in]
    when = {} if all(present) else {"when": {index: numbers}}
    if all(type(value) is type(found[0]) and value == found[0] for value in found):
        return {"value": found[0]} | when
    text = literal(found[-1])
    for number, value in reversed(list(zip(numbers[:-1], found[:-1], strict=True))):
        text = f"{literal(value)} if {index} == {number} else {text}"
    return {"expr": _fitting(text)} | when


def _weighted(values: Sequence[Any], weights: Sequence[float]) -> Draw:
    total = sum(map(_exact, weights))
    if any(weight < 0 for weight in weights) or total <= 0:
        raise Unsaid("must be weights of at least 0, and not all 0", "probabilities")
    kept = [(value, _exact(w)) for value, w in zip(values, weights, strict=True) if w > 0]
    if len(kept) == 1:
        return constant(kept[0][0])
    below, ends = Decimal(0), []
    for _, weight in kept:
        below += weight
        ends.append(float(below / total))
    text = literal(kept[-1][0])
    for (value, _), end in reversed(list(zip(kept[:-1], ends[:-1], strict=True))):
        text = f"{literal(value)} if {RAW} < {end!r} else {text}"
    return Draw({"expr": _fitting(text)}, helper={"min": 0.0, "max": 1.0})


def _through(inner: Draw, q: float, ends: tuple[float, float] | None, *, whole_numbers: bool) -> Draw:
    """A range rounded to multiples of `q` by an expression, because no grid has these values."""
    log = isinstance(inner.value, dict) and inner.value.get("log")
    text = f"round({RAW})" if q == 1 else f"round({RAW} / {_written(q)}) * {_written(q)}"
    if whole_numbers and q != 1:
        text = f"round({RAW} / {int(q)}) * {int(q)}"
    if ends is not None:
        text = f"min(max({text}, {_written(ends[0])}), {_written(ends[1])})"
    if not whole_numbers:
        text = f"float({text})"
    remarks = (*inner.remarks, *([NO_STEPS] if log else []))
    return Draw({"expr": text}, helper=inner.value, remarks=remarks)


def _ordered(low: float, high: float) -> Draw | None:
    """A constant where both bounds are equal."""
    if low > high:
        raise Unsaid(f"is from {show(low)} to {show(high)}: the bounds are swapped")
    return constant(low) if low == high else None


def _checked(draw: Draw) -> Draw:
    """The draw, where the language has its range; raises `Unsaid` with the language's own words."""
    if isinstance(draw.value, dict) and "min" in draw.value:
        try:
            Range.model_validate(draw.value)
        except ValidationError as error:
            raise Unsaid("; ".join(each["msg"] for each in error.errors())) from None
    return draw


def _above_zero(low: float) -> None:
    if low <= 0:
        raise Unsaid(f"begins at {show(low)}; a logarithmic range begins above 0")


def _with_prior(low: float, high: float, at: float) -> dict[str, Any]:
    return {"min": float(low), "max": float(high)} | _prior(float(at))


def _prior(at: float) -> dict[str, Any]:
    return {"prior": {"at": at, "confidence": CONFIDENCE}}


def _about_normal(mean: float, deviation: float, of: str) -> tuple[str]:
    return (
        f"there {of}the value is normally distributed with mean {mean:.6g} and deviation "
        f"{deviation:.6g}; here it is within {SIGMAS} deviations, more often near the mean",
    )


def literal(value: Any) -> str:
    """A value in an expression."""
    return json.dumps(value, ensure_ascii=False)


def _fitting(text: str) -> str:
    if len(text) > MOST_CHARACTERS:
        raise Unsaid(f"needs an expression of {len(text):,} characters; one has at most {MOST_CHARACTERS}")
    return text


def _exact(number: float) -> Decimal:
    return Decimal(str(number))


def _multiple(number: float, q: float) -> Decimal:
    """The multiple of `q` nearest to a number; of two, the even one, as NumPy and Python round."""
    return Decimal(round(_exact(number) / _exact(q))) * _exact(q)


def _written(number: float) -> str:
    return str(number).removesuffix(".0") if isinstance(number, float) else str(number)
