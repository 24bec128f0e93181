"""Numbers of a space and of what is wanted of a study: what is accepted can be stored, and read again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.search.errors import UsageError
from hpsearch.search.operations.steer import check_slots
from hpsearch.search.results.study import stored_spec
from hpsearch.spaces import SpaceError
from hpsearch.spaces.fields import MOST_COUNT
from hpsearch.storage.attributes import is_count
from hpsearch.storage.studies import SPEC, check_study
from hpsearch.storage.wanted import Slots, Wanted, is_wanted

from ...support.spaces import small

whole = st.one_of(st.integers(-2, 2000), st.integers(-(2**70), 2**70), st.integers(2**53 - 2, 2**53 + 2))
real = st.floats() | st.floats(1, 2000)


def test_the_largest_count_of_a_space_is_the_largest_that_is_stored() -> None:
    assert is_count(MOST_COUNT) and not is_count(MOST_COUNT + 1)


@given(
    budget=st.fixed_dictionaries(
        {}, optional={"trials": whole, "samples": whole, "time": real, "target": real}
    ),
    confirm=st.fixed_dictionaries({}, optional={"top": whole, "seeds": whole}),
    execution=st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("workers", "pack", "retries", "keep", "processes_per_trial"), whole),
            **dict.fromkeys(("trial_timeout", "price_per_hour", "cpus_per_trial", "gpus_per_trial"), real),
            "max_memory": whole,
        },
    ),
    stopping=st.none() | st.fixed_dictionaries({"min": whole, "max": whole, "eta": whole}),
)
def test_a_space_that_is_accepted_is_read_as_it_was_stored(
    budget: dict[str, Any], confirm: dict[str, Any], execution: dict[str, Any], stopping: Any
) -> None:
    method = {} if stopping is None else {"early_stopping": {"method": "hyperband", **stopping}}
    try:
        spec = small(budget=budget, confirm=confirm, execution=execution, **method)
    except SpaceError:
        return
    stored = json.loads(json.dumps(spec.to_json(), allow_nan=False))
    check_study("study", {SPEC: stored})
    assert stored_spec("study", stored) == spec


@given(st.builds(Slots, st.none() | whole, st.none() | whole, st.none() | whole))
def test_slots_that_are_accepted_are_read_as_they_were_stored(slots: Slots) -> None:
    try:
        check_slots(slots)
    except UsageError:
        return
    stored = json.loads(json.dumps(Wanted(since=1.0, slots=slots).to_json()))
    assert is_wanted(stored) and Wanted.parse(stored).slots == slots


@pytest.mark.parametrize("trials", [10**16, 10**17, 10**30])
def test_too_large_a_number_is_refused_with_what_is_allowed(trials: int) -> None:
    with pytest.raises(SpaceError, match=r"budget\.trials: must be at most 9,007,199,254,740,991, not 1000"):
        small().override(budget={"trials": trials})
