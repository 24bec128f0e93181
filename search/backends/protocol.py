"""Messages between the driver's process and a worker: JSON lines over a socket, and nothing executable."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from typing import Any

import psutil

Message = dict[str, Any]


class Channel:
    """One end of the line between driver and worker."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._unread = b""
        self._sending = threading.Lock()  # a worker's threads send too

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Send a message. Raises `OSError` where the other side is gone."""
        with self._sending:
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[Message] | None:
        """Wait for something to arrive; the whole messages of it, or None where the other side is gone."""
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionError:
            return None
        if not data:
            return None
        *lines, self._unread = (self._unread + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def has_news(self) -> bool:
        """Whether something has arrived that was not received yet."""
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._socket.close()


def end_session(leader: int) -> None:
    """Kill every other process of a worker's session: the scripts it started, and theirs."""
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and os.getsid(process.pid) == leader:
                process.send_signal(signal.SIGKILL)
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue  # ended meanwhile, or not ours
