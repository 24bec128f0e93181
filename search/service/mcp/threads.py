"""Threads in which tools work: not those of a server's routes, which the tools there call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

T = TypeVar("T")
MOST = 64  # tools that work at a time
_limiter: RunVar[CapacityLimiter] = RunVar("tools")


async def in_thread(function: Callable[..., T], /, *args: Any, **arguments: Any) -> T:
    """What a function returns that may take a while."""
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = CapacityLimiter(MOST)
        _limiter.set(limiter)
    return await to_thread.run_sync(
        partial(function, *args, **arguments), limiter=limiter, abandon_on_cancel=True
    )
