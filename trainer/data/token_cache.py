"""Tokens on the disk, so that the next process need not make them again.

A file is named after all that its tokens are made of, so it never goes out of date. It holds a line of
JSON, then the tokens: nothing in it can be run. They are mapped into memory that all processes share.

| where | what is done |
|---|---|
| several processes write | each writes beside, then renames |
| a file does not match its hash | that is said on stderr, and the tokens are made again |
| a file cannot be written: a full disk, no home | that is said, and the run goes on without |
| there are more than `LIMIT` bytes | the files that were not used for longest go |

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

LIMIT = 4 << 30  # bytes of all files
ABANDONED = 3600.0  # seconds after which an unfinished file belongs to a process that was killed
HEADER = 512  # bytes in which the line of JSON ends


@dataclass(frozen=True)
class Entry:
    """The tokens of a corpus, uint8, and their hash; `left_out` counts documents, to be said again."""

    train: Tensor
    validation: Tensor
    sha256: str
    left_out: int


def hash_of(train: bytes | memoryview, validation: bytes | memoryview) -> str:
    """The hash that a corpus is known by: of both parts, and of where the one ends."""
    digest = hashlib.sha256(len(train).to_bytes(8, "big"))
    digest.update(train)
    digest.update(validation)
    return digest.hexdigest()


def cache_folder() -> Path:
    """Where the tokens are kept. Raises `RuntimeError` where this user has no home."""
    if named := os.environ.get("HPSEARCH_CACHE"):
        return Path(named)
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not shared.is_absolute():  # as the XDG specification wants it
        shared = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return shared / "hpsearch"


def fetch(key: str) -> Entry | None:
    """The tokens kept under `key`; None where there are none, or they are damaged."""
    try:
        path = _path(key)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if size else None
        with suppress(OSError):  # where it may not be touched, it does not stay for longer
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
    """Raises `ValueError`, `KeyError` or `TypeError` where this is not what `store` wrote."""
    if held is None:
        raise ValueError("nothing at all")
    begin = held.find(b"\n", 0, HEADER) + 1
    about: dict[str, Any] = json.loads(held[:begin])
    cut = begin + about["train"]
    view = memoryview(held)
    if hash_of(view[begin:cut], view[cut:]) != about["sha256"]:
        raise ValueError("other tokens than were written")
    tokens = torch.frombuffer(held, dtype=torch.uint8)
    return Entry(tokens[begin:cut], tokens[cut:], about["sha256"], about["left_out"])


def store(key: str, train: bytes, validation: bytes, *, sha256: str, left_out: int) -> None:
    """Keep these tokens for the next process. Where that fails, it is said and no more."""
    header = json.dumps({"train": len(train), "sha256": sha256, "left_out": left_out}).encode() + b"\n"
    size = len(header) + len(train) + len(validation)
    if size > LIMIT:
        return
    try:
        path = _path(key)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_room(path.parent, LIMIT - size)
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
    """Delete what was not used for longest, until the rest fits in; and what killed processes left."""
    ages: list[tuple[float, int, Path]] = []
    now = time.time()
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another process makes room as well
            status = path.stat()
            ages.append((now - status.st_mtime, status.st_size, path))
    for age, size, path in sorted(ages):
        if path.suffix == ".tokens":
            room -= size
        if (path.suffix == ".tokens" and room < 0) or (path.suffix == ".part" and age > ABANDONED):
            path.unlink(missing_ok=True)


def _say(problem: str) -> None:
    say(f"the cache of tokens (HPSEARCH_CACHE): {problem}")
