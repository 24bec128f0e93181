"""A checkpoint as of its trial's last report, from which the next attempt resumes.

A kill may interrupt the writing of a checkpoint, or fall between a checkpoint and the report that belongs to
it. To resume from such a checkpoint would fail, or skip a report. So every report keeps a copy, and the next
attempt restores it. Objectives that report the step of their checkpoint again need none.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ...storage.files import CHECKPOINT, SEALED

FileStamp = tuple[int, int, int]  # time of change, size, inode


class CheckpointSnapshot:
    """The copy of a trial's checkpoint, in the trial's folder."""

    def __init__(self, folder: Path) -> None:
        self._live = folder / CHECKPOINT
        self._kept = folder / SEALED
        self._next = folder / f"{SEALED}.next"  # a copy in the making
        self._last = folder / f"{SEALED}.last"  # the previous copy, while the next replaces it
        self._stamps: dict[Path, FileStamp] = {}

    def restore(self) -> None:
        """Restore the checkpoint of the last report; an empty folder if there was none."""
        if self._last.exists() and not self._kept.exists():
            self._last.rename(self._kept)
        for left in (self._live, self._next, self._last):
            shutil.rmtree(left, ignore_errors=True)
        if self._kept.exists():
            shutil.copytree(self._kept, self._live, symlinks=True)
            self._stamps = _stamps(self._live)

    def take(self) -> None:
        """Copy the checkpoint as it is now. Unchanged files are linked."""
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
    stamps = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            stat = path.stat()
            stamps[path.relative_to(folder)] = stat.st_mtime_ns, stat.st_size, stat.st_ino
    return stamps
