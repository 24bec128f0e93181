"""What all tests share."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes that tests start.

    A shell lets its background jobs ignore SIGINT, and a child inherits that; a handler of ours it does not.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
