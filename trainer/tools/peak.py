"""The memory that a process takes to train a configuration: measured, by a short run of it.

    echo '{"objective": "lora", "params": {...}}' | python -m hpsearch.trainer.tools.peak

Prints JSON: `host`, the bytes of this process at its fullest, and on CUDA `device`, the bytes that are not
free there in the end. The run takes three steps, with a validation and a checkpoint after each: those that
follow take no more.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from ..config.models import LoraConfig, PretrainConfig, TrainConfig
from ..memory import host_peak
from ..model.build import on_device
from ..runs.run import fit

STEPS = 3


def shortened(config: TrainConfig) -> TrainConfig:
    """The configuration with so few steps and rows to validate on, which takes as much memory."""
    parts = config.gradient_accumulation_steps
    if config.rows_per_pass == config.batch_size:  # no adapters, whose passes are cut from all of a step
        parts = min(2, parts)
    return dataclasses.replace(
        config,
        gradient_accumulation_steps=parts,
        max_samples=None,
        num_train_epochs=None,
        max_steps=STEPS,
        eval_every=1,
        eval_samples=min(config.rows_per_look, config.eval_samples),
        lr_scheduler="constant",
        warmup_steps=0,
        early_stopping_patience=0,
        load_best_model_at_end=config.keeps_best,
    )


def peak(config: TrainConfig) -> dict[str, Any]:
    """Bytes of this process after a short run of `config`. Raises as `fit` does."""
    with tempfile.TemporaryDirectory(prefix="hpsearch-peak-") as folder:
        fit(shortened(on_device(config)), on_report=lambda report: None, checkpoint=Path(folder))
    found: dict[str, Any] = {"host": round(host_peak() * 1e6)}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # what the allocator has taken it keeps
        free, total = torch.cuda.mem_get_info()
        found["device"] = total - free
    return found


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    kinds = {kind.objective: kind for kind in (LoraConfig, PretrainConfig)}
    print(json.dumps(peak(kinds[asked["objective"]].from_params(asked["params"]))))
