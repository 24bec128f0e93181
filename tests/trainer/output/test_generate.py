"""What is drawn from, and what is written."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from pathlib import Path

import pytest
import torch

from hpsearch.trainer.checkpoint import CHECKPOINT, kept_models
from hpsearch.trainer.config.models import LoraConfig, PretrainConfig, TrainConfig
from hpsearch.trainer.config.shape import Shape
from hpsearch.trainer.data.corpus import inputs_and_targets, load_corpus, validation_windows
from hpsearch.trainer.errors import CheckpointError
from hpsearch.trainer.model.gpt import GPT, loss_sum
from hpsearch.trainer.output import export as module
from hpsearch.trainer.output.export import export, load_kept, load_model
from hpsearch.trainer.output.generate import Sampling, draw, generate, probabilities
from hpsearch.trainer.runs.run import fit

LOGITS = torch.tensor([math.log(share) for share in (0.125, 0.5, 0.0625, 0.25, 0.0625)])


def chances(sampling: Sampling) -> list[float]:
    return [round(share, 5) for share in probabilities(LOGITS, sampling).tolist()]


@pytest.mark.parametrize(
    ("sampling", "wanted"),
    [
        (Sampling(), [0.125, 0.5, 0.0625, 0.25, 0.0625]),
        (Sampling(temperature=0), [0, 1, 0, 0, 0]),
        # Half the temperature squares the shares: 4, 64, 1, 16, 1 of 86.
        (Sampling(temperature=0.5), [0.04651, 0.74419, 0.01163, 0.18605, 0.01163]),
        (Sampling(temperature=1e-300), [0, 1, 0, 0, 0]),
        (Sampling(top_k=1), [0, 1, 0, 0, 0]),
        (Sampling(top_k=3), [0.14286, 0.57143, 0, 0.28571, 0]),
        (Sampling(top_k=4), [0.13333, 0.53333, 0.06667, 0.26667, 0]),  # of two alike exactly one
        (Sampling(top_k=99), [0.125, 0.5, 0.0625, 0.25, 0.0625]),
        (Sampling(top_p=0.4), [0, 1, 0, 0, 0]),  # the likeliest alone reaches it
        (Sampling(top_p=0.7), [0, 0.66667, 0, 0.33333, 0]),
        (Sampling(top_p=0.8), [0.14286, 0.57143, 0, 0.28571, 0]),
        (Sampling(top_p=1.0), [0.125, 0.5, 0.0625, 0.25, 0.0625]),
        (Sampling(top_k=3, top_p=0.8), [0, 0.66667, 0, 0.33333, 0]),  # 6/7 of what the three have
        (Sampling(temperature=0.5, top_p=0.9), [0, 0.8, 0, 0.2, 0]),  # after the temperature
    ],
)
def test_the_probabilities_to_draw_from(sampling: Sampling, wanted: list[float]) -> None:
    assert chances(sampling) == wanted


def test_a_share_that_is_met_exactly_is_met() -> None:
    assert probabilities(torch.zeros(4), Sampling(top_p=0.5)).tolist() == [0.5, 0.5, 0, 0]


def test_draws_follow_the_chances() -> None:
    generator = torch.Generator().manual_seed(0)
    shares = torch.tensor([0.75, 0.0, 0.25])
    drawn = Counter(draw(shares, generator) for _ in range(2000))
    assert drawn[1] == 0
    assert 0.70 < drawn[0] / 2000 < 0.80


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_generating_from_a_diverged_model_is_refused(wrong: float) -> None:
    with pytest.raises(CheckpointError, match="diverged"):
        probabilities(torch.tensor([0.0, wrong]), Sampling())


@pytest.fixture
def model() -> GPT:
    model = GPT(Shape(width=8, depth=1, heads=2, max_length=4))
    model.initialize(torch.Generator().manual_seed(1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5)  # so that a byte more or less shows in what follows
    return model.eval()


def text(
    model: GPT, prompt: bytes, sampling: Sampling | None = None, *, count: int = 40, seed: int = 0
) -> bytes:
    return bytes(generate(model, prompt, count=count, sampling=sampling or Sampling(), seed=seed))


def test_a_seed_writes_the_same_text(model: GPT) -> None:
    assert text(model, b"ab", seed=3) == text(model, b"ab", seed=3)
    assert text(model, b"ab", seed=3) != text(model, b"ab", seed=4)
    assert len(text(model, b"ab", count=7)) == 7


def test_only_the_last_bytes_that_fit_are_seen(model: GPT) -> None:
    assert text(model, b"a longer prompt") == text(model, b"ompt")
    assert text(model, b"ompt") != text(model, b"?mpt")


def test_the_likeliest_byte_is_that_of_the_model(model: GPT) -> None:
    """By hand, one whole forward pass for each: the window slides, and nothing is remembered."""
    window, wanted = [97, 98], []
    for _ in range(10):
        logits = model(torch.tensor([window[-4:]]))[-1]
        wanted.append(int(logits.argmax()))
        window.append(wanted[-1])
    assert text(model, b"ab", Sampling(temperature=0), count=10) == bytes(wanted)


def test_a_checkpoint_loads_as_what_it_exports(
    tiny_lora: LoraConfig, tiny_pretrain: PretrainConfig, tmp_path: Path
) -> None:
    made: tuple[tuple[TrainConfig, str, float], ...] = (
        (tiny_lora, "adapter", 10.0),
        (tiny_pretrain, "model", 0.5),
    )
    for (tiny, name, rate), best in itertools.product(made, (False, True)):  # the best is not the last
        folder = tmp_path / f"{name}-{best}"
        config = dataclasses.replace(
            tiny, learning_rate=rate, lr_scheduler="constant", load_best_model_at_end=best
        )
        fit(config, on_report=lambda report: None, checkpoint=folder)
        export(folder, folder)
        loaded = [load_model(folder / f"{file}.safetensors") for file in ("checkpoint", name)]
        assert not any(model.training for model in loaded)
        first, second = (model(torch.tensor([[49, 50, 32]])) for model in loaded)
        assert torch.equal(first, second)


def test_a_run_is_seen_as_it_was_at_each_checkpoint_and_at_its_best(
    tiny_lora: LoraConfig, tiny_pretrain: PretrainConfig, tmp_path: Path
) -> None:
    """By the loss that it reported there."""
    made: tuple[tuple[TrainConfig, float], ...] = ((tiny_lora, 10.0), (tiny_pretrain, 0.5))
    for tiny, rate in made:
        kept = dataclasses.replace(tiny, save_total_limit=4, load_best_model_at_end=True)
        config = dataclasses.replace(kept, learning_rate=rate, lr_scheduler="constant")
        folder = tmp_path / config.objective
        result = fit(config, on_report=lambda report: None, checkpoint=folder)
        values = {str(report.step): report.value for report in result.reports[2:]} | {"best": result.value}
        assert list(kept_models(folder)) == ["24", "32", "40", "48", "best"] == list(values)
        assert result.value < result.reports[-1].value, "the best is to be another than the last"
        for name, value in values.items():
            assert loss_of(load_kept(folder, name), config) == pytest.approx(value, rel=1e-6), name


def loss_of(model: GPT, config: TrainConfig) -> float:
    corpus = load_corpus(config.train_file, max_length=config.max_length)
    windows = validation_windows(corpus.validation, config.eval_samples, config.max_length)
    with torch.inference_mode():
        total = loss_sum(model, *inputs_and_targets(windows))
    return total.item() / (len(windows) * config.max_length)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("16", "there is no checkpoint '16'; there are: 40, 48 (save_total_limit keeps more)"),
        ("best", "there is no checkpoint 'best'; there are: 40, 48 (load_best_model_at_end keeps it)"),
    ],
)
def test_a_missing_checkpoint_is_refused_with_the_kept_ones(
    tiny_lora: LoraConfig, tmp_path: Path, name: str, told: str
) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        load_kept(tmp_path / "nowhere", name)
    fit(tiny_lora, on_report=lambda report: None, checkpoint=tmp_path)
    with pytest.raises(CheckpointError) as caught:
        load_kept(tmp_path, name)
    assert str(caught.value) == f"{tmp_path}: {told}"


def test_a_file_that_the_run_has_renamed_meanwhile_is_found_again(
    tiny_lora: LoraConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = fit(tiny_lora, on_report=lambda report: None, checkpoint=tmp_path)
    answers = iter(
        [{"40": (tmp_path / CHECKPOINT, "weights")}, kept_models(tmp_path)]
    )  # first as it was before 48
    monkeypatch.setattr(module, "kept_models", lambda folder: next(answers))
    assert loss_of(load_kept(tmp_path, "40"), tiny_lora) == pytest.approx(result.reports[4].value, rel=1e-6)
