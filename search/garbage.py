"""How often Python looks for garbage: not while modules are loaded, which stay.

Looking through all that they hold, again and again, would take a tenth of the time in which a process starts.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = (
    20_000,
    20,
    20,
)  # new objects between two looks, and looks at these between two at older ones


def seldom() -> None:
    """Let this process, in which no code of a user runs, look seldom."""
    gc.set_threshold(*SELDOM)


@contextmanager
def none_while_loading() -> Iterator[None]:
    """Meanwhile Python does not look, and later it looks at nothing that there is now.

    What is loaded may decide otherwise: code of a user may.
    """
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        yield
    finally:
        if gc.get_threshold()[0] == 0:
            gc.set_threshold(*before)
        gc.freeze()
