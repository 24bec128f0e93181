"""Messages between the driver and a worker: JSON lines over a socket, and nothing executable."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import psutil

from ....objectives.user.writing import SIGNALLING, await_still, being_written, set_aside
from ....storage.files import is_of_a_checkpoint

Message = dict[str, Any]


class Channel:
    """One end of the connection between driver and worker."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._unread = b""
        self._sending = threading.Lock()  # a worker sends from several threads

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Send a message. Raises `OSError` where the other end is gone."""
        with self._sending:
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[Message] | None:
        """Wait for data; the complete messages in it, or None where the other end is gone."""
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionError:
            return None
        if not data:
            return None
        *lines, self._unread = (self._unread + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def has_news(self, seconds: float = 0.0) -> bool:
        """Whether there is data, or the end of it, to receive within so many seconds."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def close(self) -> None:
        self._socket.close()


def end_session(leader: int) -> None:
    """Kill every other process of a worker's session: the scripts it started, and their descendants.

    Files that they were writing into checkpoints are set aside.
    """
    with SIGNALLING:
        others = [process for process in psutil.process_iter() if _is_other(process.pid, leader)]
        _signal(others, signal.SIGSTOP)
        await_still(others)
        half = list(being_written(others, is_of_a_checkpoint))
        _signal(others, signal.SIGKILL)
        set_aside(half)


def _is_other(pid: int, leader: int) -> bool:
    try:
        return pid != os.getpid() and os.getsid(pid) == leader
    except (ProcessLookupError, PermissionError):
        return False  # ended meanwhile, or another user's


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError, psutil.Error):  # ended, or another user's
            process.send_signal(number)
