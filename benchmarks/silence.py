"""The watcher of a search in a benchmark."""

from __future__ import annotations

import sys

from optuna.trial import FrozenTrial

from hpsearch.search.engine.watcher import SearchView


class Silence:
    """Shows no trial; what a search says goes to standard error, or nowhere."""

    def __init__(self, *, says: bool = True) -> None:
        self._says = says

    def trial_ended(self, search: SearchView, trial: FrozenTrial) -> None: ...

    def tick(self, search: SearchView) -> None: ...

    def say(self, message: str) -> None:
        if self._says:
            print(message, file=sys.stderr)
