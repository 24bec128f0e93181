"""A sampler that proposes whole configurations."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, SupportsIndex

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from ...spaces import Choice, Space, Spec
from ...spaces.space import Suggest
from ...storage.trial_attrs import FIXED_PARAMS
from ..errors import SearchError
from ..trials.seeds import derived_seed
from .distributions import distributions, label_of, labelled
from .tried import TriedConfigs, UntriedConfigs, key_of

Labels = dict[str, Any]  # a configuration as Optuna stores it

MAX_PROPOSALS = 1000  # for one trial, before the search gives up
MAX_REPEATS = 50  # of tried configurations, before the untried ones are listed


class WholeSampler(BaseSampler):
    """Proposes whole configurations, with the values, if any, that another program enqueued a trial with."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._space: Space = spec.space
        self._distributions = distributions(self._space)
        self._tried = TriedConfigs()
        self._untried = UntriedConfigs(spec)

    def exhausted(self, study: optuna.Study) -> bool:
        """Whether the study has tried every configuration that this sampler could propose."""
        return self._untried.exhausted(self._tried.without(study))

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
        return self.values(trial.system_attrs.get(FIXED_PARAMS, {}))

    def values(self, labels: Labels) -> dict[str, Any]:
        """The values of labels. Raises `KeyError` for a parameter that the space does not have."""
        parameters = self._spec.parameters
        return {
            name: p.value_of(label) if isinstance(p := parameters[name], Choice) else label
            for name, label in labels.items()
        }

    def first_new(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        given: Mapping[str, Any],
        proposals: Iterable[Suggest],
        draw: Callable[[int], SupportsIndex],
    ) -> Labels:
        """The first of at most `MAX_PROPOSALS` proposals that is neither refused nor tried in another trial.

        A proposal is refused if a constraint is violated, or a given parameter does not exist. After too many
        proposals it is one of the untried configurations, if the space is small, or else a tried one. `draw`
        chooses one of so many.
        """
        taken, tried = self._tried.without(study, trial.number), []
        for suggest in proposals:
            config, refused = self._space.proposed(suggest)
            labels = labelled(self._space, self._spec.parameters, config)
            if (lost := next((name for name in given if name not in config), None)) is not None:
                refused = f"{lost} does not exist"
            if refused is None:
                if key_of(labels) not in taken:
                    return labels
                tried.append(labels)
                if len(tried) > MAX_REPEATS:
                    break
        if given:
            return tried[-1] if tried else labels  # problems are reported when the trial begins
        if left := self._untried.left(taken):
            return left[draw(len(left))]
        if tried:  # the space may have no other configuration
            return tried[-1]
        raise SearchError(
            f"{MAX_PROPOSALS} proposals in a row were refused, the last because of: {refused}; "
            "hpsearch validate shows what the constraints leave"
        )

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A random value for an enqueued trial whose given values match no point of the grid."""
        seed = derived_seed(self._spec.search.seed, "sampler", trial.number, param_name)
        parameter = self._space.searched[param_name]
        return label_of(parameter, parameter.sample(random.Random(seed)))
