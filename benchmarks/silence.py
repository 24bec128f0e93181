"""The watcher that benchmarks use for a search."""

from __future__ import annotations

import sys

from optuna.trial import FrozenTrial

from hpsearch.search.engine.watcher import SearchView


class Silence:
    """Shows no trials; prints a search's messages to standard error, or not at all."""

    def __init__(self, *, says: bool = True) -> None:
        self._says = says

    def trial_ended(self, search: SearchView, trial: FrozenTrial) -> None: ...

    def tick(self, search: SearchView) -> None: ...

    def say(self, message: str) -> None:
        if self._says:
            print(message, file=sys.stderr)
