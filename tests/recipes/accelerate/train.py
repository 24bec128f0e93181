"""A training loop with Accelerate, to be started by accelerate launch."""

import argparse
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=9)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--project_dir", default="out")
parser.add_argument("--resume_from")
args = parser.parse_args()

accelerator = Accelerator()
set_seed(args.seed)
x = torch.randn(64, 4)
rows = torch.cat([x, (x @ torch.tensor([1.0, -2.0, 3.0, 0.5])).unsqueeze(1)], 1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
loader = torch.utils.data.DataLoader(rows, batch_size=16, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
start = 0
if args.resume_from:
    accelerator.load_state(args.resume_from)
    start = int(args.resume_from.rsplit("_", 1)[1])
    accelerator.print(f"resumed from {args.resume_from}")

for epoch in range(start + 1, args.epochs + 1):
    time.sleep(0.3)  # a real epoch takes longer
    for batch in loader:
        loss = torch.nn.functional.mse_loss(model(batch[:, :4]), batch[:, 4:])
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    with torch.no_grad():
        error = torch.nn.functional.mse_loss(accelerator.unwrap_model(model)(x), rows[:, 4:])
    accelerator.save_state(f"{args.project_dir}/epoch_{epoch}")
    accelerator.print(f"epoch {epoch}: eval_loss {error.item():.8f}")
accelerator.end_training()
