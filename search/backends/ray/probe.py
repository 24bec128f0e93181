"""What is run on every node of a cluster before a search begins there.

A module of ours: where hpsearch is missing, Ray cannot even load the function.
"""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """The version of the hpsearch that this process can import."""
    return metadata.version("hpsearch")
