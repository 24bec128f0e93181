"""Files that a user names for results: whether they may be written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from ...storage import files
from ..errors import SearchError, UsageError

STDOUT = "-"  # as the name of an output


def refuse_stdout(path: Path | None, what: str) -> None:
    """Raise `UsageError` where the output is to be standard output, `-`, which cannot take `what`."""
    if path is not None and str(path) == STDOUT:
        raise UsageError(f"standard output cannot take {what}; name a file, or ./- for one of that name")


def check_free(path: Path) -> None:
    """Raise `UsageError` where a file is there already."""
    if path.is_symlink() and not path.exists():
        raise UsageError(
            f"{path} is a link to a file that is not there; choose another file", code="file-exists"
        )
    if path.is_file():  # a pipe or a device takes what comes
        raise UsageError(f"{path} is there already; choose another file, or overwrite it", code="file-exists")


def check_output(path: Path, *, force: bool) -> None:
    """Raise `UsageError` where a file is there already; with `force`, where it holds no text."""
    if not force:
        check_free(path)
    if not path.is_file():
        return
    try:
        with path.open("rb") as stream:
            begin = stream.read(4096)
    except OSError as error:
        raise SearchError(f"cannot read {path}, which would be written over: {error.strerror}") from error
    if b"\0" in begin:  # as in a database
        raise UsageError(f"{path} holds no text, and is not written over; choose another file")


def write_output(path: Path, content: str | bytes) -> None:
    """Write a file, whole or not at all: what is there stays until then.

    Raises `SearchError` where it cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a pipe or a device takes what comes
            return
        place = path.resolve()  # what a link leads to
        os.stat(f"{place.parent}/")  # a folder that is not there is a mistake, and is not made
        if place.exists() and not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        files.write(place, data)
    except OSError as error:
        raise SearchError(f"cannot write {path}: {error.strerror}") from error
