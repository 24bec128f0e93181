"""Reads the rows of a log that grows: lines of JSON, a table such as CSV, or one JSON document."""

from __future__ import annotations

import csv
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from ...reports import number_of
from ..marks import Utf8

Row = dict[str, Any]

MAX_LINE_BYTES = 1 << 22  # of a half line that is kept; no row is longer
MAX_QUOTED_BYTES = 1 << 17  # of a row of several lines; `csv` reads no longer text in quotes
MAX_COMMENTS = 100  # before the first row that are kept
MAX_DOCUMENT_BYTES = 1 << 28
DELIMITERS = ",\t;"
BLANK = b"\r\n\t "  # before the first row
HISTORY = "log_history"  # the rows in the Trainer's trainer_state.json


class RowReader(ABC):
    """Reads the rows of one file in pieces, from its beginning."""

    fault: str | None = None  # why a part of it is not a row
    damage: str | None = None  # where its content is damaged, and how; nothing behind it can be read
    twice: Collection[str] = ()  # names that several columns have
    no_header: str | None = None  # what is there in place of a line of names, quoted

    @abstractmethod
    def feed(self, piece: bytes, *, ended: bool = False) -> list[Row]:
        """The rows that are complete with this piece. `ended`: the file will not grow any more."""

    def skip(self, head: bytes, size: int) -> None:
        """Continue after a content of so many bytes that begins with `head`."""
        return


class Rows(RowReader):
    """The rows of lines of JSON, of a table, or of a JSON document."""

    def __init__(self) -> None:
        self._kind: str | None = None  # lines, table or document
        self._text = Utf8()
        self._rest = b""
        self._header: list[str] = []
        self._delimiter: str | None = None
        self._comments: list[str] = []  # before the first row, one of which may be the header
        self._open: list[str] = []  # the cells of a row whose last one is in quotes that are still open
        self._opened = b""  # the lines of that row

    def feed(self, piece: bytes, *, ended: bool = False) -> list[Row]:
        return self._fed(self._text.feed(piece, ended=ended), ended=ended)

    def _fed(self, piece: bytes, *, ended: bool = False) -> list[Row]:
        """As `feed`, with content in UTF-8."""
        self._rest += piece
        self._kind = self._kind or self._kind_of(ended=ended)
        if self._kind == "document":
            return self._document() if piece or ended else []
        if self._kind is None:
            self._rest = self._rest[:MAX_LINE_BYTES]
            return []
        *whole, self._rest = self._rest.split(b"\n")
        if ended and self._rest:
            whole, self._rest = [*whole, self._rest], b""
        rows = list(self._in_lines(whole) if self._kind == "lines" else self._in_table(whole, ended=ended))
        if self._kind == "lines" and (row := _object(self._rest)) is not None:  # its end is its last brace
            rows, self._rest = [*rows, row], b""
        self._rest = self._rest[-MAX_LINE_BYTES:]
        return rows

    def skip(self, head: bytes, size: int) -> None:
        """Keep only what the head says of the form."""
        self._fed(self._text.feed(head, ended=True))
        if self._kind is None or (self._kind == "table" and not self._header):
            self._fed(b"", ended=True)
        self._text.go_on(size)
        self._rest, self._open, self._opened = b"", [], b""
        self.fault = self.damage = None

    def _kind_of(self, *, ended: bool) -> str | None:
        """How the content is written; None while too little of it is there."""
        content = self._rest.lstrip(BLANK)
        self._rest = content
        first, newline, _ = content.partition(b"\n")
        if content.startswith(b"["):
            return "document"
        if content.startswith(b"{"):
            row = _object(first)
            if row is None:
                return "document" if newline or ended else None
            return "lines" if rows_of(row) == [row] else "document"
        return "table" if newline or (ended and content) else None

    def _document(self) -> list[Row]:
        """All rows of a document, once it is whole."""
        if len(self._rest) > MAX_DOCUMENT_BYTES:
            self.fault = f"is a JSON document of more than {MAX_DOCUMENT_BYTES >> 20} MiB"
            return []
        try:
            content = json.loads(self._rest)
        except (ValueError, RecursionError):
            self.fault = "is not a whole JSON document"
            return []
        self._rest, self.fault = b" ", None
        return rows_of(content)

    def _in_lines(self, lines: Iterable[bytes]) -> Iterator[Row]:
        for line in lines:
            if not line.strip():
                continue
            if (row := _object(line)) is not None:
                yield row
            else:
                self.fault = f"has a line that is not a JSON object, {_shown(line)}"

    def _in_table(self, lines: Iterable[bytes], *, ended: bool) -> Iterator[Row]:
        for line in lines:
            if self.damage is not None:
                return
            text = line.decode("utf-8", "replace").strip("\r\n\0")
            if not text.strip() and not self._open:
                continue
            if not self._header and not self._open:
                if text.lstrip().startswith("#"):
                    self._comments = [*self._comments, text][-MAX_COMMENTS:]
                    continue
                self._delimiter = _delimiter_in(text)
            cells = self._row_of(text, line)
            if cells is not None and (row := self._of_cells(cells, line)) is not None:
                yield row
        if not ended or not self._open or self.damage is not None:
            return
        if b"\n" in self._opened:
            self.damage = f"where quotes are not closed, {_shown(self._opened)}"
        elif (row := self._of_cells(self._open, self._opened)) is not None:  # half a line, as it is
            yield row

    def _row_of(self, text: str, line: bytes) -> list[str] | None:
        """The cells of a row, once the line that ends it is there: quotes may go over several lines."""
        cells, is_open = self._cells(text, in_quotes=bool(self._open))
        if self._open:
            *before, half = self._open
            cells = [*before, f"{half}\n{cells[0]}", *cells[1:]]
            line = self._opened + b"\n" + line
        if is_open and len(line) > MAX_QUOTED_BYTES:
            self.damage = f"where quotes are not closed within {MAX_QUOTED_BYTES >> 10} KiB, {_shown(line)}"
        self._open, self._opened = (cells, line) if is_open else ([], b"")
        return None if is_open else [cell.strip() for cell in cells]

    def _of_cells(self, cells: list[str], line: bytes) -> Row | None:
        """A row as an object; None for a header, and for what is no row."""
        if not self._header:
            named = self._header_for(cells)
            self._set_header(named or cells)
            if any(number_of(name) is not None for name in self._header):
                self.no_header = _shown(line)
            if not named:
                return None
        elif self._is_header(cells):  # of a later run that appends to it
            self._set_header(cells)
            return None
        if len(cells) > len(self._header):
            self.fault = f"has a row with more cells than its header, {_shown(line)}"
            return None
        return dict(zip(self._header, cells, strict=False))

    def _header_for(self, cells: list[str]) -> list[str]:
        """The names in a comment before the first row, as `numpy.savetxt` writes them; else nothing."""
        if all(number_of(cell) is None for cell in cells):
            return []
        named = [self._cells(text.lstrip("# "))[0] for text in self._comments]
        return next((names for names in reversed(named) if len(names) == len(cells)), [])

    def _set_header(self, names: list[str]) -> None:
        self._header = names
        self.twice = {name for name in names if names.count(name) > 1}

    def _is_header(self, cells: list[str]) -> bool:
        """Whether a row names columns: most of those before it, and no number."""
        again = len(set(cells) & set(self._header))
        return again * 2 > len(self._header) and not any(number_of(cell) is not None for cell in cells)

    def _cells(self, text: str, *, in_quotes: bool = False) -> tuple[list[str], bool]:
        """The cells of a line, and whether the last one is in quotes that are still open.

        `in_quotes`: the line before has left them open.
        """
        if self._delimiter is None:
            return text.split(), False
        lines = csv.reader([f'"{text}' if in_quotes else text, ""], delimiter=self._delimiter)
        try:
            cells = next(lines)
        except csv.Error:
            return text.split(self._delimiter), False
        return cells, lines.line_num > 1  # it has looked for the rest in the line after it


def _delimiter_in(text: str) -> str | None:
    """What stands between the cells of a line; None for white space."""
    outside = re.sub(r'"[^"]*"?', "", text)
    most = max(DELIMITERS, key=outside.count)
    return most if most in outside or text.startswith('"') else None


def rows_of(content: Any) -> list[Row]:
    """The rows of a JSON document: a list of objects, the Trainer's history, lists by name, or one object."""
    if isinstance(content, dict) and isinstance(content.get(HISTORY), list):
        content = content[HISTORY]
    if isinstance(content, list):
        return [row for row in content if isinstance(row, dict)]
    if not isinstance(content, dict):
        return []
    columns = {name: values for name, values in content.items() if isinstance(values, list)}
    longest = max(map(len, columns.values()), default=0)
    if not columns or any(not isinstance(value, dict | list) for value in content.values()):
        return [content]
    return [
        {name: values[place] for name, values in columns.items() if place < len(values)}
        for place in range(longest)
    ]


def flat_row(row: Row) -> Row:
    """A row with what is inside of its objects under dotted names, too."""
    if not any(isinstance(value, dict) for value in row.values()):
        return row
    flattened = dict(row)
    for name, value in row.items():
        if isinstance(value, dict):
            flattened |= {f"{name}.{inner}": each for inner, each in flat_row(value).items()}
    return flattened


def _object(line: bytes) -> Row | None:
    if not line.rstrip().endswith(b"}"):
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _shown(line: bytes) -> str:
    text = re.sub(r"\s+", " ", line[:60].decode("utf-8", "replace"))
    return f'"{text}"'
