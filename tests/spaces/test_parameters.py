"""Ranges and choices: their values, however they are drawn, snapped or described."""

from __future__ import annotations

import json
import math
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from hpsearch.spaces import Choice, Constant, Derived, Range, describe
from hpsearch.spaces.document import written
from hpsearch.spaces.ranges import LARGEST_EXACT_INTEGER, Prior

FINITE = st.floats(-1e12, 1e12, allow_subnormal=False)
POSITIVE = st.floats(1e-12, 1e12)

KINDS = ["float", "log", "int", "int log", "int step", "step", "int factor", "factor"]


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    """Valid ranges of every kind."""
    count = draw(st.integers(1, 20))
    kind = draw(st.sampled_from(KINDS))
    if kind == "float":
        low, high = sorted(draw(st.tuples(FINITE, FINITE)))
    elif kind == "log":
        low, high = sorted(draw(st.tuples(POSITIVE, POSITIVE)))
    elif kind.startswith("int") and kind != "int factor":
        low = draw(st.integers(1, 10**9))
        step = draw(st.integers(1, 1000))
        fields: dict[str, Any] = {"step": step} if kind == "int step" else {"log": kind == "int log"}
        return Range(min=low, max=low + count * step, **fields)
    elif kind == "int factor":
        low, factor = draw(st.integers(1, 1000)), draw(st.integers(2, 5))
        assume(low * factor**count <= LARGEST_EXACT_INTEGER)
        return Range(min=low, max=low * factor**count, factor=factor)
    elif kind == "step":
        low, step = draw(st.integers(-1000, 1000)), draw(st.integers(1, 1000))
        return Range(min=low / 1000, max=(low + count * step) / 1000, step=step / 1000)
    else:
        least, ratio = draw(st.sampled_from([0.1, 1e-5, 3.5, 1.0])), draw(st.sampled_from([1.5, 2.0, 10.0]))
        return Range(min=least, max=least * ratio**count, factor=ratio)
    assume(low < high)
    return Range(min=low, max=high, log=kind == "log")


@given(ranges(), st.randoms(use_true_random=False))
def test_a_sample_is_a_value_of_the_range(parameter: Range, rng: random.Random) -> None:
    value = parameter.sample(rng)
    assert parameter.min <= value <= parameter.max
    assert isinstance(value, int if parameter.is_int else float)
    assert parameter.accept(value) == value
    listed = parameter.values()
    assert listed is None or value in listed


@given(ranges())
def test_values_rise_from_min_to_max(parameter: Range) -> None:
    values = parameter.values()
    assert (values is None) == (parameter.count is None or parameter.count > 10_000)
    if values is not None:
        assert values[0] == parameter.min and values[-1] == parameter.max
        assert all(a < b for a, b in pairwise(values))
    assert parameter.accept(parameter.middle()) == parameter.middle()


@given(ranges(), FINITE)
def test_snap_gives_the_nearest_value(parameter: Range, value: float) -> None:
    assume(parameter.factor is None or value > 0)
    nearest = parameter.snap(value)
    assert parameter.accept(nearest) == nearest == parameter.snap(nearest)
    listed = parameter.values()
    if listed is not None:

        def gap(other: float) -> float:
            return abs(math.log(other / value)) if parameter.factor is not None else abs(other - value)

        assert gap(nearest) <= min(map(gap, listed)) * (1 + 1e-6) + 1e-12


@given(ranges(), st.one_of(st.floats(), st.integers(), st.text(), st.booleans(), st.none()))
def test_accept_takes_values_of_the_range_only(parameter: Range, value: Any) -> None:
    try:
        accepted = parameter.accept(value)
    except ValueError:
        return
    assert parameter.min <= accepted <= parameter.max
    assert math.isclose(accepted, value, rel_tol=1e-6, abs_tol=1e-6)


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ({"min": 2, "max": 32, "factor": 2}, [2, 4, 8, 16, 32]),
        ({"min": 0.0, "max": 0.2, "step": 0.05}, [0.0, 0.05, 0.1, 0.15, 0.2]),
        ({"min": 0, "max": 0.2, "step": 0.1}, [0.0, 0.1, 0.2]),
        ({"min": 1e-5, "max": 1e-2, "factor": 10}, [1e-5, 1e-4, 1e-3, 1e-2]),
        ({"min": 1, "max": 10, "step": 3}, [1, 4, 7, 10]),
        ({"min": 1, "max": 3}, [1, 2, 3]),
        ({"min": 0.1, "max": 3}, None),
        ({"min": 1, "max": 10**9}, None),
    ],
)
def test_values(fields: dict[str, Any], values: list[Any] | None) -> None:
    assert Range(**fields).values() == values


def test_a_factor_snaps_and_halves_in_ratio() -> None:
    ranks = Range(min=2, max=32, factor=2)
    assert (ranks.snap(5), ranks.snap(6), ranks.snap(0.1), ranks.snap(99)) == (4, 8, 2, 32)
    assert ranks.middle() == 8
    assert Range(min=1e-4, max=1e-2, log=True).middle() == pytest.approx(1e-3)


def test_a_logarithmic_integer_range_draws_small_values_often() -> None:
    rng, parameter = random.Random(0), Range(min=1, max=1000, log=True)
    drawn = [parameter.sample(rng) for _ in range(2000)]
    assert 0.25 < sum(value <= 10 for value in drawn) / 2000 < 0.55
    assert {1, 2, 3} <= set(drawn)


def test_extreme_ranges_neither_overflow_nor_hang() -> None:
    rng = random.Random(0)
    for parameter in (
        Range(min=-8e307, max=8e307),
        Range(min=1e-320, max=1e308, log=True),
        Range(min=1, max=2**53, log=True),
        Range(min=-(2**53), max=2**53),
        Range(min=0, max=2**53, step=2),
        Range(min=0.0, max=1.0, step=1e-15),
        Range(min=1.0, max=1 + 2**-52),
        Range(min=5e-324, max=1.7e308, log=True),
        Range(min=1.0, max=(1 + 1e-15) ** 2, factor=1 + 1e-15),
    ):
        for value in (parameter.sample(rng), parameter.middle(), parameter.snap(1.3), parameter.snap(1e300)):
            assert parameter.min <= value <= parameter.max


def test_labels_stand_for_choices() -> None:
    choice = Choice(choices=[1, "a", None, 2.5, [1, "é"], [[]]])
    assert choice.labels() == [1, "a", None, 2.5, '[1,"é"]', "[[]]"]
    assert [choice.value_of(label) for label in choice.labels()] == choice.choices
    with pytest.raises(ValueError):
        choice.value_of("b")


def test_true_is_no_one() -> None:
    assert Choice(choices=[0, 1]).accept(1) == 1
    with pytest.raises(ValueError, match="true is none of 0, 1"):
        Choice(choices=[0, 1]).accept(True)
    with pytest.raises(ValidationError, match="true equals 1"):
        Choice(choices=[1, True])


@pytest.mark.parametrize(
    ("parameter", "text"),
    [
        (Range(min=1e-4, max=3e-2, log=True), "float 0.0001 .. 0.03, log"),
        (Range(min=2, max=32, factor=2), "int 2 4 8 16 32"),
        (Range(min=0, max=0.2, step=0.1), "float 0 0.1 0.2"),
        (Range(min=0, max=100, step=5), "int 0 .. 100, step 5"),
        (Range(min=1.0, max=2.0**20, factor=2), "float 1 .. 1048576, factor 2"),
        (Range(min=1, max=9, prior=Prior(at=3), when="a > 1"), "int 1 .. 9, prior 3, when a > 1"),
        (Choice(choices=["constant", 2, None, [1, "b"]]), 'choice constant | 2 | null | [1, "b"]'),
        (Choice(choices=[1], when={"a": ["x", 2], "b": True}), "choice 1, when a is x or 2 and b is true"),
        (
            Choice(choices=[None, "null", "1", True, "true", 0.5, "0.5"]),
            'choice null | "null" | "1" | true | "true" | 0.5 | "0.5"',
        ),
        (Choice(choices=[1], when={"a": ["1", 2]}), 'choice 1, when a is "1" or 2'),
        (Choice(choices=["1", 2], prior=Prior(at="1")), 'choice "1" | 2, prior "1"'),
        (Constant(value="400"), 'constant "400"'),
        (Constant(value=400), "constant 400"),
        (Derived(expr="a * 2"), "= a * 2"),
    ],
)
def test_describe(parameter: Any, text: str) -> None:
    assert describe(parameter) == text


PLAIN = ["cosine", "a b", "q_proj,v_proj", "../data/a.txt", "1.5h", "v1.2", "é", "[/b]", "a|b"]
ODD = [
    *["", " ", "a ", "-", "null", "~", "Null", "None", "true", "TRUE", "False", "nan", "NaN", "N/A", "NA"],
    *["1", "-1", "0x1F", "1e-3", ".5", "1_000", ".inf", "inf", "[1, 2]", "{}", '"a"', "a | b", "a\nb"],
]


@pytest.mark.parametrize("text", PLAIN)
def test_a_text_that_is_nothing_else_stands_without_quotes(text: str) -> None:
    assert written(text) == text


def test_a_text_that_could_be_something_else_is_quoted(subtests: pytest.Subtests) -> None:
    for text in ODD:
        with subtests.test(text):
            assert written(text).startswith('"')


@given(st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(-1e9, 1e9) | st.text())
def test_what_is_written_reads_back_as_the_same(value: Any) -> None:
    said = written(value)
    assume(not isinstance(value, str) or said.startswith('"'))  # a plain text may hold YAML's signs
    found = json.loads(said)
    assert found == value and type(found) is type(value) and said.isprintable()
