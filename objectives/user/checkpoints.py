"""Finds the newest complete checkpoint of a trial, for programs that resume from a checkpoint's path.

newest(folder, "last")
    ->  folder / "checkpoint-1000", where the Trainer of Hugging Face left checkpoint-500 and checkpoint-1000
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

LAST = "last"
# Kinds of checkpoints: if there are several, the first kind counts. The Trainer of Hugging Face, Lightning,
# nanoGPT, PyTorch, Keras; a file of weights alone comes last.
_FOLDER = re.compile(r"(checkpoint|ckpt|step|epoch|iter|global_step)[-_]?\d+")
_FILES = (r".+\.ckpt", r"ckpt\.pt", r".+\.(pt|pth)", r".+\.(keras|h5)", r".+\.safetensors")
# What programs, and `writing.set_aside`, name files that are not complete; `storage.files` has the same.
UNFINISHED = re.compile(
    r".+\.(te?mp|incomplete|partial)([-_.]\w+)?|.+(\.part|~)|\.?tmp[-_].+|tmp[a-z0-9_]{8}(\..+)?",
    re.IGNORECASE,
)
MOST_HEADER = 100 << 20  # bytes of a safetensors header, as its own library allows


def newest(folder: Path, which: str) -> Path | None:
    """The newest complete checkpoint in `folder`: of the usual kinds for "last", else of a pattern.

    Of names that differ only in numbers the highest is the newest, otherwise the last changed. The newest of
    several folders has to have the files of the one before it. Of the older ones the program itself says that
    they are complete, as it has gone on to the next.
    """
    if which != LAST:
        return _newest(folder, [path for path in _matching(folder, which) if _is_whole(path)])
    found = list(_usual(folder))
    for kind in range(len(_FILES) + 1):
        if (checkpoint := _newest(folder, [path for of, path in found if of == kind])) is not None:
            return checkpoint
    return None


def problem_of_pattern(which: str) -> str | None:
    """Why a pattern cannot name a checkpoint in a trial's folder; None if it can."""
    path = PurePosixPath(which)
    if not which.strip() or path.is_absolute() or ".." in path.parts or not path.parts or "\0" in which:
        return "must be last, or a pattern inside the trial's folder such as checkpoint-* or **/*.ckpt"
    if any("**" in part and part != "**" for part in path.parts):
        return 'has "**" beside other letters; write it as a folder of its own, such as **/*.ckpt'
    return None


def _newest(folder: Path, paths: list[Path]) -> Path | None:
    families: dict[str, list[tuple[tuple[int, ...], int, Path]]] = {}  # by their names without numbers
    for path in paths:
        name = path.relative_to(folder).as_posix()
        with suppress(OSError):  # it is gone
            candidate = (tuple(map(int, re.findall(r"\d+", name))), path.stat().st_mtime_ns, path)
            families.setdefault(re.sub(r"\d+", "0", name), []).append(candidate)
    best = []
    for family in families.values():
        family.sort()
        lacks = len(family) > 1 and _parts(family[-2][2]) - _parts(family[-1][2])
        best.append(family[-2 if lacks else -1])
    return max(best, key=lambda each: (each[1], str(each[2])))[2] if best else None


def _parts(path: Path) -> Counter[str]:
    """How many files a folder has of each name, where names that differ only in numbers count as one.

    So a folder with `model_3.pt` has what one with `model_2.pt` has, and one shard of two is not enough.
    """
    files = (Path(inside, name) for inside, _, names in os.walk(path) for name in names)
    return Counter(re.sub(r"\d+", "0", file.relative_to(path).as_posix()) for file in files)


def _usual(folder: Path) -> Iterator[tuple[int, Path]]:
    """The complete checkpoints of the usual kinds, each with its kind; none inside another."""
    for inside, folders, files in os.walk(folder):
        whole = [name for name in sorted(folders) if not UNFINISHED.fullmatch(name)]
        ours = [name for name in whole if _FOLDER.fullmatch(name)]
        folders[:] = [name for name in whole if name not in ours]
        for name in ours:
            if _is_whole(Path(inside, name)):
                yield 0, Path(inside, name)
        for name in files:
            kind = next((at for at, pattern in enumerate(_FILES, 1) if re.fullmatch(pattern, name)), None)
            if kind is not None and _is_whole(Path(inside, name)):
                yield kind, Path(inside, name)


def _matching(folder: Path, pattern: str) -> list[Path]:
    with suppress(ValueError, OSError):
        return [path for path in folder.glob(pattern) if not _is_unfinished(path.relative_to(folder))]
    return []


def _is_unfinished(path: Path) -> bool:
    return any(UNFINISHED.fullmatch(part) for part in path.parts)


def _is_whole(path: Path) -> bool:
    """Whether a file, or every file in a folder, was written to its end, as far as its format shows."""
    if _is_unfinished(Path(path.name)):
        return False
    if not path.is_dir():
        return _is_whole_file(path)
    files = [Path(inside, name) for inside, _, names in os.walk(path) for name in names]
    names = {file.name for file in files}
    if "training_args.bin" in names and "trainer_state.json" not in names:  # the Trainer writes this last
        return False
    return bool(files) and all(not UNFINISHED.fullmatch(file.name) and _is_whole_file(file) for file in files)


def _is_whole_file(path: Path) -> bool:
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            start = stream.read(8)
            if path.suffix == ".safetensors":
                length = int.from_bytes(start, "little")
                header = json.loads(stream.read(length)) if length <= min(size, MOST_HEADER) else {}
                ends = [about["data_offsets"][1] for name, about in header.items() if name != "__metadata__"]
                return length > 0 and size >= 8 + length + max(ends, default=0) and bool(header)
        if start[:2] == b"PK":  # PyTorch and Keras write zip files, whose directory is at their end
            return zipfile.is_zipfile(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return False
    return size > 0 or path.suffix not in (".pt", ".pth", ".ckpt", ".bin", ".keras", ".h5", ".json")
