"""Follows files while a program writes them: they grow, appear late, are rewritten, truncated or replaced."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

HEAD_BYTES = 1 << 14  # at the beginning of a file, which tell whether it was rewritten
TAIL_BYTES = 256  # before the place that was read last, likewise
READ_BYTES = 1 << 22  # at a time


class Part(NamedTuple):
    """What was read of a file."""

    content: bytes
    anew: bool = False  # whether it is the beginning of a new content
    moved: bool = False  # whether the content before it went elsewhere, complete


class FollowedFile:
    """A file, whether it is there already or not. What it has at first counts as read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream: BinaryIO | None = None
        self._at = 0  # bytes that were read
        self._head = self._tail = b""
        self._seen: tuple[int, int] | None = None  # size and time of the last change
        self.fault: str | None = None  # why it cannot be read
        self.there_before = self._open()
        if self._stream is not None:
            self._at = os.fstat(self._stream.fileno()).st_size
            self._mark()

    @property
    def at(self) -> int:
        """How many bytes were read."""
        return self._at

    @property
    def head(self) -> bytes:
        """The beginning of what was read."""
        return self._head

    def beginning(self) -> bytes:
        """What the file begins with."""
        return b"" if self._stream is None else os.pread(self._stream.fileno(), READ_BYTES, 0)

    def close(self) -> None:
        """Let go of the file."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def rewind(self) -> None:
        """Read it again from its beginning."""
        self._at, self._head, self._tail, self._seen = 0, b"", b"", None

    def news(self) -> Iterator[Part]:
        """What was written since the last call."""
        if self._stream is None:
            if self._open():
                yield from self._read(anew=True)
            return
        is_replaced = self._is_replaced()
        yield from self._changed()
        if is_replaced:  # the old one, which was open still, has been read to its end
            self.close()
            self.rewind()
            if self._open():
                yield from self._read(anew=True, moved=True)

    def _changed(self) -> Iterator[Part]:
        assert self._stream is not None
        now = os.fstat(self._stream.fileno())
        if (now.st_size, now.st_mtime_ns) == self._seen:
            return
        if now.st_size < self._at or not self._is_as_before():
            self.rewind()
            yield from self._read(anew=True)
        elif now.st_size > self._at:
            yield from self._read(anew=self._at == 0)
        self._seen = now.st_size, now.st_mtime_ns

    def _open(self) -> bool:
        try:
            if self.path.exists() and not self.path.is_file():
                self.fault = "is a folder" if self.path.is_dir() else "is a pipe or a device, not a file"
                return False
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._stream = open(descriptor, "rb", buffering=0)  # noqa: SIM115 - it stays open
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            self.fault = None if missing else str(error.strerror)
            return False
        self.fault = None
        return True

    def _is_replaced(self) -> bool:
        assert self._stream is not None
        try:
            there = os.stat(self.path)
        except OSError:
            return False  # its new content is not there yet
        # An empty one is of a rotation that the program may not know of yet: it writes to the old one still.
        return there.st_size > 0 and not os.path.samestat(there, os.fstat(self._stream.fileno()))

    def _is_as_before(self) -> bool:
        """Whether what was read is still there."""
        assert self._stream is not None
        descriptor = self._stream.fileno()
        head = os.pread(descriptor, len(self._head), 0)
        tail = os.pread(descriptor, len(self._tail), self._at - len(self._tail))
        return (head, tail) == (self._head, self._tail)

    def _read(self, *, anew: bool, moved: bool = False) -> Iterator[Part]:
        assert self._stream is not None
        while content := os.pread(self._stream.fileno(), READ_BYTES, self._at):
            if not self._is_as_before():  # it was rewritten just now
                self.rewind()
                anew, moved = True, False
                continue
            self._at += len(content)
            self._mark()
            yield Part(content, anew, moved)
            anew = moved = False

    def _mark(self) -> None:
        """Remember the beginning and the end of what was read."""
        assert self._stream is not None
        descriptor = self._stream.fileno()
        if len(self._head) < HEAD_BYTES:
            self._head = os.pread(descriptor, min(HEAD_BYTES, self._at), 0)
        size = min(TAIL_BYTES, self._at)
        self._tail = os.pread(descriptor, size, self._at - size)
