"""What Tune's parts share of one search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray

from ...engine.driver import Driver


class InVain(Exception):
    """What Tune still waits for is of no use: trials that had their time to report, or actors without one."""


class RayGone(BaseException):
    """A process of our own Ray is gone. No `Exception`: Tune would tidy up, and wait for what is gone."""


class Hooks:
    """What the hooks share: the driver, and which of Tune's trials runs which of the study's.

    Tune pickles its hooks for a restore that never happens; none of this goes along.
    """

    def __init__(self, driver: Driver, workers: int, pack: int, *, alone: bool) -> None:
        self.driver = driver
        self.alone = alone  # whether nobody else uses this Ray
        self.workers = workers
        self.packed = pack > 1  # whether a trial of Tune's is a slot for several of the study's
        self.pack = pack  # so many; they may become fewer
        self.numbers: dict[str, set[int]] = {}  # Tune's trial -> the study's; none where they were dropped
        self.actors: dict[str, Any] = {}  # Tune's running trial -> its actor
        self.over = False  # whether there is no trial any more
        self.error: Exception | None = None  # what a hook raised: Tune passes on its text alone

    def __getstate__(self) -> dict[str, Any]:
        return {}

    @property
    def has_room(self) -> bool:
        """Whether more trials of the study may run."""
        return len(self.driver.running) < self.workers * self.pack

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep what is raised here, for whoever called Tune."""
        try:
            yield
        except Exception as error:
            self.error = self.error or error
            raise

    def settle(self) -> None:
        """Put back what still runs when Tune is done: the search was stopped, or broke."""
        for number in list(self.driver.running):
            self.driver.suspend(number)
        for actor in self.actors.values():
            ray.kill(actor)
