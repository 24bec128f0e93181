"""A sampler that proposes whole configurations."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from ...spaces import Choice, Range, Space, Spec
from ...storage.trial_attrs import FIXED_PARAMS
from ..errors import SearchError
from ..trials.seeds import derived_seed
from .distributions import distributions, label_of, labelled
from .tried import Key, TriedConfigs

MAX_PROPOSALS = 1000  # for one trial, before the search gives up
MAX_REPEATS = 50  # of tried configurations, before the untried ones are listed


def all_refused(broken: str) -> SearchError:
    """The error of a search that finds nothing to propose; `broken` is what refused the last proposal."""
    return SearchError(
        f"{MAX_PROPOSALS} proposals in a row were refused, the last because of: {broken}; "
        "hpsearch validate shows what the constraints leave"
    )


class WholeSampler(BaseSampler):
    """Proposes whole configurations, with the values, if any, that another program enqueued a trial with."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._space: Space = spec.space
        self._distributions = distributions(self._space)
        self._tried = TriedConfigs()

    def tried(self, study: optuna.Study, but: int | None = None) -> Container[Key]:
        """The configurations that the study has tried, in all brackets, except that of trial `but`."""
        return self._tried.without(study, but)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A proposal's labels. Raises `SearchError` if the library that makes it fails."""
        try:
            with np.errstate(all="ignore"):  # some samplers compute with infinities
                return self.propose(study, trial)
        except SearchError:
            raise
        except Exception as error:
            sampler = self._spec.search.sampler
            what = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": ")
            raise SearchError(
                f'the sampler "{sampler}" cannot propose trial {trial.number}: {what:.300}; '
                "try another sampler under another name",
                code="name-taken",
            ) from error

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Any]:
        """The labels of a whole configuration."""
        raise NotImplementedError

    def given(self, trial: FrozenTrial) -> dict[str, Any]:
        """The values that a trial was enqueued with, checked by `enqueued_labels`."""
        parameters = self._spec.parameters
        return {
            name: p.value_of(label) if isinstance(p := parameters[name], Choice) else label
            for name, label in trial.system_attrs.get(FIXED_PARAMS, {}).items()
        }

    def proposal(
        self, suggest: Callable[[str, Range | Choice], Any], given: Mapping[str, Any]
    ) -> tuple[dict[str, Any], str | None]:
        """A proposal's labels, and why it is refused: the space refuses it, or lacks a given parameter."""
        config, refused = self._space.proposed(suggest)
        lost = next((name for name in given if name not in config), None)
        why = refused if lost is None else f"{lost} does not exist"
        return labelled(self._space, self._spec.parameters, config), why

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A random value for an enqueued trial whose given values match no point of the grid."""
        seed = derived_seed(self._spec.search.seed, "sampler", trial.number, param_name)
        parameter = self._space.searched[param_name]
        return label_of(parameter, parameter.sample(random.Random(seed)))
