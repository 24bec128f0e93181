"""Reads the output of a script's processes, and passes it on as it comes."""

from __future__ import annotations

import math
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, BinaryIO, NamedTuple

from ..reports import quoted
from .marks import Utf8

SILENCE_SECONDS = 0.5  # of an ended script, before its output counts as complete
LEFTOVER_SECONDS = 5.0  # for processes that an ended script left behind, which may print forever
POLL_SECONDS = 0.05  # between two checks of processes that are ending
MAX_READ_BYTES = 1 << 20  # bytes that are read before they are searched for reports
MAX_DRAINED_BYTES = 1 << 22  # bytes that are printed after a pause and searched for reports
TAIL_BYTES = 4096  # bytes of standard error that are kept
TAIL_LINES = 3  # of standard error in a message

Process = subprocess.Popen[bytes]


class Chunk(NamedTuple):
    """A part of what rank 0 has printed."""

    text: bytes  # in UTF-8, if it is text
    is_error: bool  # whether it comes from standard error
    line: int  # the number of its first line in the output of all ranks, from 1


@dataclass(frozen=True)
class Piece:
    """What rank 0 has printed since the last piece; nothing after a while of silence."""

    chunks: Sequence[Chunk]
    waited: Mapping[bool, float]  # seconds of silence before it, on standard output and, True, on error


class Output:
    """The output of a script in one or several ranks: standard error of all, standard output of rank 0.

    The other ranks inherit our standard output.
    """

    def __init__(self, ranks: Sequence[Process], first_line: int = 1) -> None:
        """`first_line`: the number of the first line that they print."""
        self._ranks = ranks
        self._tails = [b""] * len(ranks)
        self._texts: dict[int, Utf8] = {}  # by their streams
        self._line = first_line  # the number of the line that comes next
        self._drained: list[Chunk] = []  # what was printed while it was drained
        self._streams = ExitStack()
        self._selector = self._streams.enter_context(selectors.DefaultSelector())
        for rank, process in enumerate(ranks):
            assert process.stderr is not None
            self._listen(process.stderr, rank)
        if ranks[0].stdout is not None:
            self._listen(ranks[0].stdout, None)

    def _listen(self, stream: IO[bytes], rank: int | None) -> None:
        self._streams.enter_context(stream)
        self._selector.register(stream, selectors.EVENT_READ, rank)
        self._texts[stream.fileno()] = Utf8()

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *error: object) -> None:
        self._streams.close()

    def pieces(self, every: float | None = None) -> Iterator[Piece]:
        """What rank 0 prints, until its output is complete or another rank fails.

        Processes that a script left behind may keep its output open; the trial does not wait for them. With
        `every`, a piece comes at least every so many seconds, and until all ranks have ended, even if they
        have closed their output.
        """
        until, ready_at = math.inf, time.monotonic()
        printed_at = {False: ready_at, True: ready_at}
        while not any(other.poll() for other in self._ranks[1:]):
            ended = None not in [process.poll() for process in self._ranks]
            if not self._selector.get_map() and (every is None or ended):
                break
            if ended:
                until = min(until, time.monotonic() + LEFTOVER_SECONDS)
            is_ready = bool(self._selector.select(SILENCE_SECONDS if every is None else every))
            now = time.monotonic()
            waited = {stream: now - at for stream, at in printed_at.items()}
            chunks = self._read() if is_ready else []
            yield Piece(chunks, waited)
            printed_at |= dict.fromkeys((chunk.is_error for chunk in chunks), time.monotonic())
            ready_at = time.monotonic() if is_ready else ready_at
            if ended and (now - ready_at >= SILENCE_SECONDS or now > until):
                break

    def drain(self, seconds: float) -> None:
        """Pass on further output until all processes have ended, for at most so many seconds."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until and None in [process.poll() for process in self._ranks]:
            if not self._selector.get_map():
                time.sleep(POLL_SECONDS)
            elif self._selector.select(min(POLL_SECONDS, until - now)):
                self._keep(self._read())
        self._keep(self._read())

    def take_drained(self) -> Piece:
        """What rank 0 has printed while it was drained; its beginning, if that is much."""
        drained, self._drained = self._drained, []
        return Piece(drained, {False: 0.0, True: 0.0})

    def _keep(self, chunks: list[Chunk]) -> None:
        if sum(len(chunk.text) for chunk in self._drained) < MAX_DRAINED_BYTES:
            self._drained += chunks

    def last_errors(self, rank: int) -> str:
        """The last lines of a rank's standard error, quoted; empty if there are none."""
        lines = self._tails[rank].decode("utf-8", "replace").replace("\r", "\n").split("\n")
        return " / ".join(quoted(line) for line in [line for line in lines if line.strip()][-TAIL_LINES:])

    def _read(self) -> list[Chunk]:
        """Read and pass on the output that is available now. Returns the part of rank 0."""
        printed: list[Chunk] = []
        size = 0
        while size < MAX_READ_BYTES and (ready := self._selector.select(0)):
            for key, _ in ready:
                assert not isinstance(key.fileobj, int)
                read = os.read(key.fd, 1 << 16)
                size += len(read)
                if not read:
                    self._selector.unregister(key.fileobj)
                    continue
                _pass_on(sys.stdout.buffer if key.data is None else sys.stderr.buffer, read)
                text = self._texts[key.fd].feed(read)
                if key.data is not None:
                    self._tails[key.data] = (self._tails[key.data] + text)[-TAIL_BYTES:]
                if not key.data:
                    printed.append(Chunk(text, key.data is not None, self._line))
                self._line += read.count(b"\n")
        return printed


def _pass_on(stream: BinaryIO, read: bytes) -> None:
    stream.write(read)
    stream.flush()
