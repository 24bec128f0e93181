"""Checks the machine: whether it has what a search needs, and what to do where something is missing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any, Literal

import psutil
from packaging.requirements import Requirement

from ...spaces import Spec
from ...spaces.settings import Execution
from ...storage import checks
from ...storage.workspace import Workspace
from ..backends.resources import machine_memory, share, this_machine, visible_gpus
from ..backends.tools import answer_of, start_tool
from ..backends.worker.energy import Packages, gpu_joules
from ..errors import SearchError, UsageError
from ..formatting import gibibytes

Status = Literal["ok", "warning", "problem"]

TORCH_SECONDS = 120.0  # for torch to load; a cold network disk takes a minute
LOW_BYTES = 1 << 30  # of disk space or memory: enough for a search of small models
TOO_FEW_BYTES = 100 << 20
CLOCK_SKEW_SECONDS = 2.0  # between two clocks, before times of one seem to lie in the future of the other
EARLIEST_NOW = 1_735_689_600.0  # 2025-01-01: a correct clock shows no earlier time
RAY_SHARED_BYTES = 300 << 20  # of /dev/shm, for a Ray that the search starts


@dataclass(frozen=True)
class Check:
    """What was checked, its state, and what to do where it is not ok."""

    name: str
    status: Status
    found: str
    advice: str = ""


def machine_checks(workspace: Workspace, *, spec: Spec | None, ray: bool) -> Iterator[Check]:
    """Check one thing after another. `ray` also starts a Ray, which takes some seconds."""
    torch = start_tool("trainer.tools.devices")  # it loads during the other checks
    try:
        yield Check("python", "ok", f"{platform.python_version()} at {sys.executable}")
        yield from package_checks()
        yield _workers(spec)
        yield _memory()
        yield from database_checks(workspace.file)
        yield disk_check(_existing(workspace.runs))
        yield clock_check(_existing(workspace.runs))
        yield devices_check(torch)
        yield energy_check(visible_gpus())
    finally:
        torch.kill()
        torch.communicate()
    if ray:
        yield ray_check()


def energy_check(gpus: Sequence[str]) -> Check:
    """Whose energy trials measure here; a search needs none of it."""
    read: list[str] = []
    lacks: list[str] = []
    if gpus:
        is_read = gpu_joules(gpus) is not None
        (read if is_read else lacks).append("GPUs" if is_read else "the GPUs have no counter that NVML reads")
    obstacle = Packages().obstacle
    (read if obstacle is None else lacks).append(obstacle or "the CPU package")
    found = f"measured of {' and '.join(read)}" if read else "not measured"
    return Check("energy", "ok", "; ".join([found, *lacks]))


def package_checks() -> Iterator[Check]:
    """Whether the packages that hpsearch depends on are installed, in versions that it supports."""
    yield Check("hpsearch", "ok", f"{metadata.version('hpsearch')} at {Path(__file__).parents[2]}")
    required = [Requirement(text) for text in metadata.requires("hpsearch") or []]
    faults = [fault for each in required if _applies(each, "") and (fault := _fault(each))]
    for found, words in faults:
        yield Check("packages", "problem", found, f"pip install {words}")
    if not faults:
        shown = ", ".join(f"{name} {metadata.version(name)}" for name in ("optuna", "ray", "torch"))
        yield Check("packages", "ok", f"{shown}, and all other required packages")
    for extra in metadata.metadata("hpsearch").get_all("Provides-Extra") or []:
        of_extra = [each for each in required if _applies(each, extra) and not _applies(each, "")]
        missing = [each.name for each in of_extra if _fault(each)]
        state = f"not installed: {', '.join(missing)}" if missing else "installed"
        advice = f'only if you need it: pip install "hpsearch[{extra}]"' if missing else ""
        yield Check(f"extra {extra}", "ok", state, advice)


def devices_check(torch: Popen[str]) -> Check:
    """The devices that torch can train on, as the process `hpsearch.trainer.tools.devices` prints them."""
    try:
        seen: dict[str, Any] = answer_of(torch, seconds=TORCH_SECONDS)
    except TimeoutExpired:
        return Check("devices", "problem", f"torch did not load in {TORCH_SECONDS:g} s", "reinstall it")
    except SearchError as error:
        return Check("devices", "problem", f"torch does not load: {error}", "reinstall it: pip install torch")
    gpus = len(visible_gpus())
    if gpus and not any(device["kind"] == "cuda" for device in seen["devices"]):
        built = f"built for CUDA {seen['cuda']}" if seen["cuda"] else "built without CUDA"
        found = f"{gpus} GPU{'s' * (gpus > 1)} here, but torch {seen['torch']} ({built}) uses none of them"
        advice = "install a torch that fits the driver: https://pytorch.org/get-started"
        return Check("devices", "problem", found, advice)
    return Check("devices", "ok", ", ".join(map(_device_name, seen["devices"])))


def database_checks(file: Path | None) -> Iterator[Check]:
    """Whether the file system can hold an SQLite database; a database on a server is not checked."""
    if file is None:
        yield Check("database", "ok", "on a server; hpsearch list shows whether it responds")
        return
    folder = _existing(file.parent)
    if not os.access(folder, os.W_OK):
        yield Check("database", "problem", f"{folder} cannot be written", "choose another with --storage")
        return
    kind = checks.file_system(folder)
    where = f"{folder} ({kind})" if kind else str(folder)
    try:
        faults = checks.sqlite_faults(folder)
    except OSError as error:
        faults = [str(error)]
    move = "put the database on a disk of this machine (--storage), or use PostgreSQL"
    if faults:
        yield from (Check("database", "problem", f"{where}: {fault}", move) for fault in faults)
    elif kind in checks.NETWORK_FILE_SYSTEMS:
        found = f"{where} is a network file system, and SQLite's WAL works on one machine only"
        yield Check("database", "warning", found, f"search and watch on this machine only, or {move}")
    else:
        yield Check("database", "ok", f"{where}: WAL works, and locks end with their process")


def disk_check(folder: Path) -> Check:
    """How much room there is for checkpoints and the database."""
    free = shutil.disk_usage(folder).free
    status: Status = "ok" if free >= LOW_BYTES else "warning" if free >= TOO_FEW_BYTES else "problem"
    advice = "" if status == "ok" else "free some space, lower execution.keep, or choose another --runs"
    return Check("disk", status, f"{gibibytes(free)} free in {folder}", advice)


def clock_check(folder: Path) -> Check:
    """Whether the clock can be right, and agrees with the file system's."""
    now = time.time()
    shown = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now))
    if now < EARLIEST_NOW:
        return Check("clock", "problem", f"it shows {shown}", "set it: the times of trials would be wrong")
    try:
        offset = checks.clock_offset(folder)
    except OSError as error:
        found = f"{folder} cannot be written: {error.strerror}"
        return Check("clock", "problem", found, "choose another --runs")
    if abs(offset) > CLOCK_SKEW_SECONDS:
        way = "later" if offset > 0 else "earlier"
        found = f"{shown}; files in {folder} are stamped {abs(offset):.0f} s {way}"
        return Check("clock", "warning", found, "synchronize both machines' clocks over the network (NTP)")
    return Check("clock", "ok", shown)


def ray_check() -> Check:
    """Whether a local Ray starts and stops here."""
    from ..backends.ray.cluster import connected, open_ports

    began = time.monotonic()
    try:
        with connected(None, this_machine()):
            took = time.monotonic() - began
            outside = open_ports()
    except SearchError as error:
        return Check("ray", "problem", str(error), "search with --backend optuna, or reinstall ray")
    with suppress(OSError):
        if (free := shutil.disk_usage("/dev/shm").free) < RAY_SHARED_BYTES:
            found = f"starts in {took:.0f} s; /dev/shm has {gibibytes(free)}, so Ray uses the disk instead"
            advice = "give the container more memory: docker run --shm-size=512m"
            return Check("ray", "warning", found, advice)
    if outside:
        found = f"starts in {took:.0f} s; other machines can reach {', '.join(outside)}, protected by a token"
        return Check("ray", "warning", found, "block these ports if you do not trust the network")
    return Check("ray", "ok", f"starts in {took:.0f} s, listens on this machine alone, and stops")


def _workers(spec: Spec | None) -> Check:
    """The cores of the machine, and what a trial gets of them."""
    node = this_machine()
    cores = f"{node.cpus:g} of {os.cpu_count()} cores" if node.cpus != os.cpu_count() else _cores(node.cpus)
    try:
        worker = share(spec.execution if spec else Execution(), [node], "this machine")
    except UsageError as error:
        return Check("workers", "problem", str(error), "request less for each trial")
    gpus = f", {worker.gpus:g} GPU" if worker.gpus else ""
    found = f"{cores}: {worker.workers} trials at a time, {_cores(worker.cpus)}{gpus} each"
    return Check("workers", "ok", found)


def _memory() -> Check:
    free, there, whole = this_machine().memory, machine_memory(), psutil.virtual_memory().total
    found = f"{gibibytes(free)} free of {gibibytes(there)}"
    if there < whole:
        found += f", the limit of this process's control group; the machine has {gibibytes(whole)}"
    if free < LOW_BYTES:
        return Check("memory", "warning", found, "close other programs: a worker with torch takes half a GiB")
    return Check("memory", "ok", found)


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _fault(requirement: Requirement) -> tuple[str, str] | None:
    """What is wrong with a package, and the requirement that installs it; None where nothing is wrong."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    words = f'"{requirement.name}{extras}{requirement.specifier}"'
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{requirement.name} is not installed", words
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{requirement.name} {version} is installed; {requirement.specifier} is needed", words
    return None


def _cores(count: float) -> str:
    return f"{count:.3g} core{'s' * (count != 1)}"


def _device_name(device: dict[str, Any]) -> str:
    memory = f", {gibibytes(device['memory'])}" if device["memory"] else ""
    return f"{device['kind']} ({device['name']}{memory})"


def _existing(folder: Path) -> Path:
    """The folder, or its nearest ancestor that exists."""
    return next(at for at in (folder, *folder.parents) if at.is_dir())
