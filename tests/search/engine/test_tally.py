"""The tally equals a count of all trials, and later trials cost no more work than earlier ones."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from optuna.trial import TrialState

from hpsearch.search.engine.confirmation import (
    ConfirmationPlan,
    confirmation_candidates,
    outstanding_confirmations,
)
from hpsearch.search.engine.confirmation_size import ConfirmationSize
from hpsearch.search.engine.driver import Driver
from hpsearch.search.engine.running import Failure
from hpsearch.search.engine.tally import Tally
from hpsearch.search.engine.watcher import SearchView
from hpsearch.search.sampling.tried import TriedConfigs, key_of, tried
from hpsearch.search.scheduling.pruners import make_pruner
from hpsearch.search.trials.records import StudyRecords
from hpsearch.spaces import Spec
from hpsearch.storage.database import open_storage
from hpsearch.storage.files import CHECKPOINT
from hpsearch.storage.studies import SPEC, open_live
from hpsearch.storage.trial_attrs import at_rung, audited_at, confirms, search_trials, state_of, trained_to

from ...support.watchers import Recorder

X = {"x": {"min": 0.0, "max": 1.0}}
RUNGS = {"method": "asha", "type": "promotion", "min": 1, "max": 9, "eta": 3}


class Looking(Recorder):
    """A watcher that asks what the line about a trial shows, and what the table shows."""

    def trial_ended(self, search: SearchView, trial: Any) -> None:
        assert search.finished and search.states and (search.best is None or search.best.value is not None)


@pytest.fixture
def make_driver(tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    opened = []

    def make(spec: Spec, file: str = "studies.db") -> Driver:
        storage = open_storage(f"sqlite:///{tmp_path / file}", create=True)
        live = open_live(storage, spec.name, goal=spec.goal, attrs={SPEC: spec.to_json()})
        opened.append(live)
        return Driver(
            spec, live, runs=(tmp_path / file).parent / "runs", watcher=Looking(), pruner=make_pruner(spec)
        )

    yield make
    for live in opened:
        live.close()


def check(driver: Driver) -> None:
    """Check the driver's tally, and a new one, against all trials."""
    spec, trials = driver.spec, list(driver.trials)
    own, records = search_trials(trials), StudyRecords(spec, trials)
    for tally in (driver._lifecycle.tally, Tally(spec, driver._storage)):
        assert +tally.states == Counter(map(state_of, trials))
        assert tally.searched == len(own)
        assert tally.ended == sum(t.state.is_finished() for t in own)
        assert tally.open == [t for t in trials if not t.state.is_finished()]
        assert list(tally.waiting) == [t for t in trials if t.state == TrialState.WAITING]
        assert tally.confirming == [t for t in trials if confirms(t) is not None]
        assert tally.baselines == [t for t in own if "baseline" in t.user_attrs]
        trained = sum(9 if t.state == TrialState.COMPLETE else trained_to(t) for t in own)
        assert 9 * tally.trainings(9) == pytest.approx(trained)
        for count, but in ((1, None), (3, None), (3, 1), (99, 0)):
            best = StudyRecords(spec, [t for t in trials if t.number != but]).best(count)
            assert tally.best(count, but=but) == [record.trial for record in best]
        best = records.best(3, lambda record: not record.is_baseline)
        assert tally.best(3, baseline=False) == [record.trial for record in best]
        for wish in (ConfirmationSize(0, 0), ConfirmationSize(1, 2), ConfirmationSize(3, 3)):
            plan = ConfirmationPlan(spec, tally)
            candidates = confirmation_candidates(wish, records)
            assert plan.candidates(wish) == candidates
            missing = outstanding_confirmations(candidates, wish, records.confirmations)
            assert plan.outstanding(wish) == missing
        draw = tally.audit_sample
        drawn = [
            t for t in own if t.last_step is not None and (t.number in draw or audited_at(t) is not None)
        ]
        assert tally.reserved_for_audit(draw) == sum(max(0, 9 - (t.last_step or 0)) for t in drawn)
        left = [t for t in tally.open if (at_rung(t) and t.number in draw) or audited_at(t) is not None]
        assert tally.unfinished_audit(draw) == [t.number for t in left]


@settings(
    max_examples=15,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    moves=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.floats(0, 1)), max_size=30),
    goal=st.sampled_from(["minimize", "maximize"]),
    promotes=st.booleans(),
)
def test_the_tally_equals_a_count_of_all_trials(
    make_driver: Callable[..., Driver],
    make_spec: Callable[..., Spec],
    tmp_path_factory: pytest.TempPathFactory,
    moves: list[tuple[int, int, float]],
    goal: str,
    promotes: bool,
) -> None:
    stopping = RUNGS | ({} if promotes else {"type": "stopping"})
    fields: dict[str, Any] = {"goal": goal, "early_stopping": stopping, "audit": 1.0, "baseline": {"x": 0.5}}
    spec = make_spec(
        parameters=X,
        search={"sampler": "random"},
        budget={"trials": 20},
        confirm={"top": 2, "seeds": 2},
        **fields,
    )
    driver = make_driver(spec, str(tmp_path_factory.mktemp("study") / "studies.db"))
    for move, which, value in moves:
        number = sorted(driver.running)[which % len(driver.running)] if driver.running else None
        if number is None or move == 0:
            if (given := driver.ask()) is not None:
                (given.folder / CHECKPOINT).mkdir(parents=True, exist_ok=True)
                (given.folder / CHECKPOINT / "file").touch()
        elif move <= 2:
            driver.report(number, value, driver.running[number].reported + 1 + which, {})
        elif move == 3:
            driver.complete(number, value)
        elif move == 4:
            driver.fail(number, Failure("error", f"{value}"))
        else:
            driver.requeue(number)
        check(driver)
    if failed := [t.number for t in driver.trials if t.state == TrialState.FAIL]:
        driver._lifecycle.revive(failed, ("error", "reason"))
        check(driver)


def test_a_trial_whose_end_the_database_refuses_is_not_ranked(
    make_driver: Callable[..., Driver], make_spec: Callable[..., Spec], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping = {"method": "none", "max": 9}
    driver = make_driver(make_spec(parameters=X, budget={"trials": 9}, early_stopping=stopping))
    flush, known = driver._storage.flush, []

    def asked_before() -> None:
        known.append(driver.best)
        flush()

    monkeypatch.setattr(driver._storage, "flush", asked_before)
    for value, name in ((0.2, "whole"), (0.1, "half a \ud800")):
        given = driver.ask()
        assert given is not None
        driver.report(given.number, value, 9, {name: 1.0})
        driver.complete(given.number, value)
    assert [t.state for t in driver.trials] == [TrialState.COMPLETE, TrialState.FAIL]
    assert any(trial is not None and trial.value == 0.1 for trial in known)
    check(driver)


def test_tried_configurations_are_those_of_all_trials(
    make_driver: Callable[..., Driver], make_spec: Callable[..., Spec]
) -> None:
    driver = make_driver(make_spec(parameters=X | {"y": {"choices": ["a", "b"]}}, budget={"trials": 9}))
    known = TriedConfigs()
    for _ in range(5):
        given = driver.ask()
        assert given is not None
        own = driver.trials[given.number].params
        assert key_of(own) not in known.without(driver.study, given.number)
        assert key_of(own) in known.without(driver.study)
        assert all(key in known for key in tried(driver.trials))
        driver.complete(given.number, 0.5)
    assert key_of({"x": 2.0, "y": "a"}) not in known


SEARCHES: dict[str, dict[str, Any]] = {
    "plain": {"parameters": X},
    "with all there is": {
        "parameters": X,
        "baseline": {"x": 0.5},
        "budget": {"trials": 2000, "samples": 100_000, "time": 1e6, "target": -1.0},
        "early_stopping": {"method": "none", "max": 9},
        "confirm": {"top": 2, "seeds": 2},
    },
    "a grid": {
        "parameters": {"a": {"min": 1, "max": 40}, "b": {"min": 1, "max": 40}},
        "search": {"sampler": "grid"},
    },
}


@contextmanager
def counted(driver: Driver) -> Iterator[Counter[str]]:
    """Calls of Python functions, and rows that SQLite has read, as far as it says."""
    found: Counter[str] = Counter()

    def on_call(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            found["calls"] += 1

    def on_statement(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        found["statements"] += 1
        found["counts of all rows"] += "count(*)" in statement

    engine = driver._storage._database.engine
    sqlalchemy.event.listen(engine, "before_cursor_execute", on_statement)
    sys.setprofile(on_call)
    try:
        yield found
    finally:
        sys.setprofile(None)
        sqlalchemy.event.remove(engine, "before_cursor_execute", on_statement)


@pytest.mark.parametrize("fields", SEARCHES.values(), ids=SEARCHES)
def test_later_trials_cost_no_more_work_than_earlier_ones(
    make_driver: Callable[..., Driver], make_spec: Callable[..., Spec], fields: dict[str, Any]
) -> None:
    fields = {"search": {"sampler": "random"}, "budget": {"trials": 2000}, **fields}
    driver = make_driver(make_spec(**fields))

    def go_on(to: int) -> None:
        while len(driver.trials) < to:
            given = driver.ask()
            assert given is not None
            value = 1.0 + 1 / (1 + given.number)
            driver.report(given.number, value, 1, {})
            driver.complete(given.number, value)

    go_on(130)  # as many as the cost of a new one is estimated from
    with counted(driver) as early:
        go_on(150)
    go_on(400)
    with counted(driver) as late:
        go_on(420)
    assert late["counts of all rows"] == early["counts of all rows"] == 0
    assert late["statements"] < 1.1 * early["statements"], "some are written by the clock"
    assert late["calls"] < 1.1 * early["calls"], "a walk over all trials would make calls for each"
