"""What trials use is in the study: over all attempts, in whatever way they end."""

from __future__ import annotations

from typing import Any

import pytest

from hpsearch.search.backends.base import deliver
from hpsearch.search.engine import accounts
from hpsearch.search.engine.driver import Driver
from hpsearch.search.engine.running import Failure
from hpsearch.search.results.cost import StudyCost, cost_in_words, cost_of
from hpsearch.search.trials.records import StudyRecords, usage_of
from hpsearch.search.trials.usage import Usage
from hpsearch.storage.trial_attrs import TOOK, USED

from ...support.driving import HYPERBAND, PROMOTION, DrivenStudy, asked, save_checkpoint


def used(seconds: float) -> list[float | None]:
    """Of a worker with a quarter of the machine and one GPU of 360 W, in a machine that hides its RAPL."""
    return [seconds, seconds / 4, seconds, seconds / 10, None]


def say(driver: Driver, number: int, kind: str, seconds: float, **more: Any) -> str | None:
    """A message of a worker about its trial, by this many seconds of its attempt."""
    report = {"step": 1, "value": 0.5, "metrics": {}, "seconds": seconds, "trained": 0}
    end = {"value": 0.5, "seconds": seconds, "failure": {"kind": "error", "message": "no"}}
    said = {"kind": kind, "number": number, "used": used(seconds)} | report | end | more
    return deliver(driver, said)


def usages(study: DrivenStudy) -> list[list[float | None] | None]:
    return [trial.system_attrs.get(USED) for trial in study.trials()]


def test_each_attempt_counts_once(study: DrivenStudy, make_spec: Any) -> None:
    spec = make_spec(execution={"workers": 1, "retries": 1})
    driver = study.driver(spec)
    asked(driver)
    say(driver, 0, "report", 10, step=1)
    say(driver, 0, "failed", 15)  # and is retried
    assert usages(study) == [used(15)]
    asked(driver)
    say(driver, 0, "report", 3, step=2)
    driver.close()  # as it stands at its last report
    assert usages(study) == [used(18)]
    driver = study.driver(spec)
    asked(driver)
    say(driver, 0, "done", 2)
    assert usages(study) == [used(20)]
    driver.close()


def test_a_paused_trial_and_one_that_is_stopped_there_count_no_more(
    study: DrivenStudy, make_spec: Any
) -> None:
    driver = study.driver(make_spec(early_stopping=PROMOTION, budget={"trials": 3}))
    for number in range(3):
        save_checkpoint(asked(driver))
        say(driver, number, "report", 4, value=float(3 - number))
    assert usages(study)[:2] == [used(4), used(4)]  # paused; the third is promoted and goes on
    driver.stop("over")
    say(driver, 2, "done", 9)
    driver.finish()
    driver.close()
    assert usages(study) == [used(4), used(4), used(9)]


def test_a_trial_that_a_search_puts_back_keeps_its_seconds(study: DrivenStudy, make_spec: Any) -> None:
    for step, (seconds, in_all) in enumerate(((5.0, 5.0), (7.0, 12.0)), 1):
        driver = study.driver(make_spec())
        asked(driver)
        say(driver, 0, "report", seconds, step=step)
        driver.close()
        (trial,) = study.trials()
        assert (trial.state.name, trial.system_attrs[TOOK]) == ("WAITING", in_all)


def test_a_killed_driver_forgets_a_minute_at_most(
    study: DrivenStudy, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    driver = study.driver(make_spec(), clock=lambda: now[0])
    asked(driver)
    say(driver, 0, "report", 50)
    now[0] = accounts.NOTE_SECONDS
    driver.tick()
    say(driver, 0, "report", 70, step=2)
    driver = study.driver(make_spec())  # the first one is killed
    asked(driver)
    say(driver, 0, "done", 5)
    assert usages(study) == [used(55)]
    driver.close()


def test_what_no_worker_has_said_is_unknown(study: DrivenStudy, make_spec: Any) -> None:
    now = [0.0]
    driver = study.driver(make_spec(budget={"trials": 2}), clock=lambda: now[0])
    asked(driver)
    now[0] = 8.0
    driver.fail(0, Failure("lost", "gone"))
    asked(driver)
    say(driver, 1, "done", 2)
    driver.close()
    (lost, _), trials = usages(study), study.trials()
    assert lost == [8.0, None, None, None, None]
    cost = cost_of(StudyRecords(make_spec(), trials), None, None, 3600.0)
    assert (cost.total.unknown, cost.total.trials, cost.total.gpu_hours) == (1, 2, round(2 / 3600, 6))
    assert cost.in_words[-1] == "without 1 trial of 2, of which it is unknown"
    older = trials[0]
    older.system_attrs = {TOOK: 5.0}
    assert usage_of(older) == Usage(5.0, None, None, None, None)


def test_an_audited_trial_is_the_searches_until_it_was_to_stop(study: DrivenStudy, make_spec: Any) -> None:
    spec = make_spec(early_stopping=HYPERBAND, audit=1.0, baseline={"x": 0.5}, budget={"trials": 12})
    driver = study.driver(spec)
    for number in range(12):
        asked(driver)
        for step in range(1, 10):
            if say(driver, number, "report", step, step=step, value=1.0 + number) is not None:
                break
        else:
            say(driver, number, "done", 10, value=1.0 + number)
    driver.close()
    trials = study.trials()
    audited = [trial for trial in trials if "audited" in trial.user_attrs]
    assert audited
    before = sum(trial.user_attrs["audited"] for trial in audited)  # a second a step
    cost = cost_of(StudyRecords(spec, trials), None, None, None)
    assert cost.audit.hours == pytest.approx((10 * len(audited) - before) / 3600, abs=1e-6)
    assert cost.total.hours == pytest.approx(cost.search.hours + cost.audit.hours, abs=2e-6)


def of(*used: Usage, price: float | None = None, gain: float | None = None) -> list[str]:
    """What is said of a study whose trials have used this."""
    from hpsearch.search.results.cost import Spending

    total = Spending.of(used, price)
    nothing = Spending.of([], price)
    per_unit = None if gain is None else total.per(gain)
    return cost_in_words(
        StudyCost(total, nothing, nothing, total, ["GPU"], price, gain, gain is not None, per_unit)
    )


def test_costs_in_words() -> None:
    gpu = Usage(3600.0, 900.0, 7200.0, 350.0, None)
    assert of(gpu, price=2.5, gain=0.05) == [
        "2 h of GPUs; 350 Wh (GPU); 5.00 at 2.5 an hour",
        "a gain of 0.05 over the baseline: 40 h, 100 per unit of it",
    ]
    assert of(Usage(3600.0, 900.0, 0.0, 0.0, None), price=2.0) == ["15 min of the machine; 0.50 at 2 an hour"]
    assert of(Usage(3600.0, None, None, None, None), price=2.0) == ["1 h of workers"]
    assert of() == []
