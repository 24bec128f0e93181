"""Trials that pause at rungs, and which of them the driver promotes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hpsearch.search.engine.running import Failure
from hpsearch.search.scheduling.standings import rung_results
from hpsearch.search.trials.events import events_of
from hpsearch.storage.files import CHECKPOINT, trial_folder

from ...support.driving import HYPERBAND, PROMOTION, DrivenStudy, asked, to_rung


def test_the_baseline_is_never_pruned_and_the_rungs_of_others_are_explained(
    study: DrivenStudy, make_spec: Any
) -> None:
    spec = make_spec(baseline={"x": 0.5}, early_stopping=HYPERBAND, budget={"trials": 30})
    driver = study.driver(spec)
    reasons = []
    for number in range(30):
        asked(driver)
        for step in range(1, 10):
            reason = driver.report(number, 100.0 if number == 0 else float(number), step, {})
            if reason is not None:
                reasons.append(reason)
                break
        else:
            driver.complete(number, float(number))
    assert study.states()[0] == "COMPLETE"
    assert reasons
    for reason in reasons:
        found = re.search(r"rung (\d) of (\d) in bracket (\d), ranked (\d+) of (\d+); one in 3 cont", reason)
        assert found
        rung, count, bracket, rank, reached = map(int, found.groups())
        assert rung <= count == 2 - bracket + (bracket == 2) * 0
        assert max(1, reached // 3) < rank <= reached


def test_a_trial_pauses_at_a_rung_and_is_promoted_when_it_is_among_the_best(
    study: DrivenStudy, make_spec: Any
) -> None:
    driver = study.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 20}))
    assert to_rung(driver, 1, 5.0) == (0, "paused at step 1, ranked 1 of 1")
    assert to_rung(driver, 1, 6.0) == (1, "paused at step 1, ranked 2 of 2")
    assert to_rung(driver, 1, 4.0) == (2, None), "the best of three goes on at once"
    assert driver.report(2, 4.0, 3, {}) == "paused at step 3, ranked 1 of 1"
    paused = study.trials()
    assert [t.state.name for t in paused] == ["RUNNING"] * 3
    assert [t.user_attrs["paused"] for t in paused] == [1, 1, 3]
    assert events_of(paused[2], "steps") == [
        "promoted at step 1, ranked 1 of 3",
        "paused at step 3, ranked 1 of 1",
    ]
    for number in (3, 4, 5):
        to_rung(driver, 1, 7.0 + number)
    given = asked(driver)  # before a new one: the second of six
    assert (given.number, given.reported) == (0, 1)
    assert "paused" not in study.trials()[0].user_attrs
    assert events_of(study.trials()[0], "steps")[-1] == "resumed at step 1, ranked 2 of 6"


def test_a_search_of_a_few_trials_has_a_winner(study: DrivenStudy, make_spec: Any) -> None:
    """Fewer than one in eta of them come to the end by the rules: the best of those that wait does."""
    driver = study.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 4}))
    for value in (5.0, 4.0, 6.0):
        to_rung(driver, 1, value)
    assert to_rung(driver, 3, 4.5) == (1, "paused at step 3, ranked 1 of 1"), (
        "the best of three, by the rules"
    )
    assert to_rung(driver, 1, 7.0)[0] == 3
    given = asked(driver)
    assert (given.number, given.reported) == (1, 3)
    assert driver.ask() is None, "one is enough"
    driver.report(1, 4.0, 9, {})
    driver.complete(1, 4.0)
    assert driver.ask() is None
    driver.finish()
    assert study.states() == ["PRUNED", "COMPLETE", "PRUNED", "PRUNED"]


def test_no_trial_is_promoted_at_the_end_while_enqueued_ones_wait(study: DrivenStudy, make_spec: Any) -> None:
    driver = study.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 2}))
    for value in (0.1, 0.2):
        driver.study.enqueue_trial({"x": value})
    assert to_rung(driver, 1, 5.0) == (0, "paused at step 1, ranked 1 of 1")
    assert to_rung(driver, 1, 6.0)[0] == 1, "though there are as many trials as there will be"
    assert asked(driver).number == 0


def test_a_killed_search_knows_its_paused_trials(study: DrivenStudy, make_spec: Any) -> None:
    spec = make_spec(early_stopping=PROMOTION, budget={"trials": 20})
    dead = study.driver(spec)
    for value in (5.0, 6.0):
        to_rung(dead, 1, value)
    asked(dead)
    driver = study.driver(spec)
    assert study.states() == ["RUNNING", "RUNNING", "WAITING"], "who waits at a rung is not put back"
    assert to_rung(driver, 1, 7.0) == (2, "paused at step 1, ranked 3 of 3")
    assert asked(driver).number == 0


def test_paused_trials_end_with_the_search_and_not_when_it_is_stopped(
    study: DrivenStudy, make_spec: Any
) -> None:
    driver = study.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 9}))
    for value in (5.0, 6.0):
        to_rung(driver, 1, value)
    driver.request_stop("interrupted")
    driver.finish()
    driver.close()
    assert study.states() == ["RUNNING", "RUNNING"]
    driver = study.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 2}))
    driver.stop("the time budget is spent")
    assert driver.ask() is None
    driver.finish()
    assert [t.user_attrs["reason"] for t in study.trials()] == [
        "paused at step 1: ranked 1 of 2; one in 3 is promoted, so far 0 of 2",
        "paused at step 1: ranked 2 of 2; one in 3 is promoted, so far 0 of 2",
    ]


def test_paused_trials_end_in_one_transaction(
    study: DrivenStudy, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = study.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 20}))
    for value in (1.0, 2.0):
        to_rung(driver, 1, value)
    driver = study.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 2}))
    driver.stop("the time budget is spent")
    assert driver.ask() is None
    write, seen = driver._storage.flush, []

    def flush() -> None:
        seen.append(study.states())
        write()

    monkeypatch.setattr(driver._storage, "flush", flush)
    monkeypatch.setattr(study.watcher, "trial_ended", lambda driver, trial: seen.append(study.states()))
    driver.finish()
    assert seen == [["RUNNING"] * 2] + [["PRUNED"] * 2] * 2
    assert not any((trial_folder(study.runs, "study", n) / CHECKPOINT).exists() for n in (0, 1))


def test_a_paused_trial_that_cannot_be_promoted_ends_at_once(study: DrivenStudy, make_spec: Any) -> None:
    """Of six trials two go on; one is at its end, and two are better that wait: its checkpoint is room."""
    driver = study.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 6}))
    to_rung(driver, 1, 6.0)
    to_rung(driver, 1, 5.0)
    folder = trial_folder(study.runs, "study", 0)
    assert (folder / CHECKPOINT).exists()
    assert to_rung(driver, 1, 4.0) == (2, None)
    to_rung(driver, 1, 5.5)
    assert study.states() == ["RUNNING"] * 4, "who trains may turn out not to be trainable"
    driver.complete(2, 4.0)
    to_rung(driver, 1, 8.0)
    assert study.states() == ["PRUNED", "RUNNING", "COMPLETE", "RUNNING", "PRUNED"]
    assert not (folder / CHECKPOINT).exists()


def test_a_trial_without_a_checkpoint_is_judged_once_at_its_rung(study: DrivenStudy, make_spec: Any) -> None:
    """It cannot wait: by its rank alone, whether there is a place or not, as the type `stopping` does it."""
    driver = study.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 20}))
    answers = [to_rung(driver, 1, value, checkpoint=False)[1] for value in (5.0, 6.0, 7.0, 4.0, 4.5, 3.0)]
    assert [answer is None for answer in answers] == [True, False, False, True, False, True]
    reason = "stopped at step 1: ranked 2 of 2; one in 3 is promoted, so far 1 of 2; it left no checkpoint"
    assert answers[1] == reason
    states = study.states()
    assert [state == "PRUNED" for state in states] == [answer is not None for answer in answers]


def test_a_trial_that_reports_only_at_its_end_is_complete(study: DrivenStudy, make_spec: Any) -> None:
    """It comes to all rungs with its last step, and its cost is spent."""
    driver = study.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 4}))
    for value in (0.1, 0.2, 0.3):
        number, answer = to_rung(driver, 9, value)
        assert answer is None
        driver.complete(number, value)
    driver.close()
    driver = study.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 4}))
    assert to_rung(driver, 3, 0.0)[1] == "paused at step 3, ranked 1 of 4", (
        "the others have gone on from there"
    )
    assert study.states() == ["COMPLETE"] * 3 + ["RUNNING"]


def test_the_baseline_takes_no_place_at_a_rung_and_never_pauses(study: DrivenStudy, make_spec: Any) -> None:
    driver = study.driver(make_spec(early_stopping=PROMOTION, baseline={"x": 0.5}, budget={"trials": 20}))
    assert to_rung(driver, 1, 9.0) == (0, None)
    assert to_rung(driver, 1, 5.0) == (1, "paused at step 1, ranked 1 of 1")
    assert driver.report(0, 9.0, 3, {}) is None


def test_a_paused_trial_can_be_killed(study: DrivenStudy, make_spec: Any) -> None:
    driver = study.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 20}))
    to_rung(driver, 1, 5.0)
    study.command(do="kill", trial=0)
    driver.tick()
    assert study.states() == ["FAIL"]
    assert "paused" not in study.trials()[0].user_attrs


@pytest.mark.parametrize("stops", [False, True])
def test_a_stopping_search_pauses_a_trial_at_its_rung(
    study: DrivenStudy, make_spec: Any, stops: bool
) -> None:
    """Put back, it would be trained past the rung by the next search."""
    driver = study.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 20}))
    given = asked(driver)
    (given.folder / CHECKPOINT).mkdir(parents=True)
    (given.folder / CHECKPOINT / "weights").touch()
    if stops:
        driver.request_stop("interrupted")
    driver.report(0, 5.0, 1, {})
    assert study.states() == ["RUNNING"]
    assert study.trials()[0].user_attrs["paused"] == 1


def test_a_trial_that_the_budget_ends_at_a_rung_is_not_paused_there(
    study: DrivenStudy, make_spec: Any
) -> None:
    """When the search is stopped then, who is better there would end it a second time."""
    spec = make_spec(early_stopping=PROMOTION, budget={"trials": 3, "samples": 1})
    driver = study.driver(spec)
    given = [asked(driver) for _ in range(2)]
    for each in given:
        (each.folder / CHECKPOINT).mkdir(parents=True)
        (each.folder / CHECKPOINT / "weights").touch()
    assert driver.report(0, 5.0, 1, {}) == "the budget of 1 step is spent"
    driver.request_stop("interrupted")
    assert driver.report(1, 4.0, 1, {}) == "paused at step 1, ranked 1 of 2"
    assert study.states() == ["PRUNED", "RUNNING"]


def test_of_equal_trials_the_earlier_one_ranks_first_everywhere(study: DrivenStudy, make_spec: Any) -> None:
    driver = study.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 20}))
    for _ in range(3):
        to_rung(driver, 1, 5.0)
    told = [rung_results(driver.study, driver.spec, trial)[0].rank for trial in driver.trials]
    assert told == [1, 2, 3]
    assert events_of(driver.trials[1], "steps") == ["paused at step 1, ranked 2 of 2"]


HALVES = PROMOTION | {"eta": 2}


def test_a_trial_that_the_budget_ends_at_a_rung_was_not_promoted_from_it(
    study: DrivenStudy, make_spec: Any
) -> None:
    """Though it did from the rung below: a search that is extended gives its place to another."""
    spec = make_spec(early_stopping=HALVES, budget={"trials": 20})
    driver = study.driver(spec)
    to_rung(driver, 1, 5.0)
    assert to_rung(driver, 1, 4.0) == (1, None)
    driver.stop("the time budget is spent")
    assert driver.report(1, 4.0, 2, {}) == "the time budget is spent"
    driver = study.driver(spec)
    to_rung(driver, 1, 3.0)
    to_rung(driver, 1, 6.0)
    assert to_rung(driver, 2, 3.0) == (2, None), "the best of two that got there"


@pytest.mark.parametrize("killed", [False, True])
def test_a_trial_that_is_retried_at_a_rung_was_promoted_from_it(
    study: DrivenStudy, make_spec: Any, killed: bool
) -> None:
    """For the search that hears of it as for one that goes on after a kill."""
    spec = make_spec(early_stopping=HALVES, budget={"trials": 20})
    driver = study.driver(spec)
    to_rung(driver, 1, 5.0)
    for what in ("kill", "retry"):
        study.command(do=what, trial=0)
        driver.tick()
    driver = study.driver(spec) if killed else driver
    assert asked(driver).number == 0
    assert to_rung(driver, 1, 4.0) == (1, "paused at step 1, ranked 1 of 2"), "one of two may go on"
    told = "retried on request; it had failed: killed by hpsearch kill"
    assert events_of(study.trials()[0], "steps")[-1] == told


@pytest.mark.parametrize("kind", ["diverged", "memory", "error", "ended", "ended after it started over"])
def test_a_promoted_trial_that_does_not_come_to_its_end_frees_its_place(
    study: DrivenStudy, make_spec: Any, kind: Any
) -> None:
    """Also to a search that goes on after a kill; one that comes to its end keeps it."""
    spec = make_spec(early_stopping=PROMOTION, budget={"trials": 20}, execution={"workers": 1, "retries": 0})

    def break_off(number: int) -> None:
        if kind == "diverged":
            driver.report(number, float("nan"), 2, {})
        elif kind.startswith("ended"):  # by another program, or with the time of its search
            if "over" in kind:
                driver.fail(number, Failure("checkpoint", "ValueError: no"))
                assert asked(driver).number == number
            driver._lifecycle.end_out_of_time(number)
        else:
            driver.fail(number, Failure(kind, "no", ""))

    driver = study.driver(spec)
    for value in (5.0, 6.0):
        to_rung(driver, 1, value)
    assert to_rung(driver, 1, 4.0) == (2, None)
    break_off(2)
    assert asked(driver).number == 0
    break_off(0)
    driver = study.driver(spec)
    assert asked(driver).number == 1
    driver.complete(1, 6.0)
    assert asked(driver).number == 3, "of three one goes on"
    driver = study.driver(spec)
    assert [asked(driver).number for _ in range(2)] == [3, 4]
