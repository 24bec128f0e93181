"""Small searches."""

from __future__ import annotations

from typing import Any

from hpsearch.spaces import Spec

SMALL: dict[str, Any] = {
    "version": 1,
    "name": "study",
    "objective": "somewhere:train",
    "metric": "loss",
    "parameters": {"x": {"min": 0.0, "max": 1.0}},
    "search": {"sampler": "random"},
    "confirm": {"top": 0},  # most tests count trials
    "budget": {"trials": 4},
    "execution": {"workers": 1, "retries": 0},
}


def small(**fields: Any) -> Spec:
    """A spec of one float parameter and four trials, with other fields where they are given."""
    return Spec.from_json(SMALL | fields)
