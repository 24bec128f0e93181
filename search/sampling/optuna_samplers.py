"""From a space file's words to Optuna's samplers, pruners and distributions."""

from __future__ import annotations

import math
import random
import warnings
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from ...spaces import Choice, Range, Space, Spec
from ...spaces.model import show
from ...spaces.relations import given_problems
from ...spaces.samplers import TPE
from ...spaces.stopping import Hyperband, SuccessiveHalving
from ..errors import SearchError
from ..scheduling import hyperband_brackets, promotes
from ..scheduling.standings import FIXED
from .tried import Key, Tried, Untried, key_of
from .view import as_samplers_see_it

ATTEMPTS = 1000  # refused proposals before the search gives up
AGAIN = 50  # proposals that a trial already has before what is left is listed
MODELLED = 10  # of them by the sampler itself: one that is sure of what is not allowed proposes it again
SURE = frozenset({"gp"})  # samplers that always do, whatever their seed, and take seconds
MANY = 1 << 20  # values of a range: more are as good as a continuous one, and some samplers list them
# Of the proposals that no model makes: the share drawn around a stated prior, and their spread in ranges.
_PRIOR_SHARE = {"low": 0.3, "medium": 0.5, "high": 0.7}
_PRIOR_SPREAD = {"low": 0.25, "medium": 0.15, "high": 0.08}


def derived_seed(seed: int, *what: object) -> int:
    """A seed for one purpose, drawn from the study's seed; the same after any interruption."""
    return zlib.crc32(":".join(map(str, (seed, *what))).encode()) & 0x7FFFFFFF


def distribution(parameter: Range | Choice) -> BaseDistribution:
    """The Optuna distribution of a searched parameter.

    `factor` ranges become log ranges whose proposals are snapped: Optuna sees true values, in their order.
    """
    if isinstance(parameter, Choice):
        return CategoricalDistribution(parameter.labels())
    log = parameter.log or parameter.factor is not None
    if parameter.is_int:
        return IntDistribution(int(parameter.min), int(parameter.max), log=log, step=int(parameter.step or 1))
    return FloatDistribution(float(parameter.min), float(parameter.max), log=log, step=parameter.step)


def all_refused(broken: str) -> SearchError:
    """What ends a search that finds nothing to propose; the last proposal broke this."""
    return SearchError(
        f"{ATTEMPTS} proposals in a row were refused, the last for this: {broken}; "
        "hpsearch validate shows what the constraints leave"
    )


def suggest(trial: optuna.Trial, name: str, parameter: Range | Choice) -> Any:
    """The value of a searched parameter in this trial."""
    wanted = distribution(parameter)
    if isinstance(parameter, Choice):
        assert isinstance(wanted, CategoricalDistribution)
        return parameter.value_of(trial.suggest_categorical(name, wanted.choices))
    if isinstance(wanted, IntDistribution):
        return trial.suggest_int(name, wanted.low, wanted.high, step=wanted.step, log=wanted.log)
    assert isinstance(wanted, FloatDistribution)
    return trial.suggest_float(name, wanted.low, wanted.high, step=wanted.step, log=wanted.log)


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """The Optuna distributions of all searched parameters."""
    return {name: distribution(space.searched_parameter(name)) for name in space.searched}


def is_conditional(spec: Spec) -> bool:
    """Whether some configurations lack some parameters."""
    return any(parameter.when is not None for parameter in spec.parameters.values())


def put_up_with(spec: Spec, labels: Mapping[str, Any]) -> dict[str, Any]:
    """The labels that another program put a trial up with, as the space spells them.

    Raises `ValueError` with all that is wrong with them, as it would be told of a baseline.
    """
    parameters, problems, values = spec.parameters, [], {}
    for name, label in labels.items():
        parameter = parameters.get(name)
        is_label = isinstance(parameter, Choice) and isinstance(label, str) and label in parameter.labels()
        value = parameter.value_of(label) if isinstance(parameter, Choice) and is_label else label
        told = list(given_problems(name, value, parameters, "trial"))
        problems += [(name, each) for each in told]
        if not told and isinstance(parameter, Range | Choice):
            values[name] = parameter.accept(value)
    if problems:
        raise ValueError(in_words(problems))
    return labelled(spec.space, parameters, values)


def in_words(problems: Iterable[tuple[str, str]]) -> str:
    """Problems of parameters, each with its name where it is one's, in one line."""
    return "; ".join(f"{show(name)[1:-1]}: {told}" if name else told for name, told in problems)


class WholeSampler(BaseSampler):
    """Proposes whole configurations: with the values, if any, that another program put a trial up with."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._space: Space = spec.space
        self._distributions = distributions(self._space)
        self._tried = Tried()

    def tried(self, study: optuna.Study, but: int | None = None) -> Container[Key]:
        """The configurations that the study has tried by now, but for that of a trial, of all brackets."""
        return self._tried.but(study, but)

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
        """The values that a trial was put up with, which `put_up_with` has checked."""
        parameters = self._spec.parameters
        return {
            name: p.value_of(label) if isinstance(p := parameters[name], Choice) else label
            for name, label in trial.system_attrs.get(FIXED, {}).items()
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
        return _label(parameter, parameter.sample(random.Random(seed)))


class SpaceSampler(WholeSampler):
    """Proposes whole configurations that satisfy the space's conditions and constraints.

    A proposal is made by one of Optuna's samplers, snapped to the space, and thrown away where it violates a
    constraint, before a trial exists. The inner sampler is built anew for every proposal, seeded from the
    study's seed and the trial's number: an interrupted search goes on as if it had never stopped.
    """

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._conditional = is_conditional(spec)
        self._untried = Untried(spec)
        self._inner = self._make(0)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self._inner = self._make(derived_seed(self._spec.search.seed, "sampler", trial.number))
        self._inner.before_trial(study, trial)

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Any]:
        taken, again, known = self.tried(study, trial.number), 0, None
        given = self.given(trial)
        modelled = 1 if self._spec.search.sampler in SURE else MODELLED
        for attempt in range(ATTEMPTS):
            seed = derived_seed(self._spec.search.seed, "sampler", trial.number, attempt)
            if attempt >= modelled:
                self._inner = optuna.samplers.RandomSampler(seed)
            elif attempt:
                self._inner = self._make(seed)
            suggester = self._suggester(study, trial, random.Random(seed), given)
            labels, broken = self.proposal(suggester, given)
            if broken is None:
                if key_of(labels) not in taken:
                    return labels
                again, known = again + 1, labels
                if again > AGAIN:
                    break
        if given:
            return known or labels  # what is wrong with it is told as it begins
        if left := self._untried.left(taken):
            return random.Random(seed).choice(left)
        if known is not None:  # a small space may have no other
            return known
        assert broken is not None
        raise all_refused(broken)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        self._inner.after_trial(study, trial, state, values)

    def _suggester(
        self, study: optuna.Study, trial: FrozenTrial, rng: random.Random, given: Mapping[str, Any]
    ) -> Callable[[str, Range | Choice], Any]:
        """Suggest what is given, and the others from the inner sampler."""
        study = as_samplers_see_it(study, self._spec, len(self._distributions))
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
            return self._space.snap(name, label)

        return suggest

    def _relative_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """What the inner sampler models together.

        TPE would find it by comparing all distributions of all trials; where every trial has every parameter,
        it is known.
        """
        search = self._spec.search
        if isinstance(search, TPE) and search.multivariate is not False and not self._conditional:
            space = {name: d for name, d in self._distributions.items() if not d.single()}
        else:
            space = self._inner.infer_relative_search_space(study, trial)
        return {name: _modelled(d) for name, d in space.items()}

    @staticmethod
    def _from_prior(parameter: Range | Choice, rng: random.Random) -> Any:
        """A draw near the stated prior, for a stated share of the proposals no model makes; else None."""
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

    def _make(self, seed: int) -> BaseSampler:
        return make_sampler(self._spec, seed)


class GridSampler(WholeSampler):
    """Walks the space's grid in file order, leaving out what the study already has.

    Optuna's own needs a plain product: it knows neither conditions nor constraints, and shuffles on resume.
    """

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._ahead = self._points({})  # the points that may be left; the first of them
        self._first: dict[str, Any] | None = None

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Any]:
        given = self.given(trial)
        return self.next(study, given) or next(self._points(given), {})

    def next(
        self, study: optuna.Study, given: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, Any] | None:
        """The first point of the grid, of those with the given values, that no trial has, as Optuna's labels.

        None where all are taken.
        """
        taken = self.tried(study)
        if given or self._space.limited:  # what is left out now may be let in later
            return next((labels for labels in self._points(given) if key_of(labels) not in taken), None)
        if self._first is None or key_of(self._first) in taken:  # what is taken stays so
            self._first = next((labels for labels in self._ahead if key_of(labels) not in taken), None)
        return self._first

    def _points(self, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The labels of all points with the given values."""
        for config in self._space.grid():
            if all(name in config and config[name] == value for name, value in given.items()):
                yield labelled(self._space, self._spec.parameters, config)


def _modelled(distribution: BaseDistribution) -> BaseDistribution:
    """What a model is told of a distribution: that it is continuous, where it has very many values."""
    if isinstance(distribution, IntDistribution | FloatDistribution) and distribution.step is not None:
        low, high = float(distribution.low), float(distribution.high)
        if (high - low) / distribution.step > MANY:
            return FloatDistribution(low, high, log=distribution.log)
    return distribution


def _label(parameter: Any, value: Any) -> Any:
    return parameter.labels()[parameter.choices.index(value)] if isinstance(parameter, Choice) else value


def labelled(space: Space, parameters: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The searched part of a configuration as Optuna's labels."""
    return {name: _label(parameters[name], config[name]) for name in space.searched if name in config}


def sampler_of(spec: Spec) -> BaseSampler:
    """The sampler of a study."""
    if spec.search.sampler == "rung_gp":
        from .rung_gp import RungGPSampler

        return RungGPSampler(spec)
    return GridSampler(spec) if spec.search.sampler == "grid" else SpaceSampler(spec)


def make_sampler(spec: Spec, seed: int) -> BaseSampler:
    """Optuna's sampler of the name in the space file, with its options, seeded."""
    search = spec.search
    options = search.model_dump(exclude={"sampler", "seed"}, exclude_none=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        match search.sampler:
            case "tpe":
                # Conditions split a space into groups, which the multivariate model otherwise ignores.
                multivariate = options.setdefault("multivariate", True)
                options.setdefault("group", bool(is_conditional(spec) and multivariate))
                return optuna.samplers.TPESampler(seed=seed, **options)
            case "random":
                return optuna.samplers.RandomSampler(seed=seed)
            case "gp":
                return optuna.samplers.GPSampler(seed=seed, warn_independent_sampling=False, **options)
            case "cmaes":
                from .cmaes import CmaEsSampler  # and with it SciPy's statistics, a third of the start's time

                return CmaEsSampler(seed=seed, **options)
            case "qmc":
                # One sequence for the whole study: its own counter, not the seed, moves it on.
                return optuna.samplers.QMCSampler(
                    seed=search.seed,
                    independent_sampler=optuna.samplers.RandomSampler(seed=seed),
                    warn_independent_sampling=False,
                    warn_asynchronous_seeding=False,
                    **options,
                )
            case "nsgaii":
                return optuna.samplers.NSGAIISampler(seed=seed, **options)
            case "hyperopt-tpe" | "hyperopt-atpe" | "hyperopt-anneal":
                from .hyperopt import HyperoptSampler  # an extra

                algorithm = search.sampler.removeprefix("hyperopt-")
                return HyperoptSampler(algorithm, distributions(spec.space), seed=seed, **options)
    raise AssertionError(f"the loader let the sampler {search.sampler!r} pass")


def hyperband_options(stopping: Hyperband) -> dict[str, int]:
    """The options of Optuna's Hyperband.

    Optuna takes the number of brackets from a float logarithm; this maximum gives it the integer one, and it
    uses the maximum for nothing else.
    """
    count = len(hyperband_brackets(stopping.min, stopping.max, stopping.eta))
    maximum = stopping.min * stopping.eta ** (count - 1) * (stopping.eta + 1) // 2  # far from any power
    return {"min_resource": stopping.min, "max_resource": maximum, "reduction_factor": stopping.eta}


def make_pruner(spec: Spec) -> BasePruner:
    """Optuna's pruner of the name in the space file, with its options."""
    stopping = spec.early_stopping
    if promotes(spec):
        return optuna.pruners.NopPruner()  # nothing is stopped for good
    ours = {"method", "type", "alike", "min", "max", "eta", "resource"}
    options = stopping.model_dump(exclude=ours, exclude_none=True)
    if isinstance(stopping, Hyperband):
        return optuna.pruners.HyperbandPruner(**hyperband_options(stopping))
    if isinstance(stopping, SuccessiveHalving):
        return optuna.pruners.SuccessiveHalvingPruner(
            min_resource=stopping.min, reduction_factor=stopping.eta, **options
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        match stopping.method:
            case "median":
                return optuna.pruners.MedianPruner(**options)
            case "percentile":
                return optuna.pruners.PercentilePruner(**options)
            case "threshold":
                return optuna.pruners.ThresholdPruner(**options)
            case "patient":
                return optuna.pruners.PatientPruner(None, **options)
            case "wilcoxon":
                return optuna.pruners.WilcoxonPruner(**options)
            case _:
                return optuna.pruners.NopPruner()
