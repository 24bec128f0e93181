"""Files that a user names for results: whether they may be written."""

from __future__ import annotations

from pathlib import Path

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


def write_output(path: Path, content: str) -> None:
    """Write a file. Raises `SearchError` where that cannot be."""
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise SearchError(f"cannot write {path}: {error.strerror}") from error
