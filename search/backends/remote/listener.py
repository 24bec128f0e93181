"""The socket to which workers, and the service, connect: a line of JSON for each request and each answer.

{"do": "ask", "worker": "gpu7", "request": "1"}
{"do": "report", "lease": "...", "step": 1, "value": 0.5}
"""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from .address import listen

LONGEST_LINE = 4 << 20  # bytes of a request
MOST_PEERS = 1024
Answer = dict[str, Any]


class Peer:
    """One connection. Its requests are answered in their order, one at a time."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.unread = b""
        self.unsent = b""
        self.busy: Callable[[Answer], None] | None = None  # the reply that a request waits for

    def fileno(self) -> int:
        return self.end.fileno()


class Listener:
    """Takes requests from any number of connections, in one thread."""

    def __init__(
        self,
        path: Path,
        handle: Callable[[Any, Callable[[Answer], None]], None],
        left: Callable[[Callable[[Answer], None]], None],
    ) -> None:
        """`handle`: called with each request and the function that answers it, now or later.
        `left`: called with that function where the connection has ended before.

        Raises `SearchError`.
        """
        self.path = path
        self._handle = handle
        self._left = left
        self._peers: set[Peer] = set()
        self._listening = listen(path)
        self._inode = path.lstat().st_ino
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)

    def serve(self, seconds: float) -> None:
        """Handle what arrives within so many seconds; return early where something did."""
        for key, events in self._selector.select(seconds):
            peer = key.data
            if peer is None:
                self._accept()
            elif peer in self._peers and events & selectors.EVENT_WRITE:
                self._send(peer)
            if peer in self._peers and events & selectors.EVENT_READ:
                self._read(peer)

    def close(self) -> None:
        """Send what is answered, as far as it goes at once, and end all connections."""
        for peer in list(self._peers):
            self._send(peer)
            self._drop(peer)
        self._selector.close()
        self._listening.close()
        with suppress(OSError):
            if self.path.lstat().st_ino == self._inode:  # not that of a later search
                self.path.unlink()

    def _accept(self) -> None:
        try:
            end, _ = self._listening.accept()
        except OSError:  # it has left again, or no descriptor is left for it
            return
        end.setblocking(False)
        if len(self._peers) >= MOST_PEERS:
            end.close()
            return
        peer = Peer(end)
        self._peers.add(peer)
        self._selector.register(peer, selectors.EVENT_READ, peer)

    def _read(self, peer: Peer) -> None:
        try:
            data = peer.end.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(peer)
            return
        peer.unread += data
        self._next(peer)

    def _next(self, peer: Peer) -> None:
        """Handle the next request of a connection, once the one before is answered."""
        while peer.busy is None and peer in self._peers:
            line, found, rest = peer.unread.partition(b"\n")
            if not found:
                if len(line) > LONGEST_LINE:
                    self._drop(peer)
                return
            peer.unread = rest
            self._take(peer, line)

    def _take(self, peer: Peer, line: bytes) -> None:
        def reply(answer: Answer) -> None:
            if peer.busy is not reply:
                return  # answered before, or the connection has ended
            peer.busy = None
            peer.unsent += json.dumps(answer).encode() + b"\n"
            self._send(peer)
            if not nested:
                self._next(peer)

        peer.busy, nested = reply, True
        try:
            request = json.loads(line)
        except ValueError:
            request = None
        self._handle(request, reply)
        nested = False

    def _send(self, peer: Peer) -> None:
        try:
            while peer.unsent:
                peer.unsent = peer.unsent[peer.end.send(peer.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(peer)
            return
        if peer in self._peers:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.unsent else 0)
            self._selector.modify(peer, events, peer)

    def _drop(self, peer: Peer) -> None:
        if peer not in self._peers:
            return
        self._peers.discard(peer)
        self._selector.unregister(peer)
        peer.end.close()
        if (reply := peer.busy) is not None:
            peer.busy = None
            self._left(reply)
