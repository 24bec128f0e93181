"""Values as YAML that every reader reads alike.

PyYAML, which most programs use, reads `1e-4` as text and `no` as false; YAML 1.2, which we read, does not.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import SafeRepresenter

from ...objectives.user.config_file import real
from ...spaces.document import could_be_more

PLAIN_TEXT = re.compile(r"(?!\.[0-9A-Za-z])[A-Za-z_./][A-Za-z0-9_./-]*")  # but not .5 or .inf


def text_of(value: Any) -> str:
    """A value in YAML's flow style, for readers of YAML 1.1 and 1.2."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, float):
        return real(value)
    if isinstance(value, str):
        plain = PLAIN_TEXT.fullmatch(value) and not could_be_more(value)
        return value if plain else f'"{"".join(map(_escaped, value))}"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{text_of(key)}: {text_of(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(text_of, value)) + "]"
    return str(value)


def block_of(content: Any) -> str:
    """Plain data in YAML's block style, for readers of YAML 1.1 and 1.2."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # keep the given order
    yaml.width = 100
    stream = io.StringIO()
    yaml.dump(content, stream)
    return stream.getvalue()


class _Representer(SafeRepresenter):
    """Quotes texts that could be read as another type."""

    def of_text(self, value: str) -> ScalarNode:
        style = '"' if could_be_more(value) else None
        return self.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    def of_real(self, value: float) -> ScalarNode:
        if not math.isfinite(value):
            return self.represent_float(value)
        return self.represent_scalar("tag:yaml.org,2002:float", real(value))


_Representer.add_representer(str, _Representer.of_text)
_Representer.add_representer(float, _Representer.of_real)


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08X}"


def one_line(words: str) -> str:
    """Words without line breaks, such as those of a comment."""
    return words if words.isprintable() else json.dumps(words)
