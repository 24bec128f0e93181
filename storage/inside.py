"""Files of a trial, opened by names that come from others: none leads out of the trial's folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import StorageError
from .files import study_folder

DRIVER_LOG = "driver.log"  # in a study's folder: what a driver says that a server has started
MOST_FILES = 10_000  # of a trial, in a list
DEEPEST = 32  # folders in each other
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class FoundFile:
    """A file in a folder."""

    path: str  # from that folder on, with slashes
    bytes: int
    modified: float  # seconds since 1970


def open_inside(runs: Path, study: str, *parts: str) -> int:
    """Open a file in the folder of a study for reading, without following any link; its descriptor.

    `runs` and the study's folder may be links that the user made. Raises `StorageError` for a name that is no
    file there, or that leads elsewhere.
    """
    name = "/".join(parts)
    if not parts or any(not is_plain(part) for part in parts):
        raise _missing(name)
    try:
        with _opened(os.open(study_folder(runs, study), os.O_RDONLY | os.O_DIRECTORY)) as folder:
            for part in parts[:-1]:
                inner = os.open(part, _FOLDER, dir_fd=folder[-1])
                folder.append(inner)
            descriptor = os.open(parts[-1], _FILE, dir_fd=folder[-1])
    except (OSError, ValueError) as error:
        raise _missing(name) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _missing(name)
    os.set_blocking(descriptor, True)
    return descriptor


def files_inside(runs: Path, study: str, *parts: str) -> list[FoundFile]:
    """The files in a folder of a study and in those below, by path; none where there is no such folder.

    Links, pipes and what a name of JSON cannot say are left out, and so is all beyond `MOST_FILES`.
    """
    found: list[FoundFile] = []
    try:
        with _opened(os.open(study_folder(runs, study), os.O_RDONLY | os.O_DIRECTORY)) as folder:
            for part in parts:
                folder.append(os.open(part, _FOLDER, dir_fd=folder[-1]))
            for each in _walk(folder[-1], ""):
                found.append(each)
                if len(found) == MOST_FILES:
                    break
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise _missing("/".join(parts)) from error
    return sorted(found, key=lambda each: each.path)


def is_plain(part: str) -> bool:
    """Whether a part of a path names a file or a folder right where it stands."""
    return part not in ("", ".", "..") and not any(c in part for c in "/\0")


def _walk(folder: int, prefix: str) -> Iterator[FoundFile]:
    if prefix.count("/") >= DEEPEST:
        return
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            try:
                entry.name.encode()
                status = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
            except (OSError, UnicodeEncodeError):  # gone meanwhile; no text
                continue
            if stat.S_ISREG(status.st_mode):
                yield FoundFile(prefix + entry.name, status.st_size, status.st_mtime)
            elif stat.S_ISDIR(status.st_mode):
                try:
                    inner = os.open(entry.name, _FOLDER, dir_fd=folder)
                except OSError:
                    continue
                with _opened(inner):
                    yield from _walk(inner, f"{prefix}{entry.name}/")


@contextmanager
def _opened(descriptor: int) -> Iterator[list[int]]:
    """Descriptors that are closed in the end: this one, and those that are added."""
    descriptors = [descriptor]
    try:
        yield descriptors
    finally:
        for each in descriptors:
            os.close(each)


def _missing(name: str) -> StorageError:
    return StorageError(f"there is no file {name[:200]!r}", code="no-such-file")
