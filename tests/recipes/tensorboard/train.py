"""Fit a line; everything is logged to TensorBoard, nothing is printed."""

import argparse
import os
import time

import torch
from torch.utils.tensorboard import SummaryWriter

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--momentum", type=float, default=0.0)
parser.add_argument("--epochs", type=int, default=9)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--logdir", default="runs/line")
parser.add_argument("--checkpoint", default="line.pt")
parser.add_argument("--resume", action="store_true")
args = parser.parse_args()

torch.manual_seed(args.seed)
x = torch.randn(64, 4)
y = x @ torch.tensor([1.0, -2.0, 3.0, 0.5])
weights = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([weights], lr=args.lr, momentum=args.momentum)
start = 0
if args.resume and os.path.exists(args.checkpoint):
    state = torch.load(args.checkpoint)
    weights.data, start = state["weights"], state["epoch"]
    optimizer.load_state_dict(state["optimizer"])

writer = SummaryWriter(args.logdir)
for epoch in range(start + 1, args.epochs + 1):
    time.sleep(0.3)  # a real epoch takes longer
    loss = (x @ weights - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        error = (x @ weights - y).abs().mean()
    torch.save({"weights": weights.data, "optimizer": optimizer.state_dict(), "epoch": epoch}, args.checkpoint)
    writer.add_scalar("loss/train", loss, epoch)
    writer.add_scalar("error/eval", error, epoch)
    writer.flush()
writer.close()
