"""Text whose byte order mark says how it is encoded, as programs of Windows write it."""

from __future__ import annotations

import codecs

MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


class Utf8:
    """Turns content that comes in pieces into UTF-8 without a mark; without one, it stays as it is."""

    def __init__(self) -> None:
        self._begun: bytes | None = b""  # what may be the beginning of a mark; None: that is known
        self._decoder: codecs.IncrementalDecoder | None = None  # None: it is UTF-8, or not known to be text

    def feed(self, piece: bytes, *, ended: bool = False) -> bytes:
        """What follows in the content. `ended`: nothing comes after this piece."""
        if self._begun is not None:
            piece = self._begun + piece
            mark = next((mark for mark in MARKS if piece.startswith(mark)), b"")
            if not mark and not ended and any(mark.startswith(piece) for mark in MARKS):
                self._begun = piece
                return b""
            self._begun, piece = None, piece[len(mark) :]
            if mark not in (b"", codecs.BOM_UTF8):
                self._decoder = codecs.getincrementaldecoder(MARKS[mark])("replace")
        return piece if self._decoder is None else self._decoder.decode(piece).encode("utf-8", "replace")

    def go_on(self, size: int) -> None:
        """Continue after so many bytes of the content whose beginning was fed."""
        if self._decoder is not None:
            self._decoder.reset()
            self._decoder.decode(bytes(size % 2))  # half a letter
