from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.trainer.config import SCHEDULERS, LoraConfig
from hpsearch.trainer.schedule import learning_rate, lr_factor, report_due

progress = st.floats(0, 1)
schedulers = st.sampled_from(SCHEDULERS)


@given(progress, schedulers, st.floats(0, 1), st.floats(0, 1))
def test_it_stays_between_nothing_and_the_peak(
    at: float, scheduler: str, warmup: float, floor: float
) -> None:
    assert 0 <= lr_factor(at, scheduler=scheduler, warmup=warmup, floor=floor) <= 1


@given(schedulers, st.floats(0, 0.99), st.floats(0, 1))
def test_it_peaks_where_the_warmup_ends_and_ends_on_the_floor(
    scheduler: str, warmup: float, floor: float
) -> None:
    assert lr_factor(warmup, scheduler=scheduler, warmup=warmup, floor=floor) == 1
    end = lr_factor(1.0, scheduler=scheduler, warmup=warmup, floor=floor)
    assert end == pytest.approx(1.0 if scheduler == "constant" else floor, abs=1e-9)


@given(progress, schedulers, st.floats(0.05, 0.9), st.floats(0, 1))
def test_it_has_no_jumps(at: float, scheduler: str, warmup: float, floor: float) -> None:
    near = min(1.0, at + 1e-6)
    kwargs = {"warmup": warmup, "floor": floor}
    assert lr_factor(near, scheduler=scheduler, **kwargs) == pytest.approx(
        lr_factor(at, scheduler=scheduler, **kwargs), abs=1e-4
    )


@given(schedulers, st.lists(progress, min_size=2, max_size=2), st.floats(0, 0.9))
def test_it_rises_through_the_warmup_and_never_after(
    scheduler: str, places: list[float], warmup: float
) -> None:
    early, late = sorted(places)
    first, second = (lr_factor(at, scheduler=scheduler, warmup=warmup) for at in (early, late))
    if late <= warmup:
        assert first <= second
    if early >= warmup:
        assert first >= second


def test_cosine_is_the_cosine() -> None:
    assert lr_factor(0.25, scheduler="cosine") == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    assert lr_factor(0.5, scheduler="cosine", floor=0.1) == pytest.approx(0.55)


def test_no_step_is_wasted_on_a_rate_of_zero() -> None:
    config = LoraConfig(max_steps=10, learning_rate=1.0, lr_scheduler="linear", warmup_steps=2)
    rates = [learning_rate(config, step) for step in range(10)]
    assert rates[:2] == pytest.approx([0.25, 0.75])
    assert rates[2] == pytest.approx(1 - 0.5 / 8)
    assert rates[-1] == pytest.approx(0.5 / 8)


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
