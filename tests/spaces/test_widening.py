"""Wider ranges: they hold what the old one holds, go on beyond its end, and can be pasted into a space file."""

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hpsearch.spaces import Choice, End, Interval, Range, is_ordered, line, loads, widened

ENDS = st.sampled_from(["lower", "upper"])
LIMITS = st.sampled_from(["(-inf, inf)", "[0, inf)", "(0, inf)", "[0, 1)", "[0, 1]", "[1, inf)"])
SPACE = "version: 1\nname: s\nobjective: m:f\nmetric: v\nbudget: {trials: 2}\nparameters:\n  "
REAL = st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda x: float(f"{x:.6g}"))
POSITIVE = st.floats(1e-12, 1e12).map(lambda x: float(f"{x:.6g}"))


def pasted(name: str, parameter: Range | Choice) -> Any:
    """The parameter as a space file has it that holds its line."""
    return loads(SPACE + line(name, parameter)).parameters[name]


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    kind = draw(
        st.sampled_from(["real", "log", "int", "int log", "step", "int step", "factor", "int factor"])
    )
    count = draw(st.integers(1, 30))
    low: float
    if kind in ("real", "log"):
        low, high = sorted(draw(st.tuples(*2 * [REAL if kind == "real" else POSITIVE])))
        assume(high - low > 1e-6 * max(abs(low), abs(high)))
        return Range(min=low, max=high, log=kind == "log")
    if kind in ("int", "int log"):
        low = draw(st.integers(1 if kind == "int log" else -1000, 10**9))
        return Range(min=low, max=low + draw(st.integers(1, 10**6)), log=kind == "int log")
    if kind == "step":
        tenths, step = draw(st.integers(-50, 50)), draw(st.integers(1, 30))
        return Range(min=tenths / 10, max=(tenths + count * step) / 10, step=step / 10)
    if kind == "int step":
        low, whole = draw(st.integers(-50, 50)), draw(st.integers(1, 30))
        return Range(min=low, max=low + count * whole, step=whole)
    times, few = draw(st.integers(2, 10)), min(count, 8)
    if kind == "int factor":
        low = draw(st.integers(1, 100))
        return Range(min=low, max=low * times**few, factor=times)
    low = draw(st.sampled_from([1e-5, 0.001, 0.03, 1.0, 2.5]))
    return Range(min=low, max=low * float(times) ** few, factor=times)


@given(ranges(), ENDS, LIMITS)
def test_a_wider_range_holds_the_old_one_and_goes_beyond_its_end(old: Range, end: End, interval: str) -> None:
    limits = Interval(interval)
    assume(limits.allow(old.min) and limits.allow(old.max))
    wider = widened(old, end, limits)
    if wider is None:
        return
    assert isinstance(wider, Range)
    assert pasted("x", wider) == wider
    changed, same = ("min", "max") if end == "lower" else ("max", "min")
    assert getattr(wider, same) == getattr(old, same)
    assert (wider.min < old.min) if end == "lower" else (wider.max > old.max)
    assert (wider.is_int, wider.log, wider.step, wider.factor) == (old.is_int, old.log, old.step, old.factor)
    assert limits.allow(getattr(wider, changed))
    assert wider.min >= 0 or old.min < 0
    for value in {old.min, old.middle(), old.max}:
        assert math.isclose(wider.snap(value), value, rel_tol=1e-6)


@given(ranges())
def test_without_limits_only_a_natural_end_is_kept(old: Range) -> None:
    if old.max > 0 or old.max < -(old.step or 0):
        assert widened(old, "upper") is not None
    if old.factor is None and (old.min < 0 or (not old.is_int and old.min > (old.step or 0))):
        assert widened(old, "lower") is not None


@given(ranges())
def test_a_range_as_a_line_is_the_range(parameter: Range) -> None:
    assert pasted("x", parameter) == parameter


NUMBERS = st.integers(-20, 1000) | st.integers(1, 1000).map(lambda n: n / 100)


@given(st.lists(NUMBERS, min_size=3, max_size=6, unique=True), st.booleans(), ENDS)
def test_longer_choices_hold_the_old_ones_and_one_beyond(numbers: list[float], falls: bool, end: End) -> None:
    old = Choice(choices=sorted(numbers, reverse=falls))
    wider = widened(old, end)
    if wider is None:
        assert end == "lower" or max(numbers) <= 1
        return
    assert isinstance(wider, Choice) and pasted("x", wider) == wider and is_ordered(wider)
    (new,) = [value for value in wider.choices if value not in old.choices]
    assert new < min(numbers) if end == "lower" else new > max(numbers)
    assert [value for value in wider.choices if value != new] == old.choices
    assert new >= 0 or min(numbers) < 0
    assert isinstance(new, int) or not all(isinstance(number, int) for number in numbers)


WIDENED: list[tuple[str, End, str | None, str | None]] = [
    ("{min: 1e-4, max: 3e-2, log: true}", "upper", None, "{min: 1e-4, max: 0.5, log: true}"),
    ("{min: 1e-4, max: 3e-2, log: true}", "lower", None, "{min: 6e-6, max: 0.03, log: true}"),
    ("{min: 2, max: 32, factor: 2}", "upper", None, "{min: 2, max: 128, factor: 2}"),
    ("{min: 2, max: 32, factor: 2}", "lower", None, "{min: 1, max: 32, factor: 2}"),
    ("{min: 0.0, max: 0.2, step: 0.05}", "upper", "[0, 1)", "{min: 0.0, max: 0.3, step: 0.05}"),
    ("{min: 0.0, max: 0.2}", "lower", None, None),  # zero is an end for good
    ("{min: 0.0, max: 0.9}", "upper", "[0, 1)", "{min: 0.0, max: 0.95}"),
    ("{min: 0.1, max: 0.9}", "upper", "[0, 1]", "{min: 0.1, max: 1.0}"),
    ("{min: 0.0, max: 0.8, step: 0.4}", "upper", "[0, 1)", None),
    ("{min: 1, max: 64, log: true}", "lower", None, None),
    ("{min: 10, max: 100}", "upper", None, "{min: 10, max: 140}"),
    ("{min: 10, max: 100}", "lower", None, "{min: 1, max: 100}"),
    ("[4, 8, 16]", "upper", None, "[4, 8, 16, 32]"),
    ("[16, 8, 4]", "lower", None, "[16, 8, 4, 2]"),
    ("[1, 2, 3]", "upper", None, "[1, 2, 3, 4]"),
    ("[0.0, 0.01, 0.1]", "upper", None, "[0.0, 0.01, 0.1, 1.0]"),
    ("[0.0, 0.01, 0.1]", "lower", None, None),
    ("[a, b, c]", "upper", None, None),
    ("[4, 8]", "upper", None, None),  # of two values both are ends
]


def test_what_is_added(subtests: pytest.Subtests) -> None:
    for old, end, interval, wanted in WIDENED:
        with subtests.test(old):
            parameter = loads(f"{SPACE}x: {old}").parameters["x"]
            assert isinstance(parameter, Range | Choice)
            wider = widened(parameter, end, Interval(interval) if interval else None)
            assert (None if wider is None else line("x", wider)) == (
                None if wanted is None else f"x: {wanted}"
            )


def test_conditions_and_priors_stay() -> None:
    when = 'when: {y: [a, "true", "b c"]}'
    text = f"{{min: 0.0, max: 0.2, prior: {{at: 0.1, confidence: low}}, {when}}}"
    parameter = loads(f'{SPACE}x: {text}\n  y: [a, "true", "b c"]').parameters["x"]
    assert isinstance(parameter, Range)
    wider = widened(parameter, "upper")
    assert wider is not None and line("x", wider) == f"x: {text.replace('max: 0.2', 'max: 0.3')}"
