from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hpsearch.trainer.build import build_model
from hpsearch.trainer.checkpoint import load_base
from hpsearch.trainer.config import LoraConfig
from hpsearch.trainer.lora import LoraLinear, adapter_parameters, adapters, merged_state_dict
from hpsearch.trainer.model import GPT, Dropout

IDS = torch.arange(32).view(2, 16)


def build(base_file: Path, **params: Any) -> GPT:
    config = LoraConfig.from_params({"max_steps": 1, "base": str(base_file), "max_length": 16} | params)
    return build_model(config, torch.device("cpu"))[0]


def plain(base_file: Path, state: dict[str, torch.Tensor] | None = None) -> GPT:
    base = load_base(base_file)
    model = GPT(base.shape)
    model.load_state_dict(base.weights if state is None else state)
    return model.eval()


def disturb(model: GPT) -> None:
    """Adapters as training leaves them: not at zero."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in adapter_parameters(model).values():
            parameter.normal_(0, 0.3, generator=generator)


def test_it_starts_at_the_base_exactly(base_file: Path) -> None:
    assert torch.equal(build(base_file).eval()(IDS), plain(base_file)(IDS))


def test_only_the_adapters_train_and_every_one_does(base_file: Path) -> None:
    model = build(base_file, lora_dropout=0.1)
    disturb(model)
    model(IDS).square().sum().backward()
    for name, parameter in model.named_parameters():
        is_adapter = name in adapter_parameters(model)
        assert parameter.requires_grad == is_adapter, name
        assert (parameter.grad is not None and bool(parameter.grad.any())) == is_adapter, name
    assert len(adapter_parameters(model)) == 2 * 4


def test_the_base_keys_are_unchanged(base_file: Path) -> None:
    model = build(base_file)
    keys = set(model.state_dict())
    assert keys - set(adapter_parameters(model)) == set(load_base(base_file).weights)


def test_targets_choose_the_linears(base_file: Path) -> None:
    assert list(adapters(build(base_file, target_modules=["down", "qkv"]))) == [
        "blocks.0.qkv",
        "blocks.0.down",
    ]
    assert len(adapters(build(base_file, target_modules="all-linear"))) == 4


def test_the_layer_is_the_formula() -> None:
    layer = LoraLinear(torch.nn.Linear(6, 4, bias=False), r=2, scale=1.5, drop=torch.nn.Identity())
    layer.initialize(torch.Generator().manual_seed(0))
    assert layer.lora_A.abs().max().item() <= 6**-0.5 and not layer.lora_B.any()
    torch.nn.init.normal_(layer.lora_B)
    x = torch.randn(5, 6)
    torch.testing.assert_close(layer(x), x @ layer.weight.T + 1.5 * (x @ layer.lora_A.T) @ layer.lora_B)
    torch.testing.assert_close(layer(x), x @ layer.merged().T)


def test_the_gradient_is_that_of_the_function() -> None:
    layer = LoraLinear(torch.nn.Linear(6, 4, bias=False).double(), r=2, scale=1.5, drop=torch.nn.Identity())
    torch.nn.init.normal_(layer.lora_A)
    torch.nn.init.normal_(layer.lora_B)
    x = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)

    def forward(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.func.functional_call(layer, {"lora_A": a, "lora_B": b}, (x,))
        return out

    assert torch.autograd.gradcheck(forward, (x, layer.lora_A, layer.lora_B))


def test_dropout_is_on_the_adapters_input_alone(base_file: Path) -> None:
    model = build(base_file, lora_dropout=0.5)
    drops = [module for module in model.modules() if isinstance(module, Dropout)]
    assert len(drops) == 4 and {drop.p for drop in drops} == {0.5}
    assert torch.equal(model.train()(IDS), plain(base_file)(IDS)), "with B at zero, dropout changes nothing"
    disturb(model)
    assert not torch.equal(model.train()(IDS), model.eval()(IDS))


def test_merged_computes_the_same(base_file: Path) -> None:
    model = build(base_file, lora_dropout=0.3, alpha_over_r=3.0)
    disturb(model)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    merged = merged_state_dict(model)
    assert set(merged) == set(load_base(base_file).weights)
    torch.testing.assert_close(plain(base_file, merged)(IDS), model.eval()(IDS), atol=1e-4, rtol=1e-4)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), "merging writes into the model"


def test_a_sequence_longer_than_the_bases_is_refused(base_file: Path) -> None:
    with pytest.raises(ValueError, match="max_length: found 32, but the base was made for 16"):
        build(base_file, max_length=32)
