"""A space that is a dict in Python, and one from standard input."""

from __future__ import annotations

import copy
import io
import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.spaces import SpaceError, load, loads
from hpsearch.spaces.document import Places
from hpsearch.spaces.plain_data import plain_data

SPACE: dict[str, Any] = {
    "version": 1,
    "name": "d",
    "objective": {"command": ["train"]},
    "metric": "loss",
    "parameters": {"x": {"min": 0.0, "max": 1.0}},
}
PLAIN = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(1 - 2**63, 2**63 - 1), st.floats(allow_nan=False), st.text()
    ),
    lambda inside: st.one_of(st.lists(inside, max_size=3), st.dictionaries(st.text(), inside, max_size=3)),
    max_leaves=10,
)


def test_a_dict_is_what_a_file_would_hold() -> None:
    assert load(SPACE) == loads(json.dumps(SPACE))


@given(st.dictionaries(st.text(), PLAIN))
def test_plain_data_stays_as_it_is(data: dict[str, Any]) -> None:
    assert plain_data(data, Places("<dict>")) == data


def test_what_python_and_numpy_have_for_the_same_is_read() -> None:
    parameters = {
        "x": {"min": np.float32(0.5), "max": np.float64(1.0)},
        "n": (1, np.int64(2)),
        "folder": Path("data"),
        "c": np.array(["a", "b"]),
        "on": np.bool_(True),
    }
    spec = load({**SPACE, "parameters": parameters, "budget": {"time": timedelta(minutes=2)}})
    assert spec.budget.time == 120.0
    plain = {"x": {"min": 0.5, "max": 1.0}, "n": [1, 2], "folder": "data", "c": ["a", "b"], "on": True}
    assert spec.to_json()["parameters"] == load({**SPACE, "parameters": plain}).to_json()["parameters"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"metric": b"loss"}, "<dict> metric: must be text, number, true, false, null, or a list or mapping"),
        ({"parameters": {"x": {1, 2}}}, "<dict> parameters.x: must be text, number"),
        ({"parameters": {3: 1}}, "<dict> parameters: a key must be a text, not 3"),
        (
            {"parameters": {"x": {"min": 0, "max": 10**400}}},
            "<dict> parameters.x.max: an integer of more than 64",
        ),
        ({"budget": {"trials": 10**5000}}, "<dict> budget.trials: an integer of more than 64 bits"),
        ({"metric": "\ud800"}, "<dict> metric: holds half a character"),
        ({"metric": Path("\ud800")}, "<dict> metric: holds half a character"),
        ({"parameters": {"\ud800": 1}}, "<dict> parameters: holds half a character"),
        ({"goal\x1b[2J": 1}, "<dict> goal\\x1b[2J: unknown key"),
        ({"parameters": {"x": np.float64("nan")}}, "<dict> parameters.x"),
        ({"budget": {"time": "30min"}}, '<dict> budget.time: must be a time such as "90s"'),
        ({"budgets": {}}, '<dict> budgets: unknown key, did you mean "budget"?'),
    ],
)
def test_an_error_names_the_field(change: dict[str, Any], told: str) -> None:
    with pytest.raises(SpaceError) as refused:
        load({**SPACE, **change})
    assert str(refused.value).startswith(told)


class Optimizer(StrEnum):
    ADAM = "adam"


class Width(IntEnum):
    WIDE = 512


def test_members_of_an_enum_are_their_values() -> None:
    spec = load({**SPACE, "parameters": {"x": [Optimizer.ADAM, "sgd"], "n": Width.WIDE}})
    plain = {"x": ["adam", "sgd"], "n": 512}
    assert repr(spec.parameters) == repr(load({**SPACE, "parameters": plain}).parameters)


class Unspoken:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


LOOP: list[Any] = []
LOOP.append(LOOP)
HOSTILE = st.one_of(
    PLAIN,
    st.integers(),
    st.floats(),
    st.text(st.characters()),
    st.binary(),
    st.dates(),
    st.datetimes(),
    st.timedeltas(),
    st.decimals(),
    st.fractions(),
    st.complex_numbers(),
    st.sets(st.integers()),
    st.tuples(st.integers(), st.floats()),
    st.dictionaries(st.integers() | st.none() | st.binary() | st.text(st.characters()), st.integers()),
    st.text(st.characters(), max_size=5).map(Path),
    st.sampled_from(
        [
            LOOP,
            10**400,
            -(10**5000),
            object(),
            print,
            int,
            ...,
            Unspoken(),
            range(3),
            iter([]),
            Optimizer.ADAM,
            np.int64(3),
            np.uint64(2**64 - 1),
            np.float32("nan"),
            np.longdouble(1),
            np.bytes_(b"a"),
            np.datetime64("NaT"),
            np.timedelta64(5, "M"),
            np.array([[1, 2]]),
            np.array([object()]),
            np.ma.masked,
        ]
    ),
)
WHOLE: dict[str, Any] = {
    **SPACE,
    "parameters": {
        "x": {"min": 0.0, "max": 1.0, "log": False, "prior": {"at": 0.5}, "when": {"y": 1}},
        "y": [1, 2],
        "w": {"expr": "y + 1"},
        "f": {"min": 2, "max": 32, "factor": 2},
    },
    "constraints": ["y < 2"],
    "baseline": {"y": 1},
    "search": {"sampler": "tpe", "seed": 0},
    "early_stopping": {"method": "hyperband", "min": 1, "max": 27},
    "budget": {"trials": 4, "time": "30m"},
    "report": {"stdout": "a(?P<value>b)"},
    "execution": {"workers": 2, "max_memory": "1GiB"},
}


def paths(inside: Any) -> Iterator[tuple[str | int, ...]]:
    items = (
        inside.items() if isinstance(inside, dict) else enumerate(inside) if isinstance(inside, list) else ()
    )
    for key, value in items:
        yield (key,)
        yield from ((key, *rest) for rest in paths(value))


def can_be_a_key(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:  # of a list, but also of Decimal("sNaN"), which is Hashable
        return False
    return True


@given(st.sampled_from(list(paths(WHOLE))), HOSTILE, st.booleans())
def test_whatever_stands_in_a_dict_is_a_space_or_an_error_with_its_place(
    path: tuple[str | int, ...], value: Any, as_key: bool
) -> None:
    space = copy.deepcopy(WHOLE)
    inside: Any = space
    for key in path[:-1]:
        inside = inside[key]
    if as_key and isinstance(inside, dict) and can_be_a_key(value):
        inside[value] = 1
    else:
        inside[path[-1]] = value
    try:
        spec = load(space)
    except SpaceError as error:
        for line in str(error).split("\n"):
            assert line.startswith("<dict>") and line.isprintable() and len(line) <= 1000
    else:
        assert loads(json.dumps(spec.to_json())) == spec


def test_a_dict_that_holds_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["a"] = loop
    with pytest.raises(SpaceError, match="nested deeper than 20 levels"):
        load({**SPACE, "parameters": loop})
    with pytest.raises(SpaceError, match="more than 20,000 values"):
        load({**SPACE, "parameters": {"x": list(range(30_000))}})


@pytest.mark.parametrize("value", [None, 7, ["a"]])
def test_anything_else_is_no_space(value: Any) -> None:
    with pytest.raises(SpaceError, match=r"a space is a file, .* a dict or a Spec, not"):
        load(value)


class _Input:
    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "<stdin>:1:1: the file is empty"),
        (b"version: 2\n", "<stdin>:1:10 version: must be 1, not 2"),
        (b"\xff", "<stdin>: not UTF-8: byte 0 cannot be read"),
        (b"a" * 900_000, "<stdin>: larger than 200,000 characters"),
        (None, "<stdin>: cannot be read: there is none"),
    ],
)
def test_an_error_of_standard_input_names_it(
    monkeypatch: pytest.MonkeyPatch, content: bytes | None, told: str
) -> None:
    monkeypatch.setattr(sys, "stdin", None if content is None else _Input(content))
    with pytest.raises(SpaceError) as refused:
        load("-")
    assert told in str(refused.value)


def test_standard_input_holds_a_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", _Input(json.dumps(SPACE).encode()))
    assert load("-") == load(SPACE)
