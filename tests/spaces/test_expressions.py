"""Expressions: what they calculate, and that nothing else runs."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.spaces.expressions import Expression, ExpressionError

VALUES: dict[str, Any] = {
    "a": 3,
    "b": 0.5,
    "r.k": 4,
    "s": "linear",
    "flag": True,
    "none": None,
    "l": ["q", "v"],
}


RESULTS: dict[str, Any] = {
    "a * 2 + 1": 7,
    "2 * r.k": 8,
    "a / 2": 1.5,
    "a // 2": 1,
    "-a % 2": 1,
    "2 ** a": 8,
    "2 ** -1": 0.5,
    "s == 'linear' and a > 2": True,
    "1 < a <= 3 < 2": False,
    "s in ['linear', 'cosine']": True,
    "s not in ('linear',)": False,
    "'q' in l": True,
    "flag and not none": True,
    "none == null and flag == true and false == False": True,
    "false or s": "linear",
    "a if flag else b": 3,
    "min(a, b) + max([1, 2])": 2.5,
    "round(2.567, 1) + round(2.4)": 4.6,
    "floor(2.7) + ceil(2.1) + int(2.9) + len(l)": 9,
    "sqrt(16) + log2(8) + log10(100) + exp(0) + log(1) + abs(-1) + float(2)": 13.0,
    "  a": 3,
}


def test_value(subtests: pytest.Subtests) -> None:
    for text, value in RESULTS.items():
        with subtests.test(text):
            result = Expression.parse(text).evaluate(VALUES)
            assert result == pytest.approx(value) if isinstance(value, float) else result == value


def test_names_are_what_is_read() -> None:
    assert Expression.parse("min(a, r.k.j) if true else max").names == {"a", "r.k.j", "max"}


NO_ARITHMETIC: dict[str, str] = {
    "": "is empty",
    " ": "is empty",
    "a +": "is not an expression: invalid syntax",
    "(" * 300: "is not an expression",
    "a = 3": "is not an expression",
    "a; b": "is not an expression",
    "a := 3": "is not an expression",
    "(a := 3)": "uses :=",
    "__import__('os')": 'calls "__import__", which is not a function here; there is min, max',
    "().__class__": "is not allowed here",
    "'a'.join(l)": "uses such a call",
    "min.__self__.eval('1')": "uses such a call",
    "a()": 'calls "a"',
    "min(key=a)": "uses such a call",
    "min(*l)": "uses a *",
    "l[0]": "uses an index",
    "lambda: 1": "uses a lambda",
    "[x for x in l]": "is not allowed here",
    "{'a': 1}": "is not allowed here",
    "f'{a}'": "uses an f-string",
    "a @ b": "is not allowed here",
    "a << 9": "is not allowed here",
    "a is b": "is not allowed here",
    "~a": "is not allowed here",
    "b'x'": "holds b'x', neither a number nor a text",
    "3j": "holds 3j, neither a number nor a text",
    "...": "neither a number nor a text",
    "a == '\\ud83e\\udd86'": "holds half a character; write the character itself, not its escape",
    "1e999": "does not give a finite number",
    "9" * 40: "gives a number that is too large",
    "-" * 200 + "a": "is nested deeper than 40 levels",
    "a + " * 200 + "a": "is longer than 500 characters",
}


def test_only_arithmetic_is_read(subtests: pytest.Subtests) -> None:
    for text, message in NO_ARITHMETIC.items():
        with subtests.test(text):
            with pytest.raises(ExpressionError) as caught:
                Expression.parse(text)
            assert message in caught.value.message


NO_VALUE: dict[str, str] = {
    "9 ** 9 ** 9": "gives a number that is too large",
    "a ** 64": "gives a number that is too large",
    "9.0 ** 9 ** 9": "gives a number that is too large",
    "-8 ** 0.5 + (-8) ** 0.5": "has no real value",
    "exp(1000)": "gives a number that is too large",
    "1e308 * 10": "does not give a finite number",
    "float('nan')": "does not give a finite number",
    "a / 0": "divides by zero",
    "a % 0": "divides by zero",
    "0 ** -1": "divides by zero",
    "'a' * 10 ** 9": "does arithmetic with 'a', not a number",
    "[0] * 10 ** 9": "does arithmetic with [0], not a number",
    "'%99999999d' % 1": "does arithmetic",
    "s + 1": "does arithmetic with 'linear'",
    "-none": "does arithmetic with None",
    "s < 3": "fails: '<' not supported",
    "sqrt(-1)": "fails: ",
    "round(3, -10 ** 9)": "fails: cannot round to -1000000000 digits",
    "int('x')": "fails: ",
    "min(1, s)": "fails: ",
    "len(3)": "fails: ",
    "c + 1": 'needs "c", which has no value',
}


def test_what_has_no_value_says_why_at_once(subtests: pytest.Subtests) -> None:
    for text, message in NO_VALUE.items():
        with subtests.test(text):
            started = time.perf_counter()
            with pytest.raises(ExpressionError) as caught:
                Expression.parse(text).evaluate(VALUES)
            assert message in caught.value.message
            assert time.perf_counter() - started < 0.5


def test_an_error_knows_its_column() -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression.parse("a + sin(b)")
    assert caught.value.column == 5


def test_and_or_stop_as_soon_as_they_know() -> None:
    assert Expression.parse("a == 3 or 1 / 0 > 1").evaluate(VALUES) is True
    assert Expression.parse("a != 3 and 1 / 0 > 1").evaluate(VALUES) is False


WORDS = """a b r.k s l flag 0 1 9 1e300 2.5 'x' + - * / // % ** ( ) [ ] , < == in not and or if else
min max round int len float exp true null . : = lambda"""
FRAGMENTS = st.sampled_from(WORDS.split())


@given(st.one_of(st.text(max_size=40), st.lists(FRAGMENTS, max_size=12).map(" ".join)))
def test_any_text_has_a_plain_value_or_says_why(text: str) -> None:
    try:
        value = Expression.parse(text).evaluate(VALUES)
    except ExpressionError:
        return
    assert isinstance(value, int | float | str | list | None)
    assert not isinstance(value, float) or math.isfinite(value)


@given(
    st.recursive(
        st.sampled_from(["a", "b", "2", "0.25"]),
        lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        max_leaves=8,
    )
)
def test_arithmetic_is_pythons(text: str) -> None:
    try:
        expected = eval(text, {"__builtins__": {}}, VALUES)  # our own text, made above
    except ZeroDivisionError:
        with pytest.raises(ExpressionError, match="divides by zero"):
            Expression.parse(text).evaluate(VALUES)
    else:
        assert Expression.parse(text).evaluate(VALUES) == expected
