"""Checkpoints that workers send: they wait beside the trial's own, and replace it at the next report."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from ....storage.files import CHECKPOINT, SEALED, make_folder

PREFIX = "checkpoint.upload-"


def new_place(folder: Path) -> Path:
    """Where the next upload of a trial goes: a folder that does not exist yet."""
    make_folder(folder)
    return folder / f"{PREFIX}{secrets.token_hex(8)}"


def is_place(path: Path, folder: Path) -> bool:
    """Whether it is a whole upload of this trial."""
    return path.parent == folder and path.name.startswith(PREFIX) and path.is_dir() and not path.is_symlink()


def seal(upload: Path, folder: Path) -> None:
    """Make an upload the checkpoint of a trial, sealed as a local worker seals its own.

    Only names and links change: the driver does not wait for gigabytes. A kill in between leaves the old
    checkpoint or the new one, from which the trial resumes on any backend.
    """
    sealed, last, live = folder / SEALED, folder / f"{SEALED}.last", folder / CHECKPOINT
    following = folder / f"{CHECKPOINT}.next"
    shutil.rmtree(following, ignore_errors=True)
    shutil.copytree(upload, following, copy_function=_link)
    shutil.rmtree(last, ignore_errors=True)
    if sealed.exists():
        sealed.rename(last)
    upload.rename(sealed)
    shutil.rmtree(last, ignore_errors=True)
    shutil.rmtree(live, ignore_errors=True)
    following.rename(live)


def mend(folder: Path) -> None:
    """Finish what a kill has interrupted in `seal`, and remove uploads that nobody will send any more."""
    live, following = folder / CHECKPOINT, folder / f"{CHECKPOINT}.next"
    if following.exists() and not live.exists():
        following.rename(live)
    shutil.rmtree(following, ignore_errors=True)
    for left in folder.glob(f"{PREFIX}*"):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copy2(source, target)
    return target
