"""What a container leaves of the machine: trees of control groups as Linux shows them, and a real one."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from hpsearch.search.backends import cgroups
from hpsearch.search.backends.resources import machine_memory, this_machine

GIB = 1 << 30
UNLIMITED = str((1 << 63) - 4096)  # as version 1 says it


class Tree:
    """Files like those of /proc/self and /sys/fs/cgroup."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.groups = folder / "groups"
        self.proc.mkdir()
        (self.proc / "cgroup").touch()
        (self.proc / "mountinfo").write_text("21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n")

    def mount(self, kind: str, options: str, place: str, root: str = "/") -> None:
        folder = self.groups / place
        folder.mkdir(parents=True)
        with (self.proc / "mountinfo").open("a") as stream:
            stream.write(f"30 21 0:26 {root} {folder} rw,nosuid shared:4 - {kind} {kind} rw,{options}\n")

    def enter(self, number: int, controllers: str, path: str) -> None:
        with (self.proc / "cgroup").open("a") as stream:
            stream.write(f"{number}:{controllers}:{path}\n")

    def group(self, place: str, **files: str) -> None:
        folder = self.groups / place
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name.replace("__", ".")).write_text(content + "\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_in_a_container_the_outermost_group_is_its_own(tree: Tree) -> None:
    tree.mount("cgroup2", "nsdelegate", "unified")
    tree.enter(0, "", "/")
    stat = "anon 1\ninactive_file 1073741824\nactive_file 7"
    tree.group(
        "unified",
        memory__max=str(4 * GIB),
        memory__current=str(2 * GIB),
        memory__stat=stat,
        cpu__max="150000 100000",
    )
    assert cgroups.memory_limit(tree.proc) == 4 * GIB
    assert cgroups.memory_left(tree.proc) == 3 * GIB
    assert cgroups.cores(tree.proc) == 1.5


def test_the_least_of_all_groups_holds(tree: Tree) -> None:
    """As a batch system nests them: a job, a step of it."""
    tree.mount("cgroup2", "nsdelegate", "unified")
    tree.enter(0, "", "/slurm/job_7/step_0")
    tree.group("unified/slurm/job_7/step_0", memory__max="max", memory__current="500", cpu__max="max 100000")
    tree.group("unified/slurm/job_7", memory__max="8000", memory__current="5000", cpu__max="300000 100000")
    tree.group("unified/slurm", memory__max="9000", memory__current="8500")
    assert cgroups.memory_limit(tree.proc) == 8000
    assert cgroups.memory_left(tree.proc) == 500
    assert cgroups.cores(tree.proc) == 3


def test_version_1_has_a_tree_for_each_controller(tree: Tree) -> None:
    tree.mount("cgroup", "cpu,cpuacct", "cpu")
    tree.mount("cgroup", "memory", "memory", root="/docker/abc")
    tree.enter(4, "memory", "/docker/abc/inner")
    tree.enter(2, "cpu,cpuacct", "/")
    tree.group("memory/inner", memory__limit_in_bytes=UNLIMITED, memory__usage_in_bytes="10")
    tree.group(
        "memory",
        memory__limit_in_bytes="6000",
        memory__usage_in_bytes="5000",
        memory__stat="inactive_file 1\ntotal_inactive_file 700",
    )
    tree.group("cpu", cpu__cfs_quota_us="50000", cpu__cfs_period_us="100000")
    assert cgroups.memory_limit(tree.proc) == 6000
    assert cgroups.memory_left(tree.proc) == 1700
    assert cgroups.cores(tree.proc) == 0.5


def test_where_both_versions_are_each_has_its_controllers(tree: Tree) -> None:
    tree.mount("cgroup2", "nsdelegate", "unified")
    tree.mount("cgroup", "memory", "memory")
    tree.enter(0, "", "/user")
    tree.enter(9, "memory", "/somewhere/that/is/not/shown")
    tree.group("unified/user", cpu__max="200000 100000")
    tree.group("memory", memory__limit_in_bytes="6000")
    assert cgroups.memory_limit(tree.proc) == cgroups.memory_left(tree.proc) == 6000
    assert cgroups.cores(tree.proc) == 2


def test_a_group_beyond_the_namespace_is_not_looked_for(tree: Tree) -> None:
    tree.mount("cgroup2", "nsdelegate", "unified")
    tree.enter(0, "", "/../other")
    tree.group("other", memory__max="5")
    tree.group("unified", memory__max="6000", memory__current="7000")
    assert cgroups.memory_limit(tree.proc) == 6000
    assert cgroups.memory_left(tree.proc) == 0


@pytest.mark.parametrize("there", [True, False], ids=["no groups", "no Linux"])
def test_without_groups_there_is_no_limit(tree: Tree, there: bool) -> None:
    proc = tree.proc if there else tree.proc / "none"
    assert {cgroups.memory_limit(proc), cgroups.memory_left(proc), cgroups.cores(proc)} == {math.inf}


@pytest.mark.parametrize(("limit", "cores"), [(0.5, 1), (1.9, 1), (math.inf, None)])
def test_a_machine_is_what_a_container_leaves_of_it(
    monkeypatch: pytest.MonkeyPatch, limit: float, cores: int | None
) -> None:
    there = this_machine()
    monkeypatch.setattr(cgroups, "cores", lambda: limit)
    monkeypatch.setattr(cgroups, "memory_left", lambda: 3e6)
    monkeypatch.setattr(cgroups, "memory_limit", lambda: math.inf if cores is None else 4e6)
    assert this_machine().cpus == (there.cpus if cores is None else cores)
    assert this_machine().memory == 3_000_000
    assert machine_memory() == (psutil.virtual_memory().total if cores is None else 4_000_000)


def test_a_real_group_limits_the_processes_in_it(make_group: Any) -> None:
    group = make_group(GIB)
    code = (
        f"import os; open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
        "from hpsearch.search.backends.resources import machine_memory, this_machine\n"
        "print(machine_memory(), this_machine().memory)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    limit, left = map(int, done.stdout.split())
    assert limit == GIB
    assert 0 < left < GIB
