"""A range of numbers, and what it shares with the other kinds of parameter."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator, ValidationInfo, WithJsonSchema, model_validator

from .document import written
from .fields import Model, Number, Plain, expression, is_stored, plain, raise_all, refuse, show

MOST_LISTED_VALUES = 10_000  # a range of more values is not listed
LARGEST_EXPONENT = math.log(1e308)
LARGEST_EXACT_INTEGER = 2**53  # studies store searched values as floats, which round larger integers
_TOO_LARGE = (
    f"is beyond 2^53 = {LARGEST_EXACT_INTEGER}: a study stores searched values as floats, which round larger "
    "integers; list such values as choices, or give the bounds an exponent (1e16) for real numbers"
)
Problems = Iterator[tuple[str, str]]


def _condition(value: Any) -> dict[str, Any] | str:
    if isinstance(value, str):
        return expression(value)
    if isinstance(value, dict) and value:
        return {name: plain(wanted) for name, wanted in value.items()}
    example = "{lr_scheduler: [linear, cosine]}"
    raise refuse(f"must be a mapping such as {example} or an expression in quotes, not {show(value)}")


When = Annotated[
    dict[str, Any] | str,
    PlainValidator(_condition),
    WithJsonSchema({"type": ["object", "string"], "minProperties": 1, "minLength": 1}),
]


class Conditional(Model):
    """The fields of every parameter."""

    when: When | None = None
    """Where the parameter exists: {name: value or list of values}, or an expression."""
    passed: bool = Field(default=True, alias="pass", exclude_if=lambda passed: bool(passed))
    """false: a helper for other expressions; it is recorded, but the objective does not get it."""


class Prior(Model):
    """Where good values are believed to be."""

    at: Plain
    """The value that is believed to be good."""
    confidence: Literal["low", "medium", "high"] = "medium"
    """How strong that belief is."""


class Range(Conditional):
    """Numbers from `min` to `max`, both included; integers where both bounds are integers."""

    min: Number
    """The smallest value."""
    max: Number
    """The largest value."""
    log: bool = False
    """Search orders of magnitude evenly."""
    step: Number | None = None
    """Only min, min + step, min + 2 step, ... max."""
    factor: Number | None = None
    """Only min, min * factor, min * factor ** 2, ... max."""
    prior: Prior | None = None
    """Where a good value is believed to be."""

    _mixed: ClassVar[bool] = False  # whether its bounds were written as different kinds

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Range:
        object.__setattr__(self, "_mixed", isinstance(self.min, int) is not isinstance(self.max, int))
        if not self.is_int:  # one spelling for `min: 0` and `min: 0.0`
            for name in ("min", "max", "step"):
                if (value := getattr(self, name)) is not None:
                    object.__setattr__(self, name, float(value))
        raise_all(self._problems())
        raise_all(self._too_fine())
        raise_all(self._miss(stored=is_stored("parameters", info)))
        raise_all(prior_problems(self.accept, self.prior))
        return self

    def _problems(self) -> Problems:
        """Contradictions between the fields; the computed properties rely on there being none."""
        if self.min >= self.max:
            other = "a constant is written `name: value`" if self.min == self.max else "are they swapped?"
            yield "min", f"min {self.min} must be below max {self.max}; {other}"
        for name in ("min", "max") if self.is_int else ():
            if abs(value := getattr(self, name)) > LARGEST_EXACT_INTEGER:
                yield name, f"{name} {value} {_TOO_LARGE}"
                break  # one issue is enough where both bounds are too large
        if self.min <= 0 and (self.log or self.factor is not None):
            yield "min", f"{'log' if self.log else 'factor'} needs min above 0, not {self.min}"
        if self.log and self.step is not None:
            yield "step", "step cannot be combined with log; use factor, which multiplies"
        elif self.factor is not None and (self.log or self.step is not None):
            yield "factor", f"factor cannot be combined with {'log' if self.log else 'step'}; leave that out"
        for name, least in (("step", 0), ("factor", 1)):
            value = getattr(self, name)
            if value is not None and value <= least:
                yield name, f"{name} must be above {least}, not {value}"
            elif self.is_int and isinstance(value, float):
                other = f"write an integer {name}, or min: {float(self.min)}"
                yield name, f"two integer bounds make integers; {other}"
        half = (self.step or 0) / 2  # which samplers add at both ends
        if not math.isfinite((self.max + half) - (self.min - half)):
            width = f"max {self.max} minus min {self.min}" + (f" plus step {self.step}" if half else "")
            yield "max", f"{width} exceeds the floats with which samplers compute"
        elif 0 < self.max - self.min < sys.float_info.min and not self.log and self.factor is None:
            message = "is too close to 0 for the floats with which samplers compute"
            yield "max", f"max {self.max} minus min {self.min} {message}; use a log range, or scale it"

    def _too_fine(self) -> Problems:
        """Where step or factor gives more values than floats can distinguish."""
        largest = max(abs(self.min), abs(self.max))
        fine = self.step is not None and not self.is_int and self.step < 4 * math.ulp(largest)
        if fine or ((self.step or self.factor) and (self.count or 0) > LARGEST_EXACT_INTEGER):
            name = "step" if self.step is not None else "factor"
            message = f"gives more values than floats can distinguish here; leave {name} out"
            yield name, f"{name} {getattr(self, name)} {message}"

    def _miss(self, *, stored: bool) -> Problems:
        """Where step or factor does not reach max: the nearest max that it does reach.

        A study may be older than the check that step reaches it exactly.
        """
        last = self.count
        if last is None:
            return
        word = f"step {self.step}" if self.step is not None else f"factor {self.factor}"
        ends = self.at(last - 1), self.at(last)
        is_exact = (
            stored or self.step is None or (_exact(self.max) - _exact(self.min)) % _exact(self.step) == 0
        )
        if self.max in ends and not is_exact:
            message = "only because floats are rounded; write step with fewer digits"
            yield "max", f"max {self.max} is reached from {self.min} by {word} {message}"
        elif self.max != ends[0]:
            nearest = " or ".join(brief(end) for end in ends if self.min < end < math.inf)
            nearest = nearest or "too large for a number"
            yield "max", f"max {self.max} is not reached from {self.min} by {word}; the nearest is {nearest}"

    @property
    def is_mixed(self) -> bool:
        """Whether one bound was written as an integer and the other as a real number."""
        return self._mixed

    @property
    def is_int(self) -> bool:
        """Whether the values are integers."""
        return isinstance(self.min, int) and isinstance(self.max, int)

    @cached_property
    def count(self) -> int | None:
        """The number of values; None for a continuous range."""
        if self.factor is not None:
            ratio = (math.log(self.max) - math.log(self.min)) / math.log(self.factor)
            return math.floor(ratio + 1e-6) + 1
        if self.step is not None:
            return int((_exact(self.max) - _exact(self.min)) // _exact(self.step)) + 1
        return int(self.max - self.min) + 1 if self.is_int else None

    def at(self, index: int) -> int | float:
        """The value at an index of a countable range, without the rounding noise of repeated addition."""
        if self.factor is None:
            exact = _exact(self.min) + index * _exact(self.step or 1)
            return int(exact) if self.is_int else float(exact)
        if self.is_int:
            return int(self.min * self.factor**index)
        value = float(_exact(self.min) * _exact(self.factor) ** index)
        return self.max if math.isclose(value, self.max, rel_tol=1e-6) else value

    def values(self) -> list[int | float] | None:
        """All values where they can be listed, else None."""
        if not self.is_listed:
            return None
        return [self.at(index) for index in range(self.count or 0)]

    @property
    def is_listed(self) -> bool:
        """Whether the values are few enough to be listed."""
        return self.count is not None and self.count <= MOST_LISTED_VALUES

    def snap(self, value: float) -> int | float:
        """The nearest value of the range; nearest in ratio where a factor multiplies."""
        value = min(max(value, self.min), self.max)
        if self.count is None:
            return float(value)
        if self.factor is not None:
            return self.at(round((math.log(value) - math.log(self.min)) / math.log(self.factor)))
        if self.step is not None:
            return self.at(round((_exact(value) - _exact(self.min)) / _exact(self.step)))
        return round(value)

    def sample(self, rng: random.Random) -> int | float:
        """A random value, uniform over the values or, with `log`, over orders of magnitude."""
        if self.count is not None and not self.log:
            return self.at(rng.randrange(self.count))
        share = rng.random()
        if not self.log:
            return self.snap(self.min * (1 - share) + self.max * share)
        margin = 0.5 if self.is_int else 0.0  # so that both end integers have their full width
        low, high = math.log(self.min - margin), math.log(self.max + margin)
        return self.snap(math.exp(min(low + (high - low) * share, LARGEST_EXPONENT)))

    def middle(self) -> int | float:
        """The value half way, in ratio where the range is logarithmic."""
        if self.factor is not None:
            return self.at(((self.count or 1) - 1) // 2)
        half = math.sqrt(self.min) * math.sqrt(self.max) if self.log else self.min / 2 + self.max / 2
        return self.snap(half)

    def accept(self, value: Any) -> int | float:
        """The value as the range represents it; raises `ValueError` where it is not one of its values."""
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise ValueError(f"must be a number in {self.text()}, not {show(value)}")
        if not self.min <= value <= self.max:
            raise ValueError(f"{brief(value)} is outside {self.text()}")
        nearest = self.snap(value)
        tolerance = 0.0 if self.is_int else 1e-9  # integers that differ in their last digit are different
        if not math.isclose(nearest, value, rel_tol=tolerance, abs_tol=tolerance * float(self.step or 0)):
            problem = f"{brief(value)} is not a value of {self.text()}"
            raise ValueError(f"{problem}; the nearest is {brief(nearest)}")
        return nearest

    def text(self) -> str:
        """The range in words, without its condition."""
        kind = "int" if self.is_int else "float"
        if (self.step is not None or self.factor is not None) and (self.count or 0) <= 12:
            return f"{kind} {' '.join(map(brief, self.values() or ()))}"
        extras = (
            ", log" if self.log else "",
            f", step {brief(self.step)}" if self.step is not None else "",
            f", factor {brief(self.factor)}" if self.factor is not None else "",
        )
        return f"{kind} {brief(self.min)} .. {brief(self.max)}{''.join(extras)}"


def prior_problems(accept: Callable[[Any], Any], prior: Prior | None) -> Problems:
    """What is wrong with the value of a prior."""
    if prior is None:
        return
    try:
        accept(prior.at)
    except ValueError as error:
        yield "prior.at", str(error)


def _exact(number: float) -> Decimal:
    """The decimal number as written, not the binary fraction that stores it. Optuna computes with it, too."""
    return Decimal(str(number))


def brief(value: Any) -> str:
    """A value for a line of text, without a trailing `.0`."""
    return str(value).removesuffix(".0") if isinstance(value, float) else written(value)
