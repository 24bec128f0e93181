"""What our attributes make of a trial that Optuna does not know: paused, confirming another, audited."""

from __future__ import annotations

from datetime import datetime

from optuna.trial import FrozenTrial, TrialState

CONFIRMS = "confirms"  # the user attribute of a trial that trains another one's configuration again: which
CONFIRMS_SEED = "confirms_seed"  # and with which of the new seeds, from 0
AUDITED = "audited"  # the user attribute of a trial that was to stop and goes on; its value is the step
EVENTS = "events"  # the user attribute of a trial that tells in words what happened to it on its way
STARTED_OVER = "could not go on from its checkpoint"  # an event that only a kill or a fault brings begins so
AT_RUNG = "paused"  # the user attribute of a trial that waits at a rung; its value is the step

TRAINED = "hpsearch:trained"  # the system attribute of a trial that trained past its last report: the step
TOOK = "hpsearch:took"  # the system attribute of a trial that no worker has now: seconds that it trained


def at_rung(trial: FrozenTrial) -> bool:
    """Whether a trial waits at a rung to go on from there. To Optuna it runs."""
    return trial.state == TrialState.RUNNING and AT_RUNG in trial.user_attrs


def confirms(trial: FrozenTrial) -> int | None:
    """The number of the trial that this one confirms; None where it is one of the search itself."""
    found: int | None = trial.user_attrs.get(CONFIRMS)
    return found


def audited_at(trial: FrozenTrial) -> int | None:
    """The step at which a trial was to stop that goes on to its end to tell what stopping loses."""
    found: int | None = trial.user_attrs.get(AUDITED)
    return found


def unusable(trial: FrozenTrial) -> bool:
    """Whether a trial ended without having been trained: it diverged, ran out of memory or failed."""
    return trial.state == TrialState.FAIL or any(trial.constraints.values())


def has_told(trial: FrozenTrial) -> bool:
    """Whether a trial has ever told a value."""
    return trial.last_step is not None or trial.state == TrialState.COMPLETE


def trained_to(trial: FrozenTrial) -> int:
    """The last step that a trial has trained, as far as known: that of its last report, or a later one."""
    return max(trial.last_step or 0, int(trial.system_attrs.get(TRAINED, 0)))


def seconds_of(trial: FrozenTrial) -> float | None:
    """How long a trial has trained in all its attempts, or runs by now; None where nothing tells."""
    start, until = trial.datetime_start, trial.datetime_complete
    took: float | None = trial.system_attrs.get(TOOK)
    if took is not None and (until is not None or AT_RUNG in trial.user_attrs):
        return took
    until = until or (datetime.now() if trial.state == TrialState.RUNNING else None)
    return round((until - start).total_seconds(), 3) if until and start else took


def state_of(trial: FrozenTrial) -> str:
    """That of Optuna in small letters, or `paused`."""
    return "paused" if at_rung(trial) else trial.state.name.lower()
