"""How a parameter's value is written on a command line, in the forms that programs read.

arguments({"use_amp": True, "layers": [64, 32]}, ("dashes", "flags", "words"))
    ->  ["--use-amp", "--layers", "64", "32"]
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from ..base import ObjectiveError

# The forms of `${args:...}`; those of one line exclude each other.
NAME_FORMS = ("dashes",)
TRUTH_FORMS = ("flags", "switches")
LIST_FORMS = ("words", "repeat", "commas")
TEXT_FORMS = ("literal", "hydra")
VALUE_FORMS = (*LIST_FORMS, *TEXT_FORMS, "nulls")  # also of `${NAME:...}`
ARGS_FORMS = (*NAME_FORMS, *TRUTH_FORMS, *VALUE_FORMS)
SAYS_NULL = {"literal", "hydra", "nulls"}  # forms in which null is a value
_PLAIN_IN_HYDRA = re.compile(r"[A-Za-z_][A-Za-z0-9_]*([./-]+[A-Za-z0-9_]+)*")
_KEY_IN_HYDRA = re.compile(r"[\w/\\+.$%*@?|()\[\]{}:=, \t-]+", re.ASCII)
_NO_TEXT_IN_HYDRA = {"null", "true", "false", "nan", "inf"}


def problem_of_forms(forms: Sequence[str], allowed: Sequence[str]) -> str | None:
    """What is wrong with the forms of a macro; None if nothing is."""
    for form in forms:
        if form not in allowed:
            near = difflib.get_close_matches(form, allowed, 1)
            hint = f', did you mean "{near[0]}"?' if near else ""
            return f'has no form "{form}"{hint}; forms: {", ".join(allowed)}'
    for group in (TRUTH_FORMS, LIST_FORMS, TEXT_FORMS):
        if len(both := [form for form in dict.fromkeys(forms) if form in group]) > 1:
            return f"has the forms {both[0]} and {both[1]}, which exclude each other"
    return None


def arguments(params: Mapping[str, Any], forms: Sequence[str] = ()) -> list[str]:
    """The words that pass all parameters as options."""
    return [word for name, value in params.items() for word in _option(name, value, forms)]


def overrides(params: Mapping[str, Any], forms: Sequence[str] = ()) -> list[str]:
    """`name=value` for each parameter."""
    return [f"{name}={text(value, forms)}" for name, value in params.items()]


def _option(name: str, value: Any, forms: Sequence[str]) -> Iterator[str]:
    if "dashes" in forms:
        name = name.replace("_", "-")
    if value is None and not SAYS_NULL.intersection(forms):
        return
    if isinstance(value, bool) and ("flags" in forms or "switches" in forms):
        if value:
            yield f"--{name}"
        elif "flags" in forms:
            yield f"--no-{name}"
    elif "words" in forms:
        yield f"--{name}"
        yield from words(value, forms)
    elif "repeat" in forms and isinstance(value, list):
        yield from (f"--{name}={text(each, forms)}" for each in value)
    else:
        yield f"--{name}={text(value, forms)}"


def words(value: Any, forms: Sequence[str] = ()) -> list[str]:
    """The elements of a list as words; any other value as one.

    Negative numbers are written without an exponent: argparse takes `-1e-05` for an option.
    """
    return [
        format(Decimal(repr(each)), "f") if isinstance(each, float) and each < 0 else text(each, forms)
        for each in (value if isinstance(value, list) else [value])
    ]


def text(value: Any, forms: Sequence[str] = ()) -> str:
    """A value as a text: itself, or JSON for what is no text."""
    if "commas" in forms and isinstance(value, list):
        return ",".join(text(each, forms) for each in value)
    if "hydra" in forms:
        return _hydra(value)
    if "literal" in forms:
        return repr(value).replace("=", r"\x3d")  # which splits an argument; it can only be within a text
    return value if isinstance(value, str) else json.dumps(value)


def _hydra(value: Any) -> str:
    """A value in the grammar of Hydra's overrides. OmegaConf reads `${...}` in a text as an interpolation."""
    if isinstance(value, list):
        return f"[{','.join(map(_hydra, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{_hydra_key(key)}:{_hydra(each)}' for key, each in value.items())}}}"
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN_IN_HYDRA.fullmatch(value) and value.lower() not in _NO_TEXT_IN_HYDRA:
        return value
    escaped = re.sub(r"(\\*)\$\{", lambda match: rf"{match[1] * 2}\${{", value)
    quoted = re.sub(r"(\\*)('|\Z)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), escaped)
    return f"'{quoted}'"


def _hydra_key(key: str) -> str:
    if not _KEY_IN_HYDRA.fullmatch(key) or key != key.strip():
        raise ObjectiveError(f"Hydra's overrides have no form for the key {key!r} of a mapping")
    return re.sub(r"[\\()\[\]{}:=, \t]", r"\\\g<0>", key)
