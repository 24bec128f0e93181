"""Watchers of searches that tests run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from optuna.trial import FrozenTrial

from hpsearch.search.engine.driver import Driver
from hpsearch.search.engine.watcher import SearchView

Hook = Callable[[Driver], None]


@dataclass
class Recorder:
    """A watcher that remembers, and lets a test act in the middle of a search."""

    at_end: Hook | None = None  # called when a trial has ended
    at_tick: Hook | None = None
    ended: list[FrozenTrial] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def trial_ended(self, search: SearchView, trial: FrozenTrial) -> None:
        self.ended.append(trial)
        if self.at_end is not None:
            self.at_end(cast(Driver, search))

    def tick(self, search: SearchView) -> None:
        if self.at_tick is not None:
            self.at_tick(cast(Driver, search))

    def say(self, message: str) -> None:
        if not message.startswith("each trial runs "):  # which is said of every objective here
            self.said.append(message)


class Undisturbed(Recorder):
    """A watcher of a search that has nothing to say."""

    def say(self, message: str) -> None:
        raise AssertionError(message)
