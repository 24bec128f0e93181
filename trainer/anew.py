"""Write text files without following a link that stands in their place."""

from __future__ import annotations

from pathlib import Path


def write_anew(path: Path, text: str) -> None:
    """Replace a file. An old one is deleted first: it may be a link to somebody else's file."""
    path.unlink(missing_ok=True)
    with path.open("x", encoding="utf-8") as stream:
        stream.write(text)
