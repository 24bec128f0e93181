"""The header of a file of tensors, checked before anything else in the file is trusted. Imports no torch.

A file may come from anywhere. A file with a long header is refused unread: parsing 100 MB takes a gigabyte.
A base is built only if its size can be trained and its tensors are those of a model of that size.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from .config.models import PretrainConfig
from .config.shape import Shape
from .errors import CheckpointError, ConfigError

METADATA_KEY = "hpsearch"  # the only metadata entry: safetensors writes several in random order
MAX_HEADER_BYTES = 8 << 20  # enough for 1,000 blocks with their optimizer, or for 20,000 reports

SHIPPED_BASE = Path(__file__).with_name("base.safetensors")


@dataclass(frozen=True)
class Header:
    """The header of a file of tensors."""

    shapes: Mapping[str, tuple[int, ...]]
    kinds: frozenset[str]  # of numbers, as safetensors names them
    text: str  # the metadata of hpsearch: a checksum, a blank and JSON


def read_header(path: Path) -> Header:
    """Read the header of a file of tensors. Raises `OSError`, or `CheckpointError` if it is none."""
    kind = path.stat().st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # reading a pipe would block
        raise CheckpointError(f"{path}: cannot be read: it is not a regular file")
    with path.open("rb") as file:
        length, there = int.from_bytes(file.read(8), "little"), os.fstat(file.fileno()).st_size - 8
        if not 0 < length <= there:
            raise CheckpointError(f"{path}: cannot be read: it is not a complete safetensors file")
        if length > MAX_HEADER_BYTES:
            raise CheckpointError(
                f"{path}: cannot be read: its header has {length:,} bytes, the limit is {MAX_HEADER_BYTES:,}"
            )
    try:
        # This reads no tensors, but checks the header against the file's size: a download may be incomplete.
        with safe_open(path, framework="np", backend="pread") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 (no mapping)
            shapes = {name: tuple(each.get_shape()) for name, each in slices.items()}
            kinds = frozenset(each.get_dtype() for each in slices.values())
            text = (opened.metadata() or {}).get(METADATA_KEY, "")
    except SafetensorError as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"{path}: cannot be read: it is not a complete safetensors file ({reason:.300})"
        ) from error
    return Header(shapes, kinds, text)


def metadata_of(path: Path, text: str) -> dict[str, Any]:
    """The JSON in a header, without verifying its checksum. Raises `CheckpointError` if it is not ours."""
    first, _, rest = text.partition(" ")
    try:
        # The base that ships was written before there were checksums.
        about = json.loads(text if first.startswith("{") else rest)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path}: damaged, or not written by hpsearch (its header has no entry {METADATA_KEY!r})"
        ) from error
    if not isinstance(about, dict):
        raise CheckpointError(
            f"{path}: not written by hpsearch (its entry {METADATA_KEY!r} is not a mapping)"
        )
    return about


def base_shape(path: Path, header: Header) -> Shape:
    """The size of a base. Raises `CheckpointError` unless the tensors are those of a model of that size."""
    about = metadata_of(path, header.text)
    if set(about) != {"shape"}:
        raise CheckpointError(f"{path}: an adapter or a checkpoint, not a base; name a model.safetensors")
    given, names = about["shape"], list(Shape.__dataclass_fields__)
    if not isinstance(given, dict) or set(given) != set(names):
        raise CheckpointError(f"{path}: not a base: its shape is {given!r:.100}, needs {', '.join(names)}")
    try:
        PretrainConfig.from_params({**given, "max_steps": 1})
    except ConfigError as error:
        raise CheckpointError(
            f"{path}: not a base that can be trained: {'; '.join(error.problems):.500}"
        ) from error
    shape = Shape(**given)
    needed = shape.tensors
    for name in sorted(needed.keys() | header.shapes.keys()):
        if (found := header.shapes.get(name)) != needed.get(name):
            raise CheckpointError(
                f"{path}: not a base: its shape is {given}, but {name:.100} is {_as_text(found)} "
                f"where such a model has {_as_text(needed.get(name))}"
            )
    if header.kinds != {"F32"}:
        raise CheckpointError(f"{path}: not a base: it holds {', '.join(sorted(header.kinds))}, needs F32")
    return shape


def _as_text(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else str(list(shape))
