"""Who watches a search, and what a watcher may see of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from optuna.trial import FrozenTrial

from ...spaces import Spec
from ...storage.studies import Phase
from .running import RunningTrial


class SearchView(Protocol):
    """A running search, read-only; `Driver` documents the attributes."""

    @property
    def spec(self) -> Spec: ...

    @property
    def trials(self) -> Sequence[FrozenTrial]: ...

    @property
    def running(self) -> Mapping[int, RunningTrial]: ...

    @property
    def best(self) -> FrozenTrial | None: ...

    @property
    def baseline(self) -> FrozenTrial | None: ...

    @property
    def finished(self) -> int: ...

    @property
    def states(self) -> Counter[str]: ...

    @property
    def phase(self) -> Phase: ...

    @property
    def elapsed(self) -> float: ...

    @property
    def stop_reason(self) -> str | None: ...

    @property
    def hurries(self) -> bool: ...


class MemoryLimit(Protocol):
    """What is known about the memory of trials; see `preflight.memory`."""

    @property
    def line(self) -> object: ...

    def learn(self, trials: Sequence[FrozenTrial], /) -> str | None: ...

    def to_json(self) -> Any: ...


class Watcher(Protocol):
    """Receives the events of a search, and shows them."""

    def trial_ended(self, search: SearchView, trial: FrozenTrial) -> None: ...

    def tick(self, search: SearchView) -> None: ...

    def say(self, message: str) -> None: ...
