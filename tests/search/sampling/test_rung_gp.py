"""hpsearch's own sampler: its proposals for given histories."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from hpsearch.search.sampling.distributions import suggest
from hpsearch.search.sampling.factory import make_sampler
from hpsearch.search.sampling.whole_sampler import WholeSampler
from hpsearch.spaces import Spec
from hpsearch.spaces.samplers import RungGP
from hpsearch.storage.trial_attrs import SUGGESTED_BY

STOPPING = {"method": "asha", "type": "promotion", "min": 1, "max": 9, "eta": 3}
STARTUP = RungGP.default_startup_trials or 0
Loss = Callable[[dict[str, Any], int], float]


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def configured(spec: Spec, trial: optuna.Trial) -> dict[str, Any]:
    return spec.space.resolve(lambda name, parameter: suggest(trial, name, parameter))


def run(spec: Spec, loss: Loss, trials: int, study: optuna.Study | None = None) -> optuna.Study:
    """A search in memory: one trial in three reaches the middle, one in nine the end; the others pause."""
    study = study or optuna.create_study(sampler=make_sampler(spec))
    for _ in range(trials):
        trial = study.ask()
        config = configured(spec, trial)
        assert spec.space.violated(config) is None
        last = 9 if trial.number % 9 == 0 else 3 if trial.number % 3 == 0 else 1
        for step in (1, 3, 9):
            if step <= last:
                trial.report(loss(config, step), step)
        if last == 9:
            study.tell(trial, loss(config, 9))
    return study


def bowl(config: dict[str, Any], step: int) -> float:
    return sum((value - 0.3) ** 2 for value in config.values() if isinstance(value, float)) + 1 / step


BOX = {f"x{index}": {"min": 0.0, "max": 1.0} for index in range(4)}


def proposals(spec: Spec, **options: Any) -> list[FrozenTrial]:
    return run(spec, bowl, **options).get_trials()


def test_it_proposes_better_than_its_own_sequence(make_spec: Any) -> None:
    spec = make_spec(parameters=BOX, early_stopping=STOPPING, search={"sampler": "rung_gp"})
    trials = proposals(spec, trials=60)
    by_models = [t for t in trials if "models" in t.system_attrs[SUGGESTED_BY]]
    by_sequence = [t for t in trials if "sequence" in t.system_attrs[SUGGESTED_BY]]
    assert len(by_models) + len(by_sequence) == 60 and all(t.number >= STARTUP for t in by_models)
    assert 28 <= len(by_models) <= 39, "85 % of forty"
    models, sequence = (
        statistics.median(bowl(t.params, 1) - 1 for t in part) for part in (by_models, by_sequence)
    )
    assert models < sequence / 2
    assert by_models[-1].system_attrs[SUGGESTED_BY].startswith("expected best by models of ")


@pytest.mark.parametrize(("startup", "first"), [(0, 6), (9, 9)])
def test_its_models_begin_when_the_space_says_so(make_spec: Any, startup: int, first: int) -> None:
    """But not before six trials, without which there is no model."""
    search = {"sampler": "rung_gp", "n_startup_trials": startup}
    spec = make_spec(parameters=BOX, early_stopping=STOPPING, search=search)
    by_models = [t.number for t in proposals(spec, trials=30) if "models" in t.system_attrs[SUGGESTED_BY]]
    assert first <= by_models[0] <= first + 2 and len(by_models) >= 14


def test_a_first_rung_that_misleads_does_not_decide_alone(make_spec: Any) -> None:
    """The first rung alone would prefer 0.9; the higher ones prefer 0.1."""

    def misleading(config: dict[str, Any], step: int) -> float:
        x: float = config["x"]
        return abs(x - 0.9) * 0.2 if step == 1 else abs(x - 0.1)

    parameters = {"x": {"min": 0.0, "max": 1.0}}
    spec = make_spec(parameters=parameters, early_stopping=STOPPING, search={"sampler": "rung_gp"})
    trials = run(spec, misleading, 90).get_trials()
    late = [t.params["x"] for t in trials[60:] if "models" in t.system_attrs[SUGGESTED_BY]]
    assert statistics.median(late) < 0.6


def test_the_same_history_gives_the_same_proposal(make_spec: Any) -> None:
    spec = make_spec(parameters=BOX, early_stopping=STOPPING, search={"sampler": "rung_gp"})
    once = [t.params for t in proposals(spec, trials=40)]
    study = run(spec, bowl, 25)
    study.sampler = make_sampler(spec)  # as a resumed search makes it
    assert [t.params for t in run(spec, bowl, 15, study).get_trials()] == once
    other = make_spec(parameters=BOX, early_stopping=STOPPING, search={"sampler": "rung_gp", "seed": 1})
    assert [t.params for t in proposals(other, trials=3)] != once[:3]


def test_no_configuration_is_repeated_while_others_are_left(make_spec: Any) -> None:
    parameters = {"a": [1, 2, 4, 8], "b": ["x", "y", "z"], "c": {"min": 1, "max": 4}}
    spec = make_spec(parameters=parameters, search={"sampler": "rung_gp"}, early_stopping=STOPPING)
    trials = run(spec, lambda config, step: config["a"] / step, 60).get_trials()
    keys = [tuple(sorted(t.params.items())) for t in trials]
    assert len(set(keys[:44])) >= 43, "of 48: nearly all before one is repeated"


def test_models_propose_what_no_trial_has(make_spec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise most of their proposals in a small space are tried ones, and random ones take their place."""
    first_new = WholeSampler.first_new
    looked_at: list[int] = []  # proposals, by trial

    def counted(self: Any, study: Any, trial: Any, given: Any, proposals: Any, draw: Any) -> Any:
        looked_at.append(0)

        def each() -> Iterator[Any]:
            for proposal in proposals:
                looked_at[-1] += 1
                yield proposal

        return first_new(self, study, trial, given, each(), draw)

    def noisy(config: dict[str, Any], step: int) -> float:
        return bowl(config, step) + random.Random(repr(config)).gauss(0, 0.1)

    monkeypatch.setattr(WholeSampler, "first_new", counted)
    small = {name: {**box, "step": 0.25} for name, box in list(BOX.items())[:3]}
    spec = make_spec(parameters=small, early_stopping=STOPPING, search={"sampler": "rung_gp"})
    trials = run(spec, noisy, 60).get_trials()
    modelled = [n for n, t in zip(looked_at, trials, strict=True) if "models" in t.system_attrs[SUGGESTED_BY]]
    assert len(modelled) > 20 and set(modelled) == {1}


def test_a_single_allowed_configuration_is_repeated(make_spec: Any) -> None:
    spec = make_spec(
        parameters={"x": {"min": 0, "max": 99}},
        constraints=["x == 7"],
        search={"sampler": "rung_gp"},
        early_stopping=STOPPING,
    )
    assert [trial.params for trial in proposals(spec, trials=3)] == [{"x": 7}] * 3


def test_constraints_and_conditions_hold_for_every_proposal(make_spec: Any) -> None:
    parameters = BOX | {"kind": ["a", "b"], "y": {"min": 0.0, "max": 1.0, "when": {"kind": "b"}}}
    spec = make_spec(
        parameters=parameters,
        constraints=["x0 + x1 < 0.7"],
        search={"sampler": "rung_gp"},
        early_stopping=STOPPING,
    )
    trials = run(spec, lambda c, step: bowl(c, step) + (c["kind"] == "a"), 60).get_trials()
    assert all(("y" in t.params) == (t.params["kind"] == "b") for t in trials)
    late = Counter(t.params["kind"] for t in trials[STARTUP:] if "models" in t.system_attrs[SUGGESTED_BY])
    assert late["b"] > 3 * late["a"]


def test_a_point_of_the_sequence_that_is_refused_gives_way_to_another(make_spec: Any) -> None:
    """The others stay as they are."""
    spec = make_spec(
        parameters=BOX, constraints=["x0 + x1 < 0.4"], search={"sampler": "rung_gp"}, early_stopping=STOPPING
    )
    free = make_spec(parameters=BOX, search={"sampler": "rung_gp"}, early_stopping=STOPPING)
    trials, whole = (proposals(each, trials=STARTUP) for each in (spec, free))
    by = [t.system_attrs[SUGGESTED_BY] for t in trials]
    assert all(source.endswith(" of the quasi-random sequence") for source in by)
    kept = [own.params == other.params for own, other in zip(trials, whole, strict=True)]
    assert kept == [t.params["x0"] + t.params["x1"] < 0.4 for t in whole]
    assert kept == [source == f"point {n + 1} of the quasi-random sequence" for n, source in enumerate(by)]
    assert 0 < sum(kept) < STARTUP / 2


def test_a_proposal_near_a_prior_that_is_refused_is_drawn_again(make_spec: Any) -> None:
    prior = {"at": 0.5, "confidence": "high"}
    spec = make_spec(
        parameters=BOX | {"x0": {"min": 0.0, "max": 1.0, "prior": prior}},
        constraints=["x0 < 0.5"],
        search={"sampler": "rung_gp"},
        early_stopping=STOPPING,
    )
    near = [t for t in proposals(spec, trials=60) if t.system_attrs[SUGGESTED_BY] == "drawn near the prior"]
    assert len(near) > 5 and statistics.median(t.params["x0"] for t in near) > 0.35


def test_a_trial_drawn_at_random_says_so(make_spec: Any) -> None:
    spec = make_spec(
        parameters={"x": {"min": 0, "max": 99}}, constraints=["x == 7"], search={"sampler": "rung_gp"}
    )
    by = proposals(spec, trials=2)[1].system_attrs[SUGGESTED_BY]
    assert by.startswith("drawn at random; refused or tried first: point ")


@pytest.mark.parametrize("fails", [False, True], ids=["diverges", "fails"])
@pytest.mark.parametrize("breaks_at", [1, 3], ids=["at once", "after it looked best at a rung"])
def test_it_avoids_untrainable_configurations(make_spec: Any, breaks_at: int, fails: bool) -> None:
    spec = make_spec(parameters=BOX, early_stopping=STOPPING, search={"sampler": "rung_gp"})
    study = optuna.create_study(sampler=make_sampler(spec))
    for _ in range(60):
        trial = study.ask()
        config = configured(spec, trial)
        trainable = config["x0"] <= 0.5
        for step in (1, 3, 9):
            if trainable or step < breaks_at:
                trial.report(1 - config["x0"] + 1 / step, step)
        if trainable:
            study.tell(trial, 1 - config["x0"])
        elif fails:
            study.tell(trial, state=TrialState.FAIL)
        else:
            trial.set_constraint("diverged", 1.0)
            study.tell(trial, state=TrialState.PRUNED)
    late = [t for t in study.get_trials()[30:] if "models" in t.system_attrs[SUGGESTED_BY]]
    assert sum(t.params["x0"] <= 0.5 for t in late) > 0.7 * len(late)


def test_running_trials_keep_proposals_away(make_spec: Any) -> None:
    spec = make_spec(parameters=BOX, early_stopping=STOPPING, search={"sampler": "rung_gp"})
    study = run(spec, bowl, 40)
    asked = []
    for _ in range(9):  # nine workers at the same time
        trial = study.ask()
        asked.append(configured(spec, trial))
    gaps = [math.dist(a.values(), b.values()) for i, a in enumerate(asked) for b in asked[:i]]
    assert min(gaps) > 0.02


@pytest.mark.parametrize(("confidence", "least"), [("low", 1), ("medium", 3), ("high", 6)])
def test_a_prior_shapes_the_start_and_fades(make_spec: Any, confidence: str, least: int) -> None:
    parameters = BOX | {"x0": {"min": 0.0, "max": 1.0, "prior": {"at": 0.8, "confidence": confidence}}}
    spec = make_spec(parameters=parameters, early_stopping=STOPPING, search={"sampler": "rung_gp"})
    trials = proposals(spec, trials=100)
    near = [t for t in trials if "prior" in t.system_attrs[SUGGESTED_BY]]
    assert sum(t.number < 30 for t in near) >= least
    assert sum(t.number >= 70 for t in near) < max(4, 30 * 0.25)
    assert statistics.median(t.params["x0"] for t in near) == pytest.approx(0.8, abs=0.15)


@pytest.mark.parametrize(
    "stopping",
    [{"method": "none"}, {"method": "median"}, {"method": "none", "max": 9}, {"method": "median", "max": 10}],
    ids=["none", "median", "it reports at the last step", "its last report is before that"],
)
def test_it_needs_no_rungs(make_spec: Any, stopping: dict[str, Any]) -> None:
    spec = make_spec(parameters=BOX, search={"sampler": "rung_gp"}, early_stopping=stopping)
    study = optuna.create_study(sampler=make_sampler(spec))
    for _ in range(45):
        trial = study.ask()
        config = configured(spec, trial)
        trial.report(bowl(config, 9), 9)
        study.tell(trial, bowl(config, 9))
    found: dict[bool, list[float]] = {True: [], False: []}
    for ended in study.get_trials():
        found["models" in ended.system_attrs[SUGGESTED_BY]].append(bowl(ended.params, 1) - 1)
    assert statistics.median(found[True][5:]) < 0.75 * statistics.median(found[False])
