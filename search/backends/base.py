"""The backend contract: a backend runs trials, and stores nothing of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..driver import Driver


class Backend(Protocol):
    """Asks the driver for trials, delivers their reports and ends, and obeys its answers."""

    threads: int  # of each worker; a trial's value depends on it

    def run(self, driver: Driver) -> None:
        """Run trials until `driver.ask()` has no more and none is running.

        Every trial that was asked is completed, failed or suspended through the driver before this returns
        or raises. Nothing is delivered of a trial after its stop.
        """
        ...
