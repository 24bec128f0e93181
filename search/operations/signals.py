"""Signals: how a search is asked to end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ..engine.driver import Driver
from ..streams import silence


@contextmanager
def signals_ask(driver: Driver) -> Iterator[list[str]]:
    """The first SIGINT or SIGTERM asks the search to stop tidily; the second stops it now.

    So does SIGHUP, which comes when the terminal goes; but a search that talks to no terminal continues. A
    SIGINT is the second also where a command has asked the search to stop.
    """
    caught: list[str] = []
    terminals = [fd for fd in (1, 2) if os.isatty(fd)]

    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            silence(*terminals)
            if not terminals:
                return
        again = bool(caught) or (number == signal.SIGINT and driver.hurries)
        caught.append(signal.Signals(number).name)
        if again:
            raise KeyboardInterrupt
        driver.request_stop(f"interrupted by {caught[0]}")

    if threading.current_thread() is not threading.main_thread():
        yield caught  # only the main thread may take signals
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup leaves it
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
