"""CMA-ES (https://arxiv.org/abs/1604.00772) that reads nothing but numbers from a study.

Optuna's own sampler stores a pickled optimizer in the trials, so anybody who can write to the database can
run code in the search. Here, as in Optuna, a trial stores its generation, and the optimizer is rebuilt from
the trials, generation by generation. No other attribute is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TypeAlias

import cmaes
import numpy as np
import optuna
from optuna._transform import _SearchSpaceTransform
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

Optimizer: TypeAlias = "cmaes.CMA | cmaes.SepCMA | cmaes.CMAwM"
Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

UNROUNDED_POINT = "x_for_tell"  # the draw of CMA-ES with margin, before it is rounded to the nearest step
MIN_SIGMA = 1e-10  # below it, cmaes divides by zero
MAX_COORDINATE = 1e9  # in a range of 0 to 1


class CmaEsSampler(RandomSampler):
    """Adapts a normal distribution over the numeric parameters that every trial has; draws the others at
    random.

    A generation is over once `popsize` of its trials are complete. The first of these by number update the
    distribution, and later trials belong to the next generation.
    """

    def __init__(
        self,
        *,
        seed: int,
        n_startup_trials: int = 1,
        popsize: int | None = None,
        sigma0: float | None = None,
        with_margin: bool = False,
        lr_adapt: bool = False,
        use_separable_cma: bool = False,
    ) -> None:
        super().__init__(seed)
        self._seed = seed
        self._n_startup_trials = n_startup_trials
        self._popsize = popsize
        self._sigma0 = sigma0
        self._with_margin = with_margin
        self._lr_adapt = lr_adapt
        self._use_separable_cma = use_separable_cma
        kind = "sepcma" if use_separable_cma else "cmawm" if with_margin else "cma"
        self._generation = f"{kind}:generation"  # Optuna's name of the attribute

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return {
            name: distribution
            for name, distribution in IntersectionSearchSpace().calculate(study).items()
            if isinstance(distribution, FloatDistribution | IntDistribution) and not distribution.single()
        }

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        # Not `get_trials`, which is limited to one bracket of Hyperband: the distribution learns from all.
        complete = study._get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if not search_space or len(complete) < self._n_startup_trials:
            return {}
        # With margin, the optimizer itself handles the steps.
        transform = _SearchSpaceTransform(
            search_space, transform_step=not self._with_margin, transform_0_1=True
        )
        optimizer = self._replay(complete, transform, study.direction)
        optimizer.reseed_rng(self._seed)
        if isinstance(optimizer, cmaes.CMAwM):
            point, unrounded = optimizer.ask()
            study._storage.set_trial_system_attr(trial._trial_id, UNROUNDED_POINT, unrounded.tolist())
        else:
            point = optimizer.ask()
        study._storage.set_trial_system_attr(trial._trial_id, self._generation, optimizer.generation)
        return transform.untransform(point)

    def _replay(
        self, complete: Sequence[FrozenTrial], transform: _SearchSpaceTransform, direction: StudyDirection
    ) -> Optimizer:
        """The optimizer after all complete generations."""
        sign = 1.0 if direction == StudyDirection.MINIMIZE else -1.0
        generations: defaultdict[str, list[FrozenTrial]] = defaultdict(list)
        for trial in complete:  # as text: a database may hold anything there
            generations[str(trial.system_attrs.get(self._generation))].append(trial)
        optimizer = self._begin(transform)
        while len(trials := generations[str(optimizer.generation)]) >= optimizer.population_size:
            first = trials[: optimizer.population_size]
            optimizer.tell([(self._point(t, transform), sign * float(t.value or 0)) for t in first])
        return optimizer

    def _point(self, trial: FrozenTrial, transform: _SearchSpaceTransform) -> Numbers:
        """The point at which the optimizer drew a trial."""
        point: Numbers = transform.transform({name: trial.params[name] for name in transform._search_space})
        if not self._with_margin:
            return point
        unrounded = trial.system_attrs.get(UNROUNDED_POINT)
        return np.array(unrounded, dtype=float) if _is_point(unrounded, len(point)) else point

    def _begin(self, transform: _SearchSpaceTransform) -> Optimizer:
        """The first generation's optimizer: centred in ranges from 0 to 1, whose ends are 3 sigma away."""
        count = len(transform.bounds)
        common: dict[str, Any] = {
            "mean": np.full(count, 0.5),
            "sigma": max(1 / 6 if self._sigma0 is None else self._sigma0, MIN_SIGMA),
            "bounds": transform.bounds,
            "n_max_resampling": 10 * count,
            "population_size": self._popsize,
        }
        if self._use_separable_cma and count > 1:  # one parameter has no covariance
            return cmaes.SepCMA(**common)
        if self._with_margin:
            steps = [_step(distribution) for distribution in transform._search_space.values()]
            return cmaes.CMAwM(steps=np.array(steps), **common)
        return cmaes.CMA(lr_adapt=self._lr_adapt, **common)


def _step(distribution: BaseDistribution) -> float:
    """The step of a parameter as a fraction of its range; 0 if it has none."""
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    if distribution.step is None or distribution.log:
        return 0.0
    return distribution.step / (distribution.high - distribution.low)


def _is_point(value: Any, count: int) -> bool:
    """Whether an attribute is a list of `count` numbers of a sensible size."""
    return (
        isinstance(value, list)
        and len(value) == count
        and all(isinstance(number, float | int) and abs(number) < MAX_COORDINATE for number in value)
    )
