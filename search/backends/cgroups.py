"""The limits of Linux control groups, which a container or a batch system sets.

Docker, Kubernetes and Slurm limit a process's memory and cores by the groups it belongs to. Python and psutil
report the whole machine; a process that relies on that is killed, or waits for cores that it does not get.
The limit of a group holds for all groups inside it. Versions 1 and 2 have different files for the same
limits; a machine may have both, each controller in one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SELF = Path("/proc/self")


@dataclass(frozen=True)
class _Group:
    """A control group that this process belongs to."""

    folder: Path
    version: int

    def number(self, of_version_2: str, of_version_1: str) -> float:
        """The number in one of the group's files; infinite where there is no such file, or no limit."""
        try:
            text = (self.folder / (of_version_2 if self.version == 2 else of_version_1)).read_text()
        except OSError:  # the root group has no limits, and so no files
            return math.inf
        return math.inf if text.strip() in ("max", "-1") else float(text)


def memory_limit(proc: Path = SELF) -> float:
    """Bytes that this process and all others in its groups may hold; infinite where there is no limit."""
    return min((_limit(group) for group in _groups("memory", proc)), default=math.inf)


def memory_left(proc: Path = SELF) -> float:
    """Bytes that the groups of this process may still take; infinite where there is no limit."""
    return min(
        (max(0.0, _limit(group) - _held(group)) for group in _groups("memory", proc)), default=math.inf
    )


def cores(proc: Path = SELF) -> float:
    """Cores that the groups of this process may use, maybe a fraction; infinite where there is no limit."""
    return min((_cores(group) for group in _groups("cpu", proc)), default=math.inf)


def _limit(group: _Group) -> float:
    return group.number("memory.max", "memory.limit_in_bytes")


def _held(group: _Group) -> float:
    """The bytes of a group, without cached files, whose pages the kernel frees on demand."""
    held = group.number("memory.current", "memory.usage_in_bytes")
    if held == math.inf:
        return 0.0
    name = "inactive_file" if group.version == 2 else "total_inactive_file"
    try:
        lines = (group.folder / "memory.stat").read_text().splitlines()
    except OSError:
        return held
    return held - sum(float(line.split()[1]) for line in lines if line.split()[0] == name)


def _cores(group: _Group) -> float:
    if group.version == 1:
        quota = group.number("", "cpu.cfs_quota_us")
        return quota if quota == math.inf else quota / group.number("", "cpu.cfs_period_us")
    try:
        most, period = (group.folder / "cpu.max").read_text().split()
    except OSError:
        return math.inf
    return math.inf if most == "max" else float(most) / float(period)


def _groups(controller: str, proc: Path) -> Iterator[_Group]:
    """The groups of this process that a controller limits, from the innermost outwards."""
    try:
        mounts = (proc / "mountinfo").read_text().splitlines()
        memberships = (proc / "cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    paths = {names: path for _, names, path in (line.split(":", 2) for line in memberships)}
    for version, root, mount in _mounts(controller, mounts):
        path = next((p for names, p in paths.items() if _is_of(names, controller, version)), "/")
        inside = Path(path.removeprefix(root.rstrip("/")).lstrip("/"))
        folder = mount / inside if ".." not in inside.parts and (mount / inside).is_dir() else mount
        yield _Group(folder, version)
        while folder != mount:
            folder = folder.parent
            yield _Group(folder, version)


def _mounts(controller: str, lines: list[str]) -> Iterator[tuple[int, str, Path]]:
    """The version, root group and folder of each hierarchy that has the controller."""
    for line in lines:
        about, _, kind = line.partition(" - ")
        root, mount = about.split()[3:5]
        name, *_, options = kind.split()
        if name == "cgroup2":
            yield 2, root, Path(mount)
        elif name == "cgroup" and controller in options.split(","):
            yield 1, root, Path(mount)


def _is_of(names: str, controller: str, version: int) -> bool:
    return not names if version == 2 else controller in names.split(",")
