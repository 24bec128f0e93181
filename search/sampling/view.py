"""A study as seen at one rung, from which samplers learn if trials pause.

Optuna's samplers learn from complete and pruned trials. Paused trials are neither, and pruned trials would
all enter one model with values from different rungs, which misleads it. So a model sees a single rung, the
highest with enough observations, as in BOHB (Falkner et al. 2018, section 3.2): a trial that has reached the
rung counts as complete, with its value there.

Samplers and rungs see an audited trial (`scheduling.audit`) as ended where it would have been stopped.
"""

from __future__ import annotations

import copy
import math
import sys
from bisect import bisect_left, insort
from collections.abc import Callable, Container
from functools import cached_property
from itertools import takewhile

import numpy as np
import optuna
from optuna.pruners import HyperbandPruner
from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...storage.in_memory import changed_since
from ...storage.trial_attrs import at_rung, confirms, untrainable, unusable
from ..scheduling.observed import as_searched, completed, value_at
from ..scheduling.rungs import promotes, rung_steps

# Of very many trials a model learns from a part: from so many of the best, and from so many in all.
# TPE estimates the density of its best 25, and that of all others (Bergstra et al. 2013, "Making a Science of
# Model Search", and Optuna): a sample of these will do. A Gaussian process takes time with the cube of their
# number, and learns from a subset of the data (Rasmussen and Williams 2006, section 8.3.1).
BOUNDS = {"tpe": (25, 1000), "gp": (128, 256)}


class StudyAtRung(optuna.Study):
    """A study whose trials are as they were at a rung, for samplers only."""

    def __init__(self, study: optuna.Study, trials: Callable[[], list[FrozenTrial]]) -> None:
        """`trials` makes the trials when a sampler asks for them; some never do."""
        self.__dict__.update(object.__getattribute__(study, "__dict__"))  # which a bracket's study hides
        self._make = trials

    @cached_property
    def _seen(self) -> list[FrozenTrial]:
        return self._make()

    def _get_trials(
        self,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
        use_cache: bool = False,
    ) -> list[FrozenTrial]:
        trials = [trial for trial in self._seen if states is None or trial.state in states]
        return copy.deepcopy(trials) if deepcopy else trials

    def get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """The trials; only those of its bracket if the study is Hyperband's study of one."""
        trials = self._get_trials(deepcopy, states)
        bracket, pruner = self.__dict__.get("_bracket_id"), self.pruner
        if bracket is None or not isinstance(pruner, HyperbandPruner):
            return trials
        return [trial for trial in trials if pruner._get_bracket_id(self, trial) == bracket]


class _Pool:
    """Trials by number, and from the best to the worst."""

    def __init__(self) -> None:
        self.trials: dict[int, FrozenTrial] = {}
        self.numbers: list[int] = []  # rising
        self.ranked: list[tuple[int, int, float, int]] = []

    def put(self, number: int, trial: FrozenTrial | None, sign: float) -> None:
        """Put a trial in the place of the one of its number, or of none."""
        if (before := self.trials.pop(number, None)) is not None:
            del self.numbers[bisect_left(self.numbers, number)]
            del self.ranked[bisect_left(self.ranked, order(before, sign))]
        if trial is not None:
            self.trials[number] = trial
            insort(self.numbers, number)
            insort(self.ranked, order(trial, sign))


class SeenTrials:
    """The trials of a study as samplers see them, kept between proposals: only those that changed are new."""

    def __init__(self, spec: Spec, dimensions: int) -> None:
        """`dimensions`: parameters of the model, for which a rung needs two trials more."""
        self._spec, self._sign, self._enough = spec, spec.loss(1.0), dimensions + 2
        self._best, self._most = BOUNDS.get(spec.search.sampler, (0, sys.maxsize))
        self._steps = [*rung_steps(spec), spec.early_stopping.max or 0] if promotes(spec) else []
        self._changes = 0  # of the study, up to the last update
        self._pools = [_Pool() for _ in self._steps or [0]]  # at each rung, as if completed there; or at all
        self._others = _Pool()  # if trials pause: those that say something even below the rung

    def of(self, study: optuna.Study) -> list[FrozenTrial]:
        """The trials; if trials pause, as they were at the highest rung that enough have reached."""
        changed, self._changes = changed_since(study, self._changes)
        for trial in changed:
            self._put(trial.number, None if confirms(trial) is not None else as_searched(self._spec, trial))
        pool = next((p for p in reversed(self._pools) if len(p.trials) >= self._enough), self._pools[0])
        others = [number for number in self._others.numbers if number not in pool.trials]
        numbers = [*pool.numbers, *others]
        if len(numbers) > self._most:
            numbers = self._some(pool, numbers)
        return [pool.trials.get(number) or self._others.trials[number] for number in numbers]

    def _put(self, number: int, trial: FrozenTrial | None) -> None:
        whole = None if trial is None else _failed_as_infeasible(trial)
        if not self._steps:
            self._pools[0].put(number, whole, self._sign)
            return
        for step, pool in zip(self._steps, self._pools, strict=True):
            # A trial that is unusable may have looked good at a rung.
            value = None if trial is None or unusable(trial) else value_at(trial, step)
            there = None if trial is None or value is None else completed(trial, value)
            pool.put(number, there, self._sign)
        # Samplers avoid untrainable trials (not `gp`, which sees complete ones alone), and some running ones.
        says_more = whole is not None and (whole.state == TrialState.RUNNING or untrainable(whole))
        self._others.put(number, whole if says_more else None, self._sign)

    def _some(self, pool: _Pool, numbers: list[int]) -> list[int]:
        """The best trials, those that run now, and of all some that are evenly apart."""
        kept = {key[-1] for key in pool.ranked[: self._best]}
        for each in (pool, self._others):  # neither complete nor pruned: they come last
            last = (each.trials[key[-1]] for key in takewhile(lambda key: key[0] == 2, reversed(each.ranked)))
            kept.update(t.number for t in last if t.state == TrialState.RUNNING and not at_rung(t))
        places = np.linspace(0, len(numbers) - 1, max(0, self._most - len(kept))).astype(int)
        kept.update(numbers[place] for place in places)
        return [number for number in numbers if number in kept]


def study_for_samplers(
    study: optuna.Study, spec: Spec, dimensions: int, seen: SeenTrials | None = None
) -> StudyAtRung:
    """The study as the search sees it; if trials pause, as seen at its best rung. `seen`: kept before."""
    seen = seen or SeenTrials(spec, dimensions)
    return StudyAtRung(study, lambda: seen.of(study))


def order(trial: FrozenTrial, sign: float) -> tuple[int, int, float, int]:
    """A key that sorts complete trials by value, then pruned ones by step and value, then the rest."""
    if trial.state == TrialState.COMPLETE and trial.value is not None:
        return 0, 0, sign * trial.value, trial.number
    step = trial.last_step
    if trial.state == TrialState.PRUNED and step is not None and not untrainable(trial):
        value = sign * trial.intermediate_values[step]
        return 1, -step, math.inf if math.isnan(value) else value, trial.number
    return 2, 0, 0.0, trial.number


def _failed_as_infeasible(trial: FrozenTrial) -> FrozenTrial:
    """The trial; a failed one as pruned and infeasible, since Optuna's samplers ignore failed trials."""
    if trial.state != TrialState.FAIL or not trial.params:
        return trial
    seen = copy.copy(trial)
    seen.state, seen.system_attrs = TrialState.PRUNED, trial.system_attrs | {"constraints": [1.0]}
    return seen
