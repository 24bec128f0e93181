from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from hpsearch.trainer.config.models import LoraConfig, PretrainConfig, TrainConfig
from hpsearch.trainer.config.training import REPORT_METRICS
from hpsearch.trainer.errors import ConfigError
from hpsearch.trainer.model.build import pick_device
from hpsearch.trainer.optim.schedule import learning_rate
from hpsearch.trainer.runs.base import FitResult, RunReport
from hpsearch.trainer.runs.run import GptRun, fit
from hpsearch.trainer.seeds import seed_of

CLOCKED = {"tokens_per_second", "host_memory_mb"}  # what may differ between two equal runs


def silent(report: RunReport) -> None:
    """For runs that are looked at when they are over."""


def curve(result: FitResult) -> list[tuple[int, float, dict[str, float]]]:
    """All that must be equal, bit for bit."""
    return [
        (report.step, report.value, {k: v for k, v in report.metrics.items() if k not in CLOCKED})
        for report in result.reports
    ]


@pytest.fixture(params=["lora", "pretrain"])
def config(request: pytest.FixtureRequest) -> TrainConfig:
    made: TrainConfig = request.getfixturevalue(f"tiny_{request.param}")
    return made


def test_reports_stand_on_the_grid_and_carry_their_metrics(config: TrainConfig) -> None:
    heard: list[RunReport] = []
    result = fit(config, on_report=heard.append)
    assert [report.step for report in heard] == [8, 16, 24, 32, 40, 48]
    assert tuple(heard) == result.reports
    assert result.value == heard[-1].value and result.stopped == "finished"
    assert (result.steps, result.samples) == (12, 48)
    for report in heard:
        assert set(report.metrics) == CLOCKED | {
            "train_loss",
            "overfitting_gap",
            "perplexity",
            "learning_rate",
            "grad_norm",
        }
        assert report.metrics.keys() <= set(REPORT_METRICS)
        assert all(type(value) is float and math.isfinite(value) for value in report.metrics.values())
        assert report.metrics["overfitting_gap"] == report.value - report.metrics["train_loss"]
        assert report.metrics["perplexity"] == pytest.approx(math.exp(report.value))


def test_a_report_has_the_mean_of_the_losses_since_the_last_and_the_rate_of_the_last_step(
    tiny_pretrain: PretrainConfig,
) -> None:
    reports = fit(tiny_pretrain, on_report=silent).reports
    run, losses, so_far = GptRun(tiny_pretrain), list[float](), 0.0
    for report in reports:
        for _ in range(2):
            run.train()
            losses.append(run.loss_total.item() - so_far)
            so_far = run.loss_total.item()
        assert report.metrics["train_loss"] == pytest.approx(sum(losses[-2:]) / 2, rel=1e-5)
        assert report.metrics["learning_rate"] == learning_rate(tiny_pretrain, len(losses) - 1)


def test_the_memory_of_a_report_is_in_megabytes(tiny_lora: LoraConfig) -> None:
    now = psutil.Process().memory_info().rss / 1e6
    peak = fit(tiny_lora, on_report=silent).reports[-1].metrics["host_memory_mb"]
    assert 0.9 * now < peak < psutil.virtual_memory().total / 1e6


def test_the_same_seed_gives_the_same_curve_bit_for_bit(config: TrainConfig) -> None:
    first = fit(config, on_report=silent)
    torch.rand(100)  # whatever else has drawn from torch's own generator
    assert curve(first) == curve(fit(config, on_report=silent))
    assert curve(first) != curve(fit(dataclasses.replace(config, seed=1), on_report=silent))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize(
    "largest", [{"lora_alpha": 1e9}, {"alpha_over_r": 1e9}, {"learning_rate": 1e30, "loraplus_lr_ratio": 1e6}]
)
def test_the_largest_values_are_computed_with(
    tiny_lora: LoraConfig, optimizer: str, largest: dict[str, Any]
) -> None:
    config = dataclasses.replace(tiny_lora, optimizer=optimizer, **largest)
    assert fit(config, on_report=silent).stopped in ("finished", "diverged")


@pytest.mark.parametrize("ends", [{"lora_dropout": 0.998}, {"adam_epsilon": 1e-37}])
def test_a_run_stays_finite_at_the_ends_of_the_intervals(tiny_lora: LoraConfig, ends: dict[str, Any]) -> None:
    assert fit(dataclasses.replace(tiny_lora, **ends), on_report=silent).stopped == "finished"


def test_every_step_has_dropout_of_its_own_whatever_was_drawn_before(tiny_lora: LoraConfig) -> None:
    run = GptRun(dataclasses.replace(tiny_lora, seed=7))
    seeds = []
    for _ in range(3):
        run.train()
        seeds.append(run.pack.generators[0].initial_seed())
        torch.rand(3, generator=run.pack.generators[0])
    assert seeds == [seed_of("dropout", 7, step) for step in range(3)]
    assert len(set(seeds)) == 3


def test_a_run_leaves_torchs_own_generator_alone(config: TrainConfig) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    fit(config, on_report=silent)
    assert torch.equal(before, torch.get_rng_state())


def test_validating_more_often_changes_nothing(config: TrainConfig) -> None:
    seldom = fit(dataclasses.replace(config, eval_every=24), on_report=silent)
    often = fit(dataclasses.replace(config, eval_every=4), on_report=silent)
    by_step = {report.step: report.value for report in often.reports}
    assert len(by_step) == 12
    assert [(report.step, report.value) for report in seldom.reports] == [
        (24, by_step[24]),
        (48, by_step[48]),
    ]


def test_labels_are_smoothed_in_training_and_not_in_validation(config: TrainConfig) -> None:
    still = dataclasses.replace(config, learning_rate=1e-30)
    plain = fit(still, on_report=silent)
    smoothed = fit(dataclasses.replace(still, label_smoothing_factor=0.5), on_report=silent)
    assert smoothed.value == plain.value
    ours, theirs = smoothed.reports[0].metrics, plain.reports[0].metrics
    assert ours["train_loss"] != theirs["train_loss"] and ours["grad_norm"] != theirs["grad_norm"]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_blocks_computed_twice_give_the_same_curve(config: TrainConfig, precision: str) -> None:
    config = dataclasses.replace(config, precision=precision)
    twice = dataclasses.replace(config, gradient_checkpointing=True)
    assert curve(fit(twice, on_report=silent)) == curve(fit(config, on_report=silent))


@pytest.mark.parametrize("kind", ["lora", "pretrain"])
def test_blocks_computed_twice_keep_less(kind: str) -> None:
    """The bytes that the forward pass of the shipped base's size keeps for the gradient, beside the weights."""

    def kept(gradient_checkpointing: bool) -> int:
        params = {"max_steps": 4, "device": "cpu", "gradient_checkpointing": gradient_checkpointing}
        run = GptRun((LoraConfig if kind == "lora" else PretrainConfig).from_params(params))
        weights = {tensor.untyped_storage().data_ptr() for tensor in run.pack.model.parameters()}
        storages: dict[int, int] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            run.train()
        return sum(storages.values())

    assert kept(True) < kept(False) / 4


def test_training_lowers_the_loss_of_the_batches_and_of_the_validation(tiny: dict[str, Any]) -> None:
    config = PretrainConfig.from_params(
        tiny
        | {"width": 16, "depth": 1, "heads": 2, "learning_rate": 1e-2, "max_samples": 400, "eval_every": 80}
    )
    result = fit(config, on_report=silent)
    assert result.reports[0].value < math.log(256)
    assert result.value < result.reports[0].value - 0.5
    assert result.reports[-1].metrics["train_loss"] < result.reports[0].metrics["train_loss"] - 0.5


def test_it_can_learn_one_sequence_by_heart(tmp_path: Path) -> None:
    text = b"the quick brown fox jumps over it"
    (tmp_path / "one.txt").write_bytes(text)
    (tmp_path / "same.txt").write_bytes(text + b".")
    config = PretrainConfig.from_params(
        {
            "train_file": str(tmp_path / "one.txt"),
            "validation_file": str(tmp_path / "same.txt"),
            "max_length": 32,
            "width": 32,
            "depth": 1,
            "heads": 2,
            "batch_size": 1,
            "max_steps": 120,
            "learning_rate": 1e-2,
            "device": "cpu",
        }
    )
    result = fit(config, on_report=silent)
    assert result.value < 0.05
    assert [report.step for report in result.reports] == list(range(12, 121, 12))


def test_the_loss_is_a_mean_over_tokens_whatever_the_chunks(tiny_lora: LoraConfig) -> None:
    run = GptRun(dataclasses.replace(tiny_lora, eval_samples=37))
    run.pack.load_for_eval(run.config, run.trained)
    logits = run.pack.model.eval()(run.held[:, :-1].long())
    expected = torch.nn.functional.cross_entropy(logits, run.held[:, 1:].long().flatten())
    assert run.held.shape == (37, 17)
    assert run.evaluate()[0] == pytest.approx(expected.item(), abs=1e-5)
    assert run.pack.model.training, "it goes on training after it"


def test_a_step_that_crosses_several_points_reports_the_last(tiny_lora: LoraConfig) -> None:
    result = fit(dataclasses.replace(tiny_lora, batch_size=20, eval_every=8), on_report=silent)
    assert [report.step for report in result.reports] == [16, 40, 48]
    assert (result.steps, result.samples) == (3, 60)


def test_early_stopping_returns_the_best_value_and_its_weights(tiny_pretrain: PretrainConfig) -> None:
    config = dataclasses.replace(
        tiny_pretrain, early_stopping_patience=2, learning_rate=0.5, max_samples=400, lr_scheduler="constant"
    )
    result = fit(config, on_report=silent)
    values = [report.value for report in result.reports]
    assert result.stopped == "early" and len(values) < 50
    assert result.value == min(values) and values.index(min(values)) == len(values) - 3
    run = GptRun(config)
    run.load_weights(result.weights)
    assert run.evaluate()[0] == result.value


def test_small_gains_are_no_improvement(tiny_lora: LoraConfig) -> None:
    config = dataclasses.replace(tiny_lora, early_stopping_patience=2, early_stopping_min_delta=10.0)
    result = fit(config, on_report=silent)
    assert result.stopped == "early" and len(result.reports) == 3
    values = [report.value for report in result.reports]
    assert result.value == min(values) < values[0], "but the best is the best"


def test_the_same_loss_again_is_no_gain(tiny_lora: LoraConfig) -> None:
    config = dataclasses.replace(tiny_lora, early_stopping_patience=2, learning_rate=1e-30)
    result = fit(config, on_report=silent)
    assert len({report.value for report in result.reports}) == 1
    assert result.stopped == "early" and len(result.reports) == 3


def test_a_diverging_run_reports_what_it_found_and_stops(tiny_pretrain: PretrainConfig) -> None:
    heard: list[RunReport] = []
    config = dataclasses.replace(
        tiny_pretrain, learning_rate=1e30, max_grad_norm=0.0, lr_scheduler="constant", max_samples=400
    )
    result = fit(config, on_report=heard.append)
    assert result.stopped == "diverged"
    assert [math.isfinite(report.value) for report in heard] == [True] * (len(heard) - 1) + [False]
    assert not math.isfinite(result.value)


def test_errors_of_on_report_pass_through(config: TrainConfig) -> None:
    class Stop(BaseException):
        pass

    def listen(report: RunReport) -> None:
        if report.step == 16:
            raise Stop

    with pytest.raises(Stop):
        fit(config, on_report=listen)


def test_a_missing_device_is_refused(tiny_lora: LoraConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device: found 'cuda', but torch sees no such device here"):
        fit(dataclasses.replace(tiny_lora, device="cuda"), on_report=silent)


def test_auto_is_the_accelerator_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for there in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
        assert pick_device("auto").type == ("cuda" if there else "cpu")
        assert pick_device("cpu").type == "cpu"


def test_the_field_of_the_text_reaches_the_corpus(tmp_path: Path, tiny: dict[str, Any]) -> None:
    path = tmp_path / "a.jsonl"
    records = ({"text": "t" * 60, "body": f"{number} " + "b" * 60} for number in range(9))
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    run = GptRun(LoraConfig.from_params(tiny | {"train_file": str(path), "text_field": "body"}))
    assert ord("t") not in run.corpus.train


def test_reduce_on_plateau_drops_without_gain(tiny_lora: LoraConfig) -> None:
    """With every validation a plateau, after the first: each halves the rate of what follows."""
    config = dataclasses.replace(
        tiny_lora, lr_scheduler="reduce_on_plateau", lr_plateau_patience=0, lr_plateau_min_delta=100.0
    )
    result = fit(config, on_report=silent)
    rates = [report.metrics["learning_rate"] / config.learning_rate for report in result.reports]
    assert rates == pytest.approx([1, 1, 0.5, 0.25, 0.125, 0.0625])


def test_an_epoch_is_as_many_sequences_as_the_text_holds(tiny_lora: LoraConfig) -> None:
    epochs = dataclasses.replace(tiny_lora, max_samples=None, num_train_epochs=3, eval_every=None)
    run = GptRun(epochs)
    windows = (len(run.corpus.train) - 1) // 16
    assert run.config.samples_per_epoch == windows and run.config.total_steps == math.ceil(3 * windows / 4)
    short = dataclasses.replace(epochs, samples_per_epoch=10)  # two and a half steps of 4
    result = fit(short, on_report=silent)
    assert [report.step for report in result.reports] == [1, 2, 3]
    assert (result.steps, result.samples) == (8, 32)
    seldom = fit(dataclasses.replace(short, eval_every=2), on_report=silent)
    assert [report.step for report in seldom.reports] == [2, 3]
    same = fit(dataclasses.replace(tiny_lora, max_samples=30, eval_every=30), on_report=silent)
    assert same.value == result.value, "30 samples, in whatever unit"


def test_the_best_is_kept_on_request_without_early_stopping(tiny_pretrain: PretrainConfig) -> None:
    wild = dataclasses.replace(tiny_pretrain, learning_rate=0.5, max_samples=96, lr_scheduler="constant")
    last = fit(wild, on_report=silent)
    best = fit(dataclasses.replace(wild, load_best_model_at_end=True), on_report=silent)
    values = [report.value for report in last.reports]
    assert last.value == values[-1] > min(values)
    assert best.stopped == "finished" and best.value == min(values)
    run = GptRun(wild)
    run.load_weights(best.weights)
    assert run.evaluate()[0] == best.value
