"""Tune's schedulers behind the interface of a pruner: what they decide, and that a study goes on as it was."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from optuna.pruners import BasePruner, HyperbandPruner, NopPruner
from optuna.trial import FrozenTrial, TrialState

from hpsearch.search.backends.ray.stopping import TuneHyperband, TunePruner, tune_pruner
from hpsearch.search.engine.driver import Driver
from hpsearch.search.errors import UsageError
from hpsearch.search.scheduling.pruners import make_pruner
from hpsearch.search.scheduling.rungs import brackets_of
from hpsearch.search.scheduling.standings import hyperband_bracket
from hpsearch.spaces import Spec
from hpsearch.spaces.stopping import METHODS
from hpsearch.storage.database import open_storage
from hpsearch.storage.studies import SPEC, open_live
from hpsearch.storage.trial_attrs import RUNG_PREFIX

from ...support.watchers import Undisturbed

pytestmark = pytest.mark.ray

HALVING: dict[str, Any] = {"method": "asha", "min": 1, "max": 27, "eta": 3}
HYPERBAND: dict[str, Any] = {"method": "hyperband", "min": 1, "max": 27, "eta": 3}
MEDIAN: dict[str, Any] = {"method": "median", "n_startup_trials": 2}


@pytest.fixture(autouse=True, scope="module")
def quiet_optuna() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


def spec_of(goal: str = "minimize", **stopping: Any) -> Spec:
    return Spec.from_json(
        {
            "version": 1,
            "name": "s",
            "objective": "a:b",
            "metric": "m",
            "goal": goal,
            "parameters": {"x": {"min": 0.0, "max": 1.0}},
            "search": {"sampler": "random"},
            "early_stopping": stopping,
            "baseline": {"x": 0.5},
            "budget": {"trials": 8},
        }
    )


class Play:
    """A study in memory whose trials report as a driver lets them, whatever the pruner says."""

    def __init__(self, spec: Spec, pruner: BasePruner | None = None, onto: Play | None = None) -> None:
        self.spec = spec
        self.last = spec.early_stopping.max
        pruner = pruner or tune_pruner(spec)
        self.study: optuna.Study = (
            optuna.create_study(study_name="s", direction=spec.goal, pruner=pruner)
            if onto is None
            else optuna.load_study(study_name="s", storage=onto.study._storage, pruner=pruner)
        )

    @property
    def trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def report(self, number: int, step: int, value: float) -> bool:
        """Whether the trial is to stop here; all up to this number begin where they have not."""
        while len(self.trials) <= number:
            self.study.ask()
        trial = optuna.Trial(self.study, self.trials[number]._trial_id)
        trial.report(value, step)
        return (self.last is None or step < self.last) and trial.should_prune()

    def run(self, number: int, values: dict[int, float]) -> list[bool]:
        return [self.report(number, step, value) for step, value in values.items()]

    def end(self, number: int, state: TrialState) -> None:
        trial = optuna.Trial(self.study, self.trials[number]._trial_id)
        value = self.trials[number].intermediate_values[self.trials[number].last_step or 0]
        self.study.tell(trial, value if state == TrialState.COMPLETE else None, state=state)

    def noted(self, number: int) -> dict[str, float]:
        """What the trial had at its rungs, by the attributes of Optuna."""
        return {k: v for k, v in self.trials[number].system_attrs.items() if k.startswith(RUNG_PREFIX)}


def in_tune(pruner: Any) -> dict[int, dict[str, float]]:
    """The rungs that Tune's scheduler has, rising, with the rewards it keeps there."""
    (bracket,) = pruner._scheduler._brackets
    return dict(reversed(bracket._rungs))


# Rungs


@given(
    st.integers(1, 10**4), st.integers(0, 12), st.integers(2, 12), st.integers(-1, 1) | st.integers(0, 10**5)
)
def test_the_rungs_of_tune_are_ours(minimum: int, power: int, eta: int, beside: int) -> None:
    """Near powers of eta above all; a rung at the maximum, where Tune has one, is never asked."""
    maximum = minimum * eta**power + beside
    assume(minimum < maximum < 2**40)
    for method in ("asha", "hyperband"):
        spec = spec_of(method=method, min=minimum, max=maximum, eta=eta)
        pruner: Any = tune_pruner(spec)
        pruners = pruner._ashas if method == "hyperband" else [pruner]
        for bracket, asha in zip(brackets_of(spec), pruners, strict=True):
            if bracket.rungs:
                assert tuple(rung for rung in in_tune(asha) if rung < maximum) == bracket.rungs == asha._rungs
            else:
                assert isinstance(asha, NopPruner)


def test_successive_halving_may_start_later() -> None:
    pruner: Any = tune_pruner(spec_of(**HALVING, min_early_stopping_rate=1))
    assert pruner._rungs == (3, 9)
    assert isinstance(tune_pruner(spec_of(**HALVING, min_early_stopping_rate=3)), NopPruner)


@pytest.mark.parametrize(("goal", "sign"), [("minimize", 1), ("maximize", -1)])
def test_the_first_passes_and_a_worse_second_stops_at_its_first_rung(goal: str, sign: int) -> None:
    play = Play(spec_of(goal, **HALVING))
    assert play.run(0, {step: sign * 5.0 for step in range(1, 28)}) == [False] * 27
    assert play.report(1, 1, sign * 5.5) is True
    assert play.report(2, 1, sign * 5.0) is False, "a tie goes on"
    assert play.run(3, {1: sign * 1.0, 2: sign * 9.0, 3: sign * 9.0}) == [False, False, True]
    assert play.noted(3) == {f"{RUNG_PREFIX}0": sign * 1.0, f"{RUNG_PREFIX}1": sign * 9.0}


def test_between_the_rungs_nothing_stops() -> None:
    play = Play(spec_of(**HALVING | {"min": 4}))
    play.run(0, {step: 0.0 for step in range(1, 28)})
    assert play.run(1, {1: 9.0, 2: 9.0, 3: 9.0, 4: 0.0, 5: 9.0, 11: 9.0, 12: 9.0}) == [False] * 6 + [True]


def test_the_scheduler_is_neither_asked_about_nor_given_the_last_step() -> None:
    """Tune has a rung at 27 here."""
    play = Play(spec_of(**HALVING))
    assert 27 in in_tune(play.study.pruner)
    for number in range(3):
        assert play.run(number, {27: float(number)}) == [False]
        play.end(number, TrialState.COMPLETE)
    assert play.report(3, 26, 5.0) is False
    assert in_tune(play.study.pruner) == {1: {}, 3: {}, 9: {"3": -5.0}, 27: {}}


def test_sparse_reports_leave_the_lower_rungs_alone() -> None:
    play = Play(spec_of(**HALVING | {"max": 81}))
    assert play.run(0, {10: 5.0, 20: 4.0, 30: 3.0}) == [False] * 3
    assert in_tune(play.study.pruner) == {1: {}, 3: {}, 9: {"0": -5.0}, 27: {"0": -3.0}, 81: {}}
    assert play.run(1, {1: 9.0, 3: 9.0, 10: 9.0}) == [False, False, True], "it is compared at 9 alone"
    assert play.report(2, 1, 9.5) is True
    twin = Play(play.spec, make_pruner(play.spec))
    twin.run(0, {10: 5.0, 20: 4.0, 30: 3.0})
    assert (
        play.noted(0)
        == twin.noted(0)
        == {f"{RUNG_PREFIX}0": 5.0, f"{RUNG_PREFIX}1": 5.0, f"{RUNG_PREFIX}2": 5.0, f"{RUNG_PREFIX}3": 3.0}
    )


# A study that goes on

# trial, steps to its next report, value
REPORTS = st.lists(
    st.tuples(st.integers(0, 7), st.integers(1, 6), st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0, 2.0, 7.5])),
    max_size=40,
)
STOPPING: list[dict[str, Any]] = [
    HALVING,
    HALVING | {"eta": 2, "min": 2, "min_early_stopping_rate": 1},
    HYPERBAND,
    MEDIAN,
    MEDIAN | {"n_warmup_steps": 3, "max": 20, "n_startup_trials": 0},
]


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
@pytest.mark.parametrize("stopping", STOPPING)
@given(reports=REPORTS)
@settings(max_examples=30)
def test_a_resumed_study_decides_as_if_it_had_never_stopped(
    goal: str, stopping: dict[str, Any], reports: list[tuple[int, int, float]]
) -> None:
    """Whatever was reported before, a pruner that finds it in the study knows what one knows that heard it."""
    live = Play(spec_of(goal, **stopping))
    for number, further, value in reports:
        if number < len(live.trials) and live.trials[number].state.is_finished():
            continue
        step = further + (live.trials[number].last_step or 0 if number < len(live.trials) else 0)
        stops = live.report(number, step, value)
        if live.last is None or step < live.last:
            fresh: Any = tune_pruner(live.spec)
            resumed = Play(live.spec, fresh, onto=live)
            assert fresh.prune(resumed.study, resumed.trials[number]) == stops
        if stops and number:  # trial 0 is the baseline, which goes on
            live.end(number, TrialState.PRUNED)
        elif live.last is not None and step >= live.last:
            live.end(number, TrialState.COMPLETE)


@given(reports=st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1)), max_size=40))
@settings(max_examples=30)
def test_what_is_noted_at_the_rungs_is_what_optuna_notes(reports: list[tuple[int, float]]) -> None:
    spec = spec_of(**HALVING | {"max": 9, "min": 2, "eta": 2})
    ours, optunas = Play(spec), Play(spec, make_pruner(spec))
    for number, value in reports:
        while len(ours.trials) <= number:
            ours.study.ask()
        step = 1 + (ours.trials[number].last_step or 0)
        ours.report(number, step, value)
        optunas.report(number, step, value)
    for trial in ours.trials:
        assert ours.noted(trial.number) == (optunas.noted(trial.number) if trial.last_step else {})


@pytest.mark.parametrize("asked", [True, False])
def test_missing_rung_values_are_recorded_as_they_were_reported(asked: bool) -> None:
    """Of the trial that is asked about, and of others; a note is the value at its rung, not a later one."""
    play = Play(spec_of(**HALVING))
    trial = play.study.ask()
    for step in range(1, 11):
        trial.report(float(step), step)
    play.report(0 if asked else 1, 11, 11.0)
    assert play.noted(0) == {f"{RUNG_PREFIX}0": 1.0, f"{RUNG_PREFIX}1": 3.0, f"{RUNG_PREFIX}2": 9.0}
    assert in_tune(play.study.pruner)[3]["0"] == -3.0


def test_optunas_own_pruner_continues_after_tune() -> None:
    spec = spec_of(**HALVING)
    tune = Play(spec)
    tune.run(0, {1: 5.0, 2: 5.0, 3: 5.0})  # it still runs
    tune.run(1, {1: 1.0, 2: 1.0, 3: 1.0})
    tune.end(1, TrialState.PRUNED)
    optunas = Play(spec, make_pruner(spec), onto=tune)
    assert optunas.run(0, {4: 0.0, 9: 0.0}) == [False, False], "the first at its third rung"
    assert optunas.noted(0) == {f"{RUNG_PREFIX}0": 5.0, f"{RUNG_PREFIX}1": 5.0, f"{RUNG_PREFIX}2": 0.0}
    assert optunas.report(2, 1, 3.0) is True, "one of three is better, and one of three goes on"
    assert optunas.report(3, 1, 0.5) is False
    assert optunas.report(3, 3, 2.0) is True


def test_tune_continues_after_optunas_own_pruner() -> None:
    spec = spec_of(**HALVING)
    optunas = Play(spec, make_pruner(spec))
    optunas.run(0, {step: 5.0 for step in range(1, 28)})
    optunas.end(0, TrialState.COMPLETE)
    assert optunas.report(1, 1, 7.0)
    optunas.end(1, TrialState.PRUNED)
    optunas.run(2, {1: 1.0, 2: 1.0})
    noted = [optunas.noted(n) for n in range(3)]
    tune = Play(spec, onto=optunas)
    assert tune.run(2, {3: 6.0}) == [True]
    assert tune.report(3, 1, 6.0) is True
    assert tune.report(4, 1, 0.5) is False
    assert in_tune(tune.study.pruner)[1] == {"0": -5.0, "1": -7.0, "2": -1.0, "3": -6.0, "4": -0.5}
    assert [tune.noted(n) for n in range(2)] == noted[:2]
    assert tune.noted(2) == noted[2] | {f"{RUNG_PREFIX}1": 6.0}


# Hyperband


def test_the_brackets_of_hyperband_are_optunas() -> None:
    spec = spec_of(**HYPERBAND)
    tune, optunas = Play(spec), Play(spec, make_pruner(spec))
    for play in (tune, optunas):
        for _ in range(100):
            play.study.ask()
    found = [[hyperband_bracket(play.study, trial) for trial in play.trials] for play in (tune, optunas)]
    assert found[0] == found[1] and set(found[0]) == {0, 1, 2, 3}


def test_each_bracket_of_hyperband_compares_its_own_trials() -> None:
    play = Play(spec_of(**HYPERBAND))
    for _ in range(60):
        play.study.ask()
    members: dict[int, list[int]] = {bracket: [] for bracket in range(4)}
    for trial in play.trials:
        members[hyperband_bracket(play.study, trial)].append(trial.number)
    for bracket, first in enumerate([1, 3, 9, None]):
        best, worst = members[bracket][:2]
        steps = [1, 2, 3, 8, 9, 20]
        assert play.run(best, {step: -float(bracket) for step in steps}) == [False] * 6, "the first here"
        stops = [play.report(worst, step, 50.0) for step in steps]
        assert [step for step, stop in zip(steps, stops, strict=True) if stop][:1] == (
            [first] if first else []
        )
    pruner = play.study.pruner
    assert isinstance(pruner, TuneHyperband)
    heard = [set(itertools.chain(*in_tune(asha).values())) for asha in pruner._ashas[:3]]
    assert heard == [{str(n) for n in members[bracket][:2]} for bracket in range(3)]
    assert play.noted(members[1][0]) == {f"{RUNG_PREFIX}0": -1.0, f"{RUNG_PREFIX}1": -1.0}


# The median


def test_what_is_worse_than_the_median_stops() -> None:
    play = Play(spec_of(**MEDIAN))
    play.run(0, {1: 1.0, 2: 1.0})
    assert play.run(1, {1: 9.0, 2: 9.0}) == [False, False], "two trials are waited for"
    assert play.run(2, {1: 3.0, 2: 3.0}) == [False, False]
    assert play.report(3, 1, 3.5) is True
    assert play.report(4, 1, 2.5) is False


VALUES = st.integers(-20, 20).map(lambda n: n / 4)
CURVES = st.lists(st.lists(VALUES, min_size=1, max_size=6), min_size=1, max_size=6)


@given(
    CURVES,
    st.none() | st.integers(0, 4),
    st.none() | st.integers(0, 4),
    st.sampled_from(["minimize", "maximize"]),
)
@settings(max_examples=30)
def test_the_median_is_that_of_the_running_means(
    curves: list[list[float]], startup: int | None, warmup: int | None, goal: str
) -> None:
    options = {"n_startup_trials": startup, "n_warmup_steps": warmup}
    play = Play(spec_of(goal, method="median", **options))
    sign = 1 if goal == "minimize" else -1
    least = 3 if startup is None else max(1, startup)
    for number, curve in enumerate(curves):
        for step, value in enumerate(curve, start=1):
            stops = play.report(number, step, sign * value)
            first = max(1, warmup or 0)
            rivals = [other for other in curves[:number] if len(other) >= step]
            if step < first or len(rivals) < least:
                assert not stops
            else:
                median = np.median([np.mean(other[first - 1 : step]) for other in rivals])
                assert stops == (min(curve[:step]) > median)


@pytest.mark.parametrize("field", ["interval_steps", "n_min_trials"])
def test_what_tunes_median_rule_cannot_do_is_refused(field: str) -> None:
    with pytest.raises(UsageError, match=rf"^early_stopping\.{field}: .* the backend optuna$"):
        tune_pruner(spec_of(**MEDIAN | {field: 1}))


def test_the_median_rule_is_not_asked_at_the_end() -> None:
    play = Play(spec_of(**MEDIAN | {"max": 3}))
    for number in range(4):
        assert play.run(number, {3: float(number)}) == [False]
    assert play.report(4, 2, 9.0) is False, "nothing else was heard"


@pytest.mark.parametrize("stopping", [HALVING, HYPERBAND, MEDIAN])
def test_a_trial_that_should_have_stopped_can_continue_and_is_compared_again(
    stopping: dict[str, Any],
) -> None:
    play = Play(spec_of(**stopping | {"max": 27}))
    for _ in range(40):
        play.study.ask()
    mates = [t.number for t in play.trials if hyperband_bracket(play.study, t) == 0][:4]
    for number in mates[:3]:
        play.run(number, {step: 1.0 for step in range(1, 27)})
    stops = play.run(mates[3], {step: 5.0 for step in range(1, 28)})
    assert stops[0] and stops[2] and stops[8] and not stops[26]
    assert all(stops[:26]) == (stopping is MEDIAN)


# The rest


@pytest.mark.parametrize("method", ["none", "percentile", "threshold", "patient", "wilcoxon"])
def test_what_tune_lacks_is_optunas(method: str) -> None:
    options: dict[str, dict[str, Any]] = {
        "percentile": {"percentile": 25.0},
        "threshold": {"upper": 1.5},
        "patient": {"patience": 1},
    }
    spec = spec_of(method=method, **options.get(method, {}))
    assert type(tune_pruner(spec)) is type(make_pruner(spec))
    assert {*options, "none", "wilcoxon", "hyperband", "asha", "median"} == set(METHODS)


@pytest.mark.parametrize(
    ("stopping", "kind"), [(HALVING, TunePruner), (HYPERBAND, HyperbandPruner), (MEDIAN, TunePruner)]
)
def test_what_tune_has_is_tunes(stopping: dict[str, Any], kind: type[BasePruner]) -> None:
    assert isinstance(tune_pruner(spec_of(**stopping)), kind)


@pytest.mark.parametrize(
    ("stopping", "goal"),
    [(HALVING, "minimize"), (HYPERBAND, "maximize"), (MEDIAN | {"n_startup_trials": 1}, "minimize")],
)
def test_a_search_that_is_interrupted_stops_the_same_trials(
    tmp_path: Path, stopping: dict[str, Any], goal: str
) -> None:
    """Through the driver and a database, where attributes are kept apart from memory."""
    spec = spec_of(goal, **stopping | {"max": 9})

    def search(file: str, until: int = 10**9) -> list[tuple[str, int | None, dict[str, Any]]]:
        storage = open_storage(f"sqlite:///{tmp_path / file}", create=True)
        live = open_live(storage, spec.name, goal=spec.goal, attrs={SPEC: spec.to_json()})
        driver = Driver(spec, live, runs=tmp_path / "runs", watcher=Undisturbed(), pruner=tune_pruner(spec))
        while len(driver.trials) < until and (given := driver.ask()) is not None:
            middle = until == len(driver.trials)  # the last of this search is put back on its way
            for step in range(1, 10):
                if middle and step == 3:
                    break
                loss = abs(given.params["x"] - 0.3) * (1 if goal == "minimize" else -1)
                if driver.report(given.number, loss, step, {}) is not None:
                    break
            else:
                driver.complete(given.number, loss)
        driver.close()
        storage.engine.dispose()
        again = open_storage(f"sqlite:///{tmp_path / file}")
        trials = optuna.load_study(study_name=spec.name, storage=again).get_trials()
        again.engine.dispose()
        noted = [{k: v for k, v in t.system_attrs.items() if k.startswith(RUNG_PREFIX)} for t in trials]
        return [(t.state.name, t.last_step, n) for t, n in zip(trials, noted, strict=True)]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = search("whole.db")
        for until in (1, 4, 5):
            search("parts.db", until)
        assert search("parts.db") == whole
    assert {state for state, _, _ in whole} == {"COMPLETE", "PRUNED"}
    assert whole[0][:2] == ("COMPLETE", 9), "the baseline runs to its end"


def test_an_audited_trial_counts_at_no_later_rung() -> None:
    """Neither in a search that hears it end nor in one that begins afterwards."""
    play = Play(spec_of(**HALVING))
    for number, value in enumerate((1.0, 2.0, 3.0)):
        play.report(number, 1, value)
    audited = optuna.Trial(play.study, play.trials[2]._trial_id)
    audited.set_user_attr("audited", 1)
    for step in (3, 9, 27):
        audited.report(0.0, step)
    play.end(2, TrialState.COMPLETE)
    for step, one in ((2, play), (3, Play(play.spec, onto=play))):
        one.report(0, step, 1.0)
        assert set(in_tune(one.study.pruner)[3]) <= {"0"} and not in_tune(one.study.pruner)[9]
    assert play.noted(2) == {f"{RUNG_PREFIX}0": 3.0}
