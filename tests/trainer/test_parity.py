"""The trainer against what it is made of: gradients by differences, and peft on GPT-2 of transformers.

What is compared with peft are the contestants of `benchmarks/trainer.py`, so that it measures the same work.
"""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hpsearch.trainer.config.models import LoraConfig
from hpsearch.trainer.config.shape import Shape
from hpsearch.trainer.model.gpt import GPT, Block, loss_sum
from hpsearch.trainer.packs.lora_pack import LoraPack
from hpsearch.trainer.runs.base import RunReport
from hpsearch.trainer.runs.run import GptRun, fit

# Gradients in float64.


def drawn(module: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """In float64, with weights of ordinary size everywhere: no gradient is zero by chance."""
    generator = torch.Generator().manual_seed(seed)
    module.double()
    for parameter in module.parameters():
        parameter.data.normal_(0, 0.5, generator=generator)
    return module


def values(*shape: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()


def checked(module: torch.nn.Module, *inputs: Any) -> bool:
    """Whether the gradients of all inputs and trained parameters are the differences of the output."""
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}

    def forward(*given: Any) -> Any:
        parameters = dict(zip(trained, given[len(inputs) :], strict=True))
        return torch.func.functional_call(module, parameters, given[: len(inputs)])

    return torch.autograd.gradcheck(forward, (*inputs, *trained.values()))


def test_gradients_of_the_norm() -> None:
    norm = GPT(Shape(width=6, depth=0, heads=1, max_length=1)).norm
    drawn(norm)
    x = values(3, 6)
    centred = x - x.mean(-1, keepdim=True)
    expected = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight
    torch.testing.assert_close(norm(x), expected)
    assert checked(norm, x)


def test_gradients_of_a_block() -> None:
    block = drawn(Block(Shape(width=4, depth=1, heads=2, max_length=3), torch.nn.Identity))

    class AtLengthThree(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = block

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.block(x, 3)
            return out

    assert checked(AtLengthThree(), values(6, 4))


def test_gradients_of_the_loss_through_an_adapted_model(base_file: Path) -> None:
    """Of two runs in a pack, each of its own adapters."""
    config = LoraConfig(max_steps=1, base=str(base_file), max_length=4, lora_r=1, device="cpu")
    pack = LoraPack(config)
    drawn(pack.model)
    pack.model.requires_grad_(False)
    ids = torch.tensor([[7, 200, 7, 31], [90, 91, 92, 93]])
    stacks = {
        name: values(2, 1, tensor.shape[1], seed=3) for name, tensor in pack.init_tensors(config).items()
    }

    def losses(*matrices: Tensor) -> Tensor:
        scale = torch.tensor([0.5, 2.0], dtype=torch.float64)
        pack.lora.bind([dict(zip(stacks, matrices, strict=True))], scale)
        each = F.cross_entropy(pack.model(ids), ids.roll(-1, 1).flatten(), reduction="none")
        return each.view(2, -1).sum(1)

    assert torch.autograd.gradcheck(losses, tuple(stacks.values()))


def test_the_gradient_of_the_loss_is_probability_minus_truth() -> None:
    logits, targets = values(6, 256), torch.tensor([[5, 0, 255], [17, 17, 3]])
    loss = loss_sum(torch.nn.Identity(), logits, targets)
    (found,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(found, logits.softmax(-1) - F.one_hot(targets.flatten(), 256))


# peft, step by step.

STEPS = 30

# transformers warns of what it does itself.
peer = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")


@pytest.fixture
def huggingface() -> Any:
    """The peers of the benchmark, where what they need is installed."""
    for name in ("transformers", "peft", "accelerate"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}: pip install 'hpsearch[bench]'")
    path = Path(__file__).parents[2] / "benchmarks" / "huggingface.py"
    spec = importlib.util.spec_from_file_location("huggingface", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its libraries' own imports
        spec.loader.exec_module(module)
    return module


def losses(config: LoraConfig) -> list[float]:
    """Of our steps: with a report after each, what it tells is the loss of one."""
    reports: list[RunReport] = []
    fit(config, on_report=reports.append)
    return [report.metrics["train_loss"] for report in reports]


def configuration(**params: Any) -> LoraConfig:
    """A run over the base that ships, at a learning rate that is felt."""
    run = {"max_steps": STEPS, "eval_every": 1, "eval_samples": 1, "batch_size": 2, "max_length": 32}
    rate = {"lr_scheduler": "constant", "learning_rate": 3e-3}
    return LoraConfig.from_params(run | rate | {"device": "cpu"} | params)


@pytest.mark.slow
@peer
@pytest.mark.parametrize(
    "params", [{}, {"lora_r": 2, "alpha_over_r": 4.0, "weight_decay": 0.1, "max_grad_norm": 0.1, "seed": 1}]
)
def test_the_losses_are_those_of_peft(huggingface: Any, params: dict[str, Any]) -> None:
    config = configuration(**params)
    loop = huggingface.Loop(GptRun(config))
    theirs = [loop.train().item() for _ in range(STEPS)]
    assert losses(config) == pytest.approx(theirs, abs=1e-5)


@pytest.mark.slow
@peer
def test_the_losses_are_those_of_trainer(huggingface: Any, tmp_path: Path) -> None:
    config = configuration()
    made = huggingface.trainer(GptRun(config), lambda: False, str(tmp_path), logging_steps=1)
    made.train()
    theirs = [entry["loss"] for entry in made.state.log_history if "loss" in entry]
    assert losses(config) == pytest.approx(theirs, abs=1e-5)
