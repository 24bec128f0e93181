"""Hyperopt's algorithms as a sampler of Optuna, with no state outside the study.

Hyperopt keeps its own list of trials. Here that list is rebuilt from the study for every proposal, so
resumes, parallel workers and enqueued trials behave as with any other sampler. Hyperopt models each parameter
separately: conditions need no tree, and a parameter that a trial lacks is left empty.
"""

from __future__ import annotations

import math
import random
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any

import numpy as np
import optuna
from hyperopt import anneal, hp, tpe
from hyperopt.base import JOB_STATE_DONE, STATUS_OK, Domain, Trials, trials_from_docs
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import RandomSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from .distributions import MAX_VALUES
from .view import order

_GENERATOR_LOCK = threading.Lock()  # guards Python's and numpy's global generators, which adaptive TPE uses
_FIXED_TIME = datetime(2000, 1, 1, tzinfo=UTC)  # for all trials: proposals must not depend on a clock


class HyperoptSampler(RandomSampler):
    """Proposes with one of Hyperopt's algorithms: tpe, atpe or anneal.

    Until there are enough trials to learn from, it draws parameters at random.
    """

    def __init__(
        self,
        algorithm: str,
        space: dict[str, BaseDistribution],
        *,
        seed: int,
        n_startup_jobs: int = 20,
        **options: Any,
    ) -> None:
        """`space`: all parameters, with and without conditions. `options`: those of Hyperopt's `suggest`."""
        super().__init__(seed)
        self._algorithm = algorithm
        self._labels = {name: _Label(f"p{index}", d) for index, (name, d) in enumerate(space.items())}
        self._seed = seed
        self._first = n_startup_jobs if algorithm == "tpe" else 1
        self._options = options

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return {name: label.distribution for name, label in self._labels.items() if label.count != 1}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        labels = {name: self._labels[name] for name in search_space}
        known = self._known([t for t in study._get_trials(deepcopy=False) if t.number != trial.number], study)
        if not labels or len(known) < self._first:
            return {}
        domain = Domain(lambda config: 0.0, {label.key: label.node for label in labels.values()})
        documents = [self._document(seen, loss, labels, domain) for seen, loss in known]
        history = trials_from_docs(documents, validate=False)
        values = self._suggest()([trial.number], domain, history, self._seed)[0]["misc"]["vals"]
        return {name: label.from_hyperopt(values[label.key][0]) for name, label in labels.items()}

    def _suggest(self) -> Callable[[list[int], Domain, Trials, int], list[dict[str, Any]]]:
        if self._algorithm == "tpe":
            return partial(tpe.suggest, n_startup_jobs=0, verbose=False, **self._options)
        return _adaptive_tpe if self._algorithm == "atpe" else partial(anneal.suggest, **self._options)

    def _known(self, trials: Sequence[FrozenTrial], study: optuna.Study) -> list[tuple[FrozenTrial, float]]:
        """The trials to learn from, each with its loss.

        Values at different steps do not compare, so losses are ranks. Adaptive TPE uses differences: an
        incomplete trial gets the worst loss of the complete ones. TPE counts a running trial as bad, which
        keeps parallel trials apart; the others ignore it. Failed trials are left out.
        """
        sign = 1.0 if study.direction == StudyDirection.MINIMIZE else -1.0
        states = {TrialState.COMPLETE, TrialState.PRUNED} | (
            {TrialState.RUNNING} if self._algorithm == "tpe" else set()
        )
        seen = [trial for trial in trials if trial.state in states and trial.params]
        if self._algorithm != "atpe":
            ranked = sorted(seen, key=lambda trial: order(trial, sign))
            ranks = {trial.number: float(rank) for rank, trial in enumerate(ranked)}
            return [(trial, ranks[trial.number]) for trial in seen]
        losses = {
            t.number: sign * t.value for t in seen if t.state == TrialState.COMPLETE and t.value is not None
        }
        worst = max(losses.values(), default=None)
        return [] if worst is None else [(trial, losses.get(trial.number, worst)) for trial in seen]

    def _document(
        self, trial: FrozenTrial, loss: float, labels: dict[str, _Label], domain: Domain
    ) -> dict[str, Any]:
        """A trial in Hyperopt's format."""
        values = {label.key: label.values_in(trial, name) for name, label in labels.items()}
        if self._algorithm == "atpe":  # it accepts no missing values
            values |= {label.key: [label.middle] for label in labels.values() if not values[label.key]}
        return {
            "tid": trial.number,
            "state": JOB_STATE_DONE,
            "spec": None,
            "result": {"status": STATUS_OK, "loss": loss},
            "misc": {
                "tid": trial.number,
                "cmd": domain.cmd,
                "workdir": domain.workdir,
                "idxs": {key: [trial.number] * len(each) for key, each in values.items()},
                "vals": values,
            },
            "exp_key": None,
            "owner": None,
            "version": 0,
            "book_time": _FIXED_TIME,
            "refresh_time": _FIXED_TIME,
        }


@dataclass(frozen=True)
class _Label:
    """A parameter, and its counterpart in Hyperopt under a name that Hyperopt cannot misread."""

    key: str
    distribution: BaseDistribution

    @cached_property
    def count(self) -> int | None:
        """The number of its values; None if it is continuous or has a logarithmic scale."""
        d = self.distribution
        if isinstance(d, CategoricalDistribution):
            return len(d.choices)
        assert isinstance(d, IntDistribution | FloatDistribution)
        if d.single():
            return 1
        return None if d.log or d.step is None else round((d.high - d.low) / d.step) + 1

    @cached_property
    def node(self) -> Any:
        """Its node in Hyperopt's graph.

        Steps are numbered, with equal room for each: Hyperopt rounds to multiples of a step, which would
        halve the room of the two ends. A range with very many steps is passed as continuous, since Hyperopt
        would consider each single value impossible.
        """
        d = self.distribution
        if isinstance(d, CategoricalDistribution):
            return hp.choice(self.key, list(range(len(d.choices))))
        assert isinstance(d, IntDistribution | FloatDistribution)
        if self.count is not None:
            ends = -0.5, self.count - 0.5
            return (
                hp.quniform(self.key, *ends, 1) if self.count <= MAX_VALUES else hp.uniform(self.key, *ends)
            )
        if isinstance(d, IntDistribution) and d.high <= MAX_VALUES:
            return hp.qloguniform(self.key, math.log(d.low - 0.5), math.log(d.high + 0.5), 1)
        if d.log:
            margin = 0.5 if isinstance(d, IntDistribution) else 0.0
            return hp.loguniform(self.key, math.log(d.low - margin), math.log(d.high + margin))
        return hp.uniform(self.key, d.low, d.high)

    @cached_property
    def middle(self) -> float:
        """Hyperopt's number for the middle value, or the first choice."""
        d = self.distribution
        if isinstance(d, CategoricalDistribution):
            return 0
        assert isinstance(d, IntDistribution | FloatDistribution)
        if self.count is not None:
            return float(self.count // 2)
        middle = math.sqrt(d.low * d.high) if d.log else (d.low + d.high) / 2
        return float(round(middle)) if isinstance(d, IntDistribution) else middle

    def values_in(self, trial: FrozenTrial, name: str) -> list[float]:
        """Hyperopt's number for a trial's value; empty if it has none, or a foreign one out of range."""
        d = self.distribution
        if name not in trial.params:
            return []
        number = d.to_internal_repr(trial.params[name])
        if not d._contains(number):
            return []
        if isinstance(d, CategoricalDistribution):
            return [int(number)]
        assert isinstance(d, IntDistribution | FloatDistribution)
        if self.count is None:
            return [number]
        assert d.step is not None
        return [float(round((number - d.low) / d.step))]

    def from_hyperopt(self, number: float) -> Any:
        """The value for a number of Hyperopt's, which may lie slightly beyond the ends."""
        d = self.distribution
        if isinstance(d, CategoricalDistribution):
            return d.choices[int(number)]
        assert isinstance(d, IntDistribution | FloatDistribution)
        if self.count is not None:
            assert d.step is not None
            number = d.low + min(max(round(float(number)), 0), self.count - 1) * d.step
        number = min(max(float(number), d.low), d.high)
        return round(number) if isinstance(d, IntDistribution) else number


def _adaptive_tpe(numbers: list[int], domain: Domain, history: Trials, seed: int) -> list[dict[str, Any]]:
    """Adaptive TPE's proposal for a seed."""
    import lightgbm  # noqa: F401  # before seeding: its import draws random numbers
    from hyperopt import atpe  # needs more packages than the others

    with _seeded(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its models were saved with older versions of scikit-learn and numpy
        proposal: list[dict[str, Any]] = atpe.suggest(numbers, domain, history, seed)
    return proposal


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed Python's and numpy's global generators, and restore them afterwards."""
    with _GENERATOR_LOCK:
        before = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
