"""Further commands to type, as messages name them."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from ...storage.passwords import hidden


def command(*words: str) -> str:
    """A command to type, quoted for the shell. A URL's password stays out of it."""
    return shlex.join(["hpsearch", *map(hidden, words)])


def finding(storage: str | None, runs: str | Path | None) -> list[str]:
    """The options that a further command needs to find the same study."""
    from_environment = storage == os.environ.get("HPSEARCH_STORAGE")
    options = {} if storage is None or from_environment else {"--storage": storage}
    options |= {} if runs is None else {"--runs": str(runs)}
    return [word for option in options.items() for word in option]
