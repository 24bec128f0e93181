"""The simulated search: no worker, no study, no clock on the wall."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpsearch.search.backends.resources import WorkerShare
from hpsearch.search.engine.costs import Cost
from hpsearch.search.engine.deadline import MAX_OVERRUN
from hpsearch.search.preflight.dry_run import DryRun
from hpsearch.search.preflight.forecast import assumption, forecast_search
from hpsearch.search.preflight.measure import Measured, Probe
from hpsearch.search.preflight.simulated import SearchCosts, TrainingCost
from hpsearch.search.preflight.simulation import MOST_RUNS, MOST_TRIALS, _Simulation, simulate
from hpsearch.spaces import Spec

SMALL: dict[str, Any] = {
    "version": 1,
    "name": "study",
    "objective": "somewhere:train",
    "metric": "loss",
    "parameters": {"x": {"min": 0.0, "max": 1.0}},
    "search": {"sampler": "random"},
    "confirm": {"top": 0},
}
HYPERBAND = {"method": "hyperband", "min": 1, "max": 9, "eta": 3}
ASHA = {"method": "asha", "min": 1, "max": 9, "eta": 3}


def spec(**fields: Any) -> Spec:
    return Spec.from_json(SMALL | fields)


def costs(*seconds: float, slots: int = 1, startup: float = 0.0) -> SearchCosts:
    """Trainings of 9 units that take so long."""
    return SearchCosts([TrainingCost(0.0, each / 9, 9) for each in seconds], None, slots, startup)


@pytest.mark.parametrize(("slots", "end"), [(1, 42.0), (2, 22.0), (4, 12.0)])
def test_without_early_stopping_trials_follow_each_other(slots: int, end: float) -> None:
    found = simulate(spec(budget={"trials": 4}), costs(10.0, slots=slots, startup=2.0))
    assert found.end == pytest.approx(end)
    assert (found.trials, found.complete, found.by, found.seeds) == (4, 4, "trials", 0)
    assert found.reached[-1].first == pytest.approx(12.0)


def test_the_forecast_includes_the_spread_of_the_end() -> None:
    """Four trials of ten seconds, or of two or eighteen as it happens."""
    alike = simulate(spec(budget={"trials": 4}), costs(10.0))
    assert alike.ends == (alike.end, alike.end)
    mixed = simulate(spec(budget={"trials": 4}), costs(2.0, 18.0))
    earliest, latest = mixed.ends
    assert 8.0 - 1e-6 <= earliest < mixed.end < latest <= 72.0 + 1e-6
    several = (simulate(spec(budget={"trials": 1000 * k}), costs(2.0, 18.0)) for k in (1, 100))
    short, long = ((found.ends[1] - found.ends[0]) / found.end for found in several)
    assert long == pytest.approx(short / 10), "luck evens out, in those also that are not simulated"


@pytest.mark.parametrize("constraints", [[], ["y < 2 or x == 'a'"]])
def test_a_small_space_runs_out(constraints: list[str]) -> None:
    parameters = {"x": ["a", "b"], "y": [1, 2]}
    found = simulate(spec(parameters=parameters, constraints=constraints, budget={"trials": 30}), costs(10.0))
    assert (found.trials, found.by) == (3 if constraints else 4, "trials")


def test_the_confirmation_follows_with_the_baseline() -> None:
    confirm = {"top": 2, "seeds": 3}
    own = costs(10.0)
    own = SearchCosts(own.trainings, TrainingCost(0.0, 20.0 / 9, 9), 1, 0.0)
    found = simulate(spec(budget={"trials": 4}, baseline={"x": 0.5}, confirm=confirm), own)
    assert (found.confirms, found.seeds) == (9, 3)
    assert found.search == pytest.approx(20 + 3 * 10)
    assert found.end == pytest.approx(50 + 3 * (10 + 10 + 20))


@pytest.mark.parametrize("kind", ["stopping", "promotion"])
@pytest.mark.parametrize("stopping", [HYPERBAND, ASHA], ids=["hyperband", "asha"])
def test_few_pass_each_rung(stopping: dict[str, Any], kind: str) -> None:
    found = simulate(
        spec(budget={"trials": 200}, early_stopping=stopping | {"type": kind}), costs(9.0, slots=3)
    )
    reached = [each.trials for each in found.reached]
    assert [each.step for each in found.reached] == [1, 3, 9]
    assert reached[0] == found.trials == 200
    assert reached[0] > reached[1] > reached[2] > 0
    if stopping is ASHA and kind == "promotion":
        assert reached[1] <= 200 // 3 and reached[2] <= 200 // 9, "no more than one in three ever goes on"
    everything = 200 * 9 / 3
    assert found.end < 0.8 * everything


BUDGETS = st.fixed_dictionaries({"time": st.floats(20, 60)}, optional={"trials": st.integers(1, 60)})


@settings(max_examples=25)
@given(
    budget=BUDGETS,
    stopping=st.sampled_from([{"method": "none", "max": 9}, HYPERBAND, ASHA | {"type": "promotion"}]),
    confirm=st.sampled_from([{"top": 0}, {}, {"top": 2, "seeds": 2}]),
    audit=st.sampled_from([0.0, 0.1, 0.5]),
    seconds=st.lists(st.floats(1, 12), min_size=1, max_size=4),
    slots=st.integers(1, 3),
)
def test_a_search_ends_on_time(
    budget: Any, stopping: Any, confirm: Any, audit: float, seconds: list[float], slots: int
) -> None:
    asked = {"early_stopping": stopping} | ({} if stopping["method"] == "none" else {"audit": audit})
    found = simulate(spec(budget=budget, confirm=confirm, **asked), costs(*seconds, slots=slots, startup=1.0))
    assert found.search <= budget["time"]
    assert found.end <= MAX_OVERRUN * budget["time"] + 1e-6
    assert 0 <= found.complete <= found.trials <= budget.get("trials", 10**6)
    for each in found.reached:
        assert (each.trials == 0) == (each.first is None)
        assert each.first is None or each.last is None or 1.0 <= each.first <= each.last


@pytest.mark.parametrize("budget", [{"time": 300.0}, {"trials": 40}], ids=lambda budget: next(iter(budget)))
def test_the_search_in_the_middle_is_shown(budget: dict[str, Any]) -> None:
    """Those on time all end alike, and differ in how many trials they had time for."""
    asked, known = spec(budget=budget, early_stopping=ASHA | {"type": "stopping"}), costs(18.0)
    shown = simulate(asked, known)
    runs = [_Simulation(asked, known, random.Random(f"0:{run}")).run() for run in range(MOST_RUNS)]
    assert shown.trials == statistics.median(run.trials for run in runs)
    assert shown.end == pytest.approx(statistics.median(run.end for run in runs))


def test_the_same_forecast_is_made_again() -> None:
    asked, known = spec(budget={"trials": 50}, early_stopping=HYPERBAND), costs(1.0, 2.0, 5.0, slots=2)
    assert simulate(asked, known) == simulate(asked, known)


def test_trials_wait_for_the_drivers_proposals() -> None:
    known = costs(10.0)
    slow = SearchCosts(known.trainings, None, 1, 0.0, ask=lambda number: 2.0)
    assert simulate(spec(budget={"trials": 3}), slow).end == pytest.approx(36.0)


def test_samples_end_a_search() -> None:
    stopping = {"method": "none", "max": 9, "resource": "samples"}
    found = simulate(spec(budget={"samples": 45}, early_stopping=stopping), costs(10.0))
    assert (found.by, found.trials) == ("samples", 5)


def test_assumptions_are_stated(make_spec: Any) -> None:
    said = [assumption(spec(early_stopping={"method": name})) for name in ("none", "median", "wilcoxon")]
    assert said[0] == "every trial runs to its end"
    assert said[1].startswith("half of the trials stop")
    assert said[2].startswith("which trials wilcoxon stops cannot be predicted")


def test_a_long_search_is_extrapolated() -> None:
    stopping = ASHA | {"type": "stopping"}
    long = simulate(spec(budget={"trials": 3000}, early_stopping=stopping), costs(9.0))
    short = simulate(spec(budget={"trials": 1000}, early_stopping=stopping), costs(9.0))
    assert long.trials == long.reached[0].trials == 3000
    assert long.end == pytest.approx(3 * short.end, rel=0.1)
    timed = simulate(spec(budget={"time": 2 * short.end}, early_stopping=stopping), costs(9.0))
    assert timed.by == "time" and timed.end <= 2 * short.end
    assert timed.trials == pytest.approx(2000, rel=0.1)


def test_as_many_trials_as_are_proposed_use_the_time() -> None:
    """The start is no part of what a trial takes."""
    probe = Probe({"x": 0.5}, Cost(0.0, 1 / 9), every=1 / 9, units=9)
    measured = Measured(
        None, [probe], 9, 20.0, 0.0, None, 1, WorkerShare(2, 1.0, 0.0, None), 10.0, driver=DryRun()
    )
    few = spec(budget={"trials": 5, "time": 60.0}, early_stopping={"method": "none", "max": 9})
    told = next(remark for remark in forecast_search(few, measured).remarks if "--trials" in remark)
    more = few.override(budget={"trials": int(told.split("--trials ")[1].split()[0])})
    assert 0.95 * 60 < forecast_search(more, measured).forecast.end <= 60
    assert not any("--trials" in remark for remark in forecast_search(more, measured).remarks)


@pytest.mark.parametrize(
    ("ended", "cut_at", "length"),
    [(5, 2, 5), (5, 5, 300), (2, 100, 300), (None, 2, 300)],
    ids=["before others ended", "where others ended", "beyond", "alone"],
)
def test_a_training_that_was_cut_off_is_as_long_as_others_that_got_further(
    ended: int | None, cut_at: int, length: int
) -> None:
    cost = Cost(0.0, 0.1)
    cut, other = Probe({}, cost, 0.1, None, last=cut_at), Probe({}, cost, 0.1, ended, last=ended or cut_at)
    measured = Measured(
        None, [cut, other], 300, 0.0, 0.0, None, 1, WorkerShare(2, 1.0, 0.0, None), 10.0, driver=DryRun()
    )
    assert measured.lengths == [length, ended or 300]
    assert measured.training_seconds(cut) == pytest.approx(0.1 * length)


def measured_with(losses: list[float], seconds: list[float]) -> Measured:
    """Configurations with these losses at step 2, whose trainings of 9 units take so long."""
    probes = [
        Probe({}, Cost(0.0, each / 9), each / 9, None, first=1, last=2, losses={1: 5.0, 2: loss})
        for loss, each in zip(losses, seconds, strict=True)
    ]
    return Measured(None, probes, 9, 0.0, 0.0, None, 1, WorkerShare(1, 1.0, 0.0, None), 10.0, driver=DryRun())


@pytest.mark.parametrize(("sign", "more"), [(-1, "longer"), (1, "less time")])
@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_better_trials_cost_what_they_did_in_the_measurement(sampler: str, sign: int, more: str) -> None:
    seconds = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    asked = spec(
        budget={"trials": 100}, early_stopping=ASHA | {"type": "promotion"}, search={"sampler": sampler}
    )
    found = forecast_search(asked, measured_with([sign * each for each in seconds], seconds))
    assert found.assumed.endswith(f"better trials take {more}, as in the measurement")
    others = forecast_search(asked, measured_with([0.0] * 8, seconds))
    assert "better trials" not in others.assumed
    if sign < 0:
        assert found.forecast.end > 1.2 * others.forecast.end
    else:
        assert found.forecast.end < 0.8 * others.forecast.end


@pytest.mark.parametrize(
    ("losses", "seconds"),
    [
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]),
        ([4.0, 1.0, 6.0, 3.0, 8.0, 2.0, 5.0, 7.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [4.0] * 8),
    ],
    ids=["too few", "chance", "alike"],
)
def test_costs_that_tell_nothing_of_losses_are_drawn_apart(losses: list[float], seconds: list[float]) -> None:
    assert measured_with(losses, seconds).ranked is None


def test_losses_are_compared_where_all_have_reported() -> None:
    known = measured_with([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    further = replace(known.probes[0], losses={1: 5.0, 2: 8.0, 4: 0.0})
    ranked = replace(known, probes=[further, *known.probes[1:]]).ranked
    assert ranked is not None and [probe.losses[2] for probe in ranked] == sorted(range(1, 9))
    apart = [replace(further, losses={3: 0.0}), *known.probes[1:]]
    assert replace(known, probes=apart).ranked is None


@pytest.mark.parametrize("budget", [{"time": 2.0}, {"samples": 3}], ids=lambda budget: next(iter(budget)))
def test_the_baseline_finishes_where_no_other_trial_does(budget: dict[str, Any]) -> None:
    own = SearchCosts([TrainingCost(0.0, 1.0, 9)], TrainingCost(0.0, 1.0, 9), 2, 0.0)
    found = simulate(spec(budget=budget, baseline={"x": 0.5}, early_stopping=ASHA), own)
    assert found.complete == 1 and found.end == pytest.approx(9.0)
    assert simulate(spec(budget=budget, early_stopping=ASHA), own).complete == 0


def test_the_audit_of_a_long_search_is_in_its_time() -> None:
    """Nobody goes on for it before the end, when as many more do as there are more trials."""
    asked = spec(budget={"time": 5000.0}, early_stopping=ASHA | {"type": "promotion"}, audit=0.1)
    found = simulate(asked, costs(9.0))
    assert found.trials > MOST_TRIALS
    assert 0.98 * 5000 <= found.end <= 5000 + 1e-6


@pytest.mark.parametrize(
    "budget", [{"trials": 4}, {"time": 30.0}, {"samples": 17}], ids=lambda budget: next(iter(budget))
)
def test_the_best_paused_trial_finishes(budget: dict[str, Any]) -> None:
    """Too few trials for the rules to let one of them through."""
    stopping = ASHA | {"type": "promotion", "eta": 9, "resource": "samples"}
    asked = spec(budget=budget, early_stopping=stopping)
    found = simulate(asked, costs(27.0))
    assert found.reached[-1].step == 9
    assert found.complete == 1


def test_a_trial_is_compared_when_it_next_reports() -> None:
    """Every trial comes to both rungs with its report at 4 of 9 units, and two of six go on from there."""
    asked = spec(budget={"trials": 6}, early_stopping=ASHA | {"type": "promotion"})
    sparse = SearchCosts([TrainingCost(0.0, 1.0, 9, grid=4)], None, 1, 0.0)
    found = simulate(asked, sparse)
    assert [each.trials for each in found.reached] == [6, 6, 2]
    assert found.search == pytest.approx(6 * 4 + 2 * 5)


def test_trials_without_checkpoints_are_judged_once() -> None:
    asked = spec(budget={"trials": 60}, early_stopping=ASHA | {"type": "promotion"}, audit=0.0)
    waiting = simulate(asked, costs(9.0))
    once = simulate(asked, replace(costs(9.0), keeps=False))
    assert once.complete > waiting.complete, "the first of all is always the best so far"
    audited = simulate(asked.override(audit=0.2), replace(costs(9.0), keeps=False))
    assert audited.audited > 0 == audited.auditing, "who cannot wait goes on meanwhile"


def test_each_kind_has_its_turn_at_a_rung() -> None:
    """Where kinds are compared apart, the best of each is unbeaten, and comes to its end in turn."""
    fields: dict[str, Any] = {"parameters": {"x": {"min": 0.0, "max": 1.0}, "kind": ["a", "b", "c"]}}
    stopping = ASHA | {"type": "promotion"}
    told = simulate(
        spec(budget={"trials": 9}, early_stopping=stopping | {"alike": ["kind"]}, **fields), costs(9.0)
    )
    other = simulate(spec(budget={"trials": 9}, early_stopping=stopping, **fields), costs(9.0))
    assert told.complete > other.complete > 0


@pytest.mark.parametrize("budget", [{"trials": 100}, {"trials": 3000}, {"samples": 300}, {"time": 300}])
@pytest.mark.parametrize("stopping", [HYPERBAND, ASHA, ASHA | {"type": "promotion"}])
def test_the_audit_is_predicted(stopping: dict[str, Any], budget: dict[str, Any]) -> None:
    without, with_it = (
        simulate(spec(early_stopping=stopping, budget=budget, audit=audit), costs(9.0, slots=2))
        for audit in (0.0, 0.1)
    )
    assert with_it.complete > without.complete
    assert with_it.audited > without.audited == without.auditing == 0
    assert (with_it.auditing > 0) == (stopping.get("type") == "promotion"), "others go on meanwhile"
    if "trials" in budget:
        assert 1.05 < with_it.end / without.end < 1.15, "it costs a tenth"
    else:
        assert with_it.trials < without.trials, "what it takes is kept back"
        assert with_it.end == pytest.approx(without.end, rel=0.05)
