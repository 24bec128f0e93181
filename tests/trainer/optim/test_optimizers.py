"""The optimizers against their papers, and against torch's own."""

from __future__ import annotations

import dataclasses
import math
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch

from hpsearch.trainer.config.models import LoraConfig, PretrainConfig, TrainConfig
from hpsearch.trainer.config.training import OPTIMIZERS
from hpsearch.trainer.data.corpus import inputs_and_targets, load_corpus, train_places, windows_at
from hpsearch.trainer.model.build import new_model
from hpsearch.trainer.model.gpt import loss_sum
from hpsearch.trainer.optim.optimizers import AdamW, new_optimizer
from hpsearch.trainer.optim.schedule import learning_rate
from hpsearch.trainer.runs.run import GptRun


def reference(config: PretrainConfig, steps: int) -> dict[str, torch.Tensor]:
    """Loshchilov and Hutter's algorithm 2 on the mean loss of the whole batch, in float64."""
    model = new_model(config, torch.device("cpu"))
    tokens = load_corpus(config.train_file, validation_split=config.validation_split).train
    parameters = dict(model.named_parameters())
    first = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in parameters.items()}
    second = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in parameters.items()}
    for step in range(steps):
        length = config.max_length
        places = train_places(tokens, config.rows_per_step, length, seed=config.seed, step=step)
        inputs, targets = inputs_and_targets(windows_at(tokens, places, length))
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
    run = GptRun(config)
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
    run = GptRun(config)
    before = {name: tensor.clone() for name, tensor in run.trained.items()}
    gradients = {name: torch.ones_like(tensor) for name, tensor in run.trained.items()}
    run.optimizer.step(gradients, 1e-3)
    moved = {name: (before[name] - tensor).mean().item() for name, tensor in run.trained.items()}
    assert moved == pytest.approx({"lora_A": 1e-3, "lora_B": 16e-3}, rel=1e-4)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_lora_plus_goes_with_every_optimizer(tiny_lora: LoraConfig, optimizer: str) -> None:
    """Those that step layer by layer know their tensors by other names."""
    config = dataclasses.replace(tiny_lora, optimizer=optimizer, loraplus_lr_ratio=16.0)
    run = GptRun(config)
    groups = new_optimizer(config, run.trained, run.pack.by_layer).groups
    ratios = {name: ratio for _, ratio, names in groups for name in names}
    assert ratios == {name: 16.0 if name.endswith("lora_B") else 1.0 for name in ratios}
    assert set(ratios.values()) == {1.0, 16.0}


PEERS: list[tuple[dict[str, Any], Any]] = [
    ({"optimizer": "sgd"}, lambda of, _: torch.optim.SGD(of, momentum=0.9)),
    ({"optimizer": "sgd", "momentum": 0.0}, lambda of, _: torch.optim.SGD(of)),
    (
        {"optimizer": "sgd", "momentum": 0.5, "nesterov": True},
        lambda of, _: torch.optim.SGD(of, momentum=0.5, nesterov=True),
    ),
    ({"optimizer": "adafactor"}, lambda of, decay: torch.optim.Adafactor(of, weight_decay=decay)),
    (
        {"optimizer": "muon"},
        lambda of, decay: torch.optim.Muon(of, weight_decay=decay, adjust_lr_fn="match_rms_adamw"),
    ),
    (
        {"optimizer": "muon", "momentum": 0.5},
        lambda of, decay: torch.optim.Muon(
            of, weight_decay=decay, momentum=0.5, adjust_lr_fn="match_rms_adamw"
        ),
    ),
]


@pytest.mark.parametrize(
    ("options", "peer_of"), PEERS, ids=[" ".join(map(str, options.values())) for options, _ in PEERS]
)
def test_the_bits_are_those_of_torch_of_each_layer(
    tiny_lora: LoraConfig, options: dict[str, Any], peer_of: Any
) -> None:
    """What a run keeps side by side steps as if each layer's matrices were alone."""
    config = dataclasses.replace(tiny_lora, weight_decay=0.3, **options)
    run = GptRun(config)
    theirs = {
        name: torch.nn.Parameter(tensor.clone()) for name, tensor in run.pack.by_layer(run.weights()).items()
    }
    peer = peer_of(list(theirs.values()), 0.3)
    decoupled = config.optimizer == "sgd"  # torch's own is not
    for step in range(5):
        torch.manual_seed(step)
        gradients = {name: torch.randn_like(tensor) for name, tensor in theirs.items()}
        for name, parameter in theirs.items():
            parameter.grad = gradients[name].clone()
        torch.nn.utils.clip_grad_norm_(theirs.values(), config.max_grad_norm)
        rate = 0.1 / (1 + step)
        peer.param_groups[0]["lr"] = rate
        with torch.no_grad():
            for parameter in theirs.values():
                parameter.mul_(1 - rate * 0.3 if decoupled else 1.0)
        peer.step()
        run.optimizer.step(run.pack.stacked(gradients), rate)
    for name, tensor in run.pack.by_layer(run.weights()).items():
        # the norm of all is summed in another order
        torch.testing.assert_close(tensor, theirs[name].detach(), atol=1e-6, rtol=1e-5, msg=name)


@pytest.mark.parametrize("betas", [(0.9, 0.99), (0.5, 0.8)])
def test_lion_follows_its_paper(tiny_pretrain: PretrainConfig, betas: tuple[float, float]) -> None:
    """Chen et al. 2023, algorithm 2, in float64."""
    config = dataclasses.replace(
        tiny_pretrain, optimizer="lion", lion_beta1=betas[0], lion_beta2=betas[1], max_grad_norm=0.0
    )
    ours = {n: p.detach() for n, p in new_model(config, torch.device("cpu")).named_parameters()}
    theirs = {name: tensor.double() for name, tensor in ours.items()}
    mean = {name: torch.zeros_like(tensor) for name, tensor in theirs.items()}
    optimizer = new_optimizer(config, ours, dict)
    for step in range(6):
        torch.manual_seed(step)
        gradients = {name: torch.randn_like(tensor) for name, tensor in ours.items()}
        for name, tensor in theirs.items():
            g = gradients[name].double()
            update = torch.sign(betas[0] * mean[name] + (1 - betas[0]) * g)
            decay = config.weight_decay if tensor.dim() == 2 else 0.0
            theirs[name] = tensor - 0.01 * (update + decay * tensor)
            mean[name] = betas[1] * mean[name] + (1 - betas[1]) * g
        optimizer.step(gradients, 0.01)
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor.double(), theirs[name], atol=1e-6, rtol=1e-5, msg=name)


def test_muon_leaves_to_adamw_what_is_no_hidden_matrix(tiny_pretrain: PretrainConfig) -> None:
    found = {}
    for optimizer in ("muon", "adamw"):
        run = GptRun(dataclasses.replace(tiny_pretrain, optimizer=optimizer, max_grad_norm=0.0))
        run.train()
        found[optimizer] = {name: tensor.clone() for name, tensor in run.pack.by_layer(run.weights()).items()}
    same = {name for name in found["adamw"] if torch.equal(found["adamw"][name], found["muon"][name])}
    assert same == {"token.weight", "position.weight", "head.weight"} | {
        name for name in found["adamw"] if "norm" in name
    }


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["lora", "pretrain"])
def test_matrices_decay_and_gains_do_not_by_any(
    tiny_lora: LoraConfig, tiny_pretrain: PretrainConfig, name: str, kind: str
) -> None:
    made: TrainConfig = tiny_lora if kind == "lora" else tiny_pretrain
    runs = [GptRun(dataclasses.replace(made, optimizer=name, weight_decay=decay)) for decay in (0.0, 0.5)]
    for run in runs:
        run.trained["lora_B" if kind == "lora" else "head.weight"].data.fill_(0.1)
        run.optimizer.step({name: torch.ones_like(tensor) for name, tensor in run.trained.items()}, 0.1)
    plain, decayed = (run.pack.by_layer(run.weights()) for run in runs)
    for key, tensor in plain.items():
        assert (tensor.dim() == 1) == torch.equal(tensor, decayed[key]), key


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ("sgd", {"momentum": 0.1}),
        ("sgd", {"nesterov": True}),
        ("muon", {"momentum": 0.1}),
        ("muon", {"adam_beta1": 0.1}),
        ("lion", {"lion_beta1": 0.1}),
        ("lion", {"lion_beta2": 0.1}),
    ],
)
def test_an_option_of_one_optimizer_is_used(
    tiny_pretrain: PretrainConfig, optimizer: str, options: dict[str, Any]
) -> None:
    found = []
    for changed in ({}, options):
        run = GptRun(dataclasses.replace(tiny_pretrain, optimizer=optimizer, **changed))
        for _ in range(3):
            run.train()
        found.append(torch.cat([tensor.flatten() for tensor in run.pack.by_layer(run.weights()).values()]))
    assert not torch.equal(*found)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_optimizer_learns(tiny: dict[str, Any], name: str) -> None:
    rates = {"sgd": 0.3, "adafactor": 0.1, "lion": 3e-3}
    config = PretrainConfig.from_params(
        tiny
        | {"width": 8, "depth": 1, "heads": 2, "optimizer": name, "learning_rate": rates.get(name, 0.03)}
        | {"max_samples": 400}
    )
    run = GptRun(config)
    before = run.evaluate()[0]
    for _ in range(100):
        run.train()
    assert run.evaluate()[0] < before - 1.5


def test_training_loads_no_compiler(tiny_lora: LoraConfig) -> None:
    """With any optimizer."""
    configs = [dataclasses.replace(tiny_lora, optimizer=name) for name in OPTIMIZERS]
    script = "import pickle, sys; from hpsearch.trainer.runs.run import GptRun"
    script += "; [GptRun(config).train() for config in pickle.load(sys.stdin.buffer)]"
    script += "; assert 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], input=pickle.dumps(configs), check=True)


def test_lora_trains_its_adapters_alone(tiny_lora: LoraConfig) -> None:
    run = GptRun(tiny_lora)
    before = {name: tensor.clone() for name, tensor in run.pack.model.state_dict().items()}
    for _ in range(3):
        run.train()
    for name, tensor in run.pack.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert all(bool(tensor.any()) for tensor in run.trained.values())
