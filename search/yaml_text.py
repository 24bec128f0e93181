"""Values as YAML that every reader reads alike.

PyYAML, with which most programs read, takes `1e-4` for a text and `no` for a falsehood; readers of YAML 1.2,
as ours, do not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..objectives.config_file import real

PLAIN = re.compile(r"(?!\.[0-9A-Za-z])[A-Za-z_./][A-Za-z0-9_./-]*")  # and no .5, no .inf
# What YAML 1.1 takes for truth values and for nothing.
WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"}


def text_of(value: Any) -> str:
    """A value in YAML's flow style, which all readers of YAML 1.1 and 1.2 read alike."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, float):
        return real(value)
    if isinstance(value, str):
        plain = PLAIN.fullmatch(value) and value.lower() not in WORDS
        return value if plain else f'"{"".join(map(_escaped, value))}"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{text_of(key)}: {text_of(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(text_of, value)) + "]"
    return str(value)


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08X}"


def one_line(words: str) -> str:
    """Words that stay in their line, such as a comment's."""
    return words if words.isprintable() else json.dumps(words)
