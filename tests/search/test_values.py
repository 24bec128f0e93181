"""What operations return comes back from its JSON."""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpsearch.objectives.catalog import ObjectiveDescription
from hpsearch.search.operations import OPERATIONS
from hpsearch.search.operations.show import TrialRows
from hpsearch.search.operations.spaces import ValidSpace, validate
from hpsearch.search.preflight.forecast import SearchForecast
from hpsearch.search.results.study import StudyResult
from hpsearch.search.values import from_plain, plain

TEXT = st.text(max_size=8)
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
OF_A_SPACE = {ValidSpace, SearchForecast}  # more than their fields; tried with real ones
NOT_TOLD = {StudyResult, "train", "lr-find", "doctor --pack-test", "generate"}  # what no server does


def any_of(kind: Any, number: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    """Values of an annotation."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return ANYTHING
    if origin is Literal:
        return st.sampled_from(inside)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(any_of(each, number) for each in inside))
    if origin is tuple and Ellipsis not in inside:
        return st.tuples(*(any_of(each, number) for each in inside))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(*(any_of(each, number) for each in inside), max_size=2)
    if isinstance(origin, type) and issubclass(origin, Sequence | Set):
        return st.lists(any_of(inside[0], number), max_size=2).map(origin)
    if isinstance(kind, type) and is_dataclass(kind):
        kinds = typing.get_type_hints(kind)
        return st.builds(kind, **{each.name: any_of(kinds[each.name], number) for each in fields(kind)})
    if issubclass(kind, Enum):
        return st.sampled_from(kind)
    return {
        float: number,
        int: st.integers(),
        bool: st.booleans(),
        str: TEXT,
        Path: TEXT.map(lambda name: Path(f"/x/{name.replace(chr(0), '')}")),
        type(None): st.none(),
    }[kind]


def whole(value: Any) -> Any:
    """With all fields of its rows."""
    return replace(value, fields=()) if isinstance(value, TrialRows) else value


def returned() -> dict[str, Any]:
    kinds = {
        name: typing.get_type_hints(each.function)["return"]
        for name, each in OPERATIONS.items()
        if each.command
    }
    return {name: kind for name, kind in kinds.items() if not {name, kind} & NOT_TOLD}


@pytest.mark.parametrize("name", returned())
@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_an_operation_returns_comes_back(name: str, data: st.DataObject) -> None:
    kind = returned()[name]
    if kind in OF_A_SPACE:
        return
    finite = st.floats(allow_nan=False, allow_infinity=False)
    value = whole(data.draw(any_of(kind, finite)))
    told = json.loads(json.dumps(value.to_json()))
    back = from_plain(kind, told)
    if isinstance(value, TrialRows):  # all fields are told; its columns are in the space
        assert back.rows == value.rows
    else:
        assert back == value
    odd = whole(data.draw(any_of(kind, st.floats()))).to_json()
    assert from_plain(kind, json.loads(json.dumps(odd))).to_json() == odd


def test_a_space_that_was_checked_elsewhere_comes_back_with_its_preset() -> None:
    value = validate(space="lora")
    back = from_plain(ValidSpace, json.loads(json.dumps(value.to_json())))
    assert back == value and back.to_json() == value.to_json()
    assert back.spec.from_preset == value.spec.from_preset


def test_a_float_that_json_cannot_hold_comes_back_as_nan_or_as_none() -> None:
    assert math.isnan(from_plain(float, plain(math.inf)))
    assert from_plain(float | None, plain(math.nan)) is None
    assert from_plain(dict[int, float], {"3": 1}) == {3: 1}


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (int, True, "no int"),
        (int, "1", "no int"),
        (float, "1", "no number"),
        (list[int], {}, "no list"),
        (list[int], [1, None], "no int"),
        (tuple[int, int], [1], "1 values where there are 2"),
        (Literal["a"], "b", "'b' is none of 'a'"),
        (ObjectiveDescription, {"name": 3}, "name: '3' is no str"),
        (ObjectiveDescription, {"name": "x"}, "summary is missing"),
        (TrialRows, {"error": "no"}, "rows: .* is no list"),
    ],
)
def test_other_data_are_refused(kind: Any, data: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_plain(kind, data)


def test_an_older_and_a_newer_server_are_understood() -> None:
    """A field that may be None is None where it is missing, and one that is not known is passed over."""
    described = {"name": "x", "summary": "s", "parameters": [], "colour": "red"}
    assert from_plain(ObjectiveDescription, described) == ObjectiveDescription("x", "s", None, ())
