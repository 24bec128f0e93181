from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hpsearch.trainer.config.models import LoraConfig
from hpsearch.trainer.model.base_file import load_base
from hpsearch.trainer.model.gpt import GPT
from hpsearch.trainer.model.lora import LoraLinear
from hpsearch.trainer.packs.lora_pack import LoraPack, padded

IDS = torch.arange(32).view(2, 16)


def made(base_file: Path, **params: Any) -> tuple[LoraConfig, LoraPack, dict[str, Tensor]]:
    """A configuration, its pack, and the adapters of a run as they start."""
    given = {"max_steps": 1, "base": str(base_file), "max_length": 16, "device": "cpu"}
    config = LoraConfig.from_params(given | params)
    pack = LoraPack(config)
    return config, pack, pack.init_tensors(config)


def plain(base_file: Path, state: dict[str, Tensor] | None = None) -> GPT:
    base = load_base(base_file)
    model = GPT(base.shape)
    model.load_state_dict(base.weights if state is None else state)
    return model.eval()


def disturb(adapters: dict[str, Tensor]) -> None:
    """Adapters as training leaves them: not at zero."""
    generator = torch.Generator().manual_seed(3)
    for tensor in adapters.values():
        tensor.normal_(0, 0.3, generator=generator)


def layer_of(stacks: int, *, dtype: torch.dtype = torch.float32) -> LoraLinear:
    """A layer 6 -> 4 with two runs of rank 2 in each stack but the last, which has one of rank 3."""
    layer = LoraLinear(torch.nn.Linear(6, 4, bias=False, dtype=dtype))
    generator = torch.Generator().manual_seed(0)
    for k, r in [(2, 2), (1, 3)][:stacks]:
        A, B = (torch.randn(k, r, width, generator=generator, dtype=dtype) for width in (6, 4))
        layer.bound.matrices += [A, B]
    layer.bound.scale = torch.tensor([1.5, 0.5, 2.0][: 2 if stacks == 1 else 3], dtype=dtype).view(-1, 1, 1)
    return layer


def formula(layer: LoraLinear, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """x W' + scale (x mask) A' B, of each run by itself."""
    As, Bs = layer.bound.matrices[::2], layer.bound.matrices[1::2]
    runs = [(A[k], B[k]) for A, B in zip(As, Bs, strict=True) for k in range(len(A))]
    parts = x.view(len(runs), -1, x.shape[-1])
    seen = parts if mask is None else parts * mask
    added = [
        s * (seen[k] @ A.T) @ B for k, ((A, B), s) in enumerate(zip(runs, layer.bound.scale, strict=True))
    ]
    return x @ layer.weight.T + torch.cat(added)


def test_it_starts_at_the_base_exactly(base_file: Path) -> None:
    config, pack, adapters = made(base_file)
    pack.load_for_eval(config, adapters)
    assert torch.equal(pack.model.eval()(IDS), plain(base_file)(IDS))


def test_a_start_is_drawn_from_the_seed_within_its_bounds(base_file: Path) -> None:
    config, pack, adapters = made(base_file, lora_r=3, seed=5)
    named = pack.by_layer(adapters)
    assert named["blocks.0.down.lora_A"].shape == (3, 32) and named["blocks.0.down.lora_B"].shape == (3, 8)
    for name, tensor in named.items():
        if name.endswith("lora_A"):
            bound = tensor.shape[1] ** -0.5
            assert 0.8 * bound < tensor.abs().max().item() <= bound, name
        else:
            assert not tensor.any(), name
    again = LoraPack(config).init_tensors(config)
    assert torch.equal(again["lora_A"], adapters["lora_A"])
    assert not torch.equal(made(base_file, lora_r=3, seed=6)[2]["lora_A"], adapters["lora_A"])


def test_nothing_of_the_base_trains(base_file: Path) -> None:
    _, pack, _ = made(base_file)
    assert not any(parameter.requires_grad for parameter in pack.model.parameters())


def test_the_base_keys_are_unchanged(base_file: Path) -> None:
    _, pack, _ = made(base_file)
    assert set(pack.model.state_dict()) == set(load_base(base_file).weights)


def test_targets_choose_the_linears(base_file: Path) -> None:
    _, pack, adapters = made(base_file, target_modules=["down", "qkv"])
    assert list(pack.lora.layers) == ["blocks.0.qkv", "blocks.0.down"]
    assert adapters["lora_A"].shape == (8, 8 + 32) and adapters["lora_B"].shape == (8, 24 + 8)
    assert len(made(base_file, target_modules="all-linear")[1].lora.layers) == 4


def test_names_and_back(base_file: Path) -> None:
    _, pack, adapters = made(base_file)
    disturb(adapters)
    for name, tensor in pack.stacked(pack.by_layer(adapters)).items():
        assert torch.equal(tensor, adapters[name])


@pytest.mark.parametrize("stacks", [1, 2])
@pytest.mark.parametrize("masked", [False, True])
def test_the_layer_is_the_formula(stacks: int, masked: bool) -> None:
    layer = layer_of(stacks)
    x = torch.randn(len(layer.bound.scale) * 5, 6)
    mask = (torch.rand(len(layer.bound.scale), 5, 6) > 0.5).float() * 2 if masked else None
    layer.bound.mask = None if mask is None else lambda _: mask
    torch.testing.assert_close(layer(x), formula(layer, x, mask))


@pytest.mark.parametrize("stacks", [1, 2])
@pytest.mark.parametrize("masked", [False, True])
def test_the_gradient_is_that_of_the_function(stacks: int, masked: bool) -> None:
    layer = layer_of(stacks, dtype=torch.float64)
    x = torch.randn(len(layer.bound.scale) * 3, 6, dtype=torch.float64, requires_grad=True)
    mask = (torch.rand(len(layer.bound.scale), 3, 6) > 0.5).double() * 2 if masked else None
    layer.bound.mask = None if mask is None else lambda _: mask
    matrices = [matrix.requires_grad_() for matrix in layer.bound.matrices]

    def forward(x: Tensor, *matrices: Tensor) -> Tensor:
        layer.bound.matrices = list(matrices)
        out: Tensor = layer(x)
        return out

    assert torch.autograd.gradcheck(forward, (x, *matrices))


def test_merged_computes_the_same(base_file: Path) -> None:
    config, pack, adapters = made(base_file, lora_dropout=0.3, alpha_over_r=3.0)
    disturb(adapters)
    before = {name: tensor.clone() for name, tensor in pack.model.state_dict().items()}
    merged = pack.merged(config, adapters)
    assert set(merged) == set(load_base(base_file).weights)
    pack.load_for_eval(config, adapters)
    computed = pack.model.eval()(IDS)
    assert not torch.allclose(computed, plain(base_file)(IDS), atol=1e-2)
    torch.testing.assert_close(plain(base_file, merged)(IDS), computed, atol=1e-4, rtol=1e-4)
    for name, tensor in pack.model.state_dict().items():
        assert torch.equal(tensor, before[name]), "merging writes into the model"


def dora_of(layer: LoraLinear) -> Tensor:
    """Give a layer lengths of its own, and return them."""
    generator = torch.Generator().manual_seed(1)
    shape = len(layer.bound.scale), 1, len(layer.weight)
    layer.bound.lengths = torch.rand(shape, generator=generator, dtype=layer.weight.dtype) + 0.5
    return layer.bound.lengths


@pytest.mark.parametrize("stacks", [1, 2])
def test_dora_follows_the_equation_of_its_paper(stacks: int) -> None:
    """x (m V / |V|)' with V = W + scale B' A, of each run by itself."""
    layer = layer_of(stacks, dtype=torch.float64)
    lengths = dora_of(layer)
    x = torch.randn(len(layer.bound.scale) * 5, 6, dtype=torch.float64)
    As, Bs = layer.bound.matrices[::2], layer.bound.matrices[1::2]
    runs = [(A[k], B[k]) for A, B in zip(As, Bs, strict=True) for k in range(len(A))]
    wanted = []
    for k, (A, B) in enumerate(runs):
        V = layer.weight + layer.bound.scale[k] * B.T @ A
        wanted.append(x.view(len(runs), -1, 6)[k] @ (lengths[k].T * V / V.norm(dim=1, keepdim=True)).T)
    torch.testing.assert_close(layer(x), torch.cat(wanted))


def test_the_gradient_of_dora_takes_the_length_as_a_constant() -> None:
    layer = layer_of(2, dtype=torch.float64)
    lengths = dora_of(layer)
    held = layer._lengths()
    layer._lengths = lambda: held  # type: ignore[method-assign]   # or the numbers would see it change
    x = torch.randn(len(layer.bound.scale) * 3, 6, dtype=torch.float64, requires_grad=True)
    matrices = [matrix.requires_grad_() for matrix in layer.bound.matrices]

    def forward(x: Tensor, lengths: Tensor, *matrices: Tensor) -> Tensor:
        layer.bound.matrices = list(matrices)
        layer.bound.lengths = lengths
        out: Tensor = layer(x)
        return out

    assert torch.autograd.gradcheck(forward, (x, lengths.requires_grad_(), *matrices))


def test_dora_starts_at_the_base(base_file: Path) -> None:
    config, pack, adapters = made(base_file, use_dora=True)
    pack.load_for_eval(config, adapters)
    torch.testing.assert_close(pack.model.eval()(IDS), plain(base_file)(IDS), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
def test_trained_evaluated_and_merged_adapters_agree(base_file: Path, dora: bool) -> None:
    config, pack, adapters = made(base_file, use_dora=dora, alpha_over_r=3.0)
    disturb(adapters)
    stack = {name: padded(tensor, config.padded_rank) for name, tensor in adapters.items()}
    pack.lora.bind([stack], torch.tensor([config.scale]))
    trained = pack.model(IDS)
    pack.load_for_eval(config, adapters)
    torch.testing.assert_close(pack.model.eval()(IDS), trained, atol=1e-4, rtol=1e-4)
    merged = plain(base_file, pack.merged(config, adapters))
    torch.testing.assert_close(merged(IDS), trained, atol=1e-4, rtol=1e-4)


def test_rslora_scales_by_the_root_of_the_rank(base_file: Path) -> None:
    for rank in (1, 4, 16):
        config, pack, adapters = made(base_file, lora_r=rank, lora_alpha=12.0, use_rslora=True)
        assert config.scale == pytest.approx(12 / rank**0.5)
        disturb(adapters)
        pack.load_for_eval(config, adapters)
        scaled = pack.model(IDS)
        pack.lora.bind([{n: t[None] for n, t in adapters.items()}], torch.tensor([12 / rank**0.5]))
        torch.testing.assert_close(pack.model(IDS), scaled, atol=1e-5, rtol=1e-4)


def test_a_sequence_longer_than_the_bases_is_refused(base_file: Path) -> None:
    with pytest.raises(ValueError, match="max_length: found 32, but the base was made for 16"):
        made(base_file, max_length=32)
