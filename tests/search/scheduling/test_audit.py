"""The audit of a study, over a real SQLite file: its sample, what it changes, and its result."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial

from hpsearch.search.engine.driver import Driver
from hpsearch.search.engine.running import Assignment
from hpsearch.search.results.audit import audit_outcome
from hpsearch.search.results.sentences import audit
from hpsearch.search.scheduling.audit import AuditSample
from hpsearch.search.scheduling.observed import without_audit
from hpsearch.search.scheduling.rungs import expected_saving
from hpsearch.search.trials.events import events_of
from hpsearch.search.trials.records import StudyRecords
from hpsearch.spaces import SpaceError, Spec
from hpsearch.storage.files import CHECKPOINT

from ...support.driving import DrivenStudy, save_checkpoint

STEPS = (1, 3, 9, 27)
RUNGS = {"method": "hyperband", "min": 1, "max": 27, "eta": 3}
TYPES = ("stopping", "promotion")


class Killed(Exception):
    """The driver is killed at this event."""


class Search:
    """One worker, in this process, that trains known curves."""

    def __init__(self, folder: Path, spec: Spec) -> None:
        self.folder = folder
        self.spec = spec
        self._study = DrivenStudy(folder)

    def driver(self) -> Driver:
        return self._study.driver(self.spec)

    def run(self, killed_after: int = 1 << 30) -> list[FrozenTrial]:
        """The trials of a whole search, whose driver is killed again and again after so many events."""
        while True:
            driver, events = self.driver(), killed_after
            try:
                while (given := driver.ask()) is not None:
                    for step in (s for s in STEPS if s > given.reported):
                        if (events := events - 1) < 0:
                            raise Killed
                        save_checkpoint(given)
                        if driver.report(given.number, self.value(given.params["x"], step), step, {}):
                            break
                    else:
                        driver.complete(given.number, self.value(given.params["x"], 27))
                driver.finish()
                driver.close()
                return list(driver.trials)
            except Killed:
                continue

    def value(self, x: float, step: int) -> float:
        """A trial's value at a step; early ones mislead."""
        end = abs(x - 0.3)
        value = end + (1 - end) * (x * 7919 % 1) / step
        return value if self.spec.goal == "minimize" else -value

    def close(self) -> None:
        self._study.close()


@pytest.fixture
def search(tmp_path: Path, make_spec: Any) -> Iterator[Any]:
    """Makes searches of many trials, each in its own folder."""
    made: list[Search] = []

    def make(kind: str, audit: float, **fields: Any) -> Search:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        fields = {"budget": {"trials": 40}} | fields
        spec = make_spec(**{"early_stopping": RUNGS | {"type": kind}, "audit": audit} | fields)
        made.append(Search(folder, spec))
        return made[-1]

    yield make
    for each in made:
        each.close()


def known(trial: FrozenTrial) -> Any:
    return trial.params, trial.state, trial.value, trial.intermediate_values


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "sampler", "trials"),
    [
        ("stopping", "tpe", 30),
        ("stopping", "nsgaii", 40),
        ("promotion", "tpe", 30),
        ("promotion", "rung_gp", 23),
    ],
)
def test_an_audit_changes_nothing_of_the_search(search: Any, kind: str, sampler: str, trials: int) -> None:
    """Samplers and rungs see its trials as stopped, so all other trials are the same."""
    chosen = {"search": {"sampler": sampler, "seed": 1}, "budget": {"trials": trials}}
    with_it, without = search(kind, 0.5, **chosen).run(), search(kind, 0.0, **chosen).run()
    assert list(map(known, without_audit(with_it))) == list(map(known, without))
    audited = [trial for trial in with_it if "audited" in trial.user_attrs]
    assert len(audited) >= 3
    for trial in audited:
        assert trial.state.name == "COMPLETE" and sorted(trial.intermediate_values) == list(STEPS)
        at = without[trial.number].last_step
        assert trial.user_attrs["audited"] == at
        told = events_of(trial, "steps")[-1]
        said = rf"drawn for the audit, so it runs to its end instead of being stopped: (pruned|paused) at step {at}: .*"
        assert re.fullmatch(said, told)
    stopped = [trial.number for trial in without if trial.state.name == "PRUNED"]
    draw = AuditSample.of(search(kind, 0.5, **chosen).spec)
    assert [trial.number for trial in audited] == [number for number in stopped if number in draw]


@pytest.mark.slow
@pytest.mark.parametrize("kind", TYPES)
def test_a_search_that_is_killed_at_any_event_audits_the_same(search: Any, kind: str) -> None:
    fields: dict[str, Any] = {"budget": {"trials": 12}, "confirm": {"top": 2, "seeds": 2}}
    calm = search(kind, 1.0, **fields).run()
    assert sum("audited" in trial.user_attrs for trial in calm) >= 3
    for events in (1, 4):
        killed = search(kind, 1.0, **fields).run(events)
        assert [(*known(t), t.user_attrs) for t in killed] == [(*known(t), t.user_attrs) for t in calm]


@pytest.mark.slow
@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_the_audit_result_matches_the_curves(search: Any, goal: str) -> None:
    one = search("stopping", 0.5, goal=goal, budget={"trials": 60})
    trials = one.run()
    found = audit_outcome(StudyRecords(one.spec, trials))
    assert found is not None
    sign = 1 if goal == "minimize" else -1
    ends = [sign * one.value(trial.params["x"], 27) for trial in trials]
    audited = [t.number for t in trials if "audited" in t.user_attrs]
    through = [t.number for t in trials if t.state.name == "COMPLETE" and t.number not in audited]
    bar = sorted(ends[n] for n in through)[(len(through) - 1) // 3]
    good = [n for n in audited if ends[n] <= bar]
    assert found.lost is not None
    assert (found.lost.count, found.lost.of) == (len(good), len(audited))
    assert found.better_than_all == sum(ends[n] < min(ends[m] for m in through) for n in audited)
    stopped = [t.number for t in trials if t.state.name == "PRUNED"] + audited
    truth = sum(ends[n] <= bar for n in stopped) / len(stopped)
    assert found.lost.low <= truth <= found.lost.high
    assert [rung.step for rung in found.rungs] == [1, 3, 9]
    assert all(rung.trials == len(through) + len(audited) for rung in found.rungs)
    told, ranks = audit(found)
    assert told.startswith(
        f"of {len(audited)} trials that were to stop, {len(good)} ended as good as the best one in 3"
    )
    assert re.fullmatch(r"rank correlation of rungs with the end: -?0\.\d\d at 1 \(\d+ trials\), .*", ranks)


def asked(driver: Driver) -> Assignment:
    given = driver.ask()
    assert given is not None
    return given


def until_audited(driver: Driver) -> int:
    """Run trials that get worse, until one would be stopped but is audited. Returns its number."""
    while True:
        given = asked(driver)
        if driver.report(given.number, float(given.number), 1, {}) is None:
            if "audited" in driver.trials[given.number].user_attrs:
                return given.number
            driver.complete(given.number, float(given.number))


def test_an_audited_trial_may_win(search: Any) -> None:
    driver = search("stopping", 1.0).driver()
    number = until_audited(driver)
    assert driver.best is not None and driver.best.number != number
    for step in STEPS[1:]:
        assert driver.report(number, -1.0, step, {}) is None
    driver.complete(number, -1.0)
    assert driver.best.number == number


def test_a_paused_trial_whose_checkpoint_is_gone_begins_again(search: Any) -> None:
    driver = search("promotion", 1.0, budget={"trials": 9}).driver()
    while True:
        given = asked(driver)
        if "audited" in driver.trials[given.number].user_attrs:
            break
        weights = given.folder / CHECKPOINT / "weights"
        weights.parent.mkdir(parents=True, exist_ok=True)
        weights.touch()
        if driver.report(given.number, float(given.number), 1, {}) is None:
            driver.complete(given.number, float(given.number))
        elif given.number in driver._budget.audit:
            weights.unlink()
    assert given.reported == 1 and driver.running[given.number].attempt.begun_at == 0
    assert driver.report(given.number, 99.0, 1, {}) is None, "the study has this report"
    assert driver.report(given.number, 9.0, 3, {}) is None


def test_an_untrainable_trial_counts_as_rightly_stopped(search: Any) -> None:
    one = search("stopping", 1.0)
    driver = one.driver()
    number = until_audited(driver)
    driver.report(number, float("nan"), 3, {})
    found = audit_outcome(StudyRecords(one.spec, driver.trials))
    assert found is not None
    assert (found.ended, found.lost, found.better_than_all) == (1, None, 0)
    assert not any(without_audit(driver.trials)[number].constraints), "samplers see it as stopped"
    assert audit(found)[0].startswith("1 trial that was to stop continued, beside ")


def test_the_sample_costs_its_share(make_spec: Any) -> None:
    """In the space `lora` a trial costs a third of a training, an audited one two thirds more: 3 % are 1 in 68."""
    stopping = {"method": "hyperband", "min": 120, "max": 1800, "eta": 3}
    spec = make_spec(early_stopping=stopping, audit=0.03, budget={"trials": 60})
    draw = AuditSample.of(spec)
    assert draw.every == 68
    drawn = [number for number in range(6800) if number in draw]
    assert [number // 68 for number in drawn] == list(range(100)), "one of each"
    assert len({number % 68 for number in drawn}) > 40
    assert [n in AuditSample.of(spec.override(search={"seed": 1})) for n in drawn].count(True) < 10
    assert AuditSample.of(spec.override(audit=1.0)).every == 3
    assert AuditSample.of(spec.override(audit=0.0)).every is None


def test_by_default_a_search_is_audited_if_it_is_large_enough(make_spec: Any) -> None:
    stopping = {"method": "hyperband", "min": 120, "max": 1800, "eta": 3}
    spec = make_spec(early_stopping=stopping, budget={"trials": 339})
    assert AuditSample.of(spec).every is None
    assert AuditSample.of(spec.override(budget={"trials": 340})).every == 68
    assert AuditSample.of(make_spec(budget={"trials": 10_000})).every is None, "nothing stops"
    timed = spec.override(budget={"trials": None, "time": "8h"})
    assert AuditSample.of(timed).every == 68, "whole trainings decide, once there are some"
    fewest = 340 * (1 - (expected_saving(spec) or 0.0))
    assert [AuditSample.of(timed).within(fewest + more).every for more in (-0.01, 0.01)] == [None, 68]
    assert AuditSample.of(timed.override(budget={"trials": 339})).every is None
    assert AuditSample.of(timed.override(audit=0.03)).within(1.0).every == 68, "the space asks for it"


def test_an_audit_without_rungs_is_refused(make_spec: Any) -> None:
    with pytest.raises(
        SpaceError, match=r"audit: needs rungs, but early_stopping\.method is none: use hyperband"
    ):
        make_spec(audit=0.03)
    with pytest.raises(SpaceError, match="audit: must be at most 1"):
        make_spec(audit=3.0)
    make_spec(audit=0.0)


@pytest.mark.slow
def test_a_budget_reserves_the_cost_of_the_audit(search: Any) -> None:
    """With promotion, the whole audit comes at the end."""
    one = search(
        "promotion",
        0.5,
        budget={"samples": 300},
        early_stopping=RUNGS | {"type": "promotion", "resource": "samples"},
    )
    trials = one.run()
    audited = [trial for trial in trials if "audited" in trial.user_attrs]
    assert audited and all(trial.state.name == "COMPLETE" for trial in audited)
    driver = one.driver()
    assert 300 - 27 <= driver.consumed < 300 + 18, "up to one report"
    assert one.run()[: len(trials)] == trials


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "samples"), [("stopping", 84), ("promotion", 204)])
def test_a_spent_budget_is_spent_for_the_next_driver_too(search: Any, kind: str, samples: int) -> None:
    """The last trial is audited and ends early: what was reserved for it is not free again."""
    stopping = RUNGS | {"type": kind, "resource": "samples"}
    fields = {"budget": {"samples": samples}, "confirm": {"top": 0}, "early_stopping": stopping}
    calm, killed = (search(kind, 1.0, **fields).run(events) for events in (1 << 30, 1))
    assert calm[-1].user_attrs["reason"].startswith(f"the budget of {samples} samples is spent")
    assert [(*known(t), t.user_attrs) for t in killed] == [(*known(t), t.user_attrs) for t in calm]
