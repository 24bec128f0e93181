"""A driver with a time budget, on a simulated clock: when its search ends, and with what result."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search.backends.worker.process import TICK_SECONDS
from hpsearch.search.engine import deadline
from hpsearch.search.engine.driver import Driver
from hpsearch.search.engine.watcher import SearchView
from hpsearch.search.preflight import simulation as forecast_module
from hpsearch.search.preflight.simulated import SearchCosts, TrainingCost
from hpsearch.search.preflight.simulation import simulate
from hpsearch.search.results.confirmation import confirmation_outcome
from hpsearch.search.scheduling.audit import AuditSample
from hpsearch.search.scheduling.pruners import make_pruner
from hpsearch.search.trials.records import StudyRecords
from hpsearch.spaces import Spec
from hpsearch.storage.database import open_storage
from hpsearch.storage.files import CHECKPOINT
from hpsearch.storage.studies import SPEC, open_live
from hpsearch.storage.trial_attrs import confirms

UNITS = 9
TIME = 600.0
TICK = 4.0  # at most so many seconds are between two ticks of the driver
SPACE = {
    "parameters": {"x": {"min": 0.0, "max": 1.0}},
    "baseline": {"x": 0.5},
    "budget": {"time": TIME},
    "confirm": {},
}
ASHA = {"method": "asha", "min": 1, "max": UNITS, "eta": 3}


class Clock:
    """Workers that train on a clock which only the test advances."""

    def __init__(self, folder: Path, slots: int, seconds: Callable[[float], float]) -> None:
        self.folder = folder
        self.slots = slots
        self.seconds = seconds  # of a unit, by x
        self.returns: Callable[[float], float] = lambda x: 0.0  # seconds from the last report, by x
        self.setup = 0.0  # seconds before each attempt trains
        self.closing = 0.0  # seconds to end a paused trial
        self.waits = 0.0  # seconds from a trial's ask until its worker begins
        self.now = 0.0
        self.said: list[str] = []

    def search(self, spec: Spec, until: float = float("inf"), begun: float | None = None) -> Driver:
        """Search to the end, or until the driver is killed at a time; `begun` is now by default."""
        storage = open_storage(f"sqlite:///{self.folder / 'a.db'}", create=True)
        live = open_live(storage, spec.name, goal=spec.goal, attrs={SPEC: spec.to_json()})
        with closing(live):
            pruner, slots = make_pruner(spec), self.slots
            driver = Driver(
                spec,
                live,
                runs=self.folder,
                watcher=self,
                pruner=pruner,
                slots=slots,
                clock=lambda: self.now,
                begun=begun,
            )
            self._run(driver, until)
            if self.now < until:
                driver.finish()
                driver.close()
        storage.engine.dispose()
        return driver

    def _run(self, driver: Driver, until: float) -> None:
        reports: list[tuple[float, int, int, float, float]] = []  # when, of whom, at what, x, since when
        ticked = self.now
        while self.now < until:
            while len(driver.running) < self.slots and (given := driver.ask()) is not None:
                (given.folder / CHECKPOINT).mkdir(parents=True, exist_ok=True)
                (given.folder / CHECKPOINT / "file").touch()
                x, at = given.params["x"], given.reported
                since = self.now + self.waits
                heapq.heappush(
                    reports, (since + self.setup + self.seconds(x), given.number, at + 1, x, since)
                )
            if not driver.running:
                return
            self.now = min(reports[0][0], self.now + TICK)
            if self.now == reports[0][0]:
                _, number, step, x, since = heapq.heappop(reports)
                if number in driver.running and step > UNITS:
                    driver.complete(number, (x - 0.3) ** 2, self.now - since)
                elif number in driver.running:
                    ended = driver.report(
                        number, (x - 0.3) ** 2 + 1 / step, step, {}, seconds=self.now - since
                    )
                    if ended is None:
                        seconds = self.returns(x) if step == UNITS else self.seconds(x)
                        heapq.heappush(reports, (self.now + seconds, number, step + 1, x, since))
            if self.now - ticked >= TICK_SECONDS or not driver.running:  # as a backend does
                ticked = self.now
                driver.tick()
            for number in driver.pop_cancelled():
                reports = [each for each in reports if each[1] != number]
            heapq.heapify(reports)

    def trial_ended(self, search: SearchView, trial: Any) -> None:
        if trial.user_attrs.get("reason", "").startswith("paused at"):
            self.now += self.closing

    def tick(self, search: SearchView) -> None: ...

    def say(self, message: str) -> None:
        self.said.append(message)


@pytest.fixture
def clock(tmp_path: Path) -> Callable[..., Clock]:
    return partial(Clock, tmp_path)


@pytest.mark.parametrize(
    "budget", [{"time": 80.0}, {"samples": 30}, {"trials": 6}], ids=["time", "samples", "trials"]
)
@pytest.mark.parametrize("slots", [1, 2])
def test_a_short_search_has_a_winner_beside_its_baseline(
    clock: Callable[..., Clock], make_spec: Any, budget: dict[str, Any], slots: int
) -> None:
    """By promotion alone, only the baseline would finish."""
    stopping = ASHA | {"type": "promotion", "resource": "samples"}
    search = {"early_stopping": stopping, "budget": budget, "confirm": {"top": 0}}
    table = clock(slots, lambda x: 4.0)
    driver = table.search(make_spec(**SPACE | search))
    complete = [trial for trial in driver.trials if trial.state.name == "COMPLETE"]
    assert [trial.number for trial in complete][:1] == [0] and len(complete) >= 2
    assert "time" not in budget or table.now <= 1.03 * 80 + TICK


KINDS = [{"method": "none", "max": UNITS}, ASHA, ASHA | {"type": "promotion"}]


@pytest.mark.parametrize("stopping", KINDS, ids=["none", "stopping", "promotion"])
def test_a_search_ends_on_time_with_a_winner_that_is_confirmed(
    clock: Callable[..., Clock], make_spec: Any, stopping: dict[str, Any]
) -> None:
    """The best trials are slower than most: with typical costs, the search would end too late."""
    table = clock(2, lambda x: 4.0 if abs(x - 0.3) > 0.1 else 6.0)
    driver = table.search(make_spec(**SPACE | {"early_stopping": stopping}))
    assert 0.95 * TIME <= table.now <= 1.03 * TIME + TICK
    found = confirmation_outcome(StudyRecords(driver.spec, driver.trials))
    assert found is not None and found.seeds >= 2
    assert driver.stop_reason == "the time budget of 600 s is spent; the rest is for the confirmation"


@pytest.mark.parametrize("stopping", KINDS, ids=["none", "stopping", "promotion"])
def test_nothing_is_reserved_or_mentioned_that_does_not_fit(
    clock: Callable[..., Clock], make_spec: Any, stopping: dict[str, Any]
) -> None:
    budget, confirm = {"time": 50.0}, {"top": 1, "seeds": 2}
    table = clock(2, lambda x: 4.0)  # two whole trainings take 36 seconds
    driver = table.search(
        make_spec(**SPACE | {"early_stopping": stopping, "budget": budget, "confirm": confirm})
    )
    assert confirmation_outcome(StudyRecords(driver.spec, driver.trials)) is None
    assert driver.stop_reason == "the time budget of 50 s is spent"
    told = {trial.user_attrs.get("reason") for trial in driver.trials}
    assert not any("but for" in (reason or "") for reason in told)


@pytest.mark.parametrize("stopping", KINDS, ids=["none", "stopping", "promotion"])
def test_a_search_ends_on_time_though_its_trials_wait_long_for_workers(
    clock: Callable[..., Clock], make_spec: Any, stopping: dict[str, Any]
) -> None:
    table = clock(2, lambda x: 0.25)
    table.waits = 3.0
    driver = table.search(make_spec(**SPACE | {"early_stopping": stopping, "budget": {"time": 80.0}}))
    assert 0.95 * 80 <= table.now <= 1.03 * 80 + 0.25
    found = confirmation_outcome(StudyRecords(driver.spec, driver.trials))
    assert found is not None and found.gain is not None


@pytest.mark.parametrize("seconds", [20.0, 30.0, 60.0])
@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("stopping", KINDS, ids=["none", "stopping", "promotion"])
def test_a_search_ends_on_time_though_its_trials_start_slowly(
    clock: Callable[..., Clock], make_spec: Any, stopping: dict[str, Any], slots: int, seconds: float
) -> None:
    """A promoted trial loads its model again, which is most of the cost of a training."""
    table = clock(slots, lambda x: 0.03)
    table.setup = 1.5
    driver = table.search(make_spec(**SPACE | {"early_stopping": stopping, "budget": {"time": seconds}}))
    assert 0.9 * seconds <= table.now <= 1.03 * seconds
    own = [t for t in driver.trials if confirms(t) is None and t.state.name == "COMPLETE"]
    assert len(own) >= 2, "the baseline and another trial"
    assert slots * seconds < 60 or confirmation_outcome(StudyRecords(driver.spec, driver.trials)) is not None
    whole = TrainingCost(1.5, 0.03, UNITS)
    foreseen = simulate(driver.spec, SearchCosts([whole], whole, slots, 0.0))
    assert foreseen.end == pytest.approx(table.now, rel=0.15)
    assert foreseen.trials == pytest.approx(len([t for t in driver.trials if confirms(t) is None]), rel=0.3)


@pytest.mark.parametrize("seconds", [18.0, 19.0, 20.0, 21.0, 22.0])
def test_the_best_trial_continues_past_its_rung_if_there_is_no_time_to_resume_later(
    clock: Callable[..., Clock], make_spec: Any, seconds: float
) -> None:
    table = clock(1, lambda x: 0.1)
    table.setup = 3.0
    stopping = ASHA | {"type": "promotion"}
    asked = {"early_stopping": stopping, "budget": {"time": seconds}, "confirm": {"top": 0}}
    driver = table.search(make_spec(**SPACE | asked))
    own = [t for t in driver.trials if t.number and t.state.name == "COMPLETE"]
    assert len(own) == 1 and table.now <= 1.03 * seconds


@pytest.mark.parametrize("confirm", [{"top": 0}, {"top": 1, "seeds": 2}], ids=["alone", "confirmed"])
def test_a_search_ends_on_time_though_many_paused_trials_end_slowly(
    clock: Callable[..., Clock], make_spec: Any, monkeypatch: pytest.MonkeyPatch, confirm: dict[str, int]
) -> None:
    monkeypatch.setattr(deadline, "SECONDS_TO_END_PAUSED", 0.5)
    monkeypatch.setattr(forecast_module, "SECONDS_TO_END_PAUSED", 0.5)
    table = clock(2, lambda x: 4.0)
    table.closing = 0.5
    stopping, sampler = ASHA | {"type": "promotion"}, {"sampler": "random"}
    asked = {"early_stopping": stopping, "confirm": confirm, "search": sampler}
    driver = table.search(make_spec(**SPACE | asked))
    assert 0.9 * TIME <= table.now <= 1.03 * TIME  # some end beside confirmation runs
    assert sum(t.user_attrs.get("reason", "").startswith("paused at") for t in driver.trials) > 80
    whole = TrainingCost(0.0, 4.0, UNITS)
    foreseen = simulate(driver.spec, SearchCosts([whole], whole, 2, 0.0))
    assert foreseen.end == pytest.approx(table.now, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [180.0, 540.0])
def test_a_search_that_was_killed_ends_on_time(
    clock: Callable[..., Clock], make_spec: Any, killed: float
) -> None:
    table = clock(2, lambda x: 4.0 + 2 * x)
    spec = make_spec(**SPACE | {"early_stopping": ASHA | {"type": "promotion"}})
    table.search(spec, until=killed)
    driver = table.search(spec)
    assert 0.95 * TIME <= table.now <= 1.05 * TIME, "a killed driver forgets some time"
    found = confirmation_outcome(StudyRecords(driver.spec, driver.trials))
    assert found is not None and found.seeds >= 2


def test_a_search_ends_on_time_though_its_trainings_slow_down(
    clock: Callable[..., Clock], make_spec: Any
) -> None:
    table = clock(2, lambda x: 4.0)
    table.seconds = lambda x: 4.0 if table.now < 0.7 * TIME else 6.0
    driver = table.search(make_spec(**SPACE | {"early_stopping": ASHA}))
    assert table.now <= 1.03 * TIME + TICK
    assert all(trial.state.is_finished() for trial in driver.trials)
    assert confirmation_outcome(StudyRecords(driver.spec, driver.trials)) is not None


@pytest.mark.parametrize(("slow", "confirmed"), [(6.0, 3), (12.0, 1), (20.0, 1)])
def test_as_many_trials_are_confirmed_as_time_allows(
    clock: Callable[..., Clock], make_spec: Any, slow: float, confirmed: int
) -> None:
    """The best trials take so much longer than others that the reserve does not suffice once they are known."""
    table = clock(1, lambda x: 1.0 if abs(x - 0.3) > 0.05 else slow)
    driver = table.search(make_spec(**SPACE | {"early_stopping": ASHA, "confirm": {"top": 3, "seeds": 2}}))
    again = [(c, t.state.name) for t in driver.trials if (c := confirms(t)) is not None]
    assert len(set(again)) == 1 + confirmed and len(again) == 2 * (1 + confirmed)
    assert driver.best is not None and {(0, "COMPLETE"), (driver.best.number, "COMPLETE")} <= set(again)
    assert ("there is no time left to confirm all of them" in table.said[-1]) == (confirmed < 3)
    assert 0.8 * TIME <= table.now <= 1.03 * TIME + TICK


@pytest.mark.parametrize("stopping", KINDS[1:], ids=["stopping", "promotion"])
@pytest.mark.parametrize("slower", [1.0, 4.0])
@pytest.mark.parametrize("seconds", [220.0, 260.0])
def test_a_confirmation_that_does_not_fit_is_a_smaller_one(
    clock: Callable[..., Clock], make_spec: Any, stopping: dict[str, Any], slower: float, seconds: float
) -> None:
    """The baseline may be slower than the others; its cost must not be assumed for them."""
    table = clock(2, lambda x: 4.0 * (slower if x == 0.5 else 1.0) / slower**0.5)
    asked = {"early_stopping": stopping, "budget": {"time": seconds}, "confirm": {"top": 3, "seeds": 3}}
    driver = table.search(make_spec(**SPACE | asked))
    found = confirmation_outcome(StudyRecords(driver.spec, driver.trials))
    assert found is not None and found.gain is not None, "the baseline is among them"
    assert 0.95 * seconds <= table.now <= 1.03 * seconds + TICK
    baseline, other = (TrainingCost(0.0, table.seconds(x), UNITS) for x in (0.5, 0.3))
    foreseen = simulate(driver.spec, SearchCosts([other], baseline, 2, 0.0))
    assert foreseen.end == pytest.approx(table.now, rel=0.05) and foreseen.seeds >= 2


def test_the_longest_confirmation_runs_begin_first(clock: Callable[..., Clock], make_spec: Any) -> None:
    """So they end soonest: if the baseline came last, the others would have waited for it."""
    table = clock(2, lambda x: 16.0 if x == 0.5 else 4.0)
    driver = table.search(make_spec(**SPACE | {"early_stopping": ASHA, "confirm": {"top": 3, "seeds": 2}}))
    again = [t.user_attrs["confirms"] for t in driver.trials if confirms(t) is not None]
    assert len(again) == 8 and again[0] == again[4] == 0


@pytest.mark.parametrize("trials", [8, 20])
def test_few_trials_are_confirmed_in_the_time_they_leave(
    clock: Callable[..., Clock], make_spec: Any, trials: int
) -> None:
    """A fifth of eight trials' cost confirms none; the time that they leave does."""
    table = clock(2, lambda x: 4.0)
    asked = {"early_stopping": {"method": "none", "max": UNITS}, "budget": {"trials": trials, "time": TIME}}
    driver = table.search(make_spec(**SPACE | asked))
    found, whole = (
        confirmation_outcome(StudyRecords(driver.spec, driver.trials)),
        TrainingCost(0.0, 4.0, UNITS),
    )
    foreseen = simulate(driver.spec, SearchCosts([whole], whole, 2, 0.0))
    assert found is not None and found.seeds == foreseen.seeds == 2
    assert foreseen.end == pytest.approx(table.now, rel=0.1) and table.now <= 1.03 * TIME + TICK
    assert driver.stop_reason is None, "all trials have run"


def test_silent_trials_end_when_the_time_is_over(clock: Callable[..., Clock], make_spec: Any) -> None:
    """The baseline finishes whatever the time: a search ends with a winner."""
    table = clock(2, lambda x: 30.0 if x == 0.5 else 1e6)
    driver = table.search(make_spec(**SPACE | {"budget": {"time": 100}, "early_stopping": ASHA}))
    assert driver.best is not None and driver.best.number == 0
    assert {t.user_attrs.get("reason") for t in driver.trials[1:]} == {"the time of the search is over"}


def test_a_search_without_time_still_trains_its_baseline(clock: Callable[..., Clock], make_spec: Any) -> None:
    """A machine may take longer to start a worker than the search has time."""
    table = clock(2, lambda x: 4.0)
    table.now += 30  # since the search was begun
    driver = table.search(make_spec(**SPACE | {"budget": {"time": 20}, "early_stopping": ASHA}), begun=0.0)
    assert [(t.number, t.state.name) for t in driver.trials] == [(0, "COMPLETE")]


@pytest.mark.parametrize("stopping", KINDS[1:], ids=["stopping", "promotion"])
@pytest.mark.parametrize("slots", [1, 2])
def test_a_search_with_a_time_budget_has_an_audit(
    clock: Callable[..., Clock], make_spec: Any, stopping: dict[str, Any], slots: int
) -> None:
    """If trials pause, audited ones resume when the search is over: their time is reserved."""
    table = clock(slots, lambda x: 4.0)
    asked = {"early_stopping": stopping, "audit": 0.1, "confirm": {"top": 2, "seeds": 2}}
    driver = table.search(make_spec(**SPACE | asked))
    drawn = [t for t in driver.trials if t.number in AuditSample.of(driver.spec) and t.last_step is not None]
    drawn = [t for t in drawn if confirms(t) is None and "baseline" not in t.user_attrs]
    rest = [t.user_attrs["reason"] for t in drawn if t.state.name != "COMPLETE"]
    assert rest == [driver.stop_reason] * len(rest) and len(rest) <= slots, (
        "those that trained when it was over"
    )
    assert sum("audited" in t.user_attrs for t in drawn) >= slots
    assert 0.95 * TIME <= table.now <= 1.03 * TIME + TICK
    assert confirmation_outcome(StudyRecords(driver.spec, driver.trials)) is not None


def test_no_audited_trial_continues_that_cannot_finish(clock: Callable[..., Clock], make_spec: Any) -> None:
    """It would take time from the confirmation, and show nothing. None waits after the search either."""
    table = clock(4, lambda x: 4.0)
    promotion = {"early_stopping": ASHA | {"type": "promotion"}, "search": {"sampler": "random"}}
    driver = table.search(make_spec(**SPACE | promotion | {"audit": 0.1, "confirm": {"top": 2, "seeds": 2}}))
    audited = [trial for trial in driver.trials if "audited" in trial.user_attrs]
    left = [trial for trial in audited if trial.state.name != "COMPLETE"]
    assert 0 < len(left) < len(audited)
    found = [(t.state.name, t.last_step, t.user_attrs["reason"]) for t in left]
    assert found == [("PRUNED", t.user_attrs["audited"], "the time of the search is over") for t in left]


@pytest.mark.parametrize("audit", [None, 0.2], ids=["short", "asked"])
@pytest.mark.parametrize("seconds", [60.0, 120.0])
def test_an_audit_of_a_short_search_wastes_no_time(
    clock: Callable[..., Clock], make_spec: Any, audit: float | None, seconds: float
) -> None:
    """Its trials begin beside those that still run, or they would not finish."""
    table = clock(8, lambda x: 4.0 if x == 0.5 else 2.0 + 4.0 * x)
    promotion = {"early_stopping": ASHA | {"type": "promotion"}, "search": {"sampler": "random"}}
    budget = {"budget": {"time": seconds, "trials": 1000}, "confirm": {"top": 0}}
    driver = table.search(make_spec(**SPACE | promotion | budget | {"audit": audit}))
    audited = [t.state.name for t in driver.trials if "audited" in t.user_attrs]
    assert (audited == []) if audit is None else (audited and set(audited) == {"COMPLETE"})
    assert 0.95 * seconds <= table.now <= 1.03 * seconds


def test_a_trial_at_its_last_step_may_return(clock: Callable[..., Clock], make_spec: Any) -> None:
    """Its cost is spent, and a killed worker takes time to start again."""
    table = clock(1, lambda x: 40.0)
    table.returns = lambda x: 100.0 if x == 0.5 else 120.0
    stopping = {"early_stopping": {"method": "none", "max": UNITS}}
    alone = stopping | {"budget": {"time": 925.0}, "confirm": {"top": 0}}
    driver = table.search(make_spec(**SPACE | alone))
    assert [(t.number, t.state.name) for t in driver.trials] == [(0, "COMPLETE"), (1, "COMPLETE")]


@pytest.mark.slow
@pytest.mark.parametrize("budget", [{"trials": 60}, {"time": TIME}, {"samples": 200}], ids=str)
@pytest.mark.parametrize("stopping", KINDS[1:], ids=["stopping", "promotion"])
def test_a_search_with_an_audit_goes_as_predicted(
    clock: Callable[..., Clock], make_spec: Any, stopping: dict[str, Any], budget: dict[str, Any]
) -> None:
    table = clock(2, lambda x: 4.0)
    asked = {"early_stopping": stopping | {"resource": "samples"}, "budget": budget, "audit": 0.3}
    driver = table.search(
        make_spec(**SPACE | asked | {"confirm": {"top": 0}, "search": {"sampler": "random"}})
    )
    whole = TrainingCost(0.0, 4.0, UNITS)
    found = simulate(driver.spec, SearchCosts([whole], whole, 2, 0.0))
    assert found.end == pytest.approx(table.now, rel=0.1)
    assert found.complete == pytest.approx(sum(t.state.name == "COMPLETE" for t in driver.trials), rel=0.25)
