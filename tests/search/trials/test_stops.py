"""Why trials ended early: as data, and as older studies say it."""

from __future__ import annotations

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from hpsearch.search.trials.stops import Stop, failed, stop_of
from hpsearch.storage.trial_attrs import STOPPED


@pytest.mark.parametrize(
    ("state", "reason", "kind", "why"),
    [
        ("PRUNED", "diverged: loss was nan at 3 steps; lower the learning rate", "diverged", "diverged"),
        ("PRUNED", "out of memory: it took 3 GiB", "out_of_memory", "out of memory"),
        (
            "PRUNED",
            "pruned at 3 steps: rung 1 of 2 in bracket 0, ranked 3 of 3",
            "pruned",
            "pruned at step 3",
        ),
        ("PRUNED", "pruned by median at 3 steps", "pruned", "pruned by median"),
        (
            "PRUNED",
            "paused at 3 steps: ranked 2 of 3; one in 3 is promoted",
            "not_promoted",
            "paused at step 3",
        ),
        (
            "PRUNED",
            "paused, and its checkpoint is gone",
            "not_promoted",
            "paused, and its checkpoint is gone",
        ),
        (
            "PRUNED",
            "stopped at 1 step: ranked 2 of 3; it left no checkpoint",
            "no_checkpoint",
            "stopped at step 1",
        ),
        ("PRUNED", "the time of the search is over", "over", "the time of the search is over"),
        ("PRUNED", "ended by another program", "foreign", "ended by another program"),
        ("FAIL", "killed by hpsearch kill", "killed", "killed by hpsearch kill"),
        ("FAIL", "cannot begin: x: 7 is too large", "refused", "cannot begin: x: 7 is too large"),
        ("FAIL", "ValueError: no such file: a", "failed", "ValueError"),
        ("FAIL", "the worker was killed (SIGKILL)", "failed", "the worker was killed (SIGKILL)"),
    ],
)
def test_the_sentence_of_an_older_study_tells_the_kind(state: str, reason: str, kind: str, why: str) -> None:
    trial = create_trial(state=TrialState[state], user_attrs={"reason": reason})
    stop = stop_of(trial)
    assert stop is not None and (stop.kind, stop.reason, stop.why) == (kind, reason, why)


@pytest.mark.parametrize("why", ["pruned at 1,200 steps", "pruned at step 1,200"])
def test_a_place_is_told_as_today(why: str) -> None:
    stored = {STOPPED: {"kind": "pruned", "why": why}}
    stop = stop_of(create_trial(state=TrialState.PRUNED, system_attrs=stored))
    assert stop is not None and stop.why == "pruned at step 1,200"


@pytest.mark.parametrize("state", ["COMPLETE", "RUNNING", "WAITING"])
def test_a_trial_that_did_not_end_early_has_none(state: str) -> None:
    value = 1.0 if state == "COMPLETE" else None
    trial = create_trial(state=TrialState[state], value=value, user_attrs={"reason": "diverged: no"})
    assert stop_of(trial) is None


@pytest.mark.parametrize("stop", [failed("ValueError: diverged: no"), Stop("over", "diverged: to mislead")])
def test_the_stored_kind_goes_before_the_sentence(stop: Stop) -> None:
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(storage=storage)
    trial = study.ask()
    stop.note(storage, trial._trial_id)
    study.tell(trial, state=TrialState.PRUNED)
    assert stop_of(study.trials[0]) == Stop(stop.kind, stop.reason, stop.why or stop.reason)


def test_a_trial_without_a_reason_says_so() -> None:
    stop = stop_of(create_trial(state=TrialState.FAIL))
    assert stop is not None and stop.why == "no reason recorded"


def test_scripts_that_fail_alike_have_one_reason_wherever_their_output_is() -> None:
    stops = [
        failed(f"sh exited with code 3; its output is in runs/s/{n}/output.log", "sh exited with code 3")
        for n in (0, 1)
    ]
    assert {stop.why for stop in stops} == {"sh exited with code 3"}
    assert failed("ValueError: no; its output is in x", "ValueError: no").why == "ValueError"
