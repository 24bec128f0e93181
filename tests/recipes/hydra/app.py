"""A Hydra application: python app.py optimizer.lr=0.2."""

import logging
import os
import time

import hydra
import torch

log = logging.getLogger(__name__)


@hydra.main(version_base=None, config_path=".", config_name="config")
def main(cfg):
    torch.manual_seed(cfg.seed)
    x = torch.linspace(-2, 2, 64).unsqueeze(1)
    y = x.square()
    model = torch.nn.Sequential(torch.nn.Linear(1, cfg.model.width), torch.nn.ReLU(), torch.nn.Linear(cfg.model.width, 1))
    momentum = 0.9 if cfg.optimizer.nesterov else 0.0
    optimizer = torch.optim.SGD(model.parameters(), cfg.optimizer.lr, momentum, nesterov=cfg.optimizer.nesterov)
    start = 0
    if os.path.exists(cfg.checkpoint):
        state = torch.load(cfg.checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"]
    for epoch in range(start + 1, cfg.epochs + 1):
        time.sleep(0.3)  # a real epoch takes longer
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, cfg.checkpoint)
        log.info("epoch: %d, loss: %.7f", epoch, torch.nn.functional.mse_loss(model(x), y).item())


if __name__ == "__main__":
    main()
