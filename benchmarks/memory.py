"""How well a search predicts the memory of its trials.

    python benchmarks/memory.py [--only lora pretrain adapters models] [--trials 12] [--steps 8] [--seed 1]

It uses the two bundled spaces and two wide ones: adapters of ranks up to 256 or full fine-tuning of the
bundled base, and models trained from scratch up to width 512, with sequences of up to 512 bytes and all
optimizers. For each space, two configurations are measured for the prediction, as in a search. Then the
baseline and random configurations are trained for `--steps` steps, with a validation and a checkpoint every
second step, each in its own worker with one thread.

| column | what it is |
|---|---|
| predicted, actual | the worker's peak memory in MB (10**6 bytes) |
| error | predicted / actual - 1, in percent |
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from hpsearch.objectives.resolve import describe
from hpsearch.search.backends.base import setup_of
from hpsearch.search.backends.resources import Room
from hpsearch.search.backends.worker.process import TrialLimits, Worker, environment
from hpsearch.search.preflight.memory import MemoryModel
from hpsearch.spaces import Spec, load, loads
from hpsearch.spaces.settings import Execution

OWN = {
    "adapters": """
version: 1
name: adapters
objective: lora
metric: val_loss
parameters:
  learning_rate: 1e-3
  batch_size: [1, 4, 16, 64]
  max_length: [16, 32, 64, 128]
  finetuning_type: [lora, full]
  lora_r: {min: 2, max: 256, factor: 2}
  lora_dropout: [0.0, 0.1]
  use_dora: [false, true]
  target_modules: [all-linear, [qkv], [up, down]]
  optimizer: [adamw, sgd, lion, adafactor, muon]
  gradient_checkpointing: [false, true]
  max_steps: 100
baseline: {batch_size: 4, max_length: 128, lora_r: 8}
""",
    "models": """
version: 1
name: models
objective: pretrain
metric: val_loss
parameters:
  learning_rate: 1e-3
  batch_size: [1, 2, 4, 8, 16]
  max_length: [64, 128, 256, 512]
  width: {min: 64, max: 512, step: 64}
  depth: {min: 1, max: 6}
  dropout: [0.0, 0.1]
  optimizer: [adamw, sgd, lion, adafactor, muon]
  gradient_accumulation_steps: [1, 2]
  load_best_model_at_end: [false, true]
  train_file: english
  max_steps: 100
baseline: {batch_size: 4, max_length: 128, width: 128, depth: 2}
""",
}
LIMIT = 8 << 30  # bytes that a trial may take: enough for the largest of each space
FIXED = ("learning_rate", "train_file", "max_steps", "max_samples", "eval_every")  # not shown


def actual(spec: Spec, config: dict[str, Any], folder: Path) -> float:
    """A worker's peak memory in MB after training this configuration."""
    setup = setup_of(spec, describe(spec.objective_words)) | {"pack": 1}
    worker = Worker(setup, TrialLimits.of(Execution()), environment(1), os.getcwd())
    worker.give({"number": 0, "params": config, "seed": 0, "folder": str(folder), "reported": 0})
    try:
        while True:
            for message in worker.receive():
                if message["kind"] != "report":
                    raise SystemExit(f"{config}: {message}")
                if message["step"] == config["max_steps"]:
                    return float(message["metrics"]["host_memory_mb"])
                worker.let_continue(message)
    finally:
        worker.end()


def shortened(config: dict[str, Any], steps: int) -> dict[str, Any]:
    kept = {name: value for name, value in config.items() if name not in ("max_samples", "eval_every")}
    return kept | {"max_steps": steps, "eval_every": 2}


def table(spec: Spec, trials: int, steps: int, seed: int) -> None:
    memory = MemoryModel(spec, Room(LIMIT, "host", ""))
    began = time.monotonic()
    memory.line = memory.measured(1)
    took = time.monotonic() - began
    own, scale = memory.line.own / 1e6, memory.line.scale
    print(f"\n{spec.name}: {own:.0f} MB + {scale:.2f} x footprint, in {took:.0f} s")
    print(f"{'predicted':>10}{'actual':>10}{'error':>8}  configuration")
    rng = random.Random(seed)
    baseline = spec.space.baseline()
    configs = [*([] if baseline is None else [baseline]), *(spec.space.sample(rng) for _ in range(trials))]
    errors = []
    for config in configs:
        with tempfile.TemporaryDirectory(prefix="hpsearch-memory-") as folder:
            took_mb = actual(spec, shortened(config, steps), Path(folder))
        predicted = (memory.peak(config) or 0.0) / 1e6
        errors.append(100 * (predicted / took_mb - 1))
        told = " ".join(f"{name}={value}" for name, value in config.items() if name not in FIXED)
        print(f"{predicted:10.0f}{took_mb:10.0f}{errors[-1]:+8.1f}  {told}", flush=True)
    worst = max(errors, key=abs)
    print(f"worst {worst:+.1f}%, median {statistics.median(map(abs, errors)):.1f}%")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ["lora", "pretrain", *OWN]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--trials", type=int, default=12, help="random configurations per space")
    parser.add_argument("--steps", type=int, default=8, help="per training run; an even number")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name in options.only:
        spec = loads(OWN[name], name) if name in OWN else load(name)
        table(spec, options.trials, options.steps, options.seed)


if __name__ == "__main__":
    main()
