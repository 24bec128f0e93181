"""The configurations that a study has tried: none is proposed twice while there are others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import optuna
from optuna.trial import FrozenTrial

from ...spaces import Spec
from ...storage.in_memory import changed_since
from ...storage.trial_attrs import confirms

Key = frozenset[tuple[str, Any]]


def key_of(labels: Mapping[str, Any]) -> Key:
    """The searched part of a configuration, as a value that compares."""
    return frozenset(labels.items())


def tried(trials: Iterable[FrozenTrial]) -> set[Key]:
    """The configurations of trials."""
    return {key_of(trial.params) for trial in trials if trial.params}


class TriedConfigs(Container[Key]):
    """The configurations of a study's own trials, updated from the trials that have changed."""

    def __init__(self) -> None:
        self._changes = 0  # of the study, up to the last update
        self._keys: dict[int, Key] = {}  # of each trial
        self._counts: Counter[Key] = Counter()
        self._left_out: Key | None = None

    def without(self, study: optuna.Study, number: int | None = None) -> Container[Key]:
        """The configurations so far, except that of trial `number`. Valid until the next call."""
        trials, self._changes = changed_since(study, self._changes)
        for trial in trials:
            if (before := self._keys.pop(trial.number, None)) is not None:
                self._counts[before] -= 1
            if trial.params and confirms(trial) is None:
                self._keys[trial.number] = key = key_of(trial.params)
                self._counts[key] += 1
        self._left_out = None if number is None else self._keys.get(number)
        return self

    def __contains__(self, key: object) -> bool:
        own = 1 if key == self._left_out else 0
        return isinstance(key, frozenset) and self._counts[key] > own


class UntriedConfigs:
    """The untried configurations of a small space."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    def left(self, taken: Container[Key]) -> list[dict[str, Any]] | None:
        """The untried configurations, as Optuna's labels; None if there are too many to list."""
        return list(self._not_in(taken)) if self._is_small else None

    def exhausted(self, taken: Container[Key]) -> bool:
        """Whether the space is small and fully tried."""
        return self._is_small and next(self._not_in(taken), None) is None

    def _not_in(self, taken: Container[Key]) -> Iterator[dict[str, Any]]:
        from .distributions import labelled  # loads Optuna's samplers

        space, parameters = self._spec.space, self._spec.parameters
        listed = (labelled(space, parameters, config) for config in space.grid())
        return (labels for labels in listed if key_of(labels) not in taken)

    @cached_property
    def _is_small(self) -> bool:
        return self._spec.space.few() is not None
