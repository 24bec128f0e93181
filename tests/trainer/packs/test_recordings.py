"""What is recorded on CUDA computes what is not, and who may be recorded."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from hpsearch.trainer.config.models import PASS_TOKENS, LoraConfig, PretrainConfig, TrainConfig
from hpsearch.trainer.config.training import OPTIMIZERS
from hpsearch.trainer.optim.optimizers import AdamW
from hpsearch.trainer.packs import pack as packs
from hpsearch.trainer.packs.factory import new_pack, pack_key
from hpsearch.trainer.packs.pack import Pack
from hpsearch.trainer.packs.recordings import MAX_KINDS, Recordings
from hpsearch.trainer.runs.base import FitResult, drive
from hpsearch.trainer.runs.run import GptRun, fit, tick
from hpsearch.trainer.runs.together import PackedRuns

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
STEPS = 12
MIXED: list[dict[str, Any]] = [
    {"lora_r": 2, "batch_size": 4, "seed": 1},
    {"lora_r": 12, "batch_size": 8, "learning_rate": 1e-3, "lr_scheduler": "cosine", "warmup_ratio": 0.2},
    {"lora_r": 8, "batch_size": 12, "weight_decay": 0.5, "adam_beta2": 0.9, "loraplus_lr_ratio": 4.0},
    {"lora_r": 3, "batch_size": 4, "max_grad_norm": 0.01, "gradient_accumulation_steps": 2},
]
KINDS: list[dict[str, Any]] = [
    {},
    {"lora_dropout": 0.2},
    {"use_dora": True},
    {"label_smoothing_factor": 0.1},
    {"precision": "bf16"},
    {"precision": "tf32"},
]


@pytest.fixture
def small_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four rows, so that steps take one to three of them."""
    monkeypatch.setitem(PASS_TOKENS, "cuda", 4 * 16)


@pytest.fixture
def on_cuda(tiny_lora: LoraConfig) -> LoraConfig:
    return dataclasses.replace(
        tiny_lora, device="cuda", precision="fp32", lora_dropout=0.0, max_samples=480, max_length=16
    )


def mixed(config: LoraConfig, **more: Any) -> list[LoraConfig]:
    return [dataclasses.replace(config, **(each | more)) for each in MIXED]


def train(runs: list[GptRun]) -> list[float]:
    """The loss of each run when it has made its steps and leaves."""
    found: dict[GptRun, float] = {}
    while len(found) < len(runs):
        tick([run for run in runs if run not in found])
        found |= {run: run.evaluate()[0] for run in runs if run.step == STEPS and run not in found}
    return [found[run] for run in runs]


def together(configs: list[LoraConfig]) -> list[float]:
    pack = new_pack(configs[0])
    return train([GptRun(config, pack) for config in configs])


def learned(configs: list[LoraConfig]) -> list[dict[str, Tensor]]:
    """The adapters that each comes to."""
    pack = new_pack(configs[0])
    runs = [GptRun(config, pack) for config in configs]
    train(runs)
    return [{name: tensor.clone() for name, tensor in run.weights().items()} for run in runs]


@cuda
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_recordings_compute_the_same_bits(
    on_cuda: LoraConfig, small_passes: None, monkeypatch: pytest.MonkeyPatch, kind: dict[str, Any]
) -> None:
    configs = mixed(on_cuda, **kind)
    played: list[object] = []
    replay = torch.cuda.CUDAGraph.replay

    def counted(self: torch.cuda.CUDAGraph) -> None:
        played.append(self)
        replay(self)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", counted)
    found = learned(configs)
    assert len(set(played)) > 1 and len(played) > STEPS
    monkeypatch.setattr(Pack, "recording", False)
    before = len(played)
    for mine, other in zip(found, learned(configs), strict=True):
        assert all(torch.equal(mine[name], other[name]) for name in mine)
    assert len(played) == before


@cuda
@pytest.mark.parametrize("kind", KINDS[:4], ids=str)
def test_a_trial_computes_in_a_pack_what_it_does_alone(
    on_cuda: LoraConfig, small_passes: None, kind: dict[str, Any]
) -> None:
    configs = mixed(on_cuda, **kind)
    alone = [together([config])[0] for config in configs]
    assert together(configs) == pytest.approx(alone, abs=1e-4)


@cuda
def test_a_gpu_learns_what_a_cpu_does(on_cuda: LoraConfig) -> None:
    there, here = (together([dataclasses.replace(on_cuda, device=name)]) for name in ("cuda", "cpu"))
    assert there == pytest.approx(here, abs=1e-4)


@cuda
def test_runs_come_and_go(on_cuda: LoraConfig, small_passes: None) -> None:
    configs = mixed(on_cuda)
    alone = [together([config])[0] for config in configs]
    pack = new_pack(configs[0])
    runs = [GptRun(config, pack) for config in configs]
    for there, ticks in ((runs[2:3], 5), (runs[:3], 4), ([runs[0], runs[3]], 3)):
        for _ in range(ticks):  # the third waits in the middle of a batch, and has its gradient so far
            tick(there)
    assert train(runs) == pytest.approx(alone, abs=1e-4)


@cuda
@pytest.mark.parametrize("name", ["tiny_pretrain", "tiny_lora"])
@pytest.mark.parametrize("kind", ["full", "checkpointing", "fp16"])
def test_whole_models_and_unrecorded_runs(
    name: str, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: TrainConfig = dataclasses.replace(request.getfixturevalue(name), device="cuda")
    if kind == "checkpointing":
        config = dataclasses.replace(config, gradient_checkpointing=True)
    elif kind == "fp16":
        config = dataclasses.replace(config, precision="fp16")
    elif isinstance(config, LoraConfig):
        config = dataclasses.replace(config, finetuning_type="full", lora_dropout=0.0)
    found = fit(config, on_report=lambda report: None)
    monkeypatch.setattr(Pack, "recording", False)
    again = fit(config, on_report=lambda report: None)
    assert [report.value for report in found.reports] == [report.value for report in again.reports]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=cuda)])
def test_runs_of_one_pack_after_those_of_another(tiny_lora: LoraConfig, device: str) -> None:
    """The recordings of the first are gone by then, but what the model last computed with is not."""
    together = PackedRuns()
    kinds: list[dict[str, Any]] = [{"lora_dropout": 0.0}, {}, {"use_dora": True}, {"lora_dropout": 0.0}, {}]
    for number, more in enumerate(kinds):
        config = dataclasses.replace(tiny_lora, device=device, seed=number, **more)
        run = together.new_run(config)
        together.join(run, drive(run, on_report=lambda report: None))
        ended = [outcome for _ in iter(lambda: together.busy, False) for _, outcome in together.advance()]
        del run
        alone = fit(config, on_report=lambda report: None)
        (result,) = ended
        assert isinstance(result, FitResult)
        assert [r.value for r in result.reports] == pytest.approx([r.value for r in alone.reports], abs=1e-4)


@cuda
def test_a_resumed_run_equals_an_uninterrupted_one(on_cuda: LoraConfig, tmp_path: Any) -> None:
    config = dataclasses.replace(on_cuda, max_samples=48, lora_dropout=0.1)
    whole = fit(config, on_report=lambda report: None)

    class Stop(Exception):
        pass

    def stop(report: Any) -> None:
        if report.step == 24:
            raise Stop

    with pytest.raises(Stop):
        fit(config, on_report=stop, checkpoint=tmp_path)
    rest = fit(config, on_report=lambda report: None, resume_from=tmp_path)
    assert [r.value for r in rest.reports] == [r.value for r in whole.reports]


class Played(Recordings):
    """Recordings without a device: what is recorded is called, and played it is called again."""

    def __init__(self) -> None:
        self._made, self._most, self.recording = {}, MAX_KINDS, False

    def _as_it_is(self, function: Callable[[], None]) -> None:
        function()

    def _recorded(self, function: Callable[[], None]) -> Any:
        function()
        return SimpleNamespace(replay=function)


@pytest.mark.parametrize("more", [{}, {"lora_dropout": 0.2}], ids=str)
def test_a_recorded_tick_reads_what_varies_at_fixed_addresses(
    tiny_lora: LoraConfig, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    """Here without CUDA: called again, the function of a recorded tick computes the current one."""

    def kept(self: Pack, name: str, values: Tensor) -> Tensor:
        return self._inputs.setdefault((name, values.shape), torch.empty_like(values)).copy_(values)

    monkeypatch.setattr(Pack, "_input", kept)
    monkeypatch.setattr(Played, "_recorded", lambda self, function: SimpleNamespace(replay=function))
    monkeypatch.setitem(PASS_TOKENS, "cpu", 4 * 16)
    found = []
    for played in (False, True):
        config = dataclasses.replace(tiny_lora, max_samples=480, max_length=16, lora_dropout=0.0)
        configs = mixed(config, **more)
        pack = new_pack(configs[0])
        runs = [GptRun(config, pack) for config in configs]
        pack.set_members([run.member for run in runs])
        pack._rates_on_device = True
        if played:
            pack.recordings = Played()
        for _ in range(STEPS):
            tick(runs)
        found.append([run.weights() | {"loss": run.loss_total} for run in runs])
    for mine, other in zip(*found, strict=True):
        assert all(torch.equal(mine[name], other[name]) for name in mine)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("error", "spared"),
    [(torch.OutOfMemoryError("CUDA out of memory"), True), (RuntimeError("capture is invalid"), False)],
)
def test_work_that_cannot_be_recorded_is_computed_directly(
    tiny_lora: LoraConfig, monkeypatch: pytest.MonkeyPatch, count: int, error: Exception, spared: bool
) -> None:
    """Memory is short while a step is recorded, not while it is computed: no run is to fail of it."""
    update, met = AdamW.update, list[str]()

    def short(self: AdamW, names: list[str], gradients: list[Tensor], rate: Any, decay: float) -> None:
        if played.recording:
            met.append("recording")
            raise error
        update(self, names, gradients, rate, decay)

    monkeypatch.setattr(AdamW, "update", short)
    together, outcomes = PackedRuns(), list[object]()
    for seed in range(count):
        run = together.new_run(dataclasses.replace(tiny_lora, seed=seed))
        together.join(run, drive(run, on_report=lambda report: None))
    played = Played()
    run.pack.recordings = played
    while together.busy:
        outcomes += [outcome for _, outcome in together.advance()]
    assert len(met) == 1
    if spared or count > 1:  # several are tried one by one
        assert [type(outcome) for outcome in outcomes] == [FitResult] * count
    else:
        assert outcomes == [error]


@cuda
def test_kinds_beyond_the_most_are_computed_as_they_are() -> None:
    total = torch.zeros((), device="cuda")
    recordings = Recordings(torch.device("cuda"))

    def add(kind: int) -> None:
        total.add_(kind)

    for _ in range(3):
        for kind in range(MAX_KINDS + 2):
            recordings.compute(kind, functools.partial(add, kind))
    assert total.item() == 3 * sum(range(MAX_KINDS + 2))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_which_runs_may_be_recorded(
    tiny_lora: LoraConfig, tiny_pretrain: PretrainConfig, optimizer: str
) -> None:
    for config in (tiny_lora, tiny_pretrain):
        config = dataclasses.replace(config, optimizer=optimizer)
        assert packs.recordable(config) == (optimizer == "adamw")
        for never in ({"precision": "fp16"}, {"torch_compile": True}, {"gradient_checkpointing": True}):
            assert not packs.recordable(dataclasses.replace(config, **never))


def test_a_cpu_records_nothing(tiny_lora: LoraConfig) -> None:
    pack = GptRun(tiny_lora).pack
    assert pack.slow_ticks == 1


def test_recorded_and_unrecorded_runs_train_apart(tiny_lora: LoraConfig) -> None:
    there = dataclasses.replace(tiny_lora, device="cuda")
    keys = {name: pack_key(dataclasses.replace(there, optimizer=name)) for name in OPTIMIZERS}
    assert len(set(keys.values())) == 2
    assert [name for name in OPTIMIZERS if keys[name] == keys["adamw"]] == ["adamw"]
    assert len({pack_key(dataclasses.replace(tiny_lora, optimizer=name)) for name in OPTIMIZERS}) == 1
