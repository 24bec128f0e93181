# mypy: ignore-errors
"""A network as people search them with Optuna: torch takes longer to load than the network to train."""

import os

import optuna
import torch


def network(trial):
    """After the simple example of PyTorch: a network of suggested depth, pruned by its loss."""
    torch.manual_seed(int(os.environ["HPSEARCH_SEED"]))
    layers, width = [], 2
    for i in range(trial.suggest_int("n_layers", 1, 3)):
        units = trial.suggest_int(f"n_units_l{i}", 4, 16, log=True)
        layers += [torch.nn.Linear(width, units), torch.nn.ReLU()]
        width = units
    model = torch.nn.Sequential(*layers, torch.nn.Linear(width, 1))
    name = trial.suggest_categorical("optimizer", ["Adam", "SGD"])
    lr = trial.suggest_float("lr", 1e-3, 1e-1, log=True)
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=lr)
    inputs = torch.linspace(-1, 1, 64).reshape(32, 2)
    targets = inputs.prod(1, keepdim=True)
    loss = None
    for epoch in range(9):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trial.report(loss.item(), epoch + 1)
        if trial.should_prune():
            raise optuna.exceptions.TrialPruned()
    return loss.item()
