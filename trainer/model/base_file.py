"""Pretrained bases and their files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from functools import cache
from pathlib import Path

from ..checkpoint import Tensors, read_file, verified_metadata, write_tensors
from ..config.shape import Shape
from ..errors import CheckpointError
from ..header import SHIPPED_BASE, base_shape, read_header


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
    """The base at `path`, by default the one that ships; cached in memory for the next trial of this process.

    Its tensors are shared: do not modify them. Raises `CheckpointError` if the file is not a base.
    """
    file = SHIPPED_BASE if path is None else Path(os.path.expanduser(path))
    if not file.exists():
        raise CheckpointError(f'there is no file "{path}" in {Path.cwd()}')
    return _load_base(file.absolute(), file.stat().st_mtime_ns)


@cache
def _load_base(path: Path, stamp: int) -> Base:
    try:
        shape = base_shape(path, read_header(path))
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    weights, header = read_file(path, "mmap")  # so that the workers of a machine share the memory
    shipped = json.loads(SHIPPED_BASE.with_suffix(".json").read_text(encoding="utf-8"))
    if sha256 != shipped["sha256"]:  # the shipped file has no checksum, but its hash is known
        verified_metadata(path, weights, header)
    return Base(shape, weights, sha256)
