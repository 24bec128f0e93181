"""Runs that train together compute what each computes alone: the same bits."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hpsearch.trainer.config.models import PASS_TOKENS, LoraConfig, PretrainConfig
from hpsearch.trainer.config.training import OPTIMIZERS
from hpsearch.trainer.model.base_file import load_base
from hpsearch.trainer.output.export import export
from hpsearch.trainer.packs.factory import new_pack, pack_key
from hpsearch.trainer.packs.lora_pack import LoraPack
from hpsearch.trainer.packs.pack import token_losses
from hpsearch.trainer.runs.run import GptRun, fit, tick

STEPS = 5
MIXED: list[dict[str, Any]] = [
    {"lora_r": 2, "batch_size": 4, "seed": 1},
    {"lora_r": 12, "batch_size": 8, "learning_rate": 1e-3, "lr_scheduler": "cosine", "warmup_ratio": 0.2},
    {"lora_r": 8, "batch_size": 12, "weight_decay": 0.5, "adam_beta2": 0.9, "lora_alpha": 32.0, "seed": 3},
    {
        "lora_r": 3,
        "batch_size": 4,
        "max_grad_norm": 0.01,
        "adam_beta1": 0.5,
        "gradient_accumulation_steps": 2,
    },
]


@pytest.fixture
def configs(tiny: dict[str, Any], base_file: Path, request: pytest.FixtureRequest) -> list[LoraConfig]:
    """Of every kind that goes into one pack, without dropout, or each with its own."""
    dropout = getattr(request, "param", 0.0)
    tiny |= {"base": str(base_file), "max_samples": 480, "max_length": 16}
    wanted = [dict(each, lora_dropout=dropout * (1 + n)) for n, each in enumerate(MIXED)]
    return [LoraConfig.from_params(tiny | each) for each in wanted]


@pytest.fixture
def small_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four rows."""
    monkeypatch.setitem(PASS_TOKENS, "cpu", 4 * 16)


def state_of(run: GptRun) -> tuple[float, int, dict[str, Tensor]]:
    held = {name: tensor.clone() for name, tensor in (run.weights() | run.optimizer.tensors()).items()}
    return run.evaluate()[0], run.step, held


def alone(config: LoraConfig, steps: int = STEPS) -> tuple[float, int, dict[str, Tensor]]:
    run = GptRun(config)
    for _ in range(steps):
        run.train()
    return state_of(run)


def same(left: tuple[float, int, dict[str, Tensor]], right: tuple[float, int, dict[str, Tensor]]) -> None:
    assert left[:2] == right[:2]
    assert left[2].keys() == right[2].keys()
    for name in left[2]:
        assert torch.equal(left[2][name], right[2][name]), name


def train_to(runs: list[GptRun], step: int) -> list[tuple[float, int, dict[str, Tensor]]]:
    """The state of each run when it reaches `step` and leaves."""
    found: dict[int, Any] = {}
    while len(found) < len(runs):
        tick([run for n, run in enumerate(runs) if n not in found])
        found |= {n: state_of(run) for n, run in enumerate(runs) if run.step == step and n not in found}
    return [found[n] for n in range(len(runs))]


@pytest.mark.parametrize("configs", [0.0, 0.1], indirect=True, ids=["plain", "dropout"])
@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
def test_runs_of_all_kinds_train_together_as_alone(
    configs: list[LoraConfig], small_passes: None, dora: bool
) -> None:
    configs = [dataclasses.replace(config, use_dora=dora) for config in configs]
    configs[0] = dataclasses.replace(configs[0], loraplus_lr_ratio=4.0, use_rslora=True)
    assert len({pack_key(config) for config in configs}) == 1
    assert [config.rows_per_step // config.rows_per_pass for config in configs] == [1, 2, 3, 2]
    pack = new_pack(configs[0])
    runs = [GptRun(config, pack) for config in configs]
    for packed, config in zip(train_to(runs, STEPS), configs, strict=True):
        same(packed, alone(config))


@pytest.mark.parametrize("configs", [0.1], indirect=True)
def test_each_run_drops_its_share_and_keeps_the_mean(configs: list[LoraConfig], small_passes: None) -> None:
    pack = new_pack(configs[0])
    assert isinstance(pack, LoraPack)
    pack.set_members([GptRun(config, pack).member for config in configs])
    for config, each in zip(configs, pack._mask(torch.ones(len(configs), 1000, 64)), strict=True):
        dropped = config.lora_dropout
        assert (each == 0).double().mean().item() == pytest.approx(dropped, abs=0.01)
        assert each.max().item() == pytest.approx(1 / (1 - dropped))


def test_each_run_has_an_optimizer_of_its_own(configs: list[LoraConfig], small_passes: None) -> None:
    base = configs[0]
    configs = [dataclasses.replace(base, optimizer=name, seed=n) for n, name in enumerate(OPTIMIZERS)]
    configs += [
        dataclasses.replace(base, optimizer="sgd", momentum=0.5, nesterov=True, seed=1),
        dataclasses.replace(base, optimizer="lion", lion_beta1=0.5, lion_beta2=0.5, seed=3),
    ]
    pack = new_pack(base)
    runs = [GptRun(config, pack) for config in configs]
    for packed, config in zip(train_to(runs, STEPS), configs, strict=True):
        same(packed, alone(config))


def test_each_run_smooths_its_labels_its_own_way(configs: list[LoraConfig], small_passes: None) -> None:
    smoothing = [dataclasses.replace(c, label_smoothing_factor=0.1 * (n + 1)) for n, c in enumerate(configs)]
    assert len({pack_key(config) for config in smoothing}) == 1
    pack = new_pack(smoothing[0])
    runs = [GptRun(config, pack) for config in smoothing]
    for packed, config, plain in zip(train_to(runs, STEPS), smoothing, configs, strict=True):
        same(packed, alone(config))
        assert packed[0] != alone(plain)[0]


def test_smoothed_losses_are_those_of_torch() -> None:
    torch.manual_seed(0)
    logits = torch.randn(3 * 5, 256, requires_grad=True)
    targets = torch.randint(256, (3 * 5,))
    factors = [0.0, 0.1, 0.7]
    ours = token_losses(logits, targets, 3, torch.tensor(factors))
    theirs = torch.stack(
        [
            torch.nn.functional.cross_entropy(part, wanted, reduction="none", label_smoothing=factor)
            for part, wanted, factor in zip(
                torch.split(logits, 5), torch.split(targets, 5), factors, strict=True
            )
        ]
    )
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(
        *(torch.autograd.grad(found.sum(), logits, retain_graph=True) for found in (ours, theirs))
    )


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("configs", [0.0, 0.1], indirect=True, ids=["plain", "dropout"])
def test_runs_train_together_as_alone_in_a_lower_precision(
    configs: list[LoraConfig], small_passes: None, precision: str
) -> None:
    configs = [dataclasses.replace(config, precision=precision) for config in configs]
    pack = new_pack(configs[0])
    runs = [GptRun(config, pack) for config in configs]
    for packed, config in zip(train_to(runs, STEPS), configs, strict=True):
        # Some processors add up products of 16 bits in another order where there are more of them.
        assert packed[:2] == pytest.approx(alone(config)[:2], abs=1e-3)


def test_an_overflow_skips_the_step_of_its_run_alone(configs: list[LoraConfig], small_passes: None) -> None:
    configs = [dataclasses.replace(config, precision="fp16") for config in configs]
    pack = new_pack(configs[0])
    runs = [GptRun(config, pack) for config in configs]
    assert runs[0].loss_scale and runs[1].loss_scale
    runs[0].loss_scale.value = high = 2.0**60
    start = {name: tensor.clone() for name, tensor in state_of(runs[0])[2].items()}
    tick(runs)
    assert runs[0].step == 1 and runs[0].loss_scale.value == high / 2
    assert all(torch.equal(tensor, start[name]) for name, tensor in state_of(runs[0])[2].items())
    assert (runs[1].loss_scale.value, runs[1].loss_scale.good_steps) == (2.0**16, 0)  # in mid-batch
    for packed, config in list(zip(train_to(runs, STEPS), configs, strict=True))[1:]:
        same(packed, alone(config))
    assert runs[0].loss_scale.value == high / 2**STEPS


@pytest.mark.parametrize("configs", [0.1], indirect=True, ids=["dropout"])
def test_blocks_computed_twice_have_every_runs_own_dropout_twice(
    configs: list[LoraConfig], small_passes: None
) -> None:
    pack = new_pack(configs[0])
    runs = [GptRun(dataclasses.replace(config, gradient_checkpointing=True), pack) for config in configs]
    for packed, config in zip(train_to(runs, STEPS), configs, strict=True):
        same(packed, alone(config))  # without it


def test_runs_come_and_go_in_the_middle_of_a_batch(configs: list[LoraConfig], small_passes: None) -> None:
    pack = new_pack(configs[0])
    runs = [GptRun(config, pack) for config in configs]
    for _ in range(4):  # it has one pass of its second batch by now
        tick(runs[2:3])
    tick([runs[1], runs[2], runs[0]])
    tick([runs[0], runs[3]])  # the third waits in the middle of a batch, and has its gradient so far
    for packed, config in zip(train_to(runs, STEPS), configs, strict=True):
        same(packed, alone(config))


def test_a_nan_loss_stays_in_its_run(configs: list[LoraConfig], small_passes: None) -> None:
    configs = configs[:3]
    wild = dataclasses.replace(configs[0], learning_rate=1e30, max_grad_norm=0.0)
    pack = new_pack(wild)
    runs = [GptRun(config, pack) for config in [wild, *configs]]
    (value, _, _), *rest = train_to(runs, STEPS)
    assert value != value
    for packed, config in zip(rest, configs, strict=True):
        same(packed, alone(config))


def test_the_padding_of_a_rank_stays_zero(configs: list[LoraConfig], small_passes: None) -> None:
    pack = new_pack(configs[0])
    runs = [GptRun(config, pack) for config in (configs[0], configs[2])]  # ranks 2 and 8
    for _ in range(STEPS):
        tick(runs)
    for leaf in pack._leaves():
        assert leaf.shape[:2] == (2, 8)
        assert leaf[0, :2].any() and not leaf[0, 2:].any()


def test_a_pass_is_filled_up_with_rows_that_count_nothing(
    configs: list[LoraConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of 7 in passes of 4 is a batch of 7 in one pass, up to rounding."""
    config = dataclasses.replace(configs[0], batch_size=7, learning_rate=1e-4)
    whole = alone(config)
    monkeypatch.setitem(PASS_TOKENS, "cpu", 4 * 16)
    assert config.rows_per_pass == 4
    passes = alone(config)
    assert passes[0] == pytest.approx(whole[0], abs=1e-6)
    for name, tensor in passes[2].items():
        torch.testing.assert_close(tensor, whole[2][name], atol=1e-6, rtol=1e-3, msg=name)


def test_runs_that_differ_in_what_a_pack_shares_train_apart(
    tiny: dict[str, Any], tiny_lora: LoraConfig, tiny_pretrain: PretrainConfig, base_file: Path
) -> None:
    key = pack_key(tiny_lora)
    for change in (
        {"target_modules": ("qkv",)},
        {"max_length": 8},
        {"lora_dropout": 0.0},
        {"batch_size": 2},
        {"base": None},
        {"use_dora": True},
        {"label_smoothing_factor": 0.1},
        {"precision": "bf16"},
        {"deterministic": True},
        {"gradient_checkpointing": True},
    ):
        changed: Any = change
        assert pack_key(dataclasses.replace(tiny_lora, **changed)) != key, change
    for change in ({"lora_r": 16}, {"learning_rate": 1.0}, {"seed": 9}, {"lora_dropout": 0.5}):
        changed = change
        assert pack_key(dataclasses.replace(tiny_lora, **changed)) == key, change
    assert pack_key(dataclasses.replace(tiny_lora, torch_compile=True)) is None
    assert pack_key(tiny_pretrain) is None
    for kind in ("full", "linear"):
        assert pack_key(dataclasses.replace(tiny_lora, finetuning_type=kind)) is None


@pytest.mark.parametrize(("kind", "moved"), [("full", 10), ("linear", 1)])
def test_a_base_trains_as_a_whole_or_at_its_head(
    tiny_lora: LoraConfig, tmp_path: Path, base_file: Path, kind: str, moved: int
) -> None:
    config = dataclasses.replace(tiny_lora, finetuning_type=kind, lora_dropout=0.0, learning_rate=1e-2)
    base = {name: tensor.clone() for name, tensor in load_base(base_file).weights.items()}
    result = fit(config, on_report=lambda report: None, checkpoint=tmp_path / "run")
    assert result.value < result.reports[0].value
    [path] = export(tmp_path / "run", tmp_path / "out")
    weights = load_base(path).weights
    changed = [name for name, tensor in weights.items() if not torch.equal(tensor, base[name])]
    assert len(changed) == moved and "head.weight" in changed
    for name, tensor in load_base(base_file).weights.items():
        assert torch.equal(tensor, base[name]), "the base itself is never written to"
    resumed = fit(config, on_report=lambda report: None, resume_from=tmp_path / "run")
    assert resumed.value == result.value


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ({"batch_size": 2}, {"batch_size": 4}, False),  # a step of each is one pass
        ({"batch_size": 64}, {"batch_size": 128}, True),
        ({"batch_size": 2}, {"batch_size": 1, "gradient_accumulation_steps": 2}, True),
        ({"lora_dropout": 0.0}, {"lora_dropout": 0.1}, False),
        ({"lora_dropout": 0.2}, {"lora_dropout": 0.1}, True),
        ({"label_smoothing_factor": 0.0}, {"label_smoothing_factor": 0.1}, False),
        ({"label_smoothing_factor": 0.2}, {"label_smoothing_factor": 0.1}, True),
        ({"optimizer": "lion"}, {"optimizer": "adamw"}, True),
        ({"optimizer": "lion", "device": "cuda"}, {"optimizer": "adamw", "device": "cuda"}, False),
        ({"lora_r": 2, "seed": 1, "max_samples": 512}, {"lora_r": 64, "lr_scheduler": "cosine"}, True),
        ({}, {"precision": "bf16"}, False),
        ({}, {"gradient_checkpointing": True}, False),
        ({}, {"max_length": 8}, False),
        ({}, {"use_dora": True}, False),
    ],
)
def test_pack_keys_are_as_docs_trainer_says(
    tiny_lora: LoraConfig, one: dict[str, Any], other: dict[str, Any], together: bool
) -> None:
    long = dataclasses.replace(tiny_lora, max_samples=1024)
    keys = [pack_key(dataclasses.replace(long, **values)) for values in (one, other)]
    assert (keys[0] == keys[1]) == together
