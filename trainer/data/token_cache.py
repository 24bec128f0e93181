"""A cache of tokens on the disk, so that the next process need not make them again.

A file is named by the hash of everything its tokens depend on, so it never goes out of date. It holds a line
of JSON, then the tokens; nothing in it is executed. All processes share the memory that they are mapped into.

| if | then |
|---|---|
| several processes write the same file | each writes a temporary file, then renames it |
| a file does not match its hash | a notice goes to stderr, and the tokens are made again |
| a file cannot be written: a full disk, no home | a notice goes to stderr, and the run continues without it |
| there are more than `MAX_CACHE_BYTES` bytes | the least recently used files are deleted |

The folder is the one that HPSEARCH_CACHE names, by default `hpsearch` in the user's cache folder
(XDG_CACHE_HOME).
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..notices import say

MAX_CACHE_BYTES = 4 << 30  # bytes of all files
ABANDONED_SECONDS = 3600.0  # age in seconds from which an unfinished file was left by a killed process
MAX_HEADER_BYTES = 512  # most bytes of the line of JSON


@dataclass(frozen=True)
class Entry:
    """The tokens of a corpus, uint8, and their hash; `left_out` counts documents, for the notice."""

    train: Tensor
    validation: Tensor
    sha256: str
    left_out: int


def hash_of(train: bytes | memoryview, validation: bytes | memoryview) -> str:
    """The hash that identifies a corpus: of both parts and of where the first ends."""
    digest = hashlib.sha256(len(train).to_bytes(8, "big"))
    digest.update(train)
    digest.update(validation)
    return digest.hexdigest()


def cache_folder() -> Path:
    """The folder of the cache. Raises `RuntimeError` if this user has no home."""
    if named := os.environ.get("HPSEARCH_CACHE"):
        return Path(named)
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not shared.is_absolute():  # the XDG specification requires it
        shared = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return shared / "hpsearch"


def fetch(key: str) -> Entry | None:
    """The tokens cached under `key`; None if there are none, or they are damaged."""
    try:
        path = _path(key)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if size else None
        with suppress(OSError):  # in a read-only cache a use cannot be recorded
            os.utime(path)
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError) as error:
        _say(f"cannot be read: {error}")
        return None
    try:
        return _parsed(held)
    except (ValueError, KeyError, TypeError):
        _say(f"{path} is damaged: its tokens are made again")
        return None


def _parsed(held: mmap.mmap | None) -> Entry:
    """Raises `ValueError`, `KeyError` or `TypeError` if this is not a file of `store`."""
    if held is None:
        raise ValueError("empty")
    begin = held.find(b"\n", 0, MAX_HEADER_BYTES) + 1
    about: dict[str, Any] = json.loads(held[:begin])
    cut = begin + about["train"]
    view = memoryview(held)
    if hash_of(view[begin:cut], view[cut:]) != about["sha256"]:
        raise ValueError("the tokens do not match their hash")
    tokens = torch.frombuffer(held, dtype=torch.uint8)
    return Entry(tokens[begin:cut], tokens[cut:], about["sha256"], about["left_out"])


def store(key: str, train: bytes, validation: bytes, *, sha256: str, left_out: int) -> None:
    """Cache these tokens for the next process. A failure is only a notice on stderr."""
    header = json.dumps({"train": len(train), "sha256": sha256, "left_out": left_out}).encode() + b"\n"
    size = len(header) + len(train) + len(validation)
    if size > MAX_CACHE_BYTES:
        return
    try:
        path = _path(key)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_room(path.parent, MAX_CACHE_BYTES - size)
        number, name = tempfile.mkstemp(suffix=".part", prefix=f"{key}.", dir=path.parent)
        try:
            with open(number, "wb") as file:
                file.writelines((header, train, validation))
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except (OSError, RuntimeError) as error:
        _say(f"cannot be written: {error}")


def _path(key: str) -> Path:
    return cache_folder() / "tokens" / f"{key}.tokens"


def _make_room(folder: Path, room: int) -> None:
    """Delete the least recently used files until the rest fits in `room` bytes, and abandoned ones."""
    ages: list[tuple[float, int, Path]] = []
    now = time.time()
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another process makes room as well
            status = path.stat()
            ages.append((now - status.st_mtime, status.st_size, path))
    for age, size, path in sorted(ages):
        if path.suffix == ".tokens":
            room -= size
        if (path.suffix == ".tokens" and room < 0) or (path.suffix == ".part" and age > ABANDONED_SECONDS):
            path.unlink(missing_ok=True)


def _say(problem: str) -> None:
    say(f"token cache (HPSEARCH_CACHE): {problem}")
