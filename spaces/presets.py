"""`preset: quick`: values for parameters that a file leaves out, used like constants in the file.

What a preset holds is known to the objective: the caller of `load` passes a function that returns the values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from .document import Places
from .errors import Issue
from .fields import refuse, show

# The values of presets for an objective, without the parameters that are given; raises `ValueError`.
Presets = Callable[[Any, list[str], Collection[str]], Mapping[str, Any]]


def _names(value: Any) -> list[str]:
    names = names_in(value)
    if names is None:
        raise refuse(f"must be a preset's name or a list of them, not {show(value)}")
    return names


PresetNames = Annotated[
    list[str],
    PlainValidator(_names),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": "string"}, "minItems": 1}),
]


def names_in(value: Any) -> list[str] | None:
    """The names under `preset:`, one or a list; None where the value is something else."""
    names = [value] if isinstance(value, str) else value
    fine = isinstance(names, list) and names and all(isinstance(name, str) for name in names)
    return names if fine else None


def from_preset(data: Any, places: Places, presets: Presets | None) -> tuple[dict[str, Any], list[Issue]]:
    """The values that a file's preset adds to its own parameters, and issues with the preset.

    An error in such a value is placed at the preset. Both are empty without a readable preset.
    """
    names = names_in(data.get("preset")) if isinstance(data, dict) else None
    own = data.get("parameters") if names else None
    if names is None or not isinstance(own, dict):
        return {}, []
    if presets is None:
        message = "presets are resolved when a search begins; here, write out the parameters themselves"
        return {}, [places.issue("preset", message)]
    try:
        values = dict(presets(data.get("objective"), names, own.keys()))
    except ValueError as error:
        return {}, [places.issue("preset", line) for line in str(error).splitlines()]
    if "preset" in places.values:
        places.values |= {f"parameters.{name}": places.values["preset"] for name in values}
    return values, []
