"""What a result depends on besides its configuration: versions and the commit."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path

_PACKAGES = ("hpsearch", "optuna", "torch", "numpy")


def versions() -> dict[str, str]:
    """The versions that a trial's value depends on."""
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in _PACKAGES}


def git_commit(folder: Path) -> str | None:
    """The commit of the folder's git checkout, with `-dirty` where files differ; None outside of one."""
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):  # git is missing, or cannot read the checkout
        return None
    return result.stdout.strip() or None
