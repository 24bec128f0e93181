"""Files of tensors: checkpoints to go on from, bases to start from, and what a finished run leaves behind.

Each is one safetensors file whose header carries a JSON text under the key `hpsearch`: the numbers belong to
the tensors and travel with them. Nothing in them is ever executed: tensors are bytes, the rest is JSON.

| file | tensors | JSON |
|---|---|---|
| `checkpoint.safetensors` | `weights.*`, `optimizer.*`, `best.*` | config, counters, reports so far |
| `checkpoint.previous.safetensors` | the one before it | |
| `checkpoint.1600.safetensors` | older ones, where they are kept: by their place in the run's unit | |
| `model.safetensors` | the model's own keys | its shape |
| `adapter.safetensors` | `blocks.0.qkv.lora_A` ... | config, base |

A file is written beside its place and renamed into it, so a process killed at any moment leaves a whole one.
What happens to it later on a disk is found by a checksum (CRC-32) over all of its content, which stands
before the JSON. No attacker is meant, so the fastest of the standard library will do: it finds every change
of up to 32 bits in a row, and all but one in four billion of any other.
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
from .header import ABOUT, LONGEST, about_of, read_header
from .notices import say

CHECKPOINT, PREVIOUS = "checkpoint.safetensors", "checkpoint.previous.safetensors"
_OLDER = re.compile(r"checkpoint\.(\d+)\.safetensors")
_KINDS = {  # in the words of safetensors
    **{torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"},
    **{torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8"},
    **{torch.uint8: "U8", torch.bool: "BOOL"},
}

Tensors = dict[str, Tensor]


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write `tensors` and the JSON-able `about` to `path`, all or nothing. Makes the folder."""
    partial = _write_beside(path, tensors, about)
    with partial.open("rb+") as file:
        os.fsync(file.fileno())  # or a power cut could leave the new name on an empty file
    os.replace(partial, path)


def read_tensors(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """What `write_tensors` wrote. Raises `CheckpointError` where it is missing, damaged or none of ours."""
    tensors, header = read_file(
        path, "pread"
    )  # a disk that cannot read raises; in mapped memory it would kill
    return tensors, checked(path, tensors, header)


def save_checkpoint(
    folder: Path,
    weights: Tensors,
    optimizer: Tensors,
    best: Tensors,
    state: Mapping[str, Any],
    *,
    keep: int = 2,
) -> None:
    """Add a checkpoint to `folder`, which keeps the newest ones: this, the one before it, and older ones.

    `best` is empty where the run does not keep it. Where more than two are kept, `state["reported"]` is the
    place that an older one is named by.

    The run does not wait for the disk, but for the checkpoint before this one to be on it: a power cut may
    cost the newest, and then the one before it is whole.
    """
    parts = {"weights": weights, "optimizer": optimizer, "best": best}
    named = {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}
    newest = folder / CHECKPOINT
    partial = _write_beside(newest, named, state)
    _disk.wait()
    if newest.exists():
        if keep > 2:
            _name_by_place(folder / PREVIOUS)
        os.replace(newest, folder / PREVIOUS)  # killed here, a run finds it under that name
    os.replace(partial, newest)
    _disk.sync(newest)
    for _, path in _older(folder)[keep - 2 :]:
        path.unlink(missing_ok=True)


def _name_by_place(previous: Path) -> None:
    """Let the one before the newest become an older one. A damaged one is not kept, which stderr is told."""
    if not previous.exists():
        return
    try:
        place, _ = _header(previous)
    except CheckpointError as error:
        say(f"{error}; not kept")
    else:
        os.replace(previous, previous.with_name(f"checkpoint.{place}.safetensors"))


def _older(folder: Path) -> list[tuple[int, Path]]:
    """The checkpoints before the two newest with their places, the newest of them first."""
    named = ((_OLDER.fullmatch(path.name), path) for path in folder.glob("checkpoint.*"))
    return sorted(((int(match[1]), path) for match, path in named if match), reverse=True)


def is_checkpoint(path: Path) -> bool:
    """Whether a file is a checkpoint by its name."""
    return path.name in (CHECKPOINT, PREVIOUS) or _OLDER.fullmatch(path.name) is not None


def kept_models(folder: Path) -> dict[str, tuple[Path, str]]:
    """The models in a run's checkpoints: the file and part of each, by place; then the `best`, where kept.

    Raises `CheckpointError` where a file does not even tell its place.
    """
    found: dict[str, tuple[Path, str]] = {}
    best: dict[str, tuple[Path, str]] = {}
    older = (path for _, path in reversed(_older(folder)))
    for path in (*older, folder / PREVIOUS, folder / CHECKPOINT):
        if path.exists():
            place, names = _header(path)
            found[str(place)] = path, "weights"
            if any(name.startswith("best.") for name in names):
                best = {"best": (path, "best")}
    return found | best


def resume_checkpoint(folder: Path) -> tuple[dict[str, Tensors], dict[str, Any]] | None:
    """The newest whole checkpoint, as `load_checkpoint` gives it; None where there is none.

    Says on stderr which file is damaged, and removes it: the next save would keep it in place of a whole one.
    """
    older = [(path, f"the checkpoint at {place}") for place, path in _older(folder)]
    newest = [(folder / CHECKPOINT, "the newest"), (folder / PREVIOUS, "the checkpoint before it")]
    damaged = []
    found, where = None, "the beginning"
    for path, told in newest + older:
        if found is None and path.exists():
            try:
                found, where = load_checkpoint(path), told
            except CheckpointError as error:
                damaged.append(str(error))
                path.unlink()
    if damaged:
        say(f"{'; '.join(damaged)}; going on from {where}")
    return found


def load_checkpoint(path: Path) -> tuple[dict[str, Tensors], dict[str, Any]]:
    """A checkpoint: its tensors by part (`weights`, `optimizer`, `best`) and the state.

    Raises `CheckpointError` where it is missing or damaged.
    """
    tensors, state = read_tensors(path)
    parts: dict[str, Tensors] = {"weights": {}, "optimizer": {}, "best": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        if part not in parts:
            raise CheckpointError(
                f"{path}: no checkpoint: it holds {name:.100}; known are {', '.join(parts)}"
            )
        parts[part][rest] = tensor
    return parts, state


def _write_beside(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> Path:
    """Write a file that is ready to be renamed to `path`."""
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    ordered = dict(sorted(held.items(), key=lambda item: (-item[1].itemsize, item[0])))  # so each is aligned
    text = json.dumps(about)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)  # of one that was killed; or a link, which may lead anywhere
    with partial.open("xb") as file:
        file.write(_file_header(ordered, f"{_checksum(held, text)} {text}"))
        for tensor in ordered.values():
            file.write(_bytes_of(tensor))
    return partial


def _file_header(tensors: Mapping[str, Tensor], about: str) -> bytes:
    """What stands in a file before these tensors, byte for byte as safetensors writes it.

    Its own function makes two copies of all tensors on the way, which was the most memory of a whole run.
    """
    entries: dict[str, object] = {"__metadata__": {ABOUT: about}}
    end = 0
    for name, tensor in tensors.items():
        begin = end
        end += tensor.nbytes
        kind = {"dtype": _KINDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        entries[name] = kind
    header = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    if len(header) > LONGEST - 8:
        raise CheckpointError(
            f"a header of {len(header):,} bytes is longer than the {LONGEST:,} that are read again; "
            "report less often (eval_every)"
        )
    header += b" " * (-len(header) % 8)  # tensors begin at a multiple of eight bytes
    return len(header).to_bytes(8, "little") + header


def _bytes_of(tensor: Tensor) -> memoryview:
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def read_file(path: Path, backend: Literal["mmap", "pread"]) -> tuple[Tensors, dict[str, str]]:
    """The tensors of a file and the entries of its header."""
    try:
        read_header(path)  # or safetensors would parse a long one
        with safe_open(path, framework="pt", backend=backend) as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            return tensors, file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error


def _header(path: Path) -> tuple[int, list[str]]:
    """The place of a checkpoint, and the names of its tensors; nothing of it is checked."""
    try:
        header = read_header(path)
        return int(about_of(path, header.text)["reported"]), list(header.shapes)
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error


def checked(path: Path, tensors: Tensors, header: dict[str, str]) -> dict[str, Any]:
    """What the header says, where its checksum is that of the content."""
    checksum, _, text = header.get(ABOUT, "").partition(" ")
    if not text:
        raise CheckpointError(
            f"{path}: damaged, or not written by hpsearch (its header has no entry {ABOUT!r})"
        )
    found = _checksum(tensors, text)
    if found != checksum:
        raise CheckpointError(f"{path}: damaged (its checksum is {checksum}, its content's {found})")
    return about_of(path, header[ABOUT])


def _checksum(tensors: Tensors, text: str) -> str:
    """Of the text, and of every tensor's name, type, shape and bytes."""
    total = zlib.crc32(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        total = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), total)
        total = zlib.crc32(_bytes_of(tensor), total)
    return f"{total:08x}"


class Disk:
    """Brings files to the disk while the run goes on, in a thread: it waits there, and computes nothing."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._last: Future[None] | None = None

    def sync(self, path: Path) -> None:
        """Begin with a file, and its name in its folder. Either may be gone before it is done."""
        opened = [os.open(path, os.O_RDWR)]
        if hasattr(os, "O_DIRECTORY"):  # Windows opens no folders
            opened.append(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY))
        self._last = self._thread.submit(self._sync, opened)

    def wait(self) -> None:
        """Wait for what was begun. Raises `OSError` where the disk did not take it."""
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


_disk = Disk()
