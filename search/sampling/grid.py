"""Grid search: every configuration of a grid, once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import optuna
from optuna.trial import FrozenTrial

from ...spaces import Spec
from .distributions import labelled
from .tried import key_of
from .whole_sampler import WholeSampler


class GridSampler(WholeSampler):
    """Walks the space's grid in the order of the file, skipping configurations that the study already has.

    Optuna's own grid sampler needs a plain product: it supports neither conditions nor constraints, and
    shuffles when a search resumes.
    """

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._ahead = self._points({})  # the points after `_first`
        self._first: dict[str, Any] | None = None  # the first untried point, as far as known

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Any]:
        given = self.given(trial)
        return self._next(study, given) or next(self._points(given), {})

    def exhausted(self, study: optuna.Study) -> bool:
        return self._next(study) is None

    def _next(
        self, study: optuna.Study, given: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, Any] | None:
        """The first untried grid point with the given values, as Optuna's labels; None if all are tried."""
        taken = self._tried.without(study)
        if given or self._space.limited:  # a limit that excludes a point now may not later
            return next((labels for labels in self._points(given) if key_of(labels) not in taken), None)
        if self._first is None or key_of(self._first) in taken:  # a tried point stays tried
            self._first = next((labels for labels in self._ahead if key_of(labels) not in taken), None)
        return self._first

    def _points(self, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The labels of all points with the given values."""
        for config in self._space.grid():
            if all(name in config and config[name] == value for name, value in given.items()):
                yield labelled(self._space, self._spec.parameters, config)
