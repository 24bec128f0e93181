"""A space is written as its author would write it, and means the same."""

from __future__ import annotations

import pytest

from hpsearch.objectives.guides import preset_values
from hpsearch.search.trials.space_text import space_text
from hpsearch.spaces import Spec, loads, shipped, shipped_text

from ...support.spaces import small

ODD = {
    "objective": {"command": ["python", "train.py", "${args}"]},
    "report": {"wandb": "loss"},
    "parameters": {
        "x": {"min": 1e-6, "max": 1.0, "log": True, "when": {"kind": ["a"]}},
        "kind": ["a", "b", "no"],
        "none": {"value": None},
        "shape": {"value": [1, {"a": "1e-4"}]},
        "half": {"expr": "x / 2", "pass": False},
        "no": "yes",
    },
    "constraints": ["half < 0.9"],
    "early_stopping": {"method": "hyperband", "min": 1, "max": 9, "resource": "epochs"},
}


@pytest.mark.parametrize("name", [*shipped(), "odd"])
def test_its_text_is_the_same_space(name: str) -> None:
    spec = small(**ODD) if name == "odd" else loads(shipped_text(name), name, preset_values)
    text = space_text(spec)
    assert loads(text, "again").to_json() == Spec.from_json(spec.to_json()).to_json()
    assert len(text.splitlines()) < len(spec.parameters) + 20
