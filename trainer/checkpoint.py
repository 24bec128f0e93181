"""Files of tensors: checkpoints to go on from, bases to start from, and what a finished run leaves behind.

Each is one safetensors file whose header carries a JSON text under the key `hpsearch`: the numbers belong to
the tensors and travel with them, and nothing is pickled. It is written beside its place and renamed into it,
so a process killed at any moment leaves the previous file whole.

| file | tensors | JSON |
|---|---|---|
| `checkpoint.safetensors` | `weights.*`, `optimizer.*`, `best.*` | config, counters, reports so far |
| `model.safetensors` | the model's own keys | its shape |
| `adapter.safetensors` | `blocks.0.qkv.lora_A` ... | config, base |
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .errors import CheckpointError
from .model import Shape

CHECKPOINT = "checkpoint.safetensors"
SHIPPED_BASE = Path(__file__).with_name("base.safetensors")

Tensors = dict[str, Tensor]


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write `tensors` and the JSON-able `about` to `path`, all or nothing. Makes the folder."""
    held = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    content = safetensors.torch.save(held, {"hpsearch": json.dumps(about)})
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())  # or a power cut could leave the new name on an empty file
    os.replace(partial, path)


def read_tensors(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """What `write_tensors` wrote. Raises `CheckpointError` where the file is missing or is none of ours."""
    try:
        with safe_open(path, framework="pt") as file:
            about = (file.metadata() or {}).get("hpsearch")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    if about is None:
        raise CheckpointError(f"{path}: not written by hpsearch (its header has no entry 'hpsearch')")
    return tensors, json.loads(about)


def save_checkpoint(
    folder: Path, weights: Tensors, optimizer: Tensors, best: Tensors, state: Mapping[str, Any]
) -> None:
    """Replace the checkpoint in `folder`. `best` is empty where early stopping is off."""
    parts = {"weights": weights, "optimizer": optimizer, "best": best}
    named = {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}
    write_tensors(folder / CHECKPOINT, named, state)


def load_checkpoint(folder: Path) -> tuple[dict[str, Tensors], dict[str, Any]] | None:
    """The tensors by part (`weights`, `optimizer`, `best`) and the state; None where there is none."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    tensors, state = read_tensors(path)
    parts: dict[str, Tensors] = {"weights": {}, "optimizer": {}, "best": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = tensor
    return parts, state


def save_model(path: Path, weights: Tensors, shape: Shape) -> None:
    """Write a plain model: a base for `LoraConfig.base`."""
    write_tensors(path, weights, {"shape": dataclasses.asdict(shape)})


@dataclasses.dataclass(frozen=True)
class Base:
    """A pretrained model: its size, its weights and the sha256 of its file."""

    shape: Shape
    weights: Tensors
    sha256: str


def load_base(path: str | Path | None = None) -> Base:
    """The base at `path`, by default the one that ships; kept in memory for the next trial of this process.

    Its tensors are shared: do not write into them. Raises `CheckpointError` where the file is no base.
    """
    found = SHIPPED_BASE if path is None else Path(path)
    stamp = found.stat().st_mtime_ns if found.exists() else 0
    return _load_base(found.absolute(), stamp)


@cache
def _load_base(path: Path, stamp: int) -> Base:
    weights, about = read_tensors(path)
    if "shape" not in about:
        raise CheckpointError(f"{path}: no base (it tells no shape); give a model.safetensors")
    return Base(Shape(**about["shape"]), weights, hashlib.sha256(path.read_bytes()).hexdigest())
