"""The driver alone, over a real SQLite file: what it decides, keeps and says when it is told things."""

from __future__ import annotations

import dataclasses
import json
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial

from hpsearch.search import open_study
from hpsearch.search.cli.commands import words_of
from hpsearch.search.cli.console import PlainConsole
from hpsearch.search.cli.run import _conclude, _finished
from hpsearch.search.engine import clock, lifecycle
from hpsearch.search.engine.confirmation import confirmation_candidates, outstanding_confirmations
from hpsearch.search.engine.confirmation_size import ConfirmationSize
from hpsearch.search.engine.driver import Driver
from hpsearch.search.engine.queue import TrialQueue
from hpsearch.search.engine.running import Assignment, Failure
from hpsearch.search.engine.watcher import SearchView
from hpsearch.search.errors import SearchError
from hpsearch.search.results.confirmation import confirmation_outcome, overlooked
from hpsearch.search.results.report import study_report
from hpsearch.search.results.sentences import confirmation
from hpsearch.search.results.study import StudyResult
from hpsearch.search.sampling.view import study_for_samplers
from hpsearch.search.scheduling import expected_cost
from hpsearch.search.scheduling.pruners import make_pruner
from hpsearch.search.scheduling.standings import rung_results
from hpsearch.search.trials.configuration import config_of
from hpsearch.search.trials.export import document, render
from hpsearch.spaces import Spec
from hpsearch.spaces.document import read
from hpsearch.storage import connection, database
from hpsearch.storage.database import open_storage
from hpsearch.storage.files import CHECKPOINT, CONFIG, METRICS, trial_folder
from hpsearch.storage.live import COMMAND_PREFIX
from hpsearch.storage.studies import ELAPSED, SPEC, open_live
from hpsearch.storage.trial_attrs import EVENTS

HYPERBAND = {"method": "hyperband", "min": 1, "max": 9, "eta": 3}
ERROR = Failure("error", "ValueError: no", "the traceback")


class Listener:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self.said: list[str] = []

    def trial_ended(self, search: SearchView, trial: FrozenTrial) -> None:
        self.ended.append(trial.number)

    def tick(self, search: SearchView) -> None: ...

    def say(self, message: str) -> None:
        self.said.append(message)


class Table:
    """A driver and its database, set up as `run` does, with this test in the place of a backend."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "a.db"
        self.runs = folder / "runs"
        self.listener = Listener()
        self._opened: list[optuna.storages.RDBStorage] = []

    def driver(self, spec: Spec, begun: float | None = None) -> Driver:
        storage = open_storage(f"sqlite:///{self.file}", create=True)
        self._opened.append(storage)
        live = open_live(storage, spec.name, goal=spec.goal, attrs={SPEC: spec.to_json()})
        pruner = make_pruner(spec)
        return Driver(spec, live, runs=self.runs, watcher=self.listener, pruner=pruner, begun=begun)

    def command(self, **what: Any) -> None:
        """Ask something of the driver, as another process does."""
        study = optuna.load_study(study_name="study", storage=f"sqlite:///{self.file}")
        study.set_user_attr(f"{COMMAND_PREFIX}1", what)

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


def test_a_new_trial_takes_nothing_from_files_that_its_number_has(table: Table, make_spec: Any) -> None:
    """Its database was put back from a backup, and its folder is of the trial that is lost."""
    folder = trial_folder(table.runs, "study", 0)
    (folder / CHECKPOINT).mkdir(parents=True)
    (folder / CHECKPOINT / "state.pt").touch()
    (folder / METRICS).write_text('{"step": 1, "value": 777.0}\n')
    assert asked(table.driver(make_spec())).folder == folder
    assert [path.name for path in folder.iterdir()] == [CONFIG]


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
        **{f"last_{name}": value for name, value in metrics.items()},
    }
    assert complete.user_attrs == {f"last_{name}": value for name, value in metrics.items()}


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


def test_a_checkpoint_is_not_blamed_for_what_fails_without_one_too(table: Table, make_spec: Any) -> None:
    """A trial that fails right after it was taken up starts over; once it is known why it fails, none does."""
    driver = table.driver(make_spec(execution={"workers": 1, "retries": 0}))
    blamed = dataclasses.replace(ERROR, kind="checkpoint")
    asked(driver)
    driver.fail(0, blamed)
    assert table.states() == ["WAITING"]
    assert asked(driver).number == 0
    driver.fail(0, ERROR)
    asked(driver)
    driver.fail(1, blamed)
    asked(driver)
    driver.fail(2, dataclasses.replace(blamed, message="EOFError: no more of it"))
    assert table.states() == ["FAIL", "FAIL", "WAITING"]


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


def test_no_trial_waits_to_be_tried_again_in_a_search_that_is_over(table: Table, make_spec: Any) -> None:
    budget = {"trials": 9, "target": 1.0}
    driver = table.driver(make_spec(budget=budget, execution={"workers": 2, "retries": 1}))
    asked(driver), asked(driver)
    driver.fail(1, ERROR)
    assert table.states() == ["RUNNING", "WAITING"]
    driver.complete(0, 0.5)
    assert driver.ask() is None
    driver.finish()
    assert table.states() == ["COMPLETE", "FAIL"]
    assert table.read()[1].user_attrs["reason"] == ERROR.message


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


@pytest.mark.parametrize("pauses", [False, True])
def test_a_trial_at_its_last_step_returns_though_the_search_is_stopping(
    table: Table, make_spec: Any, pauses: bool
) -> None:
    """Put back, it would go on from a checkpoint that leaves nothing to train."""
    driver = table.driver(make_spec(early_stopping=HYPERBAND))
    asked(driver)
    if pauses:
        driver.pause()
    else:
        driver.request_stop("interrupted")
    assert driver.report(0, 0.5, 9, {}) is None
    driver.complete(0, 0.5)
    assert table.states() == ["COMPLETE"]


def test_closing_leaves_nothing_running(
    table: Table, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = table.driver(make_spec())
    asked(driver)

    def interrupted(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(lifecycle, "document", interrupted)  # in the middle of the next one's beginning
        driver.ask()
    driver.close()
    assert table.states() == ["WAITING", "WAITING"]
    driver = table.driver(make_spec())
    for number in range(4):
        assert asked(driver).number == number
        assert (trial_folder(table.runs, "study", number) / CONFIG).exists()
        driver.complete(number, 1.0)
    assert driver.ask() is None


def test_impossible_constraints_end_the_search_and_make_no_further_trial(
    table: Table, make_spec: Any
) -> None:
    spec = make_spec(constraints=["x > 0.25", "x * 1e9 < 1 or x == 0.5"])
    for _ in range(2):
        driver = table.driver(spec)
        with pytest.raises(SearchError, match=r"1000 proposals in a row were refused, .* of: x "):
            driver.ask()
        driver.close()
    assert table.states() == ["WAITING"]


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
    assert driver.fatal == "the first 3 trials all failed the same way: ValueError: no"
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
    driver = table.driver(spec, begun=time.monotonic() - 60)
    asked(driver)
    driver.tick()
    driver.close()
    assert 60 <= table.driver(spec).elapsed < 90
    driver = table.driver(spec, begun=time.monotonic() - 60)
    driver.tick()
    assert driver.stop_reason == "the time budget of 100 s is spent"


def test_the_clock_is_written_every_five_seconds_and_never_back(
    table: Table, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: now, time=lambda: now))
    driver = table.driver(make_spec())
    asked(driver)
    seen = []
    for now in (100.0, 102.0, 104.9, 105.1, 107.0, 110.0, 110.3):  # noqa: B007  # the clock above
        driver.tick()
        seen.append(float(driver.study.user_attrs.get(ELAPSED, 0.0)))
    assert seen == [0, 0, 0, 5.1, 5.1, 5.1, 10.3]


def test_a_command_that_finds_nothing_to_do_takes_no_time_of_the_search(
    table: Table, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: now, time=lambda: now))
    spec = make_spec(budget={"trials": 1}, confirm={"top": 0})
    for begun in (100.0, 200.0):
        driver = table.driver(spec)
        now = begun + 7.0
        while driver.ask() is not None:
            driver.complete(0, 0.5)
        driver.tick()
        driver.close()
        assert driver.study.user_attrs[ELAPSED] == 7.0


def test_a_stop_of_an_earlier_search_is_over(table: Table, make_spec: Any) -> None:
    driver = table.driver(make_spec())
    table.command(do="stop")
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
    assert pauses == [connection.RETRY_SECONDS]
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
        found = re.search(r"rung (\d) of (\d) in bracket (\d), ranked (\d+) of (\d+); one in 3 cont", reason)
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


PUT_UP = {
    "parameters": {
        "x": {"min": 0.0, "max": 1.0},
        "seed": {"min": 0, "max": 2**53},
        "rank": {"min": 2, "max": 32, "factor": 2},
        "drop": {"min": 0.0, "max": 0.2, "step": 0.05},
        "targets": [["q", "v"], "all", None, "1"],
        "kind": ["plain", "warm"],
        "rate": {"min": 1, "max": 4, "when": {"kind": "warm"}},
        "fixed": 3,
        "twice": {"expr": "2 * rank"},
        "inverse": {"expr": "1 / (x - 0.25)"},
    },
    "constraints": ["x < 0.9"],
    "baseline": None,
}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"x": "abc"}, 'x: must be a number in float 0 .. 1, not "abc"'),
        ({"x": 7.5}, "x: 7.5 is outside float 0 .. 1"),
        ({"x": float("nan")}, "x: must be a number in float 0 .. 1, not NaN"),
        ({"x": float("inf")}, "x: inf is outside float 0 .. 1"),
        ({"x": True}, "x: must be a number in float 0 .. 1, not true"),
        ({"x": 10**400}, "x: 1"),
        ({"seed": 2**53 + 1}, "seed: 9007199254740993 is outside int 0 .. 9007199254740992"),
        ({"seed": 2**51 + 0.5}, "seed: 2251799813685248.5 is not a value of int 0 .. 9007199254740992"),
        ({"rank": 7}, "rank: 7 is not a value of int 2 4 8 16 32; the nearest is 8"),
        ({"drop": 0.07}, "drop: 0.07 is not a value of float 0 0.05 0.1 0.15 0.2; the nearest is 0.05"),
        ({"targets": "none"}, 'targets: "none" is none of ["q", "v"], "all", null, "1"'),
        ({"targets": 1}, 'targets: 1 is none of ["q", "v"], "all", null, "1"'),
        ({"x": 0.95}, "breaks the constraint `x < 0.9` (x: 0.95)"),
        ({"kind": "plain", "rate": 2}, 'rate: "rate" does not exist in the trial: its condition is not met'),
        ({"x": 0.25}, "<json> parameters.inverse.expr: `1 / (x - 0.25)` divides by zero where x: 0.25"),
        ({"ranc": 4}, 'ranc: "ranc" is not a parameter; did you mean "rank"?'),
        ({"fixed": 3}, 'fixed: "fixed" is a constant; a trial gives values only to searched parameters'),
        ({"x": 2.0, "rank": 3}, "x: 2 is outside float 0 .. 1; rank: 3 is not a value of"),
    ],
)
def test_what_another_program_puts_up_wrongly_fails_with_the_reason_and_the_search_goes_on(
    table: Table, make_spec: Any, given: dict[str, Any], reason: str
) -> None:
    spec = make_spec(**PUT_UP, search={"sampler": "random"}, budget={"trials": 2})
    driver = table.driver(spec)
    driver.study.enqueue_trial(given)
    assert asked(driver).number == 1, "it goes on"
    assert driver.ask() is None, "it counts"
    failed = driver.trials[0]
    assert failed.state.name == "FAIL"
    assert failed.user_attrs["reason"].startswith(f"cannot begin: {reason}")
    driver.complete(1, 0.5)
    driver = table.driver(spec)
    table.command(do="retry", number=0)
    driver.tick()
    assert driver.ask() is None, "nor does it begin when it is tried again"
    assert driver.trials[0].user_attrs["reason"] == failed.user_attrs["reason"]
    driver.close()
    result = open_study("study", storage=str(table.file), runs=table.runs)
    console = PlainConsole(record=True, width=200)
    _conclude(console, dataclasses.replace(result, ran=2), ())
    console.print(*(step.operation for step in study_report(result).next_steps))
    assert "1 trial failed (0): cannot begin" in (told := console.export_text())
    assert "hpsearch retry" not in told, "nor is that advised"


@pytest.mark.parametrize(
    ("given", "trained"),
    [
        ({"seed": 2**53}, {"seed": 2**53}),
        ({"seed": 5.0}, {"seed": 5}),
        ({"x": 0}, {"x": 0.0}),
        ({"drop": 0.1 + 0.05}, {"drop": 0.15}),
        ({"targets": ["q", "v"]}, {"targets": ["q", "v"]}),
        ({"targets": '["q","v"]'}, {"targets": ["q", "v"]}),
        ({"targets": None}, {"targets": None}),
        ({"rate": 3}, {"rate": 3, "kind": "warm"}),
    ],
)
@pytest.mark.parametrize("sampler", ["tpe", "rung_gp"])
def test_what_another_program_puts_up_is_trained_and_recorded_as_the_space_spells_it(
    table: Table, make_spec: Any, given: dict[str, Any], trained: dict[str, Any], sampler: str
) -> None:
    spec = make_spec(**PUT_UP, search={"sampler": sampler}, budget={"trials": 2})
    driver = table.driver(spec)
    driver.study.enqueue_trial(given)
    first = asked(driver)
    assert first.number == 0
    assert repr({name: first.params[name] for name in trained}) == repr(trained)
    assert repr(config_of(spec, table.read()[0])) == repr(first.params)


@pytest.mark.parametrize("sampler", ["tpe", "random", "gp", "cmaes", "qmc", "nsgaii", "rung_gp"])
def test_large_integers_are_recorded_and_exported_as_they_were_trained(
    table: Table, make_spec: Any, sampler: str
) -> None:
    parameters = {
        "near": {"min": 2**53 - 5, "max": 2**53},
        "wide": {"min": -(2**53), "max": 2**53},
        "log": {"min": 1, "max": 2**53, "log": True},
        "listed": [2**53 + 1, 2**53 + 2, 2**63 - 1],
        "fixed": 2**62 + 1,
        "derived": {"expr": "2 * near + 1"},
    }
    spec = make_spec(parameters=parameters, baseline=None, search={"sampler": sampler}, budget={"trials": 9})
    driver = table.driver(spec)
    for number in range(9):
        trained = asked(driver).params
        driver.complete(number, float(number))
        stored = table.read()[number]
        assert repr(config_of(spec, stored)) == repr(trained), "retrained and confirmed by the same"
        content = document(spec, stored, {})
        assert json.loads(render(content, "json"))["parameters"] == trained
        assert read(render(content, "yaml"), "a.yaml")[0]["parameters"] == trained
        assert f"--derived={2 * trained['near'] + 1}" in render(content, "flags")
        assert stored.user_attrs["derived"] == 2 * trained["near"] + 1


def test_a_whole_trial_that_another_program_adds_is_checked_too(table: Table, make_spec: Any) -> None:
    driver = table.driver(make_spec(budget={"trials": 2}))
    wide = optuna.distributions.FloatDistribution(0, 10)
    waits = optuna.trial.TrialState.WAITING
    driver.study.add_trial(
        optuna.trial.create_trial(state=waits, params={"x": 7.5}, distributions={"x": wide})
    )
    assert asked(driver).number == 1
    assert driver.trials[0].user_attrs["reason"] == "cannot begin: x: 7.5 is outside float 0 .. 1"


@pytest.mark.parametrize("sampler", ["tpe", "rung_gp", "grid"])
def test_what_another_program_puts_up_in_part_gets_all_that_its_values_call_for(
    table: Table, make_spec: Any, sampler: str
) -> None:
    parameters = {
        "kind": ["plain", "warm"],
        "rate": {"min": 1, "max": 4, "factor": 2, "when": {"kind": "warm"}},
    }
    spec = make_spec(parameters=parameters, search={"sampler": sampler}, budget={"trials": 9})
    driver = table.driver(spec)
    for _ in range(2):  # before the first proposal, and after the last that is left
        driver.study.enqueue_trial({"rate": 2})
        driver.study.enqueue_trial({"kind": "plain"})
        while (given := driver.ask()) is not None:
            assert set(given.params) == ({"kind", "rate"} if given.params["kind"] == "warm" else {"kind"})
            assert given.params.get("rate", 1) in (1, 2, 4)
            driver.complete(given.number, 1.0)
    kinds = [trial.params["kind"] for trial in driver.trials]
    assert kinds[:2] == kinds[-2:] == ["warm", "plain"] and len(kinds) >= 6


@pytest.mark.parametrize("sampler", ["tpe", "rung_gp", "grid"])
def test_what_another_program_puts_up_in_part_keeps_the_constraints_that_it_can(
    table: Table, make_spec: Any, sampler: str
) -> None:
    parameters = {"r": {"min": 2, "max": 64, "factor": 2}, "n": {"min": 1, "max": 9}}
    constraints = ["r * n < 200", "n != 9"]
    fields = {"parameters": parameters, "constraints": constraints, "baseline": None}
    driver = table.driver(make_spec(**fields, search={"sampler": sampler}, budget={"trials": 9}))
    for _ in range(3):
        driver.study.enqueue_trial({"r": 64})
    found = [asked(driver).params for _ in range(3)]
    assert [params["r"] for params in found] == [64] * 3
    assert {params["n"] for params in found} == {1, 2, 3}
    driver.study.enqueue_trial({"r": 64})
    again = asked(driver).params
    assert again["r"] == 64 and again["n"] in {1, 2, 3}, "one that was tried, where no other is left"
    driver.study.enqueue_trial({"n": 9})
    assert asked(driver).number == 5
    assert driver.trials[4].user_attrs["reason"] == "cannot begin: breaks the constraint `n != 9` (n: 9)"


def test_a_budget_of_the_resource_counts_each_step_once_over_attempts_and_resumes(
    table: Table, make_spec: Any
) -> None:
    spec = make_spec(budget={"samples": 9}, execution={"workers": 2, "retries": 1})
    driver = table.driver(spec)
    for _ in range(2):
        asked(driver)
    driver.report(0, 0.5, 2, {})
    driver.report(1, 0.5, 1, {})
    driver.report(1, 0.4, 3, {})
    driver.fail(0, ERROR)
    assert asked(driver).number == 0
    driver.report(0, 0.5, 2, {})
    assert driver.consumed == 5
    driver = table.driver(spec)
    assert driver.consumed == 5
    for _ in range(2):
        asked(driver)
    assert driver.report(1, 0.3, 3, {}) is None
    assert driver.report(0, 0.3, 5, {}) is None
    assert driver.consumed == sum(t.last_step or 0 for t in table.read()) == 8
    assert driver.report(1, 0.3, 4, {}) == "the budget of 9 steps is spent"
    assert driver.ask() is None


PROMOTION = {"method": "asha", "type": "promotion", "min": 1, "max": 9, "eta": 3}


def to_rung(driver: Driver, step: int, value: float, *, checkpoint: bool = True) -> tuple[int, str | None]:
    """The next trial, trained to a step: its number and the driver's answer."""
    given = asked(driver)
    if checkpoint:
        (given.folder / CHECKPOINT).mkdir(parents=True, exist_ok=True)
        (given.folder / CHECKPOINT / "weights").touch()
    return given.number, driver.report(given.number, value, step, {})


def test_a_trial_pauses_at_a_rung_and_goes_on_when_it_is_among_the_best(table: Table, make_spec: Any) -> None:
    driver = table.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 20}))
    assert to_rung(driver, 1, 5.0) == (0, "paused at 1 step, ranked 1 of 1")
    assert to_rung(driver, 1, 6.0) == (1, "paused at 1 step, ranked 2 of 2")
    assert to_rung(driver, 1, 4.0) == (2, None), "the best of three goes on at once"
    assert driver.report(2, 4.0, 3, {}) == "paused at 3 steps, ranked 1 of 1"
    paused = table.read()
    assert [t.state.name for t in paused] == ["RUNNING"] * 3
    assert [t.user_attrs["paused"] for t in paused] == [1, 1, 3]
    assert paused[2].user_attrs["events"] == [
        "promoted at 1 step, ranked 1 of 3",
        "paused at 3 steps, ranked 1 of 1",
    ]
    for number in (3, 4, 5):
        to_rung(driver, 1, 7.0 + number)
    given = asked(driver)  # before a new one: the second of six
    assert (given.number, given.reported) == (0, 1)
    assert "paused" not in table.read()[0].user_attrs
    assert table.read()[0].user_attrs["events"][-1] == "resumed at 1 step, ranked 2 of 6"


def test_a_search_of_a_few_trials_has_a_winner(table: Table, make_spec: Any) -> None:
    """Fewer than one in eta of them come to the end by the rules: the best of those that wait does."""
    driver = table.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 4}))
    for value in (5.0, 4.0, 6.0):
        to_rung(driver, 1, value)
    assert to_rung(driver, 3, 4.5) == (1, "paused at 3 steps, ranked 1 of 1"), (
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
    assert table.states() == ["PRUNED", "COMPLETE", "PRUNED", "PRUNED"]


def test_nobody_goes_on_at_last_while_trials_that_were_put_up_wait(table: Table, make_spec: Any) -> None:
    driver = table.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 2}))
    for value in (0.1, 0.2):
        driver.study.enqueue_trial({"x": value})
    assert to_rung(driver, 1, 5.0) == (0, "paused at 1 step, ranked 1 of 1")
    assert to_rung(driver, 1, 6.0)[0] == 1, "though there are as many trials as there will be"
    assert asked(driver).number == 0


def test_a_search_that_was_killed_knows_who_waits(table: Table, make_spec: Any) -> None:
    spec = make_spec(early_stopping=PROMOTION, budget={"trials": 20})
    dead = table.driver(spec)
    for value in (5.0, 6.0):
        to_rung(dead, 1, value)
    asked(dead)
    driver = table.driver(spec)
    assert table.states() == ["RUNNING", "RUNNING", "WAITING"], "who waits at a rung is not put back"
    assert to_rung(driver, 1, 7.0) == (2, "paused at 1 step, ranked 3 of 3")
    assert asked(driver).number == 0


def test_those_who_wait_end_with_the_search_and_not_when_it_is_stopped(table: Table, make_spec: Any) -> None:
    driver = table.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 9}))
    for value in (5.0, 6.0):
        to_rung(driver, 1, value)
    driver.request_stop("interrupted")
    driver.finish()
    driver.close()
    assert table.states() == ["RUNNING", "RUNNING"]
    driver = table.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 2}))
    driver.stop("the time budget is spent")
    assert driver.ask() is None
    driver.finish()
    assert [t.user_attrs["reason"] for t in table.read()] == [
        "paused at 1 step: ranked 1 of 2; one in 3 is promoted, so far 0 of 2",
        "paused at 1 step: ranked 2 of 2; one in 3 is promoted, so far 0 of 2",
    ]


def test_those_who_wait_end_in_one_transaction(
    table: Table, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = table.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 20}))
    for value in (1.0, 2.0):
        to_rung(driver, 1, value)
    driver = table.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 2}))
    driver.stop("the time budget is spent")
    assert driver.ask() is None
    write, seen = driver._storage.flush, []

    def flush() -> None:
        seen.append(table.states())
        write()

    monkeypatch.setattr(driver._storage, "flush", flush)
    monkeypatch.setattr(table.listener, "trial_ended", lambda driver, trial: seen.append(table.states()))
    driver.finish()
    assert seen == [["RUNNING"] * 2] + [["PRUNED"] * 2] * 2
    assert not any((trial_folder(table.runs, "study", n) / CHECKPOINT).exists() for n in (0, 1))


def test_a_trial_that_will_never_go_on_ends_at_once(table: Table, make_spec: Any) -> None:
    """Of six trials two go on; one is at its end, and two are better that wait: its checkpoint is room."""
    driver = table.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 6}))
    to_rung(driver, 1, 6.0)
    to_rung(driver, 1, 5.0)
    folder = trial_folder(table.runs, "study", 0)
    assert (folder / CHECKPOINT).exists()
    assert to_rung(driver, 1, 4.0) == (2, None)
    to_rung(driver, 1, 5.5)
    assert table.states() == ["RUNNING"] * 4, "who trains may turn out not to be trainable"
    driver.complete(2, 4.0)
    to_rung(driver, 1, 8.0)
    assert table.states() == ["PRUNED", "RUNNING", "COMPLETE", "RUNNING", "PRUNED"]
    assert not (folder / CHECKPOINT).exists()


def test_a_trial_without_a_checkpoint_is_judged_once_at_its_rung(table: Table, make_spec: Any) -> None:
    """It cannot wait: by its rank alone, whether there is a place or not, as the type `stopping` does it."""
    driver = table.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 20}))
    answers = [to_rung(driver, 1, value, checkpoint=False)[1] for value in (5.0, 6.0, 7.0, 4.0, 4.5, 3.0)]
    assert [answer is None for answer in answers] == [True, False, False, True, False, True]
    reason = "stopped at 1 step: ranked 2 of 2; one in 3 is promoted, so far 1 of 2; it left no checkpoint"
    assert answers[1] == reason
    states = table.states()
    assert [state == "PRUNED" for state in states] == [answer is not None for answer in answers]


def test_who_reports_at_its_end_alone_is_complete(table: Table, make_spec: Any) -> None:
    """It comes to all rungs with its last step, and its cost is spent."""
    driver = table.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 4}))
    for value in (0.1, 0.2, 0.3):
        number, answer = to_rung(driver, 9, value)
        assert answer is None
        driver.complete(number, value)
    driver.close()
    driver = table.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 4}))
    assert to_rung(driver, 3, 0.0)[1] == "paused at 3 steps, ranked 1 of 4", (
        "the others have gone on from there"
    )
    assert table.states() == ["COMPLETE"] * 3 + ["RUNNING"]


def test_the_baseline_takes_nobodys_place_and_never_pauses(table: Table, make_spec: Any) -> None:
    driver = table.driver(make_spec(early_stopping=PROMOTION, baseline={"x": 0.5}, budget={"trials": 20}))
    assert to_rung(driver, 1, 9.0) == (0, None)
    assert to_rung(driver, 1, 5.0) == (1, "paused at 1 step, ranked 1 of 1")
    assert driver.report(0, 9.0, 3, {}) is None


def test_a_paused_trial_can_be_killed(table: Table, make_spec: Any) -> None:
    driver = table.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 20}))
    to_rung(driver, 1, 5.0)
    table.command(do="kill", trial=0)
    driver.tick()
    assert table.states() == ["FAIL"]
    assert "paused" not in table.read()[0].user_attrs


@pytest.mark.parametrize("stops", [False, True])
def test_a_search_that_is_stopping_pauses_who_comes_to_a_rung(
    table: Table, make_spec: Any, stops: bool
) -> None:
    """Put back, it would be trained past the rung by the next search."""
    driver = table.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 20}))
    given = asked(driver)
    (given.folder / CHECKPOINT).mkdir(parents=True)
    (given.folder / CHECKPOINT / "weights").touch()
    if stops:
        driver.request_stop("interrupted")
    driver.report(0, 5.0, 1, {})
    assert table.states() == ["RUNNING"]
    assert table.read()[0].user_attrs["paused"] == 1


def test_who_ends_at_a_rung_with_the_budget_does_not_wait_there(table: Table, make_spec: Any) -> None:
    """When the search is stopped then, who is better there would end it a second time."""
    spec = make_spec(early_stopping=PROMOTION, budget={"trials": 3, "samples": 1})
    driver = table.driver(spec)
    given = [asked(driver) for _ in range(2)]
    for each in given:
        (each.folder / CHECKPOINT).mkdir(parents=True)
        (each.folder / CHECKPOINT / "weights").touch()
    assert driver.report(0, 5.0, 1, {}) == "the budget of 1 step is spent"
    driver.request_stop("interrupted")
    assert driver.report(1, 4.0, 1, {}) == "paused at 1 step, ranked 1 of 2"
    assert table.states() == ["PRUNED", "RUNNING"]


def test_who_came_first_is_ahead_of_its_equals_wherever_that_is_told(table: Table, make_spec: Any) -> None:
    driver = table.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 20}))
    for _ in range(3):
        to_rung(driver, 1, 5.0)
    told = [rung_results(driver.study, driver.spec, trial)[0].rank for trial in driver.trials]
    assert told == [1, 2, 3]
    assert driver.trials[1].user_attrs["events"] == ["paused at 1 step, ranked 2 of 2"]


HALVES = PROMOTION | {"eta": 2}


def test_who_ends_at_a_rung_with_the_budget_has_not_gone_on_from_there(table: Table, make_spec: Any) -> None:
    """Though it did from the rung below: a search that is extended gives its place to another."""
    spec = make_spec(early_stopping=HALVES, budget={"trials": 20})
    driver = table.driver(spec)
    to_rung(driver, 1, 5.0)
    assert to_rung(driver, 1, 4.0) == (1, None)
    driver.stop("the time budget is spent")
    assert driver.report(1, 4.0, 2, {}) == "the time budget is spent"
    driver = table.driver(spec)
    to_rung(driver, 1, 3.0)
    to_rung(driver, 1, 6.0)
    assert to_rung(driver, 2, 3.0) == (2, None), "the best of two that got there"


@pytest.mark.parametrize("killed", [False, True])
def test_who_is_tried_again_at_a_rung_has_gone_on_from_there(
    table: Table, make_spec: Any, killed: bool
) -> None:
    """For the search that hears of it as for one that goes on after a kill."""
    spec = make_spec(early_stopping=HALVES, budget={"trials": 20})
    driver = table.driver(spec)
    to_rung(driver, 1, 5.0)
    for what in ("kill", "retry"):
        table.command(do=what, trial=0)
        driver.tick()
    driver = table.driver(spec) if killed else driver
    assert asked(driver).number == 0
    assert to_rung(driver, 1, 4.0) == (1, "paused at 1 step, ranked 1 of 2"), "one of two may go on"
    told = "retried on request; it had failed: killed by hpsearch kill"
    assert table.read()[0].user_attrs[EVENTS][-1] == told


def trained(driver: Driver, value: float) -> Assignment:
    """The next trial, trained to its end."""
    given = asked(driver)
    driver.report(given.number, value, 9, {})
    driver.complete(given.number, value)
    return given


CONFIRM = {"baseline": {"x": 0.5}, "budget": {"trials": 4}, "confirm": {"top": 2, "seeds": 2}}


def test_the_best_train_again_with_the_same_new_seeds(table: Table, make_spec: Any) -> None:
    driver = table.driver(make_spec(**CONFIRM))
    first = [trained(driver, value) for value in (0.9, 0.3, 0.1, 0.2)]
    again = [asked(driver) for _ in range(6)]
    assert driver.ask() is None
    confirms = [t.user_attrs["confirms"] for t in table.read()[4:]]
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
    found = confirmation_outcome(driver.spec, driver.trials)
    assert found is not None and found.winner == 3
    assert found.value.value == pytest.approx(0.215, abs=1e-3)
    assert found.optimism == pytest.approx(0.015, abs=1e-3)
    assert found.gain is not None and found.gain.value == pytest.approx(0.685, abs=1e-3)
    assert driver.best is not None and driver.best.number == 2, "the search's own"


def test_a_killed_search_goes_on_confirming(table: Table, make_spec: Any) -> None:
    spec = make_spec(**CONFIRM)
    dead = table.driver(spec)
    for value in (0.9, 0.3, 0.1, 0.2):
        trained(dead, value)
    given = asked(dead)
    driver = table.driver(spec)
    again = [asked(driver) for _ in range(6)]
    assert (again[0].number, again[0].seed) == (given.number, given.seed)
    assert driver.ask() is None
    assert [t.user_attrs["confirms_seed"] for t in table.read()[4:]] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("stopping", [{"method": "none"}, HYPERBAND])
def test_what_was_confirmed_is_not_again_when_a_search_goes_on(
    table: Table, make_spec: Any, stopping: Any
) -> None:
    """Two trials more, one of them the best: only that trains again."""
    fields = CONFIRM | {"early_stopping": stopping}
    driver = table.driver(make_spec(**fields))
    for value in (0.9, 0.3, 0.1, 0.2, *[0.2] * 6):
        trained(driver, value)
    driver = table.driver(make_spec(**fields | {"budget": {"trials": 6}}))
    for value in (0.05, 0.8, 0.06, 0.06):
        trained(driver, value)
    assert driver.ask() is None
    assert [t.user_attrs.get("confirms") for t in table.read()[10:]] == [None, None, 10, 10]


def test_a_search_that_goes_on_confirms_all_with_as_many_seeds(table: Table, make_spec: Any) -> None:
    """Who was confirmed with fewer would keep the new seeds from everybody."""
    driver = table.driver(make_spec(**CONFIRM))
    for value in (0.9, 0.3, 0.1, 0.2, *[0.2] * 6):
        trained(driver, value)
    driver = table.driver(make_spec(**CONFIRM | {"budget": {"trials": 5}, "confirm": {"top": 2, "seeds": 3}}))
    for value in (0.05, *[0.07] * 6):
        trained(driver, value)
    assert driver.ask() is None
    again = [(t.user_attrs["confirms"], t.user_attrs["confirms_seed"]) for t in table.read()[11:]]
    assert again == [(10, 0), (10, 1), (10, 2), (2, 2), (3, 2), (0, 2)]
    found = confirmation_outcome(driver.spec, driver.trials)
    assert found is not None and found.seeds == 3
    driver = table.driver(make_spec(**CONFIRM | {"budget": {"trials": 5}, "confirm": {"top": 0}}))
    assert driver.ask() is None


def test_a_confirmation_neither_stops_early_nor_teaches(table: Table, make_spec: Any) -> None:
    stopping = {"method": "threshold", "upper": 0.0, "max": 9}
    fields = CONFIRM | {"early_stopping": stopping, "budget": {"trials": 3}, "search": {"sampler": "random"}}
    driver = table.driver(make_spec(**fields))
    trained(driver, 0.5)
    trained(driver, -0.5)
    assert driver.report(asked(driver).number, 0.5, 1, {}) is not None
    given = asked(driver)
    assert table.read()[given.number].user_attrs["confirms"] == 1
    assert driver.report(given.number, 0.5, 1, {}) is None
    seen = study_for_samplers(driver.study, driver.spec, 1)
    assert [t.number for t in seen.get_trials()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("trials", "baseline", "wish"),
    [(8, None, (0, 0)), (12, None, (2, 2)), (18, None, (3, 2)), (27, None, (3, 3)), (27, {"x": 0.5}, (3, 2))],
)
def test_a_confirmation_that_nobody_asked_for_takes_a_third_of_the_search(
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
    table: Table, make_spec: Any, samples: int, wish: tuple[int, int]
) -> None:
    """Beside the baseline, after a whole training of each; the search has what it does not need."""
    fields = {"budget": {"samples": samples}, "baseline": {"x": 0.5}, "confirm": {"top": 3, "seeds": 3}}
    spec = make_spec(**fields, early_stopping={"method": "none", "max": 9}, search={"sampler": "random"})
    assert ConfirmationSize.of(spec, None) == ConfirmationSize(*wish)
    driver = table.driver(spec)
    while (given := driver.ask()) is not None:
        driver.report(given.number, given.params["x"], 9, {})
        driver.complete(given.number, given.params["x"])
    confirming = [trial for trial in table.read() if "confirms" in trial.user_attrs]
    assert len(confirming) == ConfirmationSize(*wish).trainings(spec)
    assert samples - 9 < driver.consumed < samples + 9, "all of it is used"


def test_a_trial_that_reports_nothing_takes_its_whole_of_a_budget_of_the_resource(
    table: Table, make_spec: Any
) -> None:
    spec = make_spec(budget={"samples": 20}, early_stopping={"method": "none", "max": 9})
    driver = table.driver(spec)
    for given in (asked(driver), asked(driver)):
        driver.complete(given.number, 0.5)
    assert driver.consumed == 18
    driver.close()
    driver = table.driver(spec)
    assert driver.consumed == 18
    driver.complete(asked(driver).number, 0.4)
    assert driver.ask() is None
    assert driver.stop_reason == "the budget of 20 steps is spent"
    driver.close()
    report = study_report(open_study("study", storage=str(table.file), runs=table.runs))
    assert (report.consumed.used, report.without_stopping) == (27, 27)


@pytest.mark.parametrize(
    ("time", "wish"), [(8.0, (0, 0)), (11.0, (0, 0)), (13.0, (2, 2)), (18.0, (3, 2)), (27.0, (3, 3))]
)
def test_a_confirmation_may_have_what_trials_leave_of_the_time(
    make_spec: Any, time: float, wish: tuple[int, int]
) -> None:
    """Of a time of so many whole trainings eight trials leave the rest, and a third of it is enough."""
    spec = make_spec(budget={"trials": 8, "time": 60.0}, confirm={})
    assert ConfirmationSize.of(spec, 8.0, time) == ConfirmationSize(*wish)
    both = make_spec(
        budget={"samples": 72, "time": 60.0}, confirm={}, early_stopping={"method": "none", "max": 9}
    )
    assert ConfirmationSize.of(both, 8.0, time) == ConfirmationSize(0, 0), (
        "the trainings that confirm are counted there"
    )


@pytest.mark.parametrize(("time", "wish"), [(7.0, (0, 0)), (8.0, (2, 2)), (18.0, (3, 2)), (27.0, (3, 3))])
def test_a_search_that_only_its_time_ends_gives_up_to_half_of_it_to_the_least_confirmation(
    make_spec: Any, time: float, wish: tuple[int, int]
) -> None:
    spec = make_spec(budget={"time": 60.0}, confirm={})
    assert ConfirmationSize.of(spec, None, time) == ConfirmationSize(*wish)
    cheaper = ConfirmationSize.of(spec, None, time, lambda asked: 0.4 * asked.trainings(spec))
    assert cheaper.top == (2 if time < 7.5 else 3)


def test_who_trains_again_keeps_that_place(make_spec: Any) -> None:
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
        trials = study.get_trials()
        return [
            (trial.number, seed)
            for trial, seed in outstanding_confirmations(
                confirmation_candidates(spec, wish, trials), wish, trials
            )
        ]

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


def test_what_a_confirmation_costs_is_what_the_best_do(table: Table, make_spec: Any) -> None:
    """Of twelve trainings of ten seconds a third is four; the best take one second each."""
    spec = make_spec(budget={"time": 130.0}, execution={"workers": 1}, confirm={}, baseline={"x": 0.5})
    driver = table.driver(spec)
    for value, seconds in ((0.5, 10.0), (0.1, 1.0), (0.9, 10.0), (0.2, 1.0), (0.8, 10.0)):
        given = asked(driver)
        driver.complete(given.number, value, seconds)
    assert driver._budget._size() == ConfirmationSize(3, 2), "24 seconds, where all alike would take 80"


def test_a_search_that_reached_its_target_confirms_no_more_than_it_cost(table: Table, make_spec: Any) -> None:
    driver = table.driver(make_spec(budget={"trials": 60, "target": 0.2}, confirm={}))
    trained(driver, 0.5)
    trained(driver, 0.1)
    assert driver.ask() is None
    assert driver.stop_reason == "trial 1 reached the target 0.2"


def test_a_search_that_reached_its_target_confirms_the_same_when_it_goes_on(
    table: Table, make_spec: Any
) -> None:
    """Those who waited at rungs have ended meanwhile, and cost what they did."""
    spec = make_spec(early_stopping=PROMOTION, budget={"trials": 60, "target": 0.2}, confirm={})
    driver = table.driver(spec)
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
    assert len(table.states()) > 20
    assert table.driver(spec).ask() is None, "of six trainings no third confirms anybody"


def test_the_confirmation_is_kept_back_of_a_budget_of_samples(table: Table, make_spec: Any) -> None:
    """Of 90 samples 4 trainings of 9 are kept, so the search ends after 6."""
    stopping = {"method": "none", "max": 9, "resource": "samples"}
    spec = make_spec(
        budget={"samples": 90}, early_stopping=stopping, confirm={"top": 2, "seeds": 2}, baseline=None
    )
    driver = table.driver(spec)
    first = [trained(driver, 0.1 * n) for n in range(6)]
    again = [trained(driver, 0.1) for _ in range(4)]
    assert driver.ask() is None
    assert [t.user_attrs.get("confirms") for t in table.read()] == [None] * 6 + [0, 1, 0, 1]
    assert driver.consumed == 90 and len(first) + len(again) == 10
    assert driver.stop_reason == "the budget of 90 samples is spent; the rest is for the confirmation"
    driver.close()
    report = study_report(open_study("study", storage=str(table.file), runs=table.runs))
    assert (report.states, report.confirming, report.trials.used) == ({"complete": 10}, 4, 6)
    assert report.without_stopping == report.consumed.used, "what confirms is in both"


@pytest.mark.parametrize(
    ("samples", "found", "confirmed"),
    [
        (99, [], []),  # two trainings are kept back for a further winner
        (126, [0.9, 0.8], []),
        (126, [0.9, -0.1], [11, 11]),
        (126, [-0.1, -0.2], [11, 11]),  # of two new ones the better, as there is no room for both
        (162, [0.9, 0.8, -0.1, -0.2], [13, 12, 13, 12]),
    ],
)
def test_a_budget_of_samples_that_is_extended_has_the_rest_for_its_search_and_for_a_new_winner(
    table: Table, make_spec: Any, samples: int, found: list[float], confirmed: list[int]
) -> None:
    stopping = {"method": "none", "max": 9, "resource": "samples"}
    fields: dict[str, Any] = {"early_stopping": stopping, "confirm": {"top": 2, "seeds": 2}, "baseline": None}
    driver = table.driver(make_spec(budget={"samples": 90}, **fields))
    for number in range(10):
        trained(driver, 0.1 * number)
    assert driver.ask() is None
    driver.close()
    values = iter(found)
    for _ in range(2):  # the second time there is nothing left to do
        driver = table.driver(make_spec(budget={"samples": samples}, **fields))
        while (given := driver.ask()) is not None:
            confirms = "confirms" in driver.trials[given.number].user_attrs
            value = 0.0 if confirms else next(values)
            driver.report(given.number, value, 9, {})
            driver.complete(given.number, value)
        driver.close()
    added = table.read()[10:]
    assert [t.value for t in added if "confirms" not in t.user_attrs] == found
    assert [t.user_attrs["confirms"] for t in added if "confirms" in t.user_attrs] == confirmed
    assert driver.consumed <= samples


def extension_of(result: StudyResult) -> list[str]:
    """What `show` adds to the search's command, as options."""
    last = study_report(result).next_steps[-1]
    assert last.operation == "run" and last.arguments["space"] is None
    return words_of({n: v for n, v in last.arguments.items() if n not in ("space", "name", "backend")})


@pytest.mark.parametrize(
    ("budget", "options"),
    [
        ({"trials": 2}, "--trials 4"),
        ({"trials": 9, "samples": 18}, "--trials 18 --samples 36"),
        ({"trials": 9, "time": 90.0, "target": 0.5}, "--target VALUE"),
    ],
)
def test_what_extends_a_search_that_is_over_is_told(
    table: Table, make_spec: Any, budget: dict[str, Any], options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What time or samples end seldom uses all of them; nothing of it waits."""
    stopping = {"method": "none", "max": 9, "resource": "samples"}
    driver = table.driver(make_spec(budget=budget, early_stopping=stopping, confirm={"top": 0}))
    trained(driver, 0.9)
    given = asked(driver)
    assert driver.report(given.number, 0.4, 8, {}) is None
    driver.complete(given.number, 0.4)
    driver.close()
    result = open_study("study", storage=str(table.file), runs=table.runs)
    assert extension_of(result) == options.split()
    monkeypatch.setattr(
        "sys.argv", ["hpsearch", "run", "a.yaml", "--trials=9", "--time", "90s", "--seed", "18"]
    )
    kept = [*["--trials=9"] * ("--trials" not in options), *["--time 90s"] * ("--time" not in options)]
    again = " ".join(["hpsearch run a.yaml", *kept, "--seed 18", options])
    assert _finished(result).endswith(f" To extend it: {again}"), "with another seed it would be refused"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"budget": {"trials": 2}}, ["to confirm it: hpsearch run a.yaml --seed 5 --confirm"]),
        (
            {"budget": {"trials": 2, "time": 90.0}},
            ["to confirm it: hpsearch run a.yaml --seed 5 --time 3m --confirm"],
        ),
        ({"budget": {"trials": 1}, "baseline": {"x": 0.5}}, []),
        ({"budget": {"trials": 2}, "confirm": {"top": 0}}, []),
        ({"budget": {"trials": 2}, "confirm": {"top": 1, "seeds": 2}}, []),
        (
            {
                "budget": {"samples": 18},
                "confirm": {"top": 1, "seeds": 2},
                "early_stopping": {"method": "none", "max": 9},
            },
            ["to confirm it: hpsearch run a.yaml --seed 5 --samples 36 --confirm"],
        ),
        (
            {"budget": {"samples": 36}, "early_stopping": {"method": "none", "max": 9}},
            ["to confirm it: hpsearch run a.yaml --seed 5 --samples 117 --confirm"],
        ),
        (
            {"budget": {"trials": 2, "time": 41.0}, "confirm": {"top": 1, "seeds": 2}},
            ["to confirm it: hpsearch run a.yaml --seed 5 --time 90s --confirm"],
        ),
        ({"budget": {"trials": 2, "time": 41.0}, "confirm": {"top": 0}}, []),
    ],
    ids=["trials", "time", "nobody", "not wished", "done", "samples", "used up", "late", "not in time"],
)
def test_how_to_confirm_a_winner_is_told_where_the_budget_had_no_room_for_it(
    table: Table, make_spec: Any, fields: dict[str, Any], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command: with another seed it would be refused, and with other budgets search on."""
    typed = ["--time", "90s", "--seed", "5"] if "time" in fields["budget"] else ["--seed", "5"]
    monkeypatch.setattr("sys.argv", ["hpsearch", "run", "a.yaml", *typed])
    driver = table.driver(make_spec(**{"confirm": {}} | fields))
    while (given := driver.ask()) is not None:
        driver.complete(given.number, 0.5, 40.0)
    driver.close()
    result = open_study("study", storage=str(table.file), runs=table.runs)
    console = PlainConsole(record=True, width=200)
    _conclude(console, dataclasses.replace(result, ran=2), ())
    assert [line for line in console.export_text().splitlines() if "to confirm" in line] == told


def test_a_search_that_is_over_says_who_waits_for_more_of_its_budget(
    table: Table, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that was put back goes on where it stood, when the search is extended."""
    monkeypatch.setattr("sys.argv", ["hpsearch", "run", "a.yaml", "--time", "10s"])
    stopping = {"method": "none", "max": 9, "resource": "samples"}
    spec = make_spec(budget={"time": 10.0}, early_stopping=stopping, confirm={"top": 0})
    driver = table.driver(spec)
    trained(driver, 0.9)
    given = asked(driver)
    driver.request_stop("interrupted")
    driver.suspend(given.number)
    driver.close()
    open_study("study", storage=str(table.file), runs=table.runs).study.set_user_attr(ELAPSED, 30.0)
    driver = table.driver(spec)
    assert driver.ask() is None
    driver.finish()
    driver.close()
    result = open_study("study", storage=str(table.file), runs=table.runs)
    assert _finished(result).endswith("1 trial waits to go on. To extend it: hpsearch run a.yaml --time 40s")


def test_a_budget_below_what_has_run_is_extended_beyond_that(table: Table, make_spec: Any) -> None:
    stopping = {"method": "none", "max": 9, "resource": "samples"}
    fields = {"early_stopping": stopping, "confirm": {"top": 0}}
    driver = table.driver(make_spec(**fields, budget={"trials": 3}))
    for value in (0.9, 0.4, 0.5):
        trained(driver, value)
    driver.close()
    result = open_study("study", storage=str(table.file), runs=table.runs)
    for budget, options in (
        ({"trials": 1}, "--trials 4"),
        ({"trials": 2, "samples": 13}, "--trials 4 --samples 52"),
    ):
        less = dataclasses.replace(result, spec=make_spec(**fields, budget=budget))
        assert extension_of(less) == options.split()


def test_what_extends_a_search_whose_time_is_over_is_told_though_a_trial_waits(
    table: Table, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: now, time=lambda: now))
    driver = table.driver(make_spec(budget={"time": 60.0}))
    asked(driver)
    for now, options in ((130.0, []), (170.0, ["--time", "2m"])):  # noqa: B007  # the clock above
        driver.close()
        result = open_study("study", storage=str(table.file), runs=table.runs)
        assert extension_of(result) == options


def test_who_may_not_go_on_is_not_taken_for_a_new_trial(
    table: Table, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Optuna's `ask` would begin whoever waits first, as if it had reported nothing."""
    driver = table.driver(make_spec(budget={"trials": 9}))
    given = asked(driver)
    driver.report(given.number, 0.5, 3, {})
    driver.suspend(given.number)
    monkeypatch.setattr(TrialQueue, "_may_resume", lambda self, waiting, left: waiting.number != given.number)
    assert asked(driver).number == 1
    driver.study.enqueue_trial({"x": 0.2})
    driver.study.enqueue_trial({"x": 0.3})
    assert [(a.number, a.params["x"]) for a in (asked(driver), asked(driver))] == [(2, 0.2), (3, 0.3)]
    assert table.states() == ["WAITING", "RUNNING", "RUNNING", "RUNNING"]


@pytest.mark.parametrize("kind", ["diverged", "memory", "error", "ended", "ended after it started over"])
def test_a_promoted_trial_that_does_not_come_to_its_end_leaves_its_place(
    table: Table, make_spec: Any, kind: Any
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

    driver = table.driver(spec)
    for value in (5.0, 6.0):
        to_rung(driver, 1, value)
    assert to_rung(driver, 1, 4.0) == (2, None)
    break_off(2)
    assert asked(driver).number == 0
    break_off(0)
    driver = table.driver(spec)
    assert asked(driver).number == 1
    driver.complete(1, 6.0)
    assert asked(driver).number == 3, "of three one goes on"
    driver = table.driver(spec)
    assert [asked(driver).number for _ in range(2)] == [3, 4]


def test_who_may_be_confirmed_the_winner_keeps_its_checkpoint(table: Table, make_spec: Any) -> None:
    execution = {"workers": 1, "retries": 0, "keep": 1}
    driver = table.driver(make_spec(**CONFIRM | {"budget": {"trials": 5}}, execution=execution))
    for value in (0.1, 0.9, 0.5, 0.3, 0.4):
        given = asked(driver)
        (given.folder / CHECKPOINT).mkdir(parents=True)
        driver.complete(given.number, value)
    kept = [n for n in range(5) if (trial_folder(table.runs, "study", n) / CHECKPOINT).exists()]
    assert kept == [0, 3, 4], "the best, which is the baseline, and the two that train again"


def test_a_better_trial_that_came_later_is_named(table: Table, make_spec: Any) -> None:
    driver = table.driver(make_spec(**CONFIRM))
    for value in (0.9, 0.3, 0.1, 0.2, *[0.2] * 6):
        trained(driver, value)
    assert overlooked(driver.spec, driver.trials) is None
    driver = table.driver(make_spec(**CONFIRM | {"budget": {"trials": 5}, "confirm": {"top": 0}}))
    trained(driver, 0.05)
    found = overlooked(driver.spec, driver.trials)
    assert found is not None and found.number == 10
    driver.close()
    result = open_study("study", storage=str(table.file), runs=table.runs)
    assert confirmation(result)[-1] == "trial 10 has 0.05, which was not confirmed"


def test_a_baseline_that_wins_has_won_among_those_that_were_trained_again(
    table: Table, make_spec: Any
) -> None:
    """In the search others were better, and may be still where they came later."""
    driver = table.driver(make_spec(**CONFIRM))
    for value in (0.5, 0.3, 0.1, 0.2, *[0.9, 0.9, 0.5] * 2):
        trained(driver, value)
    driver.close()
    report = study_report(open_study("study", storage=str(table.file), runs=table.runs))
    assert report.best is not None and report.best.baseline
    assert report.comparison == "the baseline itself: nothing was better when it was trained again"


@pytest.mark.parametrize("failing", [{0, 2, 3}, {2}], ids=["all", "one"])
def test_who_cannot_be_confirmed_as_trainings_failed_is_told(
    table: Table, make_spec: Any, failing: set[int]
) -> None:
    spec = make_spec(**CONFIRM, execution={"retries": 0, "workers": 1})
    driver = table.driver(spec)
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
    result = open_study("study", storage=str(table.file), runs=table.runs)
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
def test_a_winner_that_diverged_when_it_was_trained_again_is_told(
    table: Table, make_spec: Any, baseline: bool
) -> None:
    fields = CONFIRM | {"confirm": {"top": 1, "seeds": 2}} | ({} if baseline else {"baseline": None})
    driver = table.driver(make_spec(**fields))
    for value in (0.9, 0.3, 0.1, 0.2):
        trained(driver, value)
    for _ in range(4 if baseline else 2):
        given = asked(driver)
        again = table.read()[given.number].user_attrs["confirms"]
        driver.complete(given.number, 0.9 + given.number / 100 if again == 0 else float("nan"))
    driver.close()
    result = open_study("study", storage=str(table.file), runs=table.runs)
    told = "trial 2 diverged when it was trained again"
    if baseline:
        assert result.best.number == 0, "whatever the other had in the search"
        assert confirmation(result)[1:] == [told]
    else:
        assert confirmation(result) == [f"not confirmed, {told}"]


@pytest.mark.parametrize("sampler", ["tpe", "random", "rung_gp", "cmaes"])
def test_no_configuration_is_tried_twice_and_a_search_ends_with_the_last(
    table: Table, make_spec: Any, sampler: str
) -> None:
    parameters = {"x": {"min": 1, "max": 6}, "kind": ["a", ["b"]], "y": 3}
    constraints = ["x < 6"]
    driver = table.driver(
        make_spec(
            parameters=parameters,
            constraints=constraints,
            budget={"trials": 30},
            search={"sampler": sampler, "seed": 0},
            confirm={"top": 0},
        )
    )
    while (given := driver.ask()) is not None:
        driver.complete(given.number, float(given.params["x"]))
    tried = [tuple(sorted(t.params.items())) for t in table.read()]
    assert len(tried) == len(set(tried)) == 10
    assert driver.ask() is None
    assert table.listener.said.count("every configuration of the space has been tried") == 1
    driver.close()
    result = open_study("study", storage=str(table.file), runs=table.runs)
    assert study_report(result).exhausted
    assert (
        _finished(result) == 'the study "study" is finished: every configuration of its space has been tried'
    )


@pytest.mark.parametrize(("sampler", "seed"), [("tpe", 3), ("rung_gp", 4)])
def test_what_constraints_leave_of_a_small_space_is_found(
    table: Table, make_spec: Any, sampler: str, seed: int
) -> None:
    """Of 900 configurations one, which the thousand proposals of these seeds miss."""
    each = {"min": 1, "max": 30}
    search = {"sampler": sampler, "seed": seed}
    constraints = ["x == 7", "y == 8"]
    driver = table.driver(
        make_spec(parameters={"x": each, "y": each}, constraints=constraints, search=search)
    )
    assert trained(driver, 1.0).params == {"x": 7, "y": 8}
    assert driver.ask() is None
