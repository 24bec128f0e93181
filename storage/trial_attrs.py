"""The attributes of trials, and the states that ours add to Optuna's: paused, confirming another, audited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from optuna.trial import FrozenTrial, TrialState

CONFIRMS = "confirms"  # user attribute: the number of the trial whose configuration this one trains again
CONFIRMS_SEED = "confirms_seed"  # user attribute: the index of its new seed, from 0
AUDITED = "audited"  # user attribute: the step at which early stopping would have ended the trial
EVENTS = "events"  # user attribute: what happened to the trial, see `search.trials.events`
AT_RUNG = "paused"  # user attribute: the step of the rung at which the trial is paused

STOPPED = "hpsearch:stopped"  # system attribute: why it did not run to its end, see `search.trials.stops`
TRAINED = "hpsearch:trained"  # system attribute: the last step trained, where it is after the last report
TOOK = "hpsearch:took"  # system attribute of a trial without a worker: seconds that it has trained
USED = "hpsearch:used"  # system attribute: what it has used of machines, see `search.trials.usage`
USED_BEFORE_AUDIT = "hpsearch:used_before_audit"  # system attribute: the same, when the audit drew it
THREADS = "hpsearch:threads"  # system attribute: of its worker, where they are not those of the study
ASKED = "hpsearch:asked"  # system attribute: the request that enqueued it, and who made it
LEASE = "hpsearch:lease"  # system attribute: the latest lease of a remote worker, see `backends/remote`
SUGGESTED_BY = "suggested"  # system attribute: how our own sampler made the proposal
FIXED_PARAMS = "fixed_params"  # Optuna's system attribute: the parameters that a trial was enqueued with
RUNG_PREFIX = "completed_rung_"  # of Optuna's system attributes for a trial's values at rungs


def at_rung(trial: FrozenTrial) -> bool:
    """Whether a trial is paused at a rung. To Optuna it is running."""
    return trial.state == TrialState.RUNNING and AT_RUNG in trial.user_attrs


def confirms(trial: FrozenTrial) -> int | None:
    """The number of the trial that this one confirms; None for a trial of the search itself."""
    number: int | None = trial.user_attrs.get(CONFIRMS)
    return number


def search_trials(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    """The trials of the search itself, without confirmation runs."""
    return [trial for trial in trials if confirms(trial) is None]


def audited_at(trial: FrozenTrial) -> int | None:
    """The step at which an audited trial would have stopped; None for a trial that is not audited."""
    step: int | None = trial.user_attrs.get(AUDITED)
    return step


def is_baseline(trial: FrozenTrial) -> bool:
    """Whether a trial is the space's baseline."""
    return "baseline" in trial.user_attrs


def untrainable(trial: FrozenTrial) -> bool:
    """Whether a trial's configuration cannot be trained: it diverged, or ran out of memory."""
    return any(trial.constraints.values())


def unusable(trial: FrozenTrial) -> bool:
    """Whether a trial ended without a usable value: it cannot be trained, or failed."""
    return trial.state == TrialState.FAIL or untrainable(trial)


def threads_of(trial: FrozenTrial, provenance: Mapping[str, Any]) -> int | None:
    """The threads that a trial's worker computed with, in a study of this provenance; None if unknown."""
    count: int | None = trial.system_attrs.get(THREADS, provenance.get("threads"))
    return count


def has_reported(trial: FrozenTrial) -> bool:
    """Whether a trial has ever reported a value."""
    return trial.last_step is not None or trial.state == TrialState.COMPLETE


def trained_to(trial: FrozenTrial) -> int:
    """The last step that a trial is known to have trained: that of its last report, or a later one."""
    return max(trial.last_step or 0, int(trial.system_attrs.get(TRAINED, 0)))


def seconds_of(trial: FrozenTrial) -> float | None:
    """Seconds that a trial has trained in all its attempts; None where they are unknown."""
    start, until = trial.datetime_start, trial.datetime_complete
    took: float | None = trial.system_attrs.get(TOOK)
    if took is not None and (until is not None or AT_RUNG in trial.user_attrs):
        return took
    until = until or (datetime.now() if trial.state == TrialState.RUNNING else None)
    return round((until - start).total_seconds(), 3) if until and start else took


def state_of(trial: FrozenTrial) -> str:
    """Optuna's state in lower case, or `paused`."""
    return "paused" if at_rung(trial) else trial.state.name.lower()
