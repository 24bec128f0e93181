"""What samplers see of a study is kept between proposals, and is a part of very many trials."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState

from hpsearch.search.engine.driver import Driver
from hpsearch.search.sampling import view
from hpsearch.search.sampling.view import SeenTrials
from hpsearch.search.scheduling.observed import as_searched
from hpsearch.spaces import Spec

from ...support.driving import DrivenStudy, asked, save_checkpoint

STOPPING: list[dict[str, Any]] = [
    {"method": "none"},
    {"method": "asha", "type": "stopping", "min": 1, "max": 9, "eta": 3},
    {"method": "asha", "type": "promotion", "min": 1, "max": 9, "eta": 3},
]


def spec_of(make_spec: Any, stopping: dict[str, Any]) -> Spec:
    spec: Spec = make_spec(
        early_stopping=stopping, search={"sampler": "tpe"}, budget={"trials": 24}, confirm={"top": 0}
    )
    return spec


def searched(driver: Driver) -> Iterator[int]:
    """Search with two workers; yields whenever a trial has begun, with its number."""
    running = [asked(driver)]
    while running:
        if (given := driver.ask()) is not None:
            save_checkpoint(given)
            running.append(given)
            yield given.number
        done = running.pop(0)
        value = (done.number * 7919 % 13) / 13
        if done.number % 7 == 3:
            driver.report(done.number, float("nan"), 1, {})
            continue
        for step in (1, 3, 9):
            if step > done.reported and driver.report(done.number, value + 1 / step, step, {}) is not None:
                break
        else:
            driver.complete(done.number, value)


def told(trials: list[FrozenTrial]) -> list[tuple[int, TrialState, float | None, int]]:
    return [(t.number, t.state, t.value, len(t.system_attrs)) for t in trials]


@pytest.mark.parametrize("stopping", STOPPING, ids=["none", "stopping", "promotion"])
def test_what_is_kept_is_what_a_fresh_look_sees(
    study: DrivenStudy, make_spec: Any, stopping: dict[str, Any]
) -> None:
    spec = spec_of(make_spec, stopping)
    driver, kept = study.driver(spec), SeenTrials(spec, 1)
    states = set()
    for _ in searched(driver):
        seen = kept.of(driver.study)
        assert told(seen) == told(SeenTrials(spec, 1).of(driver.study))
        states |= {trial.state for trial in seen}
    assert {TrialState.COMPLETE, TrialState.RUNNING, TrialState.PRUNED} <= states


def test_only_trials_that_changed_are_looked_at(
    study: DrivenStudy, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []

    def look(spec: Spec, trial: FrozenTrial) -> FrozenTrial:
        looked.append(trial.number)
        return as_searched(spec, trial)

    monkeypatch.setattr(view, "as_searched", look)
    driver = study.driver(spec_of(make_spec, STOPPING[0]))
    for number in searched(driver):
        assert number < 2 or len(set(looked)) <= 4, "of all trials those that began, reported or ended"
        looked.clear()


@pytest.mark.parametrize("stopping", STOPPING, ids=["none", "stopping", "promotion"])
def test_of_very_many_trials_the_best_and_the_running_ones_are_seen(
    study: DrivenStudy, make_spec: Any, monkeypatch: pytest.MonkeyPatch, stopping: dict[str, Any]
) -> None:
    spec = spec_of(make_spec, stopping)
    driver, fewer = study.driver(spec), 0
    for _ in searched(driver):
        every = SeenTrials(spec, 1).of(driver.study)
        with monkeypatch.context() as bounded:
            bounded.setitem(view.BOUNDS, "tpe", (2, 6))
            some = SeenTrials(spec, 1).of(driver.study)
        assert len(some) <= 6 and set(told(some)) <= set(told(every))
        values = sorted(t.value for t in every if t.state == TrialState.COMPLETE and t.value is not None)
        assert set(values[:2]) <= {trial.value for trial in some}
        assert set(driver.running) & {t.number for t in every} <= {t.number for t in some}
        fewer += len(some) < len(every)
    assert fewer > 5
