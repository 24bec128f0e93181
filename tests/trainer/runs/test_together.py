"""Runs that train in one process, and what one of them may do without the others' notice."""

from __future__ import annotations

import dataclasses
import gc
from weakref import WeakSet

import pytest
import torch

from hpsearch.trainer.checkpoint import Tensors
from hpsearch.trainer.config.models import LoraConfig
from hpsearch.trainer.packs.lora_pack import LoraPack
from hpsearch.trainer.packs.pack import Pack
from hpsearch.trainer.runs import run as loop
from hpsearch.trainer.runs import together as together_module
from hpsearch.trainer.runs.base import FitResult, drive
from hpsearch.trainer.runs.run import GptRun, fit, tick
from hpsearch.trainer.runs.together import PackedRuns, RunOutcome


def trained_together(configs: list[LoraConfig], breaks: dict[int, int]) -> list[RunOutcome]:
    """What becomes of runs of which some, by their place, run out of memory in the step of a number."""
    together, runs = PackedRuns(), list[GptRun]()
    for place, config in enumerate(configs):
        run = together.new_run(config)
        if place in breaks:
            _break(run, breaks[place])
        runs.append(run)
        together.join(run, drive(run, on_report=lambda report: None))
    found: dict[GptRun, RunOutcome] = {}
    for _ in range(100):  # more than they need
        for run, outcome in together.advance():
            assert run not in found, "a run ends once"
            found[run] = outcome
    return [found[run] for run in runs]


def _break(run: GptRun, number: int) -> None:
    step = run.optimizer.step

    def broken(gradients: Tensors, learning_rate: float) -> torch.Tensor:
        if run.step == number:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return step(gradients, learning_rate)

    vars(run.optimizer)["step"] = broken


def told(result: FitResult) -> list[tuple[int, float, float]]:
    return [(report.step, report.value, report.metrics["train_loss"]) for report in result.reports]


class Device:
    """One that does what it is asked for later: a tick takes a second, in which nobody waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.asked = 0.0

        def asked(runs: list[GptRun]) -> None:
            tick(runs)
            self.asked += 1.0

        monkeypatch.setattr(Pack, "wait", lambda pack: self._wait())
        for module in (loop, together_module):
            monkeypatch.setattr(module, "clock", lambda: self.now)
            monkeypatch.setattr(module, "tick", asked)

    def _wait(self) -> None:
        self.now, self.asked = self.now + self.asked, 0.0


def test_each_run_counts_the_time_of_its_device(
    tiny_lora: LoraConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    Device(monkeypatch)
    configs = [dataclasses.replace(tiny_lora, seed=seed, eval_every=8 * (1 + seed // 2)) for seed in range(4)]
    outcomes: list[RunOutcome] = [
        *trained_together(configs, {}),
        fit(configs[0], on_report=lambda report: None),
    ]
    for outcome in outcomes:
        assert isinstance(outcome, FitResult)
        assert {report.metrics["tokens_per_second"] for report in outcome.reports} == {4.0 * 16}
        assert 12.0 <= outcome.seconds < 12.0 + 10.0  # and the validations, by the clock on the wall


def test_a_device_failure_ends_the_runs_of_its_pack(
    tiny_lora: LoraConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(pack: Pack) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(Pack, "wait", broken)
    outcomes = trained_together([dataclasses.replace(tiny_lora, seed=seed) for seed in range(2)], {})
    assert [type(outcome) for outcome in outcomes] == [RuntimeError] * 2


def test_a_pack_is_kept_as_long_as_a_run_is_in_it(tiny_lora: LoraConfig) -> None:
    together, packs = PackedRuns(), WeakSet[Pack]()
    for seed, dropout in enumerate((0.0, 0.0, 0.1)):
        run = together.new_run(dataclasses.replace(tiny_lora, seed=seed, lora_dropout=dropout))
        packs.add(run.pack)
        together.join(run, drive(run, on_report=lambda report: None))
    assert len(packs) == 2 and len(run.pack.members) == 1
    while together.busy:
        together.advance()
    del run
    gc.collect()
    assert not packs


def test_a_run_that_does_not_fit_in_memory_ends_and_the_others_continue(
    tiny_lora: LoraConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, pairs = LoraPack.update, list[int]()

    def full(pack: LoraPack, number: int) -> None:
        if len(pack.members) == 2 and not pairs:
            pairs.append(number)
            raise torch.OutOfMemoryError("CUDA out of memory")
        update(pack, number)

    monkeypatch.setattr(LoraPack, "update", full)
    configs = [dataclasses.replace(tiny_lora, seed=seed) for seed in range(3)]
    first, broken, last = trained_together(configs, {})
    assert isinstance(broken, torch.OutOfMemoryError)
    for config, outcome in ((configs[0], first), (configs[2], last)):
        assert isinstance(outcome, FitResult)
        assert told(outcome) == told(fit(config, on_report=lambda report: None))


# Its neighbours step before it and after it; they would miss the report that is due then, or their end.
@pytest.mark.parametrize("number", [3, 11])
def test_a_run_that_cannot_step_leaves_and_the_others_lose_no_report(
    tiny_lora: LoraConfig, number: int
) -> None:
    configs = [dataclasses.replace(tiny_lora, seed=seed) for seed in range(3)]
    first, broken, last = trained_together(configs, {1: number})
    assert isinstance(broken, torch.OutOfMemoryError)
    for config, outcome in ((configs[0], first), (configs[2], last)):
        assert isinstance(outcome, FitResult)
        assert told(outcome) == told(fit(config, on_report=lambda report: None))
