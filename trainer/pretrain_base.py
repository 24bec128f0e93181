"""Pretrain the base that ships: `python -m hpsearch.trainer.pretrain_base`.

Writes `base.safetensors`, and beside it `base.json`, which tells how it was made.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import platform
from pathlib import Path

import torch

from .checkpoint import SHIPPED_BASE, save_model
from .config import PretrainConfig
from .data import load_corpus
from .loop import Report, fit

RECIPE = PretrainConfig(
    width=128,
    depth=4,
    heads=4,
    learning_rate=3e-3,
    lr_scheduler="cosine",
    warmup_ratio=0.03,
    weight_decay=0.1,
    adam_beta2=0.99,
    batch_size=16,
    max_samples=32000,
    eval_samples=128,
    train_file="python",
    device="cpu",
)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m hpsearch.trainer.pretrain_base", description=__doc__)
    parser.add_argument("--corpus", default=RECIPE.train_file, help="text (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=RECIPE.max_samples, help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=SHIPPED_BASE, help="file to write")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the small matrices of this model are no faster on more
    config = dataclasses.replace(RECIPE, train_file=asked.corpus, max_samples=asked.samples)
    result = fit(config, on_report=_print)
    save_model(asked.out, result.model.state_dict(), result.model.shape)
    about = {
        "command": f"{parser.prog} --corpus {asked.corpus} --samples {asked.samples}",
        "corpus": asked.corpus,
        "corpus_sha256": load_corpus(asked.corpus, validation_split=config.validation_split).sha256,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "val_loss": result.value,
        "seconds": round(result.seconds),
        "sha256": hashlib.sha256(asked.out.read_bytes()).hexdigest(),
        "config": dataclasses.asdict(config),
    }
    asked.out.with_suffix(".json").write_text(json.dumps(about, indent=2) + "\n")


def _print(report: Report) -> None:
    train = report.metrics["train_loss"]
    print(f"{report.step:>7} samples  train {train:.4f}  validation {report.value:.4f}", flush=True)


if __name__ == "__main__":
    main()
