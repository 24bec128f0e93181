"""Runs on every node of a cluster before a search starts there.

A module of its own: where hpsearch is missing, Ray cannot even load the function.
"""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """The version of the hpsearch that this process can import."""
    return metadata.version("hpsearch")
