from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim.lr_scheduler import (
    CosineAnnealingWarmRestarts,
    LRScheduler,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    StepLR,
)

from hpsearch.trainer.config.models import LoraConfig, TrainConfig
from hpsearch.trainer.config.rules import rules
from hpsearch.trainer.config.training import DECAYS, SCHEDULER_OPTIONS, SCHEDULERS
from hpsearch.trainer.errors import ConfigError
from hpsearch.trainer.optim.schedule import History, learning_rate, lr_factor, report_due

STEPS = 1000
TO_THE_FLOOR = {"linear", "cosine", "cosine_with_restarts", "polynomial", "warmup_stable_decay", "one_cycle"}

FEW = settings(max_examples=25)  # for each of the schedulers
progress = st.floats(0, 1)
warmups = st.floats(0, 0.99)
options = st.fixed_dictionaries(
    {
        "min_lr_ratio": st.floats(0, 1),
        "lr_cycles": st.integers(1, 1000),
        "lr_power": st.floats(0.1, 10),
        "lr_step_every": st.floats(0.001, 1),
        "lr_gamma": st.floats(0.01, 0.99),
        "lr_timescale": st.none() | st.floats(0.01, 10),
        "lr_decay_ratio": st.floats(0.01, 1),
        "lr_decay_type": st.sampled_from(DECAYS),
        "lr_rise_ratio": st.floats(0.01, 0.99),
        "lr_start_divisor": st.floats(1, 1e6),
        "lr_plateau_patience": st.integers(0, 3),
        "lr_plateau_factor": st.floats(0.01, 0.99),
        "lr_plateau_min_delta": st.floats(0, 1),
    }
)
losses = st.lists(st.floats(0, 5) | st.sampled_from([math.nan, math.inf]), max_size=20)


def config(scheduler: str, **params: Any) -> TrainConfig:
    return LoraConfig.from_params(
        {"max_steps": STEPS, "learning_rate": 1.0, "lr_scheduler": scheduler} | params
    )


def validated(values: Sequence[float], every: int = STEPS // 20) -> History:
    return [(every * number, value) for number, value in enumerate(values, 1)]


def peak_at(made: TrainConfig) -> float:
    """How far the run has come where the rate has risen."""
    rise = made.lr_rise_ratio if made.lr_scheduler == "one_cycle" else 0.0
    return made.warmup_ratio + (1.0 - made.warmup_ratio) * rise


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@FEW
@given(at=progress, warmup=warmups, given=options, values=losses)
def test_it_stays_between_the_floor_and_the_peak(
    scheduler: str, at: float, warmup: float, given: dict[str, Any], values: list[float]
) -> None:
    made = config(scheduler, warmup_ratio=warmup, **given)
    factor = lr_factor(made, at, validated(values))
    assert 0 <= factor <= 1
    if at > peak_at(made):
        assert factor >= min(1.0, made.min_lr_ratio) * (1 - 1e-12)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@FEW
@given(warmup=warmups, given=options, values=losses)
def test_it_peaks_where_the_rise_ends_and_ends_on_the_floor(
    scheduler: str, warmup: float, given: dict[str, Any], values: list[float]
) -> None:
    made = config(scheduler, warmup_ratio=warmup, **given)
    during_the_warmup = [(step, value) for step, value in validated(values) if step / STEPS < warmup]
    assert lr_factor(made, peak_at(made), during_the_warmup) == pytest.approx(1, abs=1e-6)
    if scheduler in TO_THE_FLOOR:
        assert lr_factor(made, 1.0) == pytest.approx(made.min_lr_ratio, abs=1e-9)
    if scheduler in {"constant", "reduce_on_plateau"}:
        assert lr_factor(made, 1.0) == 1


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@FEW
@given(
    at=progress | st.integers(1, 20).map(lambda number: number / 20 - 5e-10),  # where a plateau may drop
    warmup=st.floats(0.05, 0.9),
    given=options,
    values=losses,
)
def test_it_jumps_down_at_drops_and_up_at_restarts_only(
    scheduler: str, at: float, warmup: float, given: dict[str, Any], values: list[float]
) -> None:
    made = config(scheduler, warmup_ratio=warmup, **given)
    history = validated(values)
    near = min(1.0, at + 1e-9)
    before, after = lr_factor(made, at, history), lr_factor(made, near, history)
    if abs(before - after) < 5e-3:  # 1 - sqrt(u) and polynomials below 1 are steep at an end of theirs
        return
    assert near > at
    t, t_near = ((place - warmup) / (1 - warmup) for place in (at, near))
    if scheduler == "polynomial":
        assert made.lr_power < 1 and near > 1 - 1e-6
    elif scheduler == "warmup_stable_decay":
        assert made.lr_decay_type == "1-sqrt" and abs(t_near - (1 - made.lr_decay_ratio)) < 1e-6
    elif scheduler == "cosine_with_restarts":
        assert math.floor(t_near * made.lr_cycles) == math.floor(t * made.lr_cycles) + 1 and after > before
    elif scheduler == "step":
        assert math.floor(t_near / made.lr_step_every) == math.floor(t / made.lr_step_every) + 1
        assert after < before
    else:
        assert scheduler == "reduce_on_plateau"
        assert after < before and any(at < step / STEPS <= near for step, _ in history)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@FEW
@given(places=st.lists(progress, min_size=2, max_size=2), warmup=warmups, given=options, values=losses)
def test_it_rises_to_the_peak_and_never_after_but_at_restarts(
    scheduler: str, places: list[float], warmup: float, given: dict[str, Any], values: list[float]
) -> None:
    made = config(scheduler, warmup_ratio=warmup, **given)
    early, late = sorted(places)
    first, second = (lr_factor(made, at, validated(values)) for at in (early, late))
    if late <= peak_at(made):
        assert first <= second + 1e-12
    if early >= peak_at(made) and scheduler != "cosine_with_restarts":
        assert first >= second - 1e-12


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@FEW
@given(steps=st.integers(0, 50), total=st.integers(1, 50), values=losses)
def test_a_warmup_by_steps_is_one_by_their_share(
    scheduler: str, steps: int, total: int, values: list[float]
) -> None:
    history = validated(values, every=3)
    by_steps = config(scheduler, max_steps=total, warmup_steps=steps)
    by_share = config(scheduler, max_steps=total, warmup_ratio=min(1.0, steps / total))
    for step in range(total):
        assert learning_rate(by_steps, step, history) == learning_rate(by_share, step, history)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@FEW
@given(given=options, warmup=st.floats(0, 0.9), values=losses)
def test_a_run_of_the_same_samples_follows_the_same_curve_in_any_batches(
    scheduler: str, given: dict[str, Any], warmup: float, values: list[float]
) -> None:
    """The middle of one step of 24 samples is the middle of the second of three steps of 8."""
    length = {"max_steps": None, "max_samples": 960, "warmup_ratio": warmup}
    small = config(scheduler, batch_size=8, **length, **given)
    large = config(scheduler, batch_size=8, gradient_accumulation_steps=3, **length, **given)
    history = validated(values, every=2)
    finer = [(3 * step, value) for step, value in history]
    for step in range(large.total_steps):
        wanted = learning_rate(small, 3 * step + 1, finer)
        assert learning_rate(large, step, history) == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_it_is_a_share_of_the_learning_rate(scheduler: str) -> None:
    history = validated([2.0] * 20)
    for step in range(0, STEPS, 7):
        share = learning_rate(config(scheduler), step, history)
        assert learning_rate(config(scheduler, learning_rate=3e-4), step, history) == 3e-4 * share


def test_no_two_schedulers_are_the_same_by_default() -> None:
    history = validated([2.0] * 20)
    curves = {
        tuple(round(learning_rate(config(scheduler), step, history), 3) for step in range(0, STEPS, 50))
        for scheduler in SCHEDULERS
    }
    assert len(curves) == len(SCHEDULERS)


@given(scheduler=st.sampled_from(["constant", "linear", "cosine"]), warmup=progress, floor=progress)
def test_the_three_simple_ones_are_their_formulas_to_the_last_bit(
    scheduler: str, warmup: float, floor: float
) -> None:
    """A run that goes on from a checkpoint goes on with the same rates in every version."""
    made = config(scheduler, max_steps=37, warmup_ratio=warmup, min_lr_ratio=floor, learning_rate=3e-3)
    for step in range(37):
        at = (step + 0.5) / 37
        if at < warmup:
            wanted = at / warmup
        else:
            t = (at - warmup) / (1.0 - warmup) if warmup < 1.0 else 0.0
            fall = {"linear": 1.0 - t, "cosine": 0.5 * (1.0 + math.cos(math.pi * t))}
            wanted = 1.0 if scheduler == "constant" else floor + (1.0 - floor) * fall[scheduler]
        assert learning_rate(made, step) == 3e-3 * wanted


@pytest.mark.parametrize(
    ("scheduler", "params", "wanted"),
    [
        ("constant", {"min_lr_ratio": 0.3}, {0.0: 1, 0.6: 1, 1.0: 1}),
        ("linear", {"min_lr_ratio": 0.2}, {0.0: 1, 0.25: 0.8, 1.0: 0.2}),
        ("cosine", {}, {0.25: (1 + math.sqrt(0.5)) / 2, 0.5: 0.5}),
        ("cosine", {"min_lr_ratio": 0.1}, {0.5: 0.55}),
        ("cosine_with_restarts", {}, {0.25: 0.5, 0.4999999: 0, 0.5: 1, 0.75: 0.5, 1.0: 0}),
        ("cosine_with_restarts", {"lr_cycles": 4}, {0.125: 0.5, 0.25: 1, 0.875: 0.5}),
        ("cosine_with_restarts", {"lr_cycles": 3, "min_lr_ratio": 0.2}, {0.5: 0.6, 0.999999: 0.2}),
        ("polynomial", {}, {0.5: 0.25, 0.75: 0.0625}),
        ("polynomial", {"lr_power": 0.5, "min_lr_ratio": 0.1}, {0.75: 0.55, 1.0: 0.1}),
        ("step", {}, {0.29: 1, 0.31: 0.1, 0.59: 0.1, 0.61: 0.01, 0.91: 0.001}),
        ("step", {"lr_step_every": 0.5, "lr_gamma": 0.2}, {0.49: 1, 0.51: 0.2, 0.99: 0.2}),
        ("step", {"min_lr_ratio": 0.05}, {0.31: 0.1, 0.61: 0.05, 0.91: 0.05}),
        ("inverse_sqrt", {}, {0.0: 1, 0.3: 0.5, 0.8: 1 / 3}),
        ("inverse_sqrt", {"lr_timescale": 0.25}, {0.75: 0.5}),
        ("inverse_sqrt", {"warmup_ratio": 0.2, "lr_timescale": 0.25}, {0.2: 1, 0.8: 0.5}),
        ("inverse_sqrt", {"min_lr_ratio": 0.4}, {0.3: 0.5, 0.8: 0.4}),
        ("warmup_stable_decay", {}, {0.8: 1, 0.9: 0.5, 0.85: (1 + math.sqrt(0.5)) / 2, 1.0: 0}),
        ("warmup_stable_decay", {"lr_decay_type": "linear", "lr_decay_ratio": 0.4}, {0.6: 1, 0.7: 0.75}),
        ("warmup_stable_decay", {"lr_decay_type": "1-sqrt", "min_lr_ratio": 0.1}, {0.85: 0.55, 1.0: 0.1}),
        ("warmup_stable_decay", {"warmup_ratio": 0.5}, {0.25: 0.5, 0.5: 1, 0.9: 1, 0.95: 0.5}),
        ("one_cycle", {}, {0.0: 1 / 25, 0.15: 0.52, 0.3: 1, 0.65: 0.5, 1.0: 0}),
        ("one_cycle", {"lr_rise_ratio": 0.5, "lr_start_divisor": 4}, {0.0: 0.25, 0.25: 0.625, 0.5: 1}),
        ("one_cycle", {"min_lr_ratio": 0.2}, {0.0: 0.04, 0.65: 0.6, 1.0: 0.2}),
        ("one_cycle", {"warmup_ratio": 0.5}, {0.0: 0, 0.25: 0.02, 0.5: 0.04, 0.65: 1, 0.825: 0.5}),
    ],
)  # fmt: skip
def test_the_rate_by_hand(scheduler: str, params: dict[str, Any], wanted: dict[float, float]) -> None:
    made = config(scheduler, **params)
    assert {at: lr_factor(made, at) for at in wanted} == pytest.approx(wanted, abs=1e-6)


@given(warmup=st.floats(0.01, 0.99), at=progress)
def test_inverse_sqrt_is_the_papers_equation(warmup: float, at: float) -> None:
    """Vaswani et al. 2017, equation 3: min(step^-0.5, step warmup_steps^-1.5), here with its peak at 1."""
    if at > 0:
        wanted = min(at**-0.5, at * warmup**-1.5) / warmup**-0.5
        assert lr_factor(config("inverse_sqrt", warmup_ratio=warmup), at) == pytest.approx(wanted)


# --- beside PyTorch's ---------------------------------------------------------------------------------------


def optimizer() -> torch.optim.SGD:
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


def rates(scheduler: LRScheduler, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        found.append(float(scheduler.get_last_lr()[0]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that no optimizer step was made: none is needed
            scheduler.step()
    return found


def ours(made: TrainConfig, steps: int) -> list[float]:
    """At the same places: PyTorch takes a step's rate at its beginning."""
    return [lr_factor(made, step / steps) for step in range(steps)]


def test_restarts_are_pytorchs() -> None:
    theirs = CosineAnnealingWarmRestarts(optimizer(), T_0=16, eta_min=0.1)
    made = config("cosine_with_restarts", lr_cycles=4, min_lr_ratio=0.1)
    assert ours(made, 64) == pytest.approx(rates(theirs, 64))


def test_polynomial_is_pytorchs() -> None:
    theirs = PolynomialLR(optimizer(), total_iters=50, power=1.7)
    assert ours(config("polynomial", lr_power=1.7), 50) == pytest.approx(rates(theirs, 50))


def test_step_is_pytorchs() -> None:
    theirs = StepLR(optimizer(), step_size=16, gamma=0.3)
    assert ours(config("step", lr_step_every=0.25, lr_gamma=0.3), 64) == pytest.approx(rates(theirs, 64))


@pytest.mark.parametrize("floor", [0.001, 0.3])
def test_one_cycle_is_pytorchs(floor: float) -> None:
    """Its first phase ends one step before its share of them, its last one on the last: one more than ours."""
    theirs = OneCycleLR(
        optimizer(), max_lr=1.0, total_steps=51, pct_start=(0.4 * 50 + 1) / 51, div_factor=10,
        final_div_factor=0.1 / floor, cycle_momentum=False,
    )  # fmt: skip
    made = config("one_cycle", lr_rise_ratio=0.4, lr_start_divisor=10, min_lr_ratio=floor)
    assert ours(made, 50) == pytest.approx(rates(theirs, 50))


@given(
    values=losses,
    patience=st.integers(0, 3),
    factor=st.floats(0.1, 0.9),
    delta=st.floats(0, 1),
    floor=st.floats(0, 1),
)
def test_plateau_is_pytorchs(
    values: list[float], patience: int, factor: float, delta: float, floor: float
) -> None:
    theirs = ReduceLROnPlateau(
        optimizer(), patience=patience, factor=factor, threshold=delta, threshold_mode="abs", min_lr=floor,
        eps=0.0,
    )  # fmt: skip
    made = config(
        "reduce_on_plateau", max_steps=20, lr_plateau_patience=patience, lr_plateau_factor=factor,
        lr_plateau_min_delta=delta, min_lr_ratio=floor,
    )  # fmt: skip
    history = validated(values, every=1)
    for step, value in history:
        theirs.step(value)
        if step < 20:
            assert learning_rate(made, step, history) == pytest.approx(theirs.get_last_lr()[0])


# --- the plateau's history ----------------------------------------------------------------------------------


def test_a_plateau_drops_from_the_step_after_the_validation_on() -> None:
    made = config("reduce_on_plateau", max_steps=20, lr_plateau_patience=1, lr_plateau_factor=0.1)
    history = [(2, 3.0), (4, 2.0), (6, 2.5), (8, 2.1), (10, 1.9), (12, 1.9), (14, 1.95), (16, 1.8)]
    found = [learning_rate(made, step, history) for step in range(20)]
    assert found == pytest.approx([1.0] * 8 + [0.1] * 6 + [0.01] * 6)


def test_a_plateau_counts_from_the_end_of_the_warmup_on() -> None:
    made = config("reduce_on_plateau", max_steps=20, warmup_steps=10, lr_plateau_patience=0)
    history = [(3, 2.0), (6, 2.1), (9, 2.2), (12, 2.3), (15, 1.9)]
    found = [learning_rate(made, step, history) for step in range(20)]
    assert found == pytest.approx([(step + 0.5) / 10 for step in range(10)] + [1, 1] + [0.5] * 8)


def test_reduce_on_plateau_counts_nan_as_no_gain() -> None:
    made = config("reduce_on_plateau", max_steps=10, lr_plateau_patience=0)
    found = [
        learning_rate(made, step, [(1, math.nan), (2, 2.0), (3, math.nan), (4, 1.0)]) for step in range(6)
    ]
    assert found == [1, 0.5, 0.5, 0.25, 0.25, 0.25]


@given(values=losses, scheduler=st.sampled_from(SCHEDULERS))
def test_later_validations_change_no_rate(values: list[float], scheduler: str) -> None:
    history = validated(values)
    for step in range(0, STEPS, 25):
        whole = learning_rate(config(scheduler), step, history)
        known = () if scheduler != "reduce_on_plateau" else [entry for entry in history if entry[0] <= step]
        assert whole == learning_rate(config(scheduler), step, known)


# --- options ------------------------------------------------------------------------------------------------


OTHERS = {
    "learning_rate": 0.5, "warmup_ratio": 0.1, "warmup_steps": 10, "lr_scheduler": "cosine", "min_lr_ratio": 0.5,
    "lr_cycles": 3, "lr_power": 3.0, "lr_step_every": 0.2, "lr_gamma": 0.2, "lr_timescale": 0.3,
    "lr_decay_ratio": 0.5, "lr_decay_type": "linear", "lr_rise_ratio": 0.5, "lr_start_divisor": 5.0,
    "lr_plateau_patience": 2, "lr_plateau_factor": 0.1, "lr_plateau_min_delta": 0.2,
}  # fmt: skip
FOR_ALL = {"learning_rate", "warmup_ratio", "warmup_steps", "lr_scheduler", "min_lr_ratio"}


def users(name: str) -> set[str]:
    """The schedulers whose rates another value of the option changes."""
    history = validated([2.0, 1.9] + [1.8] * 8 + [1.7] * 10)
    steps = range(0, STEPS, 10)

    def curve(scheduler: str, **params: Any) -> list[float]:
        made = config(scheduler, **params)
        return [learning_rate(made, step, history) for step in steps]

    return {
        scheduler for scheduler in SCHEDULERS if curve(scheduler) != curve(scheduler, **{name: OTHERS[name]})
    }


def test_every_option_changes_the_schedulers_that_its_help_names_and_no_other() -> None:
    known = rules(LoraConfig)
    assert set(OTHERS) == FOR_ALL | {name for name in known if name.startswith("lr_")}
    for name in OTHERS.keys() - FOR_ALL:
        owners = {scheduler for scheduler, names in SCHEDULER_OPTIONS.items() if name in names}
        assert users(name) == owners == {known[name].help.partition(":")[0]}, name
    assert users("min_lr_ratio") == set(SCHEDULERS) - {"constant"}
    assert users("learning_rate") == users("warmup_ratio") == users("warmup_steps") == set(SCHEDULERS)
    assert users("lr_scheduler") == set(SCHEDULERS) - {"cosine"}


@pytest.mark.parametrize(
    ("found", "meant"),
    [
        ("cosine_with_restart", "cosine_with_restarts"),
        ("reduce_lr_on_plateau", "reduce_on_plateau"),
        ("onecycle", "one_cycle"),
        ("inv_sqrt", "inverse_sqrt"),
        ("warmup-stable-decay", "warmup_stable_decay"),
    ],
)
def test_a_near_name_is_suggested(found: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f'did you mean "{meant}"'):
        config(found)


def test_no_step_is_wasted_on_a_rate_of_zero() -> None:
    made = config("linear", max_steps=10, warmup_steps=2)
    found = [learning_rate(made, step) for step in range(10)]
    assert found[:2] == pytest.approx([0.25, 0.75])
    assert found[2] == pytest.approx(1 - 0.5 / 8)
    assert found[-1] == pytest.approx(0.5 / 8)


# --- reports ------------------------------------------------------------------------------------------------


@given(samples=st.integers(1, 300), every=st.integers(1, 120), batch=st.integers(1, 32))
def test_the_step_of_a_report_is_where_it_was_due(samples: int, every: int, batch: int) -> None:
    lengths: list[dict[str, Any]] = [{"max_samples": max(samples, batch)}, {"max_steps": samples}]
    for length in lengths:
        made = LoraConfig(**length, eval_every=every, batch_size=batch)
        places = {step: report_due(made, step) for step in range(made.total_steps + 1)}
        for step, place in places.items():
            assert place is None or made.steps_to(place) == step


@given(
    samples=st.integers(1, 300),
    every=st.integers(1, 120),
    batch=st.integers(1, 32),
)
def test_reports_rise_on_the_grid_and_end_at_the_end(samples: int, every: int, batch: int) -> None:
    if batch > samples:
        return
    config = LoraConfig(max_samples=samples, eval_every=every, batch_size=batch)
    places = {step: report_due(config, step) for step in range(config.total_steps + 1)}
    reports = [place for place in places.values() if place is not None]
    assert places[0] is None
    assert reports == sorted(set(reports))
    assert reports[-1] == samples
    assert all(place % every == 0 for place in reports[:-1])
    for step, place in places.items():
        if place is not None:
            assert place <= step * batch < place + every + batch  # the highest point that is behind it
    if batch <= every:
        before_the_last = (config.total_steps - 1) * batch
        assert set(range(every, before_the_last + 1, every)) <= set(reports), "a rung on the grid is missed"
