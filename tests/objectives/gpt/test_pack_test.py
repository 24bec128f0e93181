"""The pack test finds packs that compute something else, and blames no rounding on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from hpsearch.objectives.gpt.pack_test import PackComparison, _compared, compare
from hpsearch.trainer.config.models import LoraConfig
from hpsearch.trainer.packs.lora_pack import LoraPack
from hpsearch.trainer.runs import together
from hpsearch.trainer.runs.run import GptRun, fit, tick

SMALL: dict[str, Any] = {
    "learning_rate": 3e-3,
    "batch_size": 2,
    "max_length": 16,
    "max_steps": 6,
    "eval_every": 3,
    "eval_samples": 4,
    "device": "cpu",
}
CONFIGS = [
    LoraConfig.from_params(SMALL | {"lora_r": 2, "seed": 1}),
    LoraConfig.from_params(SMALL | {"learning_rate": 1e30, "max_grad_norm": 0.0}),
    LoraConfig.from_params(SMALL | {"lora_r": 12, "learning_rate": 1e-3, "lr_scheduler": "cosine"}),
]


@pytest.fixture(autouse=True)
def alone(one_thread: None) -> None:
    """Every test here computes with one thread."""


def found(configs: Sequence[LoraConfig] = CONFIGS) -> list[PackComparison]:
    return compare(configs, lambda done: None)


def scaled_in_company(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Let packs of several runs compute with another strength of their adapters."""
    right = LoraPack._arrange

    def wrong(self: LoraPack) -> None:
        right(self)
        if len(self.members) > 1:
            self._scale *= factor

    monkeypatch.setattr(LoraPack, "_arrange", wrong)


def test_runs_are_together_what_they_are_alone() -> None:
    heard: list[int] = []
    trained = compare(CONFIGS, heard.append)
    assert heard == [1, 2, 3]
    assert all(each.passed and each.identical for each in trained)
    assert [each.others for each in trained] == [2, 2, 2]
    assert [each.value is None for each in trained] == [False, True, False]
    for each in trained:
        assert each.difference == {"reports": 0.0, "adapter": 0.0} and each.sensitivity is None
        assert each.allowed == {"reports": 1e-6, "adapter": 1e-6}


def test_a_run_that_trains_by_itself_meets_none() -> None:
    apart = found([CONFIGS[0], dataclasses.replace(CONFIGS[0], lora_dropout=0.1)])
    assert [(each.others, each.passed) for each in apart] == [(0, True)] * 2


def test_adapters_that_differ_where_no_report_shows_it_are_found_out() -> None:
    result = fit(CONFIGS[0], on_report=lambda report: None)
    moved = {name: tensor + 1e-3 * (name == "lora_B") for name, tensor in result.weights.items()}
    other = dataclasses.replace(result, weights=moved)
    assert _compared(CONFIGS[0], result, result, 1).identical
    each = _compared(CONFIGS[0], result, other, 1)
    assert not each.identical and not each.passed
    assert each.difference is not None and each.difference["reports"] == 0.0 < each.difference["adapter"]


def test_a_pack_that_computes_something_else_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    scaled_in_company(monkeypatch, 1.01)
    first, _, last = found()
    for each in (first, last):
        assert not each.passed and not each.identical
        assert each.difference is not None and each.sensitivity is not None
        assert each.difference["reports"] > 2 * each.allowed["reports"], "and not for its learning rate"


def test_a_run_that_another_brings_down_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(runs: Sequence[GptRun]) -> None:
        tick(runs)
        if any(run.trained["lora_B"].isnan().any() for run in runs):
            for run in runs:
                run.trained["lora_B"].mul_(float("nan"))

    monkeypatch.setattr(together, "tick", wrong)
    passed = [(each.passed, each.difference) for each in found()]
    assert passed[0] == passed[2] == (False, None)


def test_a_learning_rate_that_is_too_hot_may_make_much_of_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    scaled_in_company(monkeypatch, 1 + 2**-23)  # the next number after 1
    hot = dataclasses.replace(CONFIGS[0], learning_rate=0.1, max_steps=10, eval_every=10)
    each, _ = found([hot, dataclasses.replace(hot, seed=2)])
    assert each.passed and not each.identical
    assert each.difference is not None and each.sensitivity is not None
    for part, difference in each.difference.items():
        assert difference > 1e-6 and each.allowed[part] == 10 * each.sensitivity[part]
