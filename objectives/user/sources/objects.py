"""Joins the lines of an object that a program prints over several, as `json.dumps(..., indent=2)` writes it.

{                                  {'best': {'val_loss': 0.3, 'epoch': 2},
  "epoch": 3,                       'epoch': 3,
  "val_loss": 0.4123                'val_loss': 0.4123}
}

Joined, it is one record, with the values inside it where they belong. Other lines pass as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...reports import MAX_LINE_BYTES, Line, Writing
from .base import plain_text

_TEXT = re.compile(r""""(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'""")  # a brace in it opens nothing
_OPENS = re.compile(r"""\{\s*(?:$|['"].*[,:{\[('"]\s*$)""")
_GOES_ON = (",", "{", "[", "(", ":", '"', "'")  # at the end of a line: the object's next one follows
_PART = re.compile(
    r"""["'{\[(]|[a-z_$][\w$]*:|(?:[-+]?[\d.]+(?:e[-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?)|true|false|null|none)[\])]*,?$""",
    re.IGNORECASE,
)


class ObjectLines:
    """The lines of one stream. Those of an object wait for its end, or until it cannot be one."""

    def __init__(self) -> None:
        self._lines: list[Line] = []  # of the object that is open
        self._texts: list[str] = []  # the same without colours
        self._depth = self._size = 0  # braces that are open, and bytes

    @property
    def is_open(self) -> bool:
        """Whether an object has begun and not ended."""
        return bool(self._lines)

    @staticmethod
    def may_open(text: bytes) -> bool:
        """Whether an object may be open behind a part of the output."""
        is_open = text.count(b"{") != text.count(b"}") or text.rfind(b"{") > text.rfind(b"}")
        return is_open and b"\0" not in text  # which only binary output has

    def take(self, line: bytes, number: int, writing: Writing) -> Iterator[Line]:
        """The lines that can be read now, with their numbers; an object has that of its first line."""
        if self._lines and not line:  # the end of a line of Windows
            self._lines.append((line, number, writing))
            return
        text = plain_text(line).strip() if self._lines or b"{" in line else ""
        if self._lines and not self._goes_on(text):
            yield from self.end()
        if not self._lines and not _opens(text):
            yield line, number, writing
            return
        self._lines.append((line, number, writing))
        self._texts.append(text)
        self._size += len(line)
        self._depth += _depth_of(text)
        if self._depth > 0 and self._size <= MAX_LINE_BYTES:
            return
        if self._depth <= 0:
            yield " ".join(self._texts).encode(), self._lines[0][1], Writing.WHOLE
            self._lines.clear()
        yield from self.end()

    def end(self) -> list[Line]:
        """The lines that wait, each by itself: they are no object."""
        lines, self._lines, self._texts = self._lines, [], []
        self._depth = self._size = 0
        return lines

    def _goes_on(self, text: str) -> bool:
        """Whether a line can be a part of the object that is open."""
        if text.startswith(("}", "]", ")")):
            return True
        return self._texts[-1].endswith(_GOES_ON) and _PART.match(text) is not None


def _opens(text: str) -> bool:
    """Whether a line begins an object that it does not end."""
    return "{" in text and _OPENS.search(text) is not None and _depth_of(text) > 0


def _depth_of(text: str) -> int:
    """How many braces a line opens more than it closes."""
    text = _TEXT.sub("", text)
    return text.count("{") - text.count("}")
