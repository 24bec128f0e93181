"""The best trials of a search train again: which, how often, at what cost, and what is said of it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution

from hpsearch.search.cli.console import PlainConsole
from hpsearch.search.cli.run import _conclude
from hpsearch.search.engine.confirmation import confirmation_candidates, outstanding_confirmations
from hpsearch.search.engine.confirmation_size import ConfirmationSize
from hpsearch.search.results.confirmation import confirmation_outcome, overlooked
from hpsearch.search.results.report import study_report
from hpsearch.search.results.sentences import confirmation
from hpsearch.search.sampling.view import study_for_samplers
from hpsearch.search.scheduling.rungs import expected_cost
from hpsearch.search.trials.records import StudyRecords
from hpsearch.storage.files import CHECKPOINT, CONFIG, trial_folder

from ...support.driving import CONFIRM, ERROR, HYPERBAND, PROMOTION, DrivenStudy, asked, trained


def test_the_best_train_again_with_the_same_new_seeds(study: DrivenStudy, make_spec: Any) -> None:
    driver = study.driver(make_spec(**CONFIRM))
    first = [trained(driver, value) for value in (0.9, 0.3, 0.1, 0.2)]
    again = [asked(driver) for _ in range(6)]
    assert driver.ask() is None
    confirms = [t.user_attrs["confirms"] for t in study.trials()[4:]]
    assert confirms == [2, 3, 0] * 2, "a seed of all, then the next"
    assert [a.params for a in again] == [first[number].params for number in confirms]
    seeds = [a.seed for a in again]
    assert len(set(seeds)) == 2 and seeds[:3] == [seeds[0]] * 3, "the same for all that are compared"
    assert not set(seeds) & {a.seed for a in first}
    written = [json.loads((a.folder / CONFIG).read_text())["seed"] for a in (*first, *again)]
    assert written == [a.seed for a in (*first, *again)], "so that each can be trained again"
    for assignment, value in zip(again, (0.25, 0.21, 0.9, 0.25, 0.22, 0.9), strict=True):
        driver.complete(assignment.number, value)
    assert driver.ask() is None and driver.finished == 4
    found = confirmation_outcome(StudyRecords(driver.spec, driver.trials))
    assert found is not None and found.winner == 3
    assert found.value.value == pytest.approx(0.215, abs=1e-3)
    assert found.optimism == pytest.approx(0.015, abs=1e-3)
    assert found.gain is not None and found.gain.value == pytest.approx(0.685, abs=1e-3)
    assert driver.best is not None and driver.best.number == 2, "the search's own"


def test_a_search_that_runs_is_asked_to_confirm(study: DrivenStudy, make_spec: Any) -> None:
    spec = make_spec(**CONFIRM | {"confirm": {"top": 0}})
    driver, budget = study.driver(spec), spec.budget.model_dump(mode="json")
    for value in (0.9, 0.3, 0.1):
        trained(driver, value)
    study.command(do="budget", budget=budget, confirm={"top": 1, "seeds": 2}, by="anna")
    driver.tick()
    assert study.watcher.said[-1] == "the best 1 are confirmed after the search, as anna asked"
    trained(driver, 0.2)
    assert driver.spec.confirm.top == 1 and study.result().spec.confirm.top == 1
    assert [asked(driver).number for _ in range(4)] == [4, 5, 6, 7], "trial 2 and the baseline, twice"
    assert driver.ask() is None
    study.command(do="budget", budget=budget, confirm={"top": -1})
    driver.tick()
    assert study.watcher.said[-1].startswith("another process sent a budget that is none")


def test_a_killed_search_resumes_its_confirmation(study: DrivenStudy, make_spec: Any) -> None:
    spec = make_spec(**CONFIRM)
    dead = study.driver(spec)
    for value in (0.9, 0.3, 0.1, 0.2):
        trained(dead, value)
    given = asked(dead)
    driver = study.driver(spec)
    again = [asked(driver) for _ in range(6)]
    assert (again[0].number, again[0].seed) == (given.number, given.seed)
    assert driver.ask() is None
    assert [t.user_attrs["confirms_seed"] for t in study.trials()[4:]] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("stopping", [{"method": "none"}, HYPERBAND])
def test_an_extended_search_confirms_only_its_new_winner(
    study: DrivenStudy, make_spec: Any, stopping: Any
) -> None:
    """Two trials more, one of them the best: only that trains again."""
    fields = CONFIRM | {"early_stopping": stopping}
    driver = study.driver(make_spec(**fields))
    for value in (0.9, 0.3, 0.1, 0.2, *[0.2] * 6):
        trained(driver, value)
    driver = study.driver(make_spec(**fields | {"budget": {"trials": 6}}))
    for value in (0.05, 0.8, 0.06, 0.06):
        trained(driver, value)
    assert driver.ask() is None
    assert [t.user_attrs.get("confirms") for t in study.trials()[10:]] == [None, None, 10, 10]


def test_an_extended_search_confirms_all_with_as_many_seeds(study: DrivenStudy, make_spec: Any) -> None:
    """Who was confirmed with fewer would keep the new seeds from everybody."""
    driver = study.driver(make_spec(**CONFIRM))
    for value in (0.9, 0.3, 0.1, 0.2, *[0.2] * 6):
        trained(driver, value)
    driver = study.driver(make_spec(**CONFIRM | {"budget": {"trials": 5}, "confirm": {"top": 2, "seeds": 3}}))
    for value in (0.05, *[0.07] * 6):
        trained(driver, value)
    assert driver.ask() is None
    again = [(t.user_attrs["confirms"], t.user_attrs["confirms_seed"]) for t in study.trials()[11:]]
    assert again == [(10, 0), (10, 1), (10, 2), (2, 2), (3, 2), (0, 2)]
    found = confirmation_outcome(StudyRecords(driver.spec, driver.trials))
    assert found is not None and found.seeds == 3
    driver = study.driver(make_spec(**CONFIRM | {"budget": {"trials": 5}, "confirm": {"top": 0}}))
    assert driver.ask() is None


def test_a_confirmation_neither_stops_early_nor_teaches(study: DrivenStudy, make_spec: Any) -> None:
    stopping = {"method": "threshold", "upper": 0.0, "max": 9}
    fields = CONFIRM | {"early_stopping": stopping, "budget": {"trials": 3}, "search": {"sampler": "random"}}
    driver = study.driver(make_spec(**fields))
    trained(driver, 0.5)
    trained(driver, -0.5)
    assert driver.report(asked(driver).number, 0.5, 1, {}) is not None
    given = asked(driver)
    assert study.trials()[given.number].user_attrs["confirms"] == 1
    assert driver.report(given.number, 0.5, 1, {}) is None
    seen = study_for_samplers(driver.study, driver.spec, 1)
    assert [t.number for t in seen.get_trials()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("trials", "baseline", "wish"),
    [
        *((9, None, (0, 0)), (10, None, (1, 2)), (20, None, (2, 2)), (30, None, (3, 2)), (45, None, (3, 3))),
        *((19, {"x": 0.5}, (0, 0)), (20, {"x": 0.5}, (1, 2)), (45, {"x": 0.5}, (3, 2))),
    ],
)
def test_a_confirmation_by_default_takes_a_fifth_of_the_search(
    make_spec: Any, trials: int, baseline: Any, wish: tuple[int, int]
) -> None:
    spec = make_spec(budget={"trials": trials}, baseline=baseline, confirm={})
    assert ConfirmationSize.of(spec, expected_cost(spec) or 0) == ConfirmationSize(*wish)
    assert ConfirmationSize.of(spec.override(confirm={"top": 0}), 100.0).trainings(spec) == 0
    assert ConfirmationSize.of(spec.override(confirm={"top": 5}), 1.0) == ConfirmationSize(5, 3)


@pytest.mark.parametrize(
    ("samples", "wish"),
    [(144, (3, 3)), (143, (3, 2)), (108, (3, 2)), (107, (2, 2)), (81, (2, 2)), (54, (1, 2)), (53, (0, 2))],
)
def test_a_confirmation_that_the_samples_have_no_room_for_is_a_smaller_one(
    study: DrivenStudy, make_spec: Any, samples: int, wish: tuple[int, int]
) -> None:
    """Beside the baseline, after a whole training of each; the search has what it does not need."""
    fields = {"budget": {"samples": samples}, "baseline": {"x": 0.5}, "confirm": {"top": 3, "seeds": 3}}
    spec = make_spec(**fields, early_stopping={"method": "none", "max": 9}, search={"sampler": "random"})
    assert ConfirmationSize.of(spec, None) == ConfirmationSize(*wish)
    driver = study.driver(spec)
    while (given := driver.ask()) is not None:
        driver.report(given.number, given.params["x"], 9, {})
        driver.complete(given.number, given.params["x"])
    confirming = [trial for trial in study.trials() if "confirms" in trial.user_attrs]
    assert len(confirming) == ConfirmationSize(*wish).trainings(spec)
    assert samples - 9 < driver.consumed < samples + 9, "all of it is used"


@pytest.mark.parametrize(
    ("time", "wish"),
    [(8.0, (0, 0)), (9.0, (0, 0)), (10.0, (1, 2)), (20.0, (2, 2)), (30.0, (3, 2)), (45.0, (3, 3))],
)
def test_a_confirmation_may_have_what_trials_leave_of_the_time(
    make_spec: Any, time: float, wish: tuple[int, int]
) -> None:
    """Of a time of so many whole trainings eight trials leave the rest, and a fifth of the time is enough."""
    spec = make_spec(budget={"trials": 8, "time": 60.0}, confirm={})
    assert ConfirmationSize.of(spec, 8.0, time) == ConfirmationSize(*wish)
    both = make_spec(
        budget={"samples": 72, "time": 60.0}, confirm={}, early_stopping={"method": "none", "max": 9}
    )
    assert ConfirmationSize.of(both, 8.0, time) == ConfirmationSize(0, 0), (
        "the trainings that confirm are counted there"
    )


@pytest.mark.parametrize(
    ("time", "wish"), [(9.0, (0, 0)), (10.0, (1, 2)), (20.0, (2, 2)), (30.0, (3, 2)), (45.0, (3, 3))]
)
def test_a_search_that_only_its_time_ends_gives_a_fifth_of_it_to_its_confirmation(
    make_spec: Any, time: float, wish: tuple[int, int]
) -> None:
    spec = make_spec(budget={"time": 60.0}, confirm={})
    assert ConfirmationSize.of(spec, None, time) == ConfirmationSize(*wish)
    cheaper = ConfirmationSize.of(spec, None, time, lambda asked: 0.4 * asked.trainings(spec))
    assert cheaper.top == (2 if time < 12 else 3)


def test_trials_that_train_again_stay_candidates(make_spec: Any) -> None:
    """A trial of the audit that ends better meanwhile has its turn when they have all their seeds."""
    spec, study, wish = make_spec(), optuna.create_study(), ConfirmationSize(2, 2)

    def end(value: float, **attrs: int) -> None:
        study.add_trial(
            optuna.trial.create_trial(
                value=value,
                params={"x": 0.5},
                distributions={"x": FloatDistribution(0, 1)},
                user_attrs=attrs,
            )
        )

    def still_missing() -> list[tuple[int, int]]:
        records = StudyRecords(spec, study.get_trials())
        candidates = confirmation_candidates(wish, records)
        missing = outstanding_confirmations(candidates, wish, records.confirmations)
        return [(trial.number, seed) for trial, seed in missing]

    for value in (0.1, 0.2, 0.3):
        end(value)
    audited = study.ask({"x": FloatDistribution(0, 1)})
    for number in (0, 1):
        end(0.5, confirms=number, confirms_seed=0)
    study.tell(audited, 0.0)
    assert still_missing() == [(0, 1), (1, 1)]
    for number in (0, 1):
        end(0.5, confirms=number, confirms_seed=1)
    assert still_missing() == [(3, 0), (3, 1)]
    for seed in (0, 1):
        end(0.4, confirms=3, confirms_seed=seed)
    assert not still_missing()
    end(-0.1)  # of a search that was extended
    assert still_missing() == [(10, 0), (10, 1)]


def test_what_a_confirmation_costs_is_what_the_best_do(study: DrivenStudy, make_spec: Any) -> None:
    """Of twenty trainings of ten seconds a fifth is four; the best take one second each."""
    spec = make_spec(budget={"time": 210.0}, execution={"workers": 1}, confirm={}, baseline={"x": 0.5})
    driver = study.driver(spec)
    for value, seconds in ((0.5, 10.0), (0.1, 1.0), (0.9, 10.0), (0.2, 1.0), (0.8, 10.0)):
        given = asked(driver)
        driver.complete(given.number, value, seconds)
    assert driver._budget._size() == ConfirmationSize(3, 2), "24 seconds, where all alike would take 80"


def test_a_search_that_reached_its_target_confirms_no_more_than_it_cost(
    study: DrivenStudy, make_spec: Any
) -> None:
    driver = study.driver(make_spec(budget={"trials": 60, "target": 0.2}, confirm={}))
    trained(driver, 0.5)
    trained(driver, 0.1)
    assert driver.ask() is None
    assert driver.stop_reason == "trial 1 reached the target 0.2"


def test_a_search_that_reached_its_target_confirms_the_same_when_it_resumes(
    study: DrivenStudy, make_spec: Any
) -> None:
    """Those who waited at rungs have ended meanwhile, and cost what they did."""
    spec = make_spec(early_stopping=PROMOTION, budget={"trials": 60, "target": 0.2}, confirm={})
    driver = study.driver(spec)
    while driver.best is None or driver.best.value != 0.1:
        given = asked(driver)
        (given.folder / CHECKPOINT).mkdir(parents=True, exist_ok=True)
        (given.folder / CHECKPOINT / "weights").touch()
        value = 1.0 if given.number < 20 else 0.1
        steps = [step for step in (1, 3, 9) if step > given.reported]
        if all(driver.report(given.number, value, step, {}) is None for step in steps):
            driver.complete(given.number, value)
    assert driver.ask() is None
    driver.finish()
    driver.close()
    assert len(study.states()) > 20
    assert study.driver(spec).ask() is None, "a fifth of six trainings is too little to confirm one"


def test_confirmation_candidates_keep_their_checkpoints(study: DrivenStudy, make_spec: Any) -> None:
    execution = {"workers": 1, "retries": 0, "keep": 1}
    driver = study.driver(make_spec(**CONFIRM | {"budget": {"trials": 5}}, execution=execution))
    for value in (0.1, 0.9, 0.5, 0.3, 0.4):
        given = asked(driver)
        (given.folder / CHECKPOINT).mkdir(parents=True)
        driver.complete(given.number, value)
    kept = [n for n in range(5) if (trial_folder(study.runs, "study", n) / CHECKPOINT).exists()]
    assert kept == [0, 3, 4], "the best, which is the baseline, and the two that train again"


def test_a_better_trial_that_came_later_is_named(study: DrivenStudy, make_spec: Any) -> None:
    driver = study.driver(make_spec(**CONFIRM))
    for value in (0.9, 0.3, 0.1, 0.2, *[0.2] * 6):
        trained(driver, value)
    assert overlooked(StudyRecords(driver.spec, driver.trials)) is None
    driver = study.driver(make_spec(**CONFIRM | {"budget": {"trials": 5}, "confirm": {"top": 0}}))
    trained(driver, 0.05)
    found = overlooked(StudyRecords(driver.spec, driver.trials))
    assert found is not None and found.number == 10
    driver.close()
    result = study.result()
    assert confirmation(result)[-1] == "trial 10 has 0.05, which was not confirmed"


def test_a_baseline_that_wins_is_compared_with_the_confirmed_trials_alone(
    study: DrivenStudy, make_spec: Any
) -> None:
    """In the search others were better, and may be still where they came later."""
    driver = study.driver(make_spec(**CONFIRM))
    for value in (0.5, 0.3, 0.1, 0.2, *[0.9, 0.9, 0.5] * 2):
        trained(driver, value)
    driver.close()
    report = study_report(study.result())
    assert report.best is not None and report.best.baseline
    assert report.comparison == "the baseline itself: nothing was better when it was trained again"


@pytest.mark.parametrize("failing", [{0, 2, 3}, {2}], ids=["all", "one"])
def test_candidates_whose_confirmation_failed_are_named(
    study: DrivenStudy, make_spec: Any, failing: set[int]
) -> None:
    spec = make_spec(**CONFIRM, execution={"retries": 0, "workers": 1})
    driver = study.driver(spec)
    for value in (0.9, 0.3, 0.1, 0.2):
        trained(driver, value)
    for _ in range(6):
        given = asked(driver)
        confirmed = driver.trials[given.number].user_attrs["confirms"]
        if confirmed in failing:
            driver.fail(given.number, ERROR)
        else:
            driver.complete(given.number, 0.9 if confirmed == 0 else 0.25)
    driver.close()
    result = study.result()
    if failing == {2}:
        dropped = "trial 2 is not among those compared: 2 trainings failed: ValueError: no"
        assert confirmation(result)[-1] == dropped
        assert result.best_trial is not None and result.best_trial.number == 3
    else:
        assert confirmation(result) == ["not confirmed, 6 trainings failed: ValueError: no"]
    console = PlainConsole(record=True, width=200)
    _conclude(console, dataclasses.replace(result, ran=4), ())
    assert "next:\n  hpsearch retry study --failed\n" in console.export_text()


@pytest.mark.parametrize("baseline", [True, False])
def test_a_winner_that_diverged_in_its_confirmation_is_named(
    study: DrivenStudy, make_spec: Any, baseline: bool
) -> None:
    fields = CONFIRM | {"confirm": {"top": 1, "seeds": 2}} | ({} if baseline else {"baseline": None})
    driver = study.driver(make_spec(**fields))
    for value in (0.9, 0.3, 0.1, 0.2):
        trained(driver, value)
    for _ in range(4 if baseline else 2):
        given = asked(driver)
        again = study.trials()[given.number].user_attrs["confirms"]
        driver.complete(given.number, 0.9 + given.number / 100 if again == 0 else float("nan"))
    driver.close()
    result = study.result()
    told = "trial 2 diverged when it was trained again"
    if baseline:
        assert result.best.number == 0, "whatever the other had in the search"
        assert confirmation(result)[1:] == [told]
    else:
        assert confirmation(result) == [f"not confirmed, {told}"]
