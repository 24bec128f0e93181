from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from hpsearch.trainer.checkpoint import CHECKPOINT, load_checkpoint, read_tensors, save_checkpoint
from hpsearch.trainer.config.models import LoraConfig, PretrainConfig, TrainConfig
from hpsearch.trainer.errors import CheckpointError
from hpsearch.trainer.model.gpt import GPT, loss_sum
from hpsearch.trainer.output.export import export, load_model
from hpsearch.trainer.runs.base import RunReport
from hpsearch.trainer.runs.run import GptRun, fit


def evaluate(model: GPT, config: TrainConfig) -> float:
    """The loss in nats a token over the windows that a run of this configuration is validated on."""
    held = GptRun(config).held.long()
    return loss_sum(model, held[:, :-1], held[:, 1:]).item() / held[:, 1:].numel()


def silent(report: RunReport) -> None:
    """For runs that are looked at when they are over."""


def test_lora_leaves_an_adapter_and_a_merged_model_of_the_same_loss(
    tiny_lora: LoraConfig, tmp_path: Path
) -> None:
    result = fit(tiny_lora, on_report=silent, checkpoint=tmp_path / "run")
    written = export(tmp_path / "run", tmp_path / "out", merge=True)
    assert [path.name for path in written] == [
        "adapter.safetensors",
        "adapter_config.json",
        "model.safetensors",
    ]
    assert evaluate(load_model(written[0]), tiny_lora) == pytest.approx(result.value, abs=1e-7)
    assert evaluate(load_model(written[2]), tiny_lora) == pytest.approx(result.value, abs=1e-5)
    tensors, _ = read_tensors(written[0])
    assert set(tensors) == set(GptRun(tiny_lora).pack.by_layer(result.weights))
    about = json.loads(written[1].read_text())
    assert (about["r"], about["lora_alpha"], about["val_loss"]) == (2, 4.0, result.value)


@pytest.mark.parametrize(
    ("given", "alpha"), [({}, 4.0), ({"alpha_over_r": 3.0}, 6.0), ({"lora_alpha": 5.0}, 5.0)]
)
def test_an_adapter_says_how_strong_it_is(
    tiny_lora: LoraConfig, tmp_path: Path, given: dict[str, float], alpha: float
) -> None:
    config = dataclasses.replace(tiny_lora, **given)  # type: ignore[arg-type]   # each its own type
    fit(config, on_report=silent, checkpoint=tmp_path / "run")
    _, written = export(tmp_path / "run", tmp_path / "out")
    assert json.loads(written.read_text())["lora_alpha"] == alpha


def test_a_run_in_a_precision_of_another_device_is_exported(tiny_lora: LoraConfig, tmp_path: Path) -> None:
    result = fit(tiny_lora, on_report=silent, checkpoint=tmp_path / "run")
    parts, state = load_checkpoint(tmp_path / "run" / CHECKPOINT)
    state["identity"]["precision"] = "tf32"
    save_checkpoint(tmp_path / "run", parts["weights"], parts["optimizer"], parts["best"], state)
    for path in export(tmp_path / "run", tmp_path / "out", merge=True)[::2]:
        assert evaluate(load_model(path), tiny_lora) == pytest.approx(result.value, abs=1e-5)
    about = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert about["identity"]["precision"] == "tf32"


def test_without_merge_there_is_the_adapter_alone(tiny_lora: LoraConfig, tmp_path: Path) -> None:
    fit(tiny_lora, on_report=silent, checkpoint=tmp_path / "run")
    export(tmp_path / "run", tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "adapter.safetensors",
        "adapter_config.json",
    }


def test_with_early_stopping_the_best_weights_are_exported(
    tiny_pretrain: PretrainConfig, tmp_path: Path
) -> None:
    config = dataclasses.replace(
        tiny_pretrain, early_stopping_patience=2, learning_rate=0.5, max_samples=400, lr_scheduler="constant"
    )
    result = fit(config, on_report=silent, checkpoint=tmp_path / "run")
    assert result.value < result.reports[-1].value
    [path] = export(tmp_path / "run", tmp_path / "out")
    assert evaluate(load_model(path), config) == pytest.approx(result.value, abs=1e-7)


def test_a_pretrained_model_is_a_base(tiny_pretrain: PretrainConfig, tmp_path: Path) -> None:
    result = fit(tiny_pretrain, on_report=silent, checkpoint=tmp_path / "run")
    [path] = export(tmp_path / "run", tmp_path / "out")
    lora = LoraConfig(
        base=str(path),
        max_steps=1,
        max_length=16,
        train_file=tiny_pretrain.train_file,
        device="cpu",
        eval_samples=4,
    )
    run = GptRun(lora)
    assert run.evaluate()[0] == result.value


def test_adapters_and_checkpoints_are_not_bases(tiny_lora: LoraConfig, tmp_path: Path) -> None:
    fit(tiny_lora, on_report=silent, checkpoint=tmp_path / "run")
    adapter, _ = export(tmp_path / "run", tmp_path / "out")
    for path in (adapter, tmp_path / "run" / CHECKPOINT):
        with pytest.raises(CheckpointError, match=r"an adapter or a checkpoint, not a base; name a model\."):
            GptRun(dataclasses.replace(tiny_lora, base=str(path)))


def test_an_adapter_is_refused_if_its_base_has_changed(tiny_lora: LoraConfig, tmp_path: Path) -> None:
    fit(tiny_lora, on_report=silent, checkpoint=tmp_path / "run")
    other = fit(
        PretrainConfig(
            max_steps=1, width=8, depth=1, heads=2, max_length=16, train_file=tiny_lora.train_file
        ),
        on_report=silent,
        checkpoint=tmp_path / "other",
    )
    assert torch.isfinite(torch.tensor(other.value))
    [path] = export(tmp_path / "other", tmp_path / "out")
    assert tiny_lora.base is not None
    Path(tiny_lora.base).write_bytes(path.read_bytes())
    with pytest.raises(CheckpointError, match="the adapters belong to base"):
        export(tmp_path / "run", tmp_path / "out", merge=True)


def test_adapters_without_their_base_say_which_one_is_gone(
    tiny_lora: LoraConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fit(
        dataclasses.replace(tiny_lora, base="base.safetensors"), on_report=silent, checkpoint=tmp_path / "run"
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError) as caught:
        export(tmp_path / "run", tmp_path / "out")
    assert str(caught.value) == (f'the base of this run: there is no file "base.safetensors" in {Path.cwd()}')


def test_exporting_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint to export"):
        export(tmp_path, tmp_path / "out")
