"""A checkpoint as it stood at its trial's last report: what the next attempt goes on from.

A kill may fall into the middle of a checkpoint, or between a checkpoint and the report that belongs to it:
going on from what lies there would fail, or leave a report out. So every report keeps a copy of the
checkpoint, and the next attempt finds that copy. Objectives that report their checkpoint's step again need
none.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ...storage.files import CHECKPOINT, SEALED

FileStamp = tuple[int, int, int]  # of a file: time of change, size, inode


class CheckpointSnapshot:
    """The copy of a trial's checkpoint, in the trial's folder."""

    def __init__(self, folder: Path) -> None:
        self._live = folder / CHECKPOINT
        self._kept = folder / SEALED
        self._next = folder / f"{SEALED}.next"  # while it is made
        self._last = folder / f"{SEALED}.last"  # while the next one takes its place
        self._stamps: dict[Path, FileStamp] = {}

    def restore(self) -> None:
        """Make the checkpoint what it was at the last report; empty where there was none."""
        if self._last.exists() and not self._kept.exists():
            self._last.rename(self._kept)
        for left in (self._live, self._next, self._last):
            shutil.rmtree(left, ignore_errors=True)
        if self._kept.exists():
            shutil.copytree(self._kept, self._live, symlinks=True)
            self._stamps = _stamps(self._live)

    def take(self) -> None:
        """Keep the checkpoint as it is now. What has not changed is not copied again."""
        stamps = _stamps(self._live)
        if stamps == self._stamps:
            return

        def copy(source: str, target: str) -> str:
            name = Path(source).relative_to(self._live)
            if stamps.get(name) == self._stamps.get(name):
                os.link(self._kept / name, target, follow_symlinks=False)
                return target
            return shutil.copy2(source, target, follow_symlinks=False)

        shutil.rmtree(self._next, ignore_errors=True)
        shutil.copytree(self._live, self._next, symlinks=True, copy_function=copy)
        if self._kept.exists():
            self._kept.rename(self._last)
        self._next.rename(self._kept)
        shutil.rmtree(self._last, ignore_errors=True)
        self._stamps = stamps


def _stamps(folder: Path) -> dict[Path, FileStamp]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            stat = path.stat()
            found[path.relative_to(folder)] = stat.st_mtime_ns, stat.st_size, stat.st_ino
    return found
