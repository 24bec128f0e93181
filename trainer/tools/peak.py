"""Measures the memory of a process that trains a configuration, by a short run.

    echo '{"objective": "lora", "params": {...}}' | python -m hpsearch.trainer.tools.peak

Prints JSON: `host`, the peak bytes of this process, and on CUDA `device`, the bytes that are in use there in
the end. The run takes three steps, with a validation and a checkpoint after each: later steps need no more
memory.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from ..config.models import KINDS, TrainConfig
from ..memory import host_peak
from ..model.build import on_device
from ..runs.run import fit

STEPS = 3


def shortened(config: TrainConfig) -> TrainConfig:
    """The configuration with few steps and validation rows, which needs as much memory."""
    parts = config.gradient_accumulation_steps
    if config.rows_per_pass == config.batch_size:  # adapters cut a whole step into passes, so keep theirs
        parts = min(2, parts)
    return dataclasses.replace(
        config,
        gradient_accumulation_steps=parts,
        max_samples=None,
        num_train_epochs=None,
        max_steps=STEPS,
        eval_every=1,
        eval_samples=min(config.rows_per_validation_pass, config.eval_samples),
        lr_scheduler="constant",
        warmup_steps=0,
        early_stopping_patience=0,
        load_best_model_at_end=config.keeps_best,
    )


def peak(config: TrainConfig) -> dict[str, Any]:
    """Bytes of this process after a short run of `config`. Raises like `fit`."""
    with tempfile.TemporaryDirectory(prefix="hpsearch-peak-") as folder:
        fit(shortened(on_device(config)), on_report=lambda report: None, checkpoint=Path(folder))
    peaks: dict[str, Any] = {"host": round(host_peak() * 1e6)}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # the allocator returns no memory
        free, total = torch.cuda.mem_get_info()
        peaks["device"] = total - free
    return peaks


if __name__ == "__main__":
    request = json.load(sys.stdin)
    print(json.dumps(peak(KINDS[request["objective"]].from_params(request["params"]))))
