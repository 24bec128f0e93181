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
from ..errors import SearchError
from ..scheduling.standings import FIXED_PARAMS
from ..trials.seeds import derived_seed
from .distributions import distributions, label_of, labelled
from .tried import Key, TriedConfigs

MAX_PROPOSALS = 1000  # refused proposals before the search gives up


MAX_REPEATS = 50  # proposals that a trial already has before what is left is listed


def all_refused(broken: str) -> SearchError:
    """What ends a search that finds nothing to propose; the last proposal broke this."""
    return SearchError(
        f"{MAX_PROPOSALS} proposals in a row were refused, the last for this: {broken}; "
        "hpsearch validate shows what the constraints leave"
    )


class WholeSampler(BaseSampler):
    """Proposes whole configurations: with the values, if any, that another program put a trial up with."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._space: Space = spec.space
        self._distributions = distributions(self._space)
        self._tried = TriedConfigs()

    def tried(self, study: optuna.Study, but: int | None = None) -> Container[Key]:
        """The configurations that the study has tried by now, but for that of a trial, of all brackets."""
        return self._tried.without(study, but)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A proposal's labels. Raises `SearchError` where the library that makes it fails."""
        try:
            with np.errstate(all="ignore"):  # some calculate with infinities, and go on
                return self.propose(study, trial)
        except SearchError:
            raise
        except Exception as error:
            sampler = self._spec.search.sampler
            what = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": ")
            raise SearchError(
                f'the sampler "{sampler}" cannot propose trial {trial.number}: {what:.300}; '
                "another one may, under another --name"
            ) from error

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Any]:
        """The labels of a whole configuration."""
        raise NotImplementedError

    def given(self, trial: FrozenTrial) -> dict[str, Any]:
        """The values that a trial was put up with, which `enqueued_labels` has checked."""
        parameters = self._spec.parameters
        return {
            name: p.value_of(label) if isinstance(p := parameters[name], Choice) else label
            for name, label in trial.system_attrs.get(FIXED_PARAMS, {}).items()
        }

    def proposal(
        self, suggest: Callable[[str, Range | Choice], Any], given: Mapping[str, Any]
    ) -> tuple[dict[str, Any], str | None]:
        """A proposal's labels, and what refuses it: the space, or that it has no place for what is given."""
        config, refused = self._space.proposed(suggest)
        lost = next((name for name in given if name not in config), None)
        told = refused if lost is None else f"{lost} does not exist"
        return labelled(self._space, self._spec.parameters, config), told

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A value for a trial that was put up with such as no point of the grid has."""
        seed = derived_seed(self._spec.search.seed, "sampler", trial.number, param_name)
        parameter = self._space.searched_parameter(param_name)
        return label_of(parameter, parameter.sample(random.Random(seed)))
