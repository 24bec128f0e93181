"""Changes one range in the text of a space file, and not one character more.

Comments, order and layout stay, because the text is not rewritten: only the changed values are replaced in
place. The result is loaded again before it is returned.
"""

from __future__ import annotations

from typing import Any

from .document import YamlNode, compose
from .errors import SpaceError
from .loader import loads
from .presets import Presets
from .ranges import Range

Edit = tuple[int, int, str]  # the start and the end of the replaced characters, and the new text


def with_log_range(
    text: str, file: str, name: str, low: float, high: float, presets: Presets | None = None
) -> str:
    """The text of a space file with the parameter `name` searched from `low` to `high`, logarithmically.

    `presets` returns the values of the file's `preset:`. Raises `SpaceError` where the file is not a space,
    or where the parameter is written in a way that cannot be changed in place; the message then holds the
    line to write by hand.
    """
    before = loads(text, file, presets)
    root = compose(text, file)
    assert root is not None
    _, parameters = _pairs(root)["parameters"]
    key, value = _pairs(parameters).get(name, (None, None))
    # Quoted like its own name: JSON, which is YAML too, quotes everything.
    quote = '"' if key is not None and text[key.span[0]] == '"' else ""
    flow = log_range(low, high, quote)
    wanted = f"write it by hand: {name}: {flow}"

    def refuse(why: str) -> SpaceError:
        return SpaceError([before.issue(f"parameters.{name}", f"{why}; {wanted}")])

    if key is None or value is None:
        edits = _added(text, parameters, f"{name}: {flow}")
    elif value.span < key.span:
        raise refuse("is an alias of another value")
    else:
        edits = _changed(text, value, low, high, flow, quote)
    if edits is None:
        raise refuse("cannot be changed in place without loss")
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    try:
        after = loads(text, file, presets)
    except SpaceError as error:
        raise refuse(f"cannot be {flow}: {error.issues[0].message}") from None
    changed = after.parameters[name]
    others = before.model_copy(update={"parameters": {**before.parameters, name: changed}})
    if not (isinstance(changed, Range) and (changed.min, changed.max, changed.log) == (low, high, True)):
        raise refuse("is written in a way that would be misread")
    if others.to_json()["parameters"] != after.to_json()["parameters"]:
        raise refuse("shares its text with another parameter")
    return text


def log_range(low: float, high: float, quote: str = "") -> str:
    """A logarithmic range as written in a space file: `{min: 1e-4, max: 3e-2, log: true}`."""
    values = {"min": _number(low), "max": _number(high), "log": "true"}
    return "{" + ", ".join(f"{quote}{key}{quote}: {value}" for key, value in values.items()) + "}"


def _changed(text: str, node: YamlNode, low: float, high: float, flow: str, quote: str) -> list[Edit] | None:
    """The edits that turn a parameter's value into such a range; None where something would be lost."""
    if node.kind is not dict:
        whole = text[slice(*node.span)]
        return [(*node.span, flow)] if "\n" not in whole and not whole.startswith("&") else None
    inside = _pairs(node)
    if not {"min", "max"} <= inside.keys() or inside.keys() & {"step", "factor"}:
        return None
    (_, first), (key, last) = inside["min"], inside["max"]
    edits = [(*first.span, _number(low)), (*last.span, _number(high))]
    if "log" in inside:
        _, log = inside["log"]
        return edits if log.content == "true" else [*edits, (*log.span, "true")]
    if node.flow:
        edits[1] = (*last.span, f"{_number(high)}, {quote}log{quote}: true")
        return edits
    end = _line_end(text, last.span[1])
    return [*edits, (end, end, f"{_break(text)}{_indent(text, key)}{quote}log{quote}: true")]


def _added(text: str, parameters: YamlNode, line: str) -> list[Edit] | None:
    """The edit that adds a line to the parameters; None where they stand in brackets."""
    if parameters.flow:
        return None
    (first, _), *_ = _pairs(parameters).values()
    end = _line_end(text, parameters.span[1] - text[: parameters.span[1]].endswith("\n"))
    return [(end, end, f"{_break(text)}{_indent(text, first)}{line}")]


def _pairs(node: YamlNode) -> dict[str, tuple[YamlNode, YamlNode]]:
    """The keys and values of a mapping, by name."""
    pairs: Any = node.content
    return {key.content: (key, value) for key, value in pairs}


def _indent(text: str, key: YamlNode) -> str:
    return text[text.rfind("\n", 0, key.span[0]) + 1 : key.span[0]]


def _line_end(text: str, index: int) -> int:
    """The end of the line around a character, before its line break."""
    end = text.find("\n", index)
    end = len(text) if end < 0 else end
    return end - text[:end].endswith("\r")


def _break(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _number(value: float) -> str:
    """A number as written in a space file: `3e-4`."""
    mantissa, _, exponent = f"{value:e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
