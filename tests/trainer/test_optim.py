"""The optimizer against AdamW, clipping and accumulation written out from their papers."""

from __future__ import annotations

import dataclasses
import math
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch

from hpsearch.trainer.build import new_model
from hpsearch.trainer.config import LoraConfig, PretrainConfig
from hpsearch.trainer.data import inputs_and_targets, load_corpus, train_windows
from hpsearch.trainer.loop import Run
from hpsearch.trainer.model import loss_sum
from hpsearch.trainer.optim import AdamW
from hpsearch.trainer.schedule import learning_rate


def reference(config: PretrainConfig, steps: int) -> dict[str, torch.Tensor]:
    """Loshchilov and Hutter's algorithm 2 on the mean loss of the whole batch, in float64."""
    model = new_model(config, torch.device("cpu"))
    tokens = load_corpus(config.train_file, validation_split=config.validation_split).train
    parameters = dict(model.named_parameters())
    first = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in parameters.items()}
    second = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in parameters.items()}
    for step in range(steps):
        windows = train_windows(tokens, config.rows_per_step, config.max_length, seed=config.seed, step=step)
        inputs, targets = inputs_and_targets(windows)
        loss = loss_sum(model, inputs, targets) / targets.numel()
        gradients = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))
        norm = math.sqrt(sum(gradient.double().square().sum().item() for gradient in gradients.values()))
        shrink = min(1.0, config.max_grad_norm / norm) if config.max_grad_norm else 1.0
        rate = learning_rate(config, step)
        with torch.no_grad():
            for name, parameter in parameters.items():
                gradient = gradients[name].double() * shrink
                first[name] = config.adam_beta1 * first[name] + (1 - config.adam_beta1) * gradient
                second[name] = config.adam_beta2 * second[name] + (1 - config.adam_beta2) * gradient**2
                mean = first[name] / (1 - config.adam_beta1 ** (step + 1))
                square = second[name] / (1 - config.adam_beta2 ** (step + 1))
                decay = config.weight_decay if parameter.dim() == 2 else 0.0
                update = mean / (square.sqrt() + config.adam_epsilon) + decay * parameter.double()
                parameter.copy_(parameter.double() - rate * update)
    return {name: parameter.detach() for name, parameter in parameters.items()}


@pytest.mark.parametrize("max_grad_norm", [0.0, 0.2])
@pytest.mark.parametrize(("batch_size", "parts"), [(4, 1), (2, 2), (1, 4)])
def test_a_run_is_adamw_on_the_whole_batch(
    tiny: dict[str, Any], max_grad_norm: float, batch_size: int, parts: int
) -> None:
    config = PretrainConfig.from_params(
        tiny
        | {
            "width": 8,
            "depth": 1,
            "heads": 2,
            "batch_size": batch_size,
            "gradient_accumulation_steps": parts,
            "max_grad_norm": max_grad_norm,
            "weight_decay": 0.3,
            "adam_epsilon": 1e-4,  # or the sign of a gradient near zero would decide a whole step
            "warmup_ratio": 0.3,
        }
    )
    run = Run(config)
    for _ in range(10):
        run.train()
    for name, expected in reference(config, 10).items():
        torch.testing.assert_close(run.weights()[name], expected, atol=2e-5, rtol=1e-4, msg=name)


def test_matrices_decay_and_gains_do_not(tiny_pretrain: PretrainConfig) -> None:
    parameters = dict(new_model(tiny_pretrain, torch.device("cpu")).named_parameters())
    (decay, _, decaying), (none, _, still) = sorted(AdamW(tiny_pretrain, parameters).groups, reverse=True)
    assert {parameters[name].dim() for name in decaying} == {2} and decay == 0.1
    assert {parameters[name].dim() for name in still} == {1} and none == 0.0
    assert sorted(decaying + still) == sorted(parameters)


def test_the_bits_are_those_of_torch(tiny_pretrain: PretrainConfig) -> None:
    """With its compiler left out: what workers would load it for is this optimizer alone."""
    ours = {n: p.detach() for n, p in new_model(tiny_pretrain, torch.device("cpu")).named_parameters()}
    theirs = {name: torch.nn.Parameter(tensor.clone()) for name, tensor in ours.items()}
    optimizer = AdamW(tiny_pretrain, ours)
    config = tiny_pretrain
    peer = torch.optim.AdamW(
        [{"params": [theirs[name] for name in names], "weight_decay": d} for d, _, names in optimizer.groups],
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        fused=True,
    )
    for step in range(5):
        torch.manual_seed(step)
        gradients = {name: torch.randn_like(tensor) for name, tensor in ours.items()}
        for name, parameter in theirs.items():
            parameter.grad = gradients[name].clone()
        norm = torch.nn.utils.clip_grad_norm_(theirs.values(), config.max_grad_norm)
        for group in peer.param_groups:
            group["lr"] = 10**-step
        peer.step()
        assert optimizer.step(gradients, 10**-step) == norm
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


def test_lora_plus_is_a_rate_of_its_own_for_b(tiny_lora: LoraConfig) -> None:
    """Adam's first step is the learning rate in each place, whatever the gradient."""
    config = dataclasses.replace(tiny_lora, loraplus_lr_ratio=16.0, weight_decay=0.0, adam_epsilon=1e-30)
    run = Run(config)
    before = {name: tensor.clone() for name, tensor in run.trained.items()}
    gradients = {name: torch.ones_like(tensor) for name, tensor in run.trained.items()}
    run.optimizer.step(gradients, 1e-3)
    moved = {name: (before[name] - tensor).mean().item() for name, tensor in run.trained.items()}
    assert moved == pytest.approx({"lora_A": 1e-3, "lora_B": 16e-3}, rel=1e-4)


def test_training_loads_no_compiler(tiny_lora: LoraConfig) -> None:
    script = "import pickle, sys; from hpsearch.trainer.loop import Run; Run(pickle.load(sys.stdin.buffer)).train()"
    script += "; assert 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], input=pickle.dumps(tiny_lora), check=True)


def test_lora_trains_its_adapters_alone(tiny_lora: LoraConfig) -> None:
    run = Run(tiny_lora)
    before = {name: tensor.clone() for name, tensor in run.pack.model.state_dict().items()}
    for _ in range(3):
        run.train()
    for name, tensor in run.pack.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert all(bool(tensor.any()) for tensor in run.trained.values())
