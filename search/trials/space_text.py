"""A space as its author would write it: without what is the default anyway."""

from __future__ import annotations

from typing import Any

from ...spaces import Choice, Constant, Spec
from .yaml_text import block_of, text_of

ALWAYS = ("version", "name", "objective", "metric", "goal")
LAST = ("when", "pass")  # of a parameter
NAMED = {"search": "sampler", "early_stopping": "method"}  # a section means nothing without its kind


def space_text(spec: Spec) -> str:
    """The text of a space file that means the same, a line for each parameter and each short section."""
    full, short = spec.model_dump(mode="json"), spec.model_dump(mode="json", exclude_defaults=True)
    head = {name: full[name] for name in ALWAYS}
    text = block_of(head) + "\nparameters:\n"
    for name, parameter in spec.parameters.items():
        content = short["parameters"][name]
        content = {key: content[key] for key in sorted(content, key=lambda key: key in LAST)}
        if isinstance(parameter, Choice) and content.keys() == {"choices"}:
            content = content["choices"]
        elif isinstance(parameter, Constant) and content.keys() == {"value"} and _is_plain(content["value"]):
            content = content["value"]
        text += f"  {text_of(name)}: {text_of(content)}\n"
    rest = {name: value for name, value in short.items() if name not in (*ALWAYS, "parameters")}
    for name, value in rest.items():
        if name in NAMED and isinstance(value, dict):
            value = {NAMED[name]: full[name][NAMED[name]]} | value
        text += f"\n{name}: {text_of(value)}\n" if name == next(iter(rest)) else f"{name}: {text_of(value)}\n"
    return text


def _is_plain(value: Any) -> bool:
    """Whether a constant can be written as its value alone."""
    return value is not None and not isinstance(value, dict | list)
