"""The range test: its sums, and a test of a real run."""

from __future__ import annotations

import dataclasses
import math

import pytest

from hpsearch.trainer.config.models import LoraConfig, PretrainConfig
from hpsearch.trainer.runs.run import GptRun
from hpsearch.trainer.tools.range_test import (
    NO_RATE,
    Point,
    has_diverged,
    loss_of_step,
    proposal,
    range_test,
    smoothed,
)


def test_smoothing_is_corrected_for_its_beginning() -> None:
    assert smoothed([2.0, 2.0, 2.0]) == pytest.approx([2.0, 2.0, 2.0])
    # (0.8 * 1 + 2) / (0.8 + 1), then (0.64 * 1 + 0.8 * 2 + 4) / (0.64 + 0.8 + 1)
    assert smoothed([1.0, 2.0, 4.0]) == pytest.approx([1.0, 2.8 / 1.8, 6.24 / 2.44])


def test_diverged_is_twice_the_best_and_worse_than_at_first() -> None:
    assert not has_diverged([2.0, 0.5, 1.9])
    assert has_diverged([2.0, 0.5, 2.1])
    assert not has_diverged([2.0, 1.5, 2.9])
    assert has_diverged([2.0, 1.5, 3.1])


RATES = [10.0**power for power in range(-6, 3)]


def test_proposals_of_curves() -> None:
    #         1e-6 1e-5 1e-4 1e-3 1e-2  0.1   1    10   100
    losses = [5.0, 5.0, 4.9, 4.0, 2.5, 2.02, 2.01, 2.0, 9.0]
    found = proposal(RATES, losses)
    assert found is not None
    assert found.steepest == 1e-3  # (4.9 - 2.5) / 2 is more than any other
    assert found.low == pytest.approx(1e-4)
    assert found.high == 0.1  # 98 % of the fall of 3 is done at 2.06
    assert found.minimum_tenth == 1.0  # the lowest is at 10
    assert found.valley == 1e-2  # the longest fall goes from 1e-5 to 10


@pytest.mark.parametrize(
    "losses", [[5.0, 6, 7, 8, 9, 10, 11, 12, 13], [5.0, 4.99, 4.98, 4.99, 5, 5, 6, 7, 8]]
)
def test_no_fall_no_proposal(losses: list[float]) -> None:
    assert proposal(RATES, losses) is None


def test_a_range_begins_no_lower_than_the_test() -> None:
    found = proposal([1e-3, 1e-2, 1e-1], [3.0, 1.0, 0.9])
    assert found is not None and (found.steepest, found.low) == (1e-3, 1e-3)


def test_a_range_has_its_ends_in_order_where_the_fall_is_steepest_when_it_is_nearly_done() -> None:
    rates = [10.0 ** (power / 100) for power in range(-600, 0)]
    losses = [5.0 - 0.005 * min(step, 300) for step in range(500)] + [3.48] * 100
    found = proposal(rates, losses)
    assert found is not None and found.steepest > 10 * found.high
    assert found.low == found.high / 10


def test_a_step_is_trained_at_its_rate(tiny_pretrain: PretrainConfig) -> None:
    config = dataclasses.replace(tiny_pretrain, lr_scheduler="constant")
    still, moved = GptRun(config), GptRun(config)
    before = {name: tensor.clone() for name, tensor in still.weights().items()}
    assert loss_of_step(still, NO_RATE) == loss_of_step(moved, 1e-2)  # the same batch, before the step
    assert all(tensor.equal(before[name]) for name, tensor in still.weights().items())
    assert max(float((tensor - before[name]).abs().max()) for name, tensor in moved.weights().items()) > 5e-3
    assert loss_of_step(still, NO_RATE) != loss_of_step(moved, 1e-2)


def test_the_schedule_and_the_length_of_the_configuration_are_not_the_test_s(tiny_lora: LoraConfig) -> None:
    other = {"lr_scheduler": "one_cycle", "warmup_ratio": 0.9, "max_samples": None, "num_train_epochs": 1}
    configs = (tiny_lora, dataclasses.replace(tiny_lora, learning_rate=0.5, **other))  # type: ignore[arg-type]
    one, same = (range_test(config, low=1e-3, high=1.0, steps=6).points for config in configs)
    assert one == same and len(one) == 6


def test_a_real_run_rises_to_divergence(tiny_pretrain: PretrainConfig) -> None:
    told: list[Point] = []
    test = range_test(tiny_pretrain, low=1e-5, high=100.0, steps=60, on_point=told.append)
    assert test.diverged and len(test.points) < 60
    assert [point.step for point in told] == list(range(len(test.points)))
    rates = [point.learning_rate for point in test.points]
    assert rates[0] == pytest.approx(1e-5)
    assert rates[1] / rates[0] == pytest.approx(10 ** (7 / 59))
    assert test.proposal is not None
    assert 1e-5 <= test.proposal.low < test.proposal.high < rates[-1]


def test_adapters_are_tested_too(tiny_lora: LoraConfig) -> None:
    test = range_test(tiny_lora, low=1e-4, high=1.0, steps=40)
    assert test.proposal is not None and test.proposal.low < test.proposal.high


def test_a_test_without_divergence_takes_all_its_steps(tiny_pretrain: PretrainConfig) -> None:
    test = range_test(tiny_pretrain, low=1e-4, high=1e-3, steps=20)
    assert not test.diverged and len(test.points) == 20
    assert test.points[-1].learning_rate == pytest.approx(1e-3)


def test_a_loss_that_is_no_number_ends_the_test(
    tiny_pretrain: PretrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpsearch.trainer.tools import range_test as module

    losses = iter([5.0, 5.0, 4.0, 5.0, math.nan, 5.0])  # of the run and of the untrained one in turn
    monkeypatch.setattr(module, "loss_of_step", lambda run, rate: next(losses))
    test = range_test(tiny_pretrain, low=1e-4, high=1e-3, steps=20)
    assert test.diverged and [point.loss for point in test.points] == [5.0, 4.0]


def test_the_batches_own_part_is_taken_out(tiny_pretrain: PretrainConfig) -> None:
    """At no rate the curve is flat, though no two batches are alike."""
    test = range_test(tiny_pretrain, low=1e-30, high=1e-29, steps=20)
    first, *others = [point.loss for point in test.points]
    assert others == pytest.approx([first] * 19, abs=1e-5)
    assert test.proposal is None
