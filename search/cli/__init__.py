"""The command line: one module per group of commands, each loaded only when one of its commands runs."""

from __future__ import annotations

from .app import main

__all__ = ["main"]
