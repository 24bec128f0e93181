"""What Tune's hooks share in one search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray

from ...engine.driver import Driver


class NothingToWaitFor(Exception):
    """Tune waits in vain: for trials whose time to report is over, or for actors without a trial."""


class RayDied(BaseException):
    """A process of the Ray started here has ended. Tune would handle an `Exception`, and wait for it."""


class Hooks:
    """What the hooks share: the driver, and which of Tune's trials runs which trials of the study.

    Tune pickles its hooks for a restore that never happens; nothing here is pickled.
    """

    def __init__(self, driver: Driver, workers: int, pack: int, *, alone: bool) -> None:
        self.driver = driver
        self.alone = alone  # whether only this search uses this Ray
        self.workers = workers
        self.pack = pack  # trials in a slot; it may shrink
        self.numbers: dict[str, set[int]] = {}  # by Tune's trial, the study's; empty where they were dropped
        self.actors: dict[str, Any] = {}  # by Tune's running trial
        self.over = False  # whether there are no more trials
        self.error: Exception | None = None  # raised by a hook: Tune passes on its text only

    def __getstate__(self) -> dict[str, Any]:
        return {}

    @property
    def has_room(self) -> bool:
        """Whether more trials of the study may run."""
        return len(self.driver.running) < self.workers * self.pack

    @contextmanager
    def errors_kept(self) -> Iterator[None]:
        """Keep an exception for the caller of Tune."""
        try:
            yield
        except Exception as error:
            self.error = self.error or error
            raise

    def requeue_running(self) -> None:
        """Requeue trials that still run when Tune ends, because the search was stopped or failed."""
        for number in list(self.driver.running):
            self.driver.requeue(number)
        for actor in self.actors.values():
            ray.kill(actor)
