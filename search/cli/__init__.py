"""The command line: one module per group of commands, each loaded only when one of its commands runs."""

from __future__ import annotations

import sys

from ..garbage import seldom

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    seldom()
    try:
        from .app import main as run
    except KeyboardInterrupt:  # it loads for a moment
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    run()
