"""What is computed in which precision, by deterministic algorithms or not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hpsearch.trainer.config.models import LoraConfig, PretrainConfig, TrainConfig
from hpsearch.trainer.errors import ConfigError
from hpsearch.trainer.model.lora import BoundAdapters, LoraLinear
from hpsearch.trainer.optim.numerics import LossScale, Numerics, _say_if_imitated
from hpsearch.trainer.runs.run import GptRun

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(params=["lora", "pretrain"])
def config(request: pytest.FixtureRequest) -> TrainConfig:
    made: TrainConfig = request.getfixturevalue(f"tiny_{request.param}")
    return made


def capable_of(capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA device, as far as it is asked for its age."""
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: capability)


def test_an_unsupported_precision_is_refused(tiny_lora: LoraConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    tf32 = dataclasses.replace(tiny_lora, precision="tf32", device="auto")
    for device in ("cpu", "mps"):
        with pytest.raises(ConfigError) as caught:
            dataclasses.replace(tf32, device=device)
        told = f"precision: found 'tf32', but tf32 is for CUDA, and device is '{device}'"
        assert caught.value.problems == [told]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="found 'tf32', but tf32 is for CUDA"):
        GptRun(tf32)
    capable_of((7, 5), monkeypatch)
    with pytest.raises(ConfigError, match=r"found 'tf32', but this device \(cuda\) has fp32, fp16$"):
        Numerics.of(tf32, CUDA)
    capable_of((9, 0), monkeypatch)
    assert Numerics.of(tf32, CUDA).precision == "tf32"


def test_an_imitated_precision_is_reported_once(
    tiny_lora: LoraConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    _say_if_imitated.cache_clear()
    has = {
        "bf16": torch.ops.mkldnn._is_mkldnn_bf16_supported(),
        "fp16": torch.ops.mkldnn._is_mkldnn_fp16_supported(),
    }
    for precision in ("auto", "fp32", "bf16", "fp16", "bf16", "fp16"):
        assert Numerics.of(dataclasses.replace(tiny_lora, precision=precision), CPU).device == CPU
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in told] == [
        f"precision: this CPU has no {name}" for name, found in has.items() if not found
    ]


def test_auto_is_the_fastest_that_loses_no_range(
    tiny_lora: LoraConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tiny_lora.precision == "auto"
    assert Numerics.of(tiny_lora, CPU).precision == "fp32"
    capable_of((7, 0), monkeypatch)
    assert Numerics.of(tiny_lora, CUDA).precision == "fp32"
    capable_of((8, 6), monkeypatch)
    assert Numerics.of(tiny_lora, CUDA).precision == "bf16"


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_matrix_products_are_computed_in_the_precision_and_nothing_is_kept_in_it(
    config: TrainConfig, precision: str, dtype: torch.dtype
) -> None:
    run = GptRun(dataclasses.replace(config, precision=precision))
    seen: dict[str, set[torch.dtype]] = {}
    for name, module in run.pack.model.named_modules():
        if isinstance(module, LoraLinear | torch.nn.Linear):
            dtypes = seen.setdefault(name, set())
            module.register_forward_hook(lambda _, __, y, dtypes=dtypes: dtypes.update([y.dtype]))
    run.train()
    run.evaluate()[0]
    assert len(seen) == 5 and set.union(*seen.values()) == {dtype}
    for name, tensor in (run.trained | run.optimizer.tensors()).items():
        assert tensor.dtype == torch.float32, name
    assert run.loss_total.dtype == run.grad_norm.dtype == torch.float32


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_lower_precision_trains_nearly_the_same(config: TrainConfig, precision: str) -> None:
    found = []
    for each in ("fp32", precision):
        run = GptRun(dataclasses.replace(config, precision=each, learning_rate=1e-2))
        for _ in range(12):
            run.train()
        found.append(run.evaluate()[0])
    assert found[0] != found[1] and found[1] == pytest.approx(found[0], abs=0.02)


@pytest.mark.parametrize("masked", [False, True])
def test_the_product_of_adapters_has_the_gradients_of_autocast(masked: bool) -> None:
    """Of the same written in torch's own operations, which autocast knows."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(16, 24, bias=False)
    layer = LoraLinear(linear)
    A, B = (torch.randn(2, 8, width, requires_grad=True) for width in (16, 24))
    x = torch.randn(2 * 40, 16, requires_grad=True)
    mask = torch.randint(2, (2, 40, 16)).float() * 2 if masked else None
    draw = None if mask is None else (lambda _: mask)
    layer.bound = BoundAdapters([A, B], None, torch.tensor([0.5, 2.0]).view(-1, 1, 1), draw)

    def plain(x: Tensor) -> Tensor:
        packed = x.view(2, 40, 16)
        low = torch.bmm(packed if mask is None else packed * mask, A.mT)
        return (F.linear(packed, layer.weight) + layer.bound.scale * torch.bmm(low, B)).view(80, 24)

    dy = torch.randn(80, 24)
    found = []
    for forward in (layer, plain):
        with torch.autocast("cpu", torch.bfloat16):
            y = forward(x)
        found.append((y.float(), *torch.autograd.grad(y, (x, A, B), dy.to(y.dtype))))
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == theirs.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, atol=0.02 * theirs.abs().max().item(), rtol=0)


def test_a_loss_scale_grows_after_good_steps_and_halves_after_a_bad_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LossScale, "STEPS_TO_DOUBLE", 3)
    scale = LossScale()
    assert scale.value == 65536.0
    gradients = {"a": torch.full((2,), 65536.0 * 3), "b": torch.full((3,), 65536.0 * 5)}
    assert scale.unscale(gradients)
    assert gradients["a"].tolist() == [3.0] * 2 and gradients["b"].tolist() == [5.0] * 3
    values = []
    for last in (1.0, 1.0, 1.0, 1.0, float("inf"), 1.0, 1.0, float("nan"), 1.0, 1.0, 1.0):
        assert scale.unscale({"a": torch.ones(2), "b": torch.tensor([1.0, last])}) == (last == 1.0)
        values.append(scale.value / 65536)
    assert values == [1, 2, 2, 2, 1, 1, 1, 0.5, 0.5, 0.5, 1]


def test_small_gradients_survive_in_fp16(tiny_pretrain: PretrainConfig) -> None:
    """They vanish without the scale: with it, their norm is that of fp32."""
    found = {}
    for precision, start in (("fp32", 1.0), ("fp16", LossScale.INITIAL_SCALE), ("fp16", 2.0**-16)):
        run = GptRun(dataclasses.replace(tiny_pretrain, precision=precision))
        if run.loss_scale:
            run.loss_scale.value = start
        run.train()
        found[precision, start] = run.grad_norm.item()
    right, scaled, vanished = found.values()
    assert scaled == pytest.approx(right, rel=1e-2)
    assert abs(vanished - right) > 0.05 * right


def test_switches_hold_while_a_pack_computes_and_are_put_back(config: TrainConfig) -> None:
    run = GptRun(dataclasses.replace(config, deterministic=True))
    seen: list[bool] = []

    def look(*_: Any) -> None:
        seen.append(torch.are_deterministic_algorithms_enabled())

    def look_back(y: Tensor) -> None:
        y.register_hook(look)  # type: ignore[no-untyped-call]

    hook = run.pack.model.norm.register_forward_hook(lambda _, __, y: look_back(y))
    run.train()
    hook.remove()
    assert seen == [True]  # in the backward pass
    run.pack.model.norm.register_forward_hook(look)
    run.evaluate()[0]
    assert seen[1:] and all(seen)
    assert not torch.are_deterministic_algorithms_enabled()
    plain = GptRun(config)
    plain.pack.model.norm.register_forward_hook(look)
    plain.train()
    assert not seen[-1]


def test_switches_are_put_back_after_an_error_too() -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    assert before != "tf32"
    with pytest.raises(KeyError), Numerics(CPU, "tf32", True).settings():
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
        assert torch.are_deterministic_algorithms_enabled()
        raise KeyError
    assert torch.backends.cuda.matmul.fp32_precision == before
    assert not torch.are_deterministic_algorithms_enabled()


def test_deterministic_needs_the_environment_on_cuda(
    tiny_lora: LoraConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    capable_of((9, 0), monkeypatch)
    config = dataclasses.replace(tiny_lora, deterministic=True)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with pytest.raises(ConfigError, match=r"CUBLAS_WORKSPACE_CONFIG is not set; set it to :4096:8 or :16:8"):
        Numerics.of(config, CUDA)
    assert Numerics.of(config, CPU).deterministic
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    assert Numerics.of(config, CUDA).deterministic


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
def test_a_gpu_computes_in_each(config: TrainConfig, precision: str) -> None:
    found = []
    for each in ("fp32", precision):
        run = GptRun(dataclasses.replace(config, precision=each, device="cuda", learning_rate=1e-2))
        for _ in range(12):
            run.train()
        found.append(run.evaluate()[0])
    assert found[1] == pytest.approx(found[0], abs=0.02)
    assert (found[1] == found[0]) == (precision == "fp32")
