"""Files of tensors: checkpoints to resume from, bases to start from, and the results of finished runs.

Each is one safetensors file whose header carries JSON under the key `hpsearch`: the metadata travels with the
tensors that it belongs to. Nothing in a file is ever executed: tensors are bytes, the rest is JSON.

| file | tensors | JSON |
|---|---|---|
| `checkpoint.safetensors` | `weights.*`, `optimizer.*`, `best.*` | config, counters, reports so far |
| `checkpoint.previous.safetensors` | the checkpoint before it | |
| `checkpoint.1600.safetensors` | older checkpoints, if kept, named by their place in the run's unit | |
| `model.safetensors` | the model's own keys | its shape |
| `adapter.safetensors` | `blocks.0.qkv.lora_A` ... | config, base |

A file is written under a temporary name and renamed, so a process killed at any moment leaves a whole one.
Later damage on the disk is detected by a checksum (CRC-32) over all of its content, which stands before the
JSON. It guards against accidents, not attackers, so the fastest in the standard library will do: it detects
every change of up to 32 bits in a row, and misses one in four billion of all others.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .errors import CheckpointError
from .header import MAX_HEADER_BYTES, METADATA_KEY, metadata_of, read_header
from .notices import say

CHECKPOINT, PREVIOUS = "checkpoint.safetensors", "checkpoint.previous.safetensors"
_OLDER = re.compile(r"checkpoint\.(\d+)\.safetensors")
_DTYPES = {  # as safetensors names them
    **{torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"},
    **{torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8"},
    **{torch.uint8: "U8", torch.bool: "BOOL"},
}

Tensors = dict[str, Tensor]


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write `tensors` and the metadata `about` (JSON) to `path` atomically. Creates the folder."""
    partial = _write_beside(path, tensors, about)
    with partial.open("rb+") as file:
        os.fsync(file.fileno())  # else a power cut could leave an empty file under the new name
    os.replace(partial, path)


def read_tensors(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """Read a file of `write_tensors`. Raises `CheckpointError` if it is missing, damaged or not ours."""
    # With mapped memory, a disk error would kill the process instead of raising.
    tensors, header = read_file(path, "pread")
    return tensors, verified_metadata(path, tensors, header)


def save_checkpoint(
    folder: Path,
    weights: Tensors,
    optimizer: Tensors,
    best: Tensors,
    state: Mapping[str, Any],
    *,
    keep: int = 2,
) -> None:
    """Add a checkpoint to `folder`, which keeps the `keep` newest ones.

    `best` is empty if the run does not keep its best weights. If more than two checkpoints are kept, older
    ones are named by their `state["reported"]`.

    The run waits until the previous checkpoint is on the disk, but not for this one: after a power cut the
    newest may be lost, but then the one before it is whole.
    """
    parts = {"weights": weights, "optimizer": optimizer, "best": best}
    named = {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}
    newest = folder / CHECKPOINT
    partial = _write_beside(newest, named, state)
    _disk.wait()
    if newest.exists():
        if keep > 2:
            _name_by_place(folder / PREVIOUS)
        os.replace(newest, folder / PREVIOUS)  # if the process is killed here, the run resumes from this one
    os.replace(partial, newest)
    _disk.sync(newest)
    for _, path in _older(folder)[keep - 2 :]:
        path.unlink(missing_ok=True)


def _name_by_place(previous: Path) -> None:
    """Rename the previous checkpoint to its place. If it is damaged, say so on stderr and do not keep it."""
    if not previous.exists():
        return
    try:
        place, _ = _place_and_names(previous)
    except CheckpointError as error:
        say(f"{error}; not kept")
    else:
        os.replace(previous, previous.with_name(f"checkpoint.{place}.safetensors"))


def _older(folder: Path) -> list[tuple[int, Path]]:
    """The checkpoints before the two newest, with their places, newest first."""
    named = ((_OLDER.fullmatch(path.name), path) for path in folder.glob("checkpoint.*"))
    return sorted(((int(match[1]), path) for match, path in named if match), reverse=True)


def is_checkpoint(path: Path) -> bool:
    """Whether a file's name is that of a checkpoint."""
    return path.name in (CHECKPOINT, PREVIOUS) or _OLDER.fullmatch(path.name) is not None


def kept_models(folder: Path) -> dict[str, tuple[Path, str]]:
    """The models in a run's checkpoints, by place, each with its file and part; then the `best`, if kept.

    Raises `CheckpointError` if a file's header cannot be read.
    """
    found: dict[str, tuple[Path, str]] = {}
    best: dict[str, tuple[Path, str]] = {}
    older = (path for _, path in reversed(_older(folder)))
    for path in (*older, folder / PREVIOUS, folder / CHECKPOINT):
        if path.exists():
            place, names = _place_and_names(path)
            found[str(place)] = path, "weights"
            if any(name.startswith("best.") for name in names):
                best = {"best": (path, "best")}
    return found | best


def resume_checkpoint(folder: Path) -> tuple[dict[str, Tensors], dict[str, Any]] | None:
    """Load the newest whole checkpoint, as `load_checkpoint` does; None if there is none.

    Damaged files are named on stderr and removed: the next save would keep them in place of whole ones.
    """
    older = [(path, f"the checkpoint at {place}") for place, path in _older(folder)]
    newest = [(folder / CHECKPOINT, "the newest"), (folder / PREVIOUS, "the checkpoint before it")]
    damaged = []
    loaded, where = None, "the beginning"
    for path, description in newest + older:
        if loaded is None and path.exists():
            try:
                loaded, where = load_checkpoint(path), description
            except CheckpointError as error:
                damaged.append(str(error))
                path.unlink()
    if damaged:
        say(f"{'; '.join(damaged)}; resuming from {where}")
    return loaded


def load_checkpoint(path: Path) -> tuple[dict[str, Tensors], dict[str, Any]]:
    """Load a checkpoint: its tensors by part (`weights`, `optimizer`, `best`) and its state.

    Raises `CheckpointError` if it is missing or damaged.
    """
    tensors, state = read_tensors(path)
    parts: dict[str, Tensors] = {"weights": {}, "optimizer": {}, "best": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        if part not in parts:
            raise CheckpointError(
                f"{path}: not a checkpoint: it holds {name:.100}; allowed: {', '.join(parts)}"
            )
        parts[part][rest] = tensor
    return parts, state


def _write_beside(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> Path:
    """Write a temporary file beside `path`, ready to be renamed to it."""
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    ordered = dict(sorted(held.items(), key=lambda item: (-item[1].itemsize, item[0])))  # so each is aligned
    text = json.dumps(about)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)  # left by a killed process; or a link, which may lead anywhere
    with partial.open("xb") as file:
        file.write(_file_header(ordered, f"{_checksum(held, text)} {text}"))
        for tensor in ordered.values():
            file.write(_bytes_of(tensor))
    return partial


def _file_header(tensors: Mapping[str, Tensor], about: str) -> bytes:
    """The header of a file with these tensors, byte for byte as safetensors writes it.

    The function of safetensors copies all tensors twice, which was the memory peak of a whole run.
    """
    entries: dict[str, object] = {"__metadata__": {METADATA_KEY: about}}
    end = 0
    for name, tensor in tensors.items():
        begin = end
        end += tensor.nbytes
        kind = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        entries[name] = kind
    header = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    if len(header) > MAX_HEADER_BYTES - 8:
        raise CheckpointError(
            f"the checkpoint's header has {len(header):,} bytes, more than the {MAX_HEADER_BYTES:,} that can "
            "be read again; report less often (eval_every)"
        )
    header += b" " * (-len(header) % 8)  # tensors begin at a multiple of eight bytes
    return len(header).to_bytes(8, "little") + header


def _bytes_of(tensor: Tensor) -> memoryview:
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def read_file(path: Path, backend: Literal["mmap", "pread"]) -> tuple[Tensors, dict[str, str]]:
    """The tensors of a file and the metadata in its header."""
    try:
        read_header(path)  # refuses a long header, which safetensors would parse
        with safe_open(path, framework="pt", backend=backend) as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            return tensors, file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error


def _place_and_names(path: Path) -> tuple[int, list[str]]:
    """The place of a checkpoint and the names of its tensors, without verifying its checksum."""
    try:
        header = read_header(path)
        return int(metadata_of(path, header.text)["reported"]), list(header.shapes)
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error


def verified_metadata(path: Path, tensors: Tensors, header: dict[str, str]) -> dict[str, Any]:
    """The metadata in a file's header. Raises `CheckpointError` unless the checksum fits the content."""
    checksum, _, text = header.get(METADATA_KEY, "").partition(" ")
    if not text:
        raise CheckpointError(
            f"{path}: damaged, or not written by hpsearch (its header has no entry {METADATA_KEY!r})"
        )
    actual = _checksum(tensors, text)
    if actual != checksum:
        raise CheckpointError(f"{path}: damaged (its checksum is {checksum}, that of its content {actual})")
    return metadata_of(path, header[METADATA_KEY])


def _checksum(tensors: Tensors, text: str) -> str:
    """The CRC-32 of the text and of every tensor's name, type, shape and bytes."""
    total = zlib.crc32(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        total = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), total)
        total = zlib.crc32(_bytes_of(tensor), total)
    return f"{total:08x}"


class DiskSync:
    """Syncs files to the disk in a thread, while the run continues."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._last: Future[None] | None = None

    def sync(self, path: Path) -> None:
        """Start to sync a file and its folder entry. Either may be deleted before this is done."""
        opened = [os.open(path, os.O_RDWR)]
        if hasattr(os, "O_DIRECTORY"):  # Windows cannot open folders
            opened.append(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY))
        self._last = self._thread.submit(self._sync, opened)

    def wait(self) -> None:
        """Wait for the sync in progress. Raises `OSError` if it failed."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    @staticmethod
    def _sync(opened: list[int]) -> None:
        try:
            for descriptor in opened:
                os.fsync(descriptor)
        finally:
            for descriptor in opened:
                os.close(descriptor)


_disk = DiskSync()
