"""What attributes make of a trial: how long it has trained."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from hpsearch.storage.trial_attrs import AT_RUNG, TOOK, seconds_of


def trial(state: TrialState, *, took: float | None, paused: bool = False, age: float = 100.0) -> FrozenTrial:
    now = datetime.now()
    made = create_trial(state=state, value=1.0 if state.is_finished() else None)
    made.system_attrs = {} if took is None else {TOOK: took}
    made.user_attrs = {AT_RUNG: 3} if paused else {}
    made.datetime_start = None if state == TrialState.WAITING else now - timedelta(seconds=age)
    made.datetime_complete = now if state.is_finished() else None
    return made


def test_the_seconds_of_a_trial_are_those_that_it_trained() -> None:
    assert seconds_of(trial(TrialState.COMPLETE, took=7.5)) == 7.5
    assert seconds_of(trial(TrialState.RUNNING, took=7.5, paused=True)) == 7.5, "it waits at a rung"
    assert seconds_of(trial(TrialState.WAITING, took=7.5)) == 7.5
    assert seconds_of(trial(TrialState.WAITING, took=None)) is None


def test_the_seconds_of_a_running_or_foreign_trial_come_from_its_times() -> None:
    assert seconds_of(trial(TrialState.COMPLETE, took=None)) == 100.0
    assert seconds_of(trial(TrialState.RUNNING, took=7.5)) == pytest.approx(100.0, abs=60)
