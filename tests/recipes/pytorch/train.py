"""Fit a small network, as many scripts do: options by argparse, a line for each epoch, a checkpoint to resume."""

import argparse
import os
import time

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--hidden-size", type=int, default=16)
    parser.add_argument("--amsgrad", action="store_true")
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="out")
    parser.add_argument("--resume", metavar="CHECKPOINT")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    x = torch.linspace(-3, 3, 256).unsqueeze(1)
    y = torch.sin(x)
    train, held = torch.arange(256) % 4 != 0, torch.arange(256) % 4 == 0
    model = nn.Sequential(nn.Linear(1, args.hidden_size), nn.Tanh(), nn.Linear(args.hidden_size, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, amsgrad=args.amsgrad)
    start = 0
    if args.resume:
        state = torch.load(args.resume)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"]
        print(f"resumed from {args.resume} at epoch {start}")

    os.makedirs(args.out, exist_ok=True)
    for epoch in range(start + 1, args.epochs + 1):
        for batch in torch.arange(256)[train].split(32):
            loss = nn.functional.mse_loss(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        time.sleep(0.3)  # a real epoch takes longer
        with torch.no_grad():
            val_loss = nn.functional.mse_loss(model(x[held]), y[held]).item()
        print(f"epoch {epoch} train_loss {loss.item():.6f} val_loss {val_loss:.6f}")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, os.path.join(args.out, f"model-{epoch}.pt"))


if __name__ == "__main__":
    main()
