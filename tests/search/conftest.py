"""Small spaces for the tests of the search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hpsearch.spaces import Spec

SMALL: dict[str, Any] = {
    "version": 1,
    "name": "study",
    "objective": "somewhere:train",
    "metric": "loss",
    "parameters": {"x": {"min": 0.0, "max": 1.0}},
    "search": {"sampler": "random"},
    "budget": {"trials": 4},
    "execution": {"workers": 1, "retries": 0},
}


@pytest.fixture
def make_spec() -> Callable[..., Spec]:
    """A spec of one float parameter and four trials, with other fields where they are given."""

    def make(**fields: Any) -> Spec:
        return Spec.from_json(SMALL | fields)

    return make
