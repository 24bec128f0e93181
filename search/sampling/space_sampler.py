"""Optuna's samplers over a space, with its constraints and priors, and without repetition."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from ...spaces import Choice, Range, Spec
from ...spaces.samplers import TPE
from ...spaces.space import Suggest
from ..trials.seeds import derived_seed
from .distributions import MAX_VALUES, is_conditional
from .optuna_samplers import make_optuna_sampler
from .view import SeenTrials, study_for_samplers
from .whole_sampler import MAX_PROPOSALS, WholeSampler

MODELLED_PROPOSALS = 10  # refused ones, before others are drawn at random: a model may insist on its choice
DETERMINISTIC = frozenset({"gp"})  # samplers that repeat a proposal whatever their seed, and take seconds
_PRIOR_SHARE = {"low": 0.3, "medium": 0.5, "high": 0.7}  # of the values that no model proposes
_PRIOR_SPREAD = {"low": 0.25, "medium": 0.15, "high": 0.08}  # as a fraction of the range


class SpaceSampler(WholeSampler):
    """Proposes whole configurations that satisfy the space's conditions and constraints.

    One of Optuna's samplers makes a proposal, which is snapped to the space, and rejected if it violates a
    constraint, before a trial exists. The inner sampler is rebuilt for every proposal, seeded from the
    study's seed and the trial's number, so an interrupted search continues as if it had never stopped.
    """

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._conditional = is_conditional(spec)
        self._inner = make_optuna_sampler(spec, 0)
        self._seen = SeenTrials(spec, len(self._distributions))

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        seed = derived_seed(self._spec.search.seed, "sampler", trial.number)
        self._inner = make_optuna_sampler(self._spec, seed)
        self._inner.before_trial(study, trial)

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Any]:
        given, seed = self.given(trial), 0
        by_sampler = 1 if self._spec.search.sampler in DETERMINISTIC else MODELLED_PROPOSALS

        def proposals() -> Iterator[Suggest]:
            nonlocal seed
            for attempt in range(MAX_PROPOSALS):
                seed = derived_seed(self._spec.search.seed, "sampler", trial.number, attempt)
                if attempt >= by_sampler:
                    self._inner = optuna.samplers.RandomSampler(seed)
                elif attempt:
                    self._inner = make_optuna_sampler(self._spec, seed)
                yield self._suggester(study, trial, random.Random(seed), given)

        return self.first_new(study, trial, given, proposals(), lambda n: random.Random(seed).randrange(n))

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        self._inner.after_trial(study, trial, state, values)

    def _suggester(
        self, study: optuna.Study, trial: FrozenTrial, rng: random.Random, given: Mapping[str, Any]
    ) -> Suggest:
        """Suggests the given values, and those of the inner sampler for the other parameters."""
        study = study_for_samplers(study, self._spec, len(self._distributions), self._seen)
        relative = self._inner.sample_relative(study, trial, self._relative_space(study, trial))

        def suggest(name: str, parameter: Range | Choice) -> Any:
            if name in given:
                return given[name]
            label: Any = relative.get(name)
            if name not in relative:
                label = self._from_prior(parameter, rng)
                if label is None:
                    label = self._inner.sample_independent(study, trial, name, self._distributions[name])
            if isinstance(parameter, Choice):
                return parameter.value_of(label)
            return parameter.snap(label)

        return suggest

    def _relative_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters that the inner sampler models jointly.

        TPE would compare all distributions of all trials to infer them; if every trial has every parameter,
        they are known.
        """
        search = self._spec.search
        if isinstance(search, TPE) and search.multivariate is not False and not self._conditional:
            space = {name: d for name, d in self._distributions.items() if not d.single()}
        else:
            space = self._inner.infer_relative_search_space(study, trial)
        return {name: _for_model(d) for name, d in space.items()}

    @staticmethod
    def _from_prior(parameter: Range | Choice, rng: random.Random) -> Any:
        """A draw near the stated prior, for a share of the values that no model proposes; else None."""
        prior = parameter.prior
        if prior is None or rng.random() >= _PRIOR_SHARE[prior.confidence]:
            return None
        if isinstance(parameter, Choice):
            return parameter.labels()[parameter.choices.index(prior.at)]
        log = parameter.log or parameter.factor is not None
        low, high, at = (math.log(v) if log else float(v) for v in (parameter.min, parameter.max, prior.at))
        drawn = min(max(rng.gauss(at, _PRIOR_SPREAD[prior.confidence] * (high - low)), low), high)
        value = min(max(math.exp(drawn) if log else drawn, parameter.min), parameter.max)
        return round(value) if parameter.is_int else value


def _for_model(distribution: BaseDistribution) -> BaseDistribution:
    """The distribution as a model gets it: continuous if it has very many values."""
    if isinstance(distribution, IntDistribution | FloatDistribution) and distribution.step is not None:
        low, high = float(distribution.low), float(distribution.high)
        if (high - low) / distribution.step > MAX_VALUES:
            return FloatDistribution(low, high, log=distribution.log)
    return distribution
