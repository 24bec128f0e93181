"""A trial's folder on other nodes: fetched when the trial starts there, sent home with every report.

On the driver's own node a trial works in `runs/` itself. Elsewhere it works in a temporary folder, and Ray
tasks on the driver's node write what has changed to `runs/`. Files are home before the study holds the report
that they belong to.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ....storage.files import METRICS, OUTPUT, opened
from ...engine.guardian import TEMPORARY_PREFIX

APPEND_ONLY = (METRICS, OUTPUT)  # files that only grow
LONGEST_ROOT = 14  # characters of a temporary folder's path
FileStamp = tuple[int, int, int]  # time of change, size, inode


@dataclass(frozen=True)
class DriverNode:
    """The driver's process and its node."""

    node: str
    pid: int  # the driver's
    folder: str  # where it was started

    def is_here(self) -> bool:
        """Whether this process runs on the driver's node."""
        return ray.get_runtime_context().get_node_id() == self.node

    def folder_here(self, folder: Path) -> NodeFolder:
        """A trial's folder on this node."""
        return NodeFolder(folder) if self.is_here() else RemoteFolder.fetch(folder, self.node)


@dataclass
class NodeFolder:
    """A trial's folder on the driver's own node: `runs/` itself."""

    path: Path

    def send_home(self) -> None:
        """Send home what has changed since the last time."""

    def remove(self) -> None:
        """Remove what only this node has of the folder."""


@dataclass
class RemoteFolder(NodeFolder):
    """A trial's folder on another node: a copy."""

    home: Path
    node: str  # the driver's
    known: dict[str, FileStamp] = field(default_factory=dict)  # files as they are at home

    @classmethod
    def fetch(cls, home: Path, node: str) -> RemoteFolder:
        """Copy a trial's folder to this node."""
        here = cls(temporary_folder(), home, node)
        for name, content in ray.get(run_on(node, read, str(home))).items():
            path = here.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        here.known = dict(here._files())
        return here

    def send_home(self) -> None:
        there = dict(self._files())
        changed: dict[str, tuple[int, bytes]] = {}
        for name, stamp in there.items():
            if stamp != self.known.get(name):
                with suppress(FileNotFoundError):  # a thread of the objective has just removed it
                    changed[name] = self._news(name, stamp)
        gone = [name for name in self.known if name not in there]
        if changed or gone:
            ray.get(run_on(self.node, write, str(self.home), changed, gone))
        self.known = there

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def _files(self) -> Iterator[tuple[str, FileStamp]]:
        for path in files_in(self.path):
            with suppress(FileNotFoundError):
                stat = path.stat()
                yield str(path.relative_to(self.path)), (stat.st_mtime_ns, stat.st_size, stat.st_ino)

    def _news(self, name: str, stamp: FileStamp) -> tuple[int, bytes]:
        """The offset from which a file has changed, and its content from there."""
        known = self.known.get(name)
        offset = known[1] if name in APPEND_ONLY and known and known[1] <= stamp[1] else 0
        with (self.path / name).open("rb") as stream:
            stream.seek(offset)
            return offset, stream.read(stamp[1] - offset)


def run_on(node: str, function: Callable[..., Any], *arguments: Any) -> ray.ObjectRef[Any]:
    """Run a function on a node, at no cost to its trials; the reference to its result."""
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    task: Any = ray.remote(num_cpus=0)(function)
    result: ray.ObjectRef[Any] = task.options(scheduling_strategy=there).remote(*arguments)
    return result


def read(folder: str) -> dict[str, bytes]:
    """A trial's files by name; runs on the driver's node."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in files_in(Path(folder))}


def write(folder: str, changed: dict[str, tuple[int, bytes]], gone: list[str]) -> None:
    """Write what has changed, whole files next to the old ones first; runs on the driver's node.

    It may run twice, since Ray retries where it gets no answer.
    """
    ready = []
    for name, (offset, content) in changed.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if offset:
            with open(opened(path, os.O_RDWR), "r+b") as stream:
                stream.seek(offset)
                stream.write(content)
            continue
        part = path.with_name(path.name + ".part")
        part.unlink(missing_ok=True)  # from a killed attempt; or a link, which may lead anywhere
        with part.open("xb") as stream:
            stream.write(content)
        ready.append((part, path))
    for part, path in ready:
        os.replace(part, path)
    for name in gone:
        (Path(folder) / name).unlink(missing_ok=True)


def temporary_folder() -> Path:
    """A folder for this process alone; those of processes that have ended are removed first.

    Its path is short, whatever TMPDIR is: Ray adds up to 92 characters, and a socket's path has at most 107.
    """
    root = tempfile.gettempdir()
    if len(root) > LONGEST_ROOT and os.access("/tmp", os.W_OK):
        root = "/tmp"
    for old in Path(root).glob(f"{TEMPORARY_PREFIX}*"):
        pid = old.name.removeprefix(TEMPORARY_PREFIX).split("-")[0]
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{TEMPORARY_PREFIX}{os.getpid()}-", dir=root))


def files_in(folder: Path) -> list[Path]:
    """All files below a folder."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]
