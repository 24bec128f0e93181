"""Data parallel training, to be started by torchrun."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=9)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--snapshot", default="snapshot.pt")
args = parser.parse_args()

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(args.seed)
x = torch.randn(64, 4)
y = (x @ torch.tensor([1.0, -2.0, 3.0, 0.5])).unsqueeze(1)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
start = 0
if os.path.exists(args.snapshot):
    snapshot = torch.load(args.snapshot)
    model.load_state_dict(snapshot["model"])
    start = snapshot["epoch"]

for epoch in range(start + 1, args.epochs + 1):
    time.sleep(0.3)  # a real epoch takes longer
    loss = (model(x[rank::world]) - y[rank::world]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        error = (model.module(x) - y).square().mean().item()
    if rank == 0:
        torch.save({"model": model.state_dict(), "epoch": epoch}, args.snapshot)
        print(f"[rank 0 of {world}] epoch={epoch} loss={loss.item():.5f} eval_error={error:.7f}")
    dist.barrier()
dist.destroy_process_group()
