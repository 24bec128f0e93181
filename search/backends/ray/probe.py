"""What is run on every node of a cluster before a search begins there."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """The version of the hpsearch that this process can import."""
    return metadata.version("hpsearch")
