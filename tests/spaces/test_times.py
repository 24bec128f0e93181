"""Times as people write them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from hpsearch.spaces.times import Seconds, seconds


@given(st.lists(st.sampled_from("dhms"), unique=True, min_size=1), st.data())
def test_the_parts_add_up_in_their_order(units: list[str], data: st.DataObject) -> None:
    sizes = {"d": 86400, "h": 3600, "m": 60, "s": 1}
    amounts = {unit: data.draw(st.integers(0, 50)) for unit in sorted(units, key="dhms".index)}
    between = data.draw(st.sampled_from(["", " "]))
    text = between.join(f"{amount}{unit}" for unit, amount in amounts.items())
    total = sum(amount * sizes[unit] for unit, amount in amounts.items())
    if total:
        assert seconds(text) == total
    else:
        with pytest.raises(ValueError, match="must be above 0"):
            seconds(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (90, 90.0),
        ("90", 90.0),
        ("1e3", 1000.0),
        ("+1.5", 1.5),
        (" 5. ", 5.0),
        ("1 h 30 m", 5400.0),
        (".5h", 1800.0),
        (timedelta(hours=1), 3600.0),
    ],
)
def test_people_write_times_in_these_ways(value: Any, expected: float) -> None:
    assert seconds(value) == expected


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**30), 10**30))
def test_a_number_and_its_text_are_the_same(number: float) -> None:
    def read(value: Any) -> float | str:
        try:
            return seconds(value)
        except ValueError as error:
            return str(error).partition(",")[0]

    assert read(number) == read(str(number))


@pytest.mark.parametrize(
    "text",
    ["90", "1e3", "1 h 30 m", " 5. ", ".5h", "+1", "2d", "0", "0s", "h", "", "soon", "1h2h", "-5", "e5"],
)
def test_the_schema_knows_what_is_read(text: str) -> None:
    schema = TypeAdapter(Seconds).json_schema()
    try:
        known = seconds(text) > 0
    except ValueError:
        known = False
    assert (re.search(schema["pattern"], text) is not None) is known


@pytest.mark.parametrize(
    ("written", "meant"),
    {
        "30min": "30m",
        "30m1h": "1h30m",
        "1 hour and 30 minutes": "1h30m",
        "90 sec": "90s",
        "2 days, 1hr": "2d1h",
        "1H30M": "1h30m",
        "1h30": "1h30m",
        "2d 12": "2d12h",
    }.items(),
)
def test_an_error_says_what_was_probably_meant(written: str, meant: str) -> None:
    with pytest.raises(ValueError, match=r"must be a time such as") as refused:
        seconds(written)
    assert str(refused.value).endswith(f'did you mean "{meant}"?')


@pytest.mark.parametrize(
    "value",
    [
        "",
        "soon",
        "1:30",
        "-5",
        -5,
        "1h2h",
        "5s3",
        "1h30 or so",
        None,
        [],
        True,
        float("nan"),
        "h",
        "9" * 99,
        pytest.param(10**400, id="huge"),
    ],
)
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="must be a") as refused:
        seconds(value)
    assert "did you mean" not in str(refused.value)
    assert len(str(refused.value)) < 200
