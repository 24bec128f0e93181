"""Writes files whose names anybody can foresee."""

from __future__ import annotations

from pathlib import Path


def write_anew(path: Path, text: str) -> None:
    """Write a file of ours; what stands there goes, for a link of that name may lead to another's file."""
    path.unlink(missing_ok=True)
    with path.open("x", encoding="utf-8") as stream:
        stream.write(text)
