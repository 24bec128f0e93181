"""The driver alone, over a real SQLite file: what it decides, keeps and says when it is told things."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial

from hpsearch.search import driver as driver_module
from hpsearch.search.algorithms import make_pruner
from hpsearch.search.driver import Assignment, Driver, Failure
from hpsearch.search.errors import SearchError
from hpsearch.spaces import Spec
from hpsearch.storage import connection, database
from hpsearch.storage.database import open_storage
from hpsearch.storage.files import CHECKPOINT, CONFIG, METRICS, trial_folder
from hpsearch.storage.live import COMMAND
from hpsearch.storage.studies import ELAPSED, SPEC, open_live

HYPERBAND = {"method": "hyperband", "min": 1, "max": 9, "eta": 3}
ERROR = Failure("error", "ValueError: no", "the traceback")


class Listener:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self.said: list[str] = []

    def trial_ended(self, driver: Driver, trial: FrozenTrial) -> None:
        self.ended.append(trial.number)

    def tick(self, driver: Driver) -> None: ...

    def say(self, message: str) -> None:
        self.said.append(message)


class Table:
    """A driver and its database, set up as `run` does, with this test in the place of a backend."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "a.db"
        self.runs = folder / "runs"
        self.listener = Listener()
        self._opened: list[optuna.storages.RDBStorage] = []

    def driver(self, spec: Spec) -> Driver:
        storage = open_storage(f"sqlite:///{self.file}", create=True)
        self._opened.append(storage)
        live = open_live(storage, spec.name, goal=spec.goal, attrs={SPEC: spec.to_json()})
        return Driver(spec, live, runs=self.runs, watcher=self.listener, pruner=make_pruner(spec))

    def read(self, name: str = "study") -> list[FrozenTrial]:
        storage = optuna.storages.RDBStorage(f"sqlite:///{self.file}")
        self._opened.append(storage)
        return optuna.load_study(study_name=name, storage=storage).get_trials()

    def states(self) -> list[str]:
        return [t.state.name for t in self.read()]

    def close(self) -> None:
        for storage in self._opened:
            storage.engine.dispose()


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    found = Table(tmp_path)
    yield found
    found.close()


def asked(driver: Driver) -> Assignment:
    assignment = driver.ask()
    assert assignment is not None
    return assignment


def test_an_assignment_is_in_the_database_before_it_is_given(table: Table, make_spec: Any) -> None:
    driver = table.driver(make_spec())
    given = asked(driver)
    (trial,) = table.read()
    assert trial.state.name == "RUNNING"
    assert given.params == trial.params
    assert given.folder == trial_folder(table.runs, "study", 0)
    assert (given.folder / CONFIG).is_file()


def test_a_report_is_in_the_database_before_it_is_answered(table: Table, make_spec: Any) -> None:
    driver = table.driver(make_spec())
    asked(driver)
    assert driver.report(0, 0.5, 3, {"accuracy": 0.25}) is None
    assert table.read()[0].intermediate_values == {3: 0.5}
    driver.complete(0, 0.4)
    assert (table.read()[0].value, table.read()[0].user_attrs["accuracy"]) == (0.4, 0.25)
    assert table.listener.ended == [0]


def test_a_metric_does_not_pass_for_what_the_driver_says_of_a_trial(table: Table, make_spec: Any) -> None:
    """`error` is a usual metric, and `reason` and `baseline` could be."""
    driver = table.driver(make_spec(parameters={"x": {"min": 0.0, "max": 1.0}, "lr": 0.5}))
    metrics = {"error": 0.1, "reason": 0.2, "baseline": 1.0, "retries": 3.0, "traceback": 1.0, "lr": 7.0}
    asked(driver)
    driver.report(0, 0.5, 1, metrics | {"accuracy": 0.25})
    driver.fail(0, ERROR)
    asked(driver)
    driver.report(1, 0.5, 1, metrics)
    driver.complete(1, 0.5)
    failed, complete = table.read()
    assert failed.user_attrs == {
        "error": ERROR.message,
        "reason": ERROR.message,
        "traceback": ERROR.traceback,
        "accuracy": 0.25,
    }
    assert complete.user_attrs == {}


def test_the_trials_of_a_dead_driver_are_taken_up_in_place(table: Table, make_spec: Any) -> None:
    spec = make_spec()
    dead = table.driver(spec)
    first = [asked(dead) for _ in range(2)]
    dead.report(1, 0.5, 3, {})
    driver = table.driver(spec)
    assert table.states() == ["WAITING", "WAITING"]
    again = [asked(driver) for _ in range(2)]
    assert [(a.number, a.params, a.seed, a.folder) for a in again] == [
        (a.number, a.params, a.seed, a.folder) for a in first
    ]
    assert driver.report(1, 99.0, 2, {}) is None, "what it reports again is known"
    assert driver.report(1, 0.25, 4, {}) is None
    assert table.read()[1].intermediate_values == {3: 0.5, 4: 0.25}
    assert asked(driver).number == 2


@pytest.mark.parametrize(
    "parameters",
    [
        {"x": {"min": 0.0, "max": 1.0}},
        {"n": 1, "x": {"min": 0.0, "max": 1.0, "when": "n > 5"}},
    ],
)
def test_a_trial_is_retried_as_often_as_said(
    table: Table, make_spec: Any, parameters: dict[str, Any]
) -> None:
    """Also one that has no parameters in the study, because no condition is met."""
    driver = table.driver(make_spec(parameters=parameters, execution={"workers": 1, "retries": 2}))
    for attempt in range(3):
        assert asked(driver).number == 0
        driver.report(0, 0.5, 1, {})
        driver.report(0, 0.5, 2 + attempt, {})
        driver.fail(0, ERROR)
    assert table.states() == ["FAIL"]
    assert table.read()[0].user_attrs["retries"] == 2
    assert list(table.read()[0].intermediate_values) == [1, 2, 3, 4]


def test_attempts_are_counted_over_resumes(table: Table, make_spec: Any) -> None:
    spec = make_spec(execution={"workers": 1, "retries": 1})
    driver = table.driver(spec)
    asked(driver)
    driver.fail(0, ERROR)
    driver = table.driver(spec)
    asked(driver)
    driver.fail(0, ERROR)
    assert table.states() == ["FAIL"]


def test_a_trial_that_fails_while_the_search_is_stopping_keeps_its_retry(
    table: Table, make_spec: Any
) -> None:
    driver = table.driver(make_spec(execution={"workers": 1, "retries": 1}))
    asked(driver)
    driver.request_stop("interrupted")
    driver.fail(0, ERROR)
    assert table.states() == ["WAITING"]


def test_no_trial_waits_in_a_search_whose_budget_is_spent(table: Table, make_spec: Any) -> None:
    driver = table.driver(make_spec(execution={"workers": 1, "retries": 1}))
    asked(driver)
    driver.stop("the budget is spent")
    driver.fail(0, ERROR)
    assert table.states() == ["FAIL"]


def test_a_stop_ends_trials_at_their_next_report_and_a_request_puts_them_back(
    table: Table, make_spec: Any
) -> None:
    driver = table.driver(make_spec())
    asked(driver), asked(driver)
    driver.stop("enough")
    assert driver.report(0, 0.5, 1, {}) == "enough"
    driver.request_stop("interrupted")
    assert driver.report(1, 0.5, 1, {}) == "the search is stopping"
    assert driver.ask() is None
    assert table.states() == ["PRUNED", "WAITING"]
    assert table.read()[0].user_attrs["reason"] == "enough"
    assert driver.stop_reason == "enough"


def test_closing_leaves_nothing_running(
    table: Table, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = table.driver(make_spec())
    asked(driver)

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(driver_module, "document", interrupted)  # in the middle of the next one's beginning
        driver.ask()
    driver.close()
    assert table.states() == ["WAITING", "WAITING"]
    driver = table.driver(make_spec())
    for number in range(4):
        assert asked(driver).number == number
        assert (trial_folder(table.runs, "study", number) / CONFIG).exists()
        driver.complete(number, 1.0)
    assert driver.ask() is None


def test_impossible_constraints_fail_their_trial_and_end_the_search(table: Table, make_spec: Any) -> None:
    spec = make_spec(constraints=["x > 0.25", "x * 1e9 < 1 or x == 0.5"])
    for _ in range(2):
        driver = table.driver(spec)
        with pytest.raises(SearchError, match="proposals in a row violate the constraints"):
            driver.ask()
        driver.close()
    assert table.states() == ["FAIL", "FAIL"]


def test_a_failure_without_an_error_is_no_failure_alike(table: Table, make_spec: Any) -> None:
    """As the dashboard's button makes them."""
    spec = make_spec(budget={"trials": 9})
    driver = table.driver(spec)
    for _ in range(3):
        asked(driver)
    driver.close()
    with closing(sqlite3.connect(table.file)) as connection:
        connection.execute("UPDATE trials SET state = 'FAIL'")
        connection.commit()
    driver = table.driver(spec)
    asked(driver)
    driver.fail(3, ERROR)
    assert driver.fatal is None


def test_three_failures_alike_are_fatal(table: Table, make_spec: Any) -> None:
    driver = table.driver(make_spec(budget={"trials": 9}))
    for number in range(3):
        assert driver.fatal is None
        asked(driver)
        driver.fail(number, ERROR)
    assert driver.fatal == "the first 3 trials all failed alike: ValueError: no"
    assert driver.ask() is None


def test_a_target_that_is_reached_stays_reached(table: Table, make_spec: Any) -> None:
    spec = make_spec(budget={"trials": 9, "target": 0.5}, goal="maximize")
    driver = table.driver(spec)
    asked(driver)
    driver.complete(0, 0.25)
    assert driver.stop_reason is None
    asked(driver)
    driver.complete(1, 0.75)
    assert driver.stop_reason == "trial 1 reached the target 0.5"
    assert table.driver(spec).ask() is None
    assert table.driver(make_spec(budget={"trials": 9, "target": 0.8}, goal="maximize")).ask() is not None


def test_the_time_of_earlier_searches_counts(table: Table, make_spec: Any) -> None:
    spec = make_spec(budget={"trials": 9, "time": 100})
    driver = table.driver(spec)
    driver._begun -= 60
    driver.tick()
    driver.close()
    assert 60 <= table.driver(spec).elapsed < 90
    driver = table.driver(spec)
    driver._begun -= 60
    driver.tick()
    assert driver.stop_reason == "the time budget of 100 s is spent"


def test_the_clock_is_written_every_five_seconds_and_never_back(
    table: Table, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(driver_module, "time", SimpleNamespace(monotonic=lambda: now, time=lambda: now))
    driver = table.driver(make_spec())
    seen = []
    for now in (100.0, 102.0, 104.9, 105.1, 107.0, 110.0, 110.3):  # noqa: B007  # the clock above
        driver.tick()
        seen.append(float(driver.study.user_attrs.get(ELAPSED, 0.0)))
    assert seen == [0, 0, 0, 5.1, 5.1, 5.1, 10.3]


def test_a_stop_of_an_earlier_search_is_over(table: Table, make_spec: Any) -> None:
    driver = table.driver(make_spec())
    asked = optuna.load_study(study_name="study", storage=f"sqlite:///{table.file}")
    asked.set_user_attr(f"{COMMAND}1", {"do": "stop"})
    driver.tick()
    assert driver.stop_reason == "asked by hpsearch stop"
    assert table.driver(make_spec()).ask() is not None


def test_a_locked_database_is_waited_for_and_told_of(
    table: Table, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    driver = table.driver(make_spec())
    asked(driver)
    holding, enough = threading.Event(), threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(table.file, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            holding.set()
            enough.wait(30)
            connection.execute("ROLLBACK")

    holder = threading.Thread(target=hold)
    holder.start()
    holding.wait(30)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        enough.set()
        holder.join()

    monkeypatch.setattr(connection, "time", SimpleNamespace(sleep=sleep))
    assert driver.report(0, 0.5, 1, {}) is None
    assert table.read()[0].intermediate_values == {1: 0.5}
    assert pauses == [connection.PAUSE_SECONDS]
    (said,) = table.listener.said
    assert said.startswith("the database cannot be used now (database is locked)")


def test_a_study_deleted_under_the_driver_ends_it(table: Table, make_spec: Any) -> None:
    driver = table.driver(make_spec())
    asked(driver)
    optuna.delete_study(study_name="study", storage=f"sqlite:///{table.file}")
    with pytest.raises(SearchError, match="deleted while it was searched"):
        driver.report(0, 0.5, 1, {})
    with pytest.raises(SearchError, match="deleted while it was searched"):
        driver.close()
    with closing(sqlite3.connect(table.file)) as connection:
        assert connection.execute("SELECT * FROM study_user_attributes").fetchall() == []
        assert connection.execute("SELECT * FROM trial_intermediate_values").fetchall() == []


def test_the_checkpoints_of_the_best_stay(table: Table, make_spec: Any) -> None:
    execution = {"workers": 1, "retries": 0, "keep": 2}
    driver = table.driver(make_spec(budget={"trials": 9}, execution=execution))
    for number, value in enumerate([0.5, 0.9, 0.7, 0.6, 0.1]):
        (asked(driver).folder / CHECKPOINT).mkdir()
        driver.complete(number, value)
    (asked(driver).folder / CHECKPOINT).mkdir()
    driver.report(5, float("nan"), 1, {})
    (asked(driver).folder / CHECKPOINT).mkdir()
    driver.fail(6, ERROR)
    kept = [n for n in range(7) if (trial_folder(table.runs, "study", n) / CHECKPOINT).exists()]
    assert kept == [0, 4, 6], "the best, and one that may be tried again"


def test_the_baseline_is_never_pruned_and_the_rungs_of_others_are_explained(
    table: Table, make_spec: Any
) -> None:
    spec = make_spec(baseline={"x": 0.5}, early_stopping=HYPERBAND, budget={"trials": 30})
    driver = table.driver(spec)
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
    assert table.states()[0] == "COMPLETE"
    assert reasons
    for reason in reasons:
        found = re.search(r"rung (\d) of (\d) in bracket (\d), ranked (\d+) of (\d+), one in 3 goes", reason)
        assert found
        rung, count, bracket, rank, reached = map(int, found.groups())
        assert rung <= count == 2 - bracket + (bracket == 2) * 0
        assert max(1, reached // 3) < rank <= reached


def test_a_files_worth_of_artifacts_is_named_in_the_trial(table: Table, make_spec: Any) -> None:
    driver = table.driver(make_spec())
    (asked(driver).folder / METRICS).write_text("{}\n")
    driver.complete(0, 1.0)
    names = [key for key in table.read()[0].system_attrs if key.startswith("artifacts:")]
    assert len(names) == 2, "the reports and the configuration"


def test_the_spec_of_a_study_reads_back(table: Table, make_spec: Callable[..., Spec]) -> None:
    spec = make_spec()
    driver = table.driver(spec)
    assert Spec.from_json(driver.study.user_attrs[SPEC]) == spec


def test_what_another_program_puts_up_wrongly_fails_and_the_search_goes_on(
    table: Table, make_spec: Any
) -> None:
    driver = table.driver(make_spec(budget={"trials": 3}))
    driver.study.enqueue_trial({"x": "abc"})
    driver.study.enqueue_trial({"x": 7.5})
    first = asked(driver)
    assert first.number == 1 and first.params["x"] == 7.5
    assert any("out of range" in said for said in table.listener.said)
    failed = driver.trials[0]
    assert failed.state.name == "FAIL" and failed.user_attrs["reason"].startswith("cannot begin: ")
    assert 0 <= asked(driver).params["x"] <= 1
    assert driver.ask() is None, "it counts"
