"""Tune's own schedulers as pruners: the driver asks them like a pruner of Optuna's.

Tune never saves a scheduler. Here it gets every report in the study, also those of earlier searches and of
the other backend, so a resumed study finds its rungs as they were.

Tune's ASHA stops: a trial that is worse than the best 1/eta of those at the rung before it ends there, and
none is paused or promoted (Li et al., 2020, "A System for Massively Parallel Hyperparameter Tuning"; stopping
variant).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.pruners import BasePruner, HyperbandPruner
from optuna.trial import FrozenTrial
from ray.tune.schedulers import ASHAScheduler, MedianStoppingRule, TrialScheduler

from ....spaces import Spec
from ....spaces.stopping import Hyperband, Median, SuccessiveHalving
from ....storage.trial_attrs import RUNG_PREFIX
from ...errors import UsageError
from ...scheduling.observed import as_decided
from ...scheduling.pruners import hyperband_options, make_pruner
from ...scheduling.rungs import Bracket, brackets_of, promotes
from ...scheduling.standings import hyperband_bracket

STEP_KEY, VALUE_KEY = "step", "value"  # the keys of the resource and the metric in our results
NEVER_STEPS = math.inf  # steps after which Tune's median rule would yield to other trials


@dataclass(frozen=True)
class StudyTrial:
    """A trial as Tune's schedulers know it: by the study's number, which is the same in every search."""

    trial_id: str


class TunePruner(BasePruner):
    """A pruner that asks one of Tune's schedulers; `rungs` are its rungs, if any."""

    def __init__(
        self, scheduler: TrialScheduler, rungs: tuple[int, ...] = (), last: int | None = None
    ) -> None:
        self._scheduler: Any = scheduler  # gets None for a controller, and a `StudyTrial` for a trial
        self._rungs = rungs
        self._last = last  # the last step of a trial, at which no scheduler is asked
        self._heard: dict[int, int] = {}  # by trial number, the last step that the scheduler knows
        self._ended: set[int] = set()  # trials without further reports

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        for other in map(as_decided, study.get_trials(deepcopy=False)):
            if other.number != trial.number and other.number not in self._ended:
                self._tell(study, other, other.intermediate_values)
                if other.state.is_finished():
                    self._ended.add(other.number)
        assert trial.last_step is not None
        *before, last = sorted(trial.intermediate_values)
        self._tell(study, trial, before)
        self._heard[trial.number] = last
        self._note_rungs(study, trial, last)
        known = self._added(trial)
        return bool(self._scheduler.on_trial_result(None, known, _result(trial, last)) == TrialScheduler.STOP)

    def _tell(self, study: optuna.Study, trial: FrozenTrial, steps: Iterable[int]) -> None:
        """Give the scheduler reports about which it is not asked."""
        heard = self._heard.get(trial.number, 0)
        for step in sorted(
            step for step in steps if step > heard and (self._last is None or step < self._last)
        ):
            # The hook for a trial's end takes a result and decides nothing.
            self._scheduler.on_trial_complete(None, self._added(trial), _result(trial, step))
            self._heard[trial.number] = step
            self._note_rungs(study, trial, step)

    def _added(self, trial: FrozenTrial) -> StudyTrial:
        known = StudyTrial(str(trial.number))
        self._scheduler.on_trial_add(None, known)
        return known

    def _note_rungs(self, study: optuna.Study, trial: FrozenTrial, step: int) -> None:
        """Record the trial's values at its rungs where Optuna's own pruner records and reads them."""
        for index, rung in enumerate(self._rungs):
            key = f"{RUNG_PREFIX}{index}"
            if step >= rung and key not in trial.system_attrs and not trial.state.is_finished():
                # `trial` may be older than the record, so recording twice must give the same value.
                first = min(s for s in trial.intermediate_values if s >= rung)
                study._storage.set_trial_system_attr(trial._trial_id, key, trial.intermediate_values[first])


def _result(trial: FrozenTrial, step: int) -> dict[str, Any]:
    return {STEP_KEY: step, VALUE_KEY: trial.intermediate_values[step]}


class TuneMedian(MedianStoppingRule):
    """Tune's median rule without a memory of stopped trials: the baseline continues and is compared again."""

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        decision: str = super().on_trial_result(tune_controller, trial, result)
        self._stopped_trials.clear()
        return decision


class TuneHyperband(HyperbandPruner):
    """Hyperband as asynchronous successive halving in several brackets: one ASHA scheduler for each.

    Optuna's class decides which bracket a trial is in, from the study and the trial's number: Tune draws it
    from numpy's global generator, so a trial would change brackets in a resumed search.
    """

    def __init__(self, spec: Spec, stopping: Hyperband) -> None:
        super().__init__(**hyperband_options(stopping))
        self._ashas = [_asha(spec, bracket) for bracket in brackets_of(spec)]

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        bracket = hyperband_bracket(study, trial)
        mates = self._create_bracket_study(study, bracket)
        return self._ashas[bracket].prune(mates, trial)


def tune_pruner(spec: Spec) -> BasePruner:
    """The pruner of a spec: Tune's scheduler of that name, or Optuna's pruner where Tune has none."""
    stopping = spec.early_stopping
    if promotes(spec):
        return make_pruner(spec)
    if isinstance(stopping, Hyperband):
        return TuneHyperband(spec, stopping)
    if isinstance(stopping, SuccessiveHalving):
        return _asha(spec, brackets_of(spec)[0])
    if isinstance(stopping, Median):
        return TunePruner(_median(spec, stopping), last=stopping.max)
    return make_pruner(spec)


def _asha(spec: Spec, bracket: Bracket) -> BasePruner:
    stopping = spec.early_stopping
    assert isinstance(stopping, Hyperband | SuccessiveHalving)
    if not bracket.rungs:
        return optuna.pruners.NopPruner()
    scheduler = ASHAScheduler(
        time_attr=STEP_KEY,
        metric=VALUE_KEY,
        mode=_mode(spec),
        max_t=stopping.max,
        grace_period=bracket.rungs[0],
        reduction_factor=stopping.eta,
        # Trials end by themselves: if one were stopped at its last report, its final lines would not run.
        # Only so does a rung stay empty that a sparse grid of reports skips.
        stop_last_trials=False,
    )
    return TunePruner(scheduler, bracket.rungs, stopping.max)


def _median(spec: Spec, stopping: Median) -> TuneMedian:
    for field in ("interval_steps", "n_min_trials"):
        if getattr(stopping, field) is not None:
            raise UsageError(
                f"early_stopping.{field}: Ray Tune's median rule has no such option; "
                "remove it, or run on the backend optuna",
                code="ray-option",
            )
    startup = stopping.n_startup_trials
    # There is no median of no trials: Tune would stop the first trial.
    options: dict[str, Any] = {} if startup is None else {"min_samples_required": max(1, startup)}
    return TuneMedian(
        time_attr=STEP_KEY,
        metric=VALUE_KEY,
        mode=_mode(spec),
        grace_period=stopping.n_warmup_steps or 0,
        min_time_slice=NEVER_STEPS,  # type: ignore[arg-type]
        **options,
    )


def _mode(spec: Spec) -> str:
    return "min" if spec.goal == "minimize" else "max"
