"""Texts that nothing can write: Python reads a file name that is no UTF-8 as halves of characters."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def writable(text: str) -> str:
    """The text with an escape, as Python shows it, for each half of a character: `data\\udce9.csv`."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def from_json(text: str) -> Any:
    """What a text of JSON means, with writable texts: its escapes may stand for halves of characters."""
    content = json.loads(text)
    return changed(content, writable) if "\\u" in text else content


def changed(content: Any, change: Callable[[str], str]) -> Any:
    """Plain data with each of its texts changed."""
    if isinstance(content, dict):
        return {changed(key, change): changed(value, change) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [changed(value, change) for value in content]
    return change(content) if isinstance(content, str) else content
