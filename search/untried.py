"""What a study has tried: no configuration is proposed twice, as long as there is another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from optuna.trial import FrozenTrial

from ..spaces import Spec

Key = frozenset[tuple[str, Any]]


def key_of(labels: Mapping[str, Any]) -> Key:
    """The searched part of a configuration, to be compared."""
    return frozenset(labels.items())


def tried(trials: Iterable[FrozenTrial]) -> set[Key]:
    """The configurations of trials."""
    return {key_of(trial.params) for trial in trials if trial.params}


class Untried:
    """What is left of a small space."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    def left(self, taken: set[Key]) -> list[dict[str, Any]] | None:
        """The configurations that nobody has, as Optuna's labels; None where there are too many to list."""
        if not self._is_small:
            return None
        from .algorithms import labelled  # which asks here in turn

        space, parameters = self._spec.space, self._spec.parameters
        listed = (labelled(space, parameters, config) for config in space.grid())
        return [labels for labels in listed if key_of(labels) not in taken]

    def exhausted(self, trials: Iterable[FrozenTrial]) -> bool:
        """Whether nothing is left of a small space."""
        return self._is_small and not self.left(tried(trials))

    @cached_property
    def _is_small(self) -> bool:
        return self._spec.space.few() is not None
