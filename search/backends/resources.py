"""How many workers run at the same time, and what share of the machine each of them gets.

A worker trains one trial, or a pack of them. Its cores and GPUs are those of one trial, shared by the trials
of a pack and by the processes of a trial that has several. Its memory is `max_memory` for each of its trials,
which is how much a trial may take before it is ended.
"""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import psutil

from ..errors import UsageError
from ..formatting import gibibytes
from . import cgroups

if TYPE_CHECKING:
    from ...spaces.settings import Execution

WORKER_MEMORY = 1 << 30  # bytes assumed for a process where `workers` is `auto` and there is no memory limit
SHARE_DECIMALS = 4  # of a core or a GPU, as finely as Ray distinguishes
CORES_VARIABLE = "HPSEARCH_CORES"  # the cores of a slice of the machine, as their numbers: 0,1,5
PRICE_VARIABLE = "HPSEARCH_PRICE_PER_HOUR"  # of a GPU of this machine, or of it without GPUs
MEMORY_VARIABLE = "HPSEARCH_MEMORY"  # the bytes of a slice of the machine, which no control group limits
LEAST_CORES = 10.0**-SHARE_DECIMALS  # of a trial


@dataclass(frozen=True)
class Node:
    """The resources of one machine."""

    cpus: float
    gpus: float
    memory: int  # bytes


@dataclass(frozen=True)
class WorkerShare:
    """The number of workers, and the resources of each."""

    workers: int
    cpus: float
    gpus: float
    memory: int | None  # bytes, for all trials of a worker together; None: no limit
    processes: int = 1  # of each trial

    @property
    def threads(self) -> int:
        """Threads that each process of a trial computes with."""
        return threads_on(self.cpus / self.processes)


@dataclass(frozen=True)
class Room:
    """The memory that one trial may take."""

    limit: int  # bytes
    kind: Literal["host", "device"]
    description: str  # the limit in words, and where it comes from


def room_for(execution: Execution, share: WorkerShare) -> Room | None:
    """The memory of one trial on this machine; None where it is unknown.

    It is `max_memory`, or an even share of the machine's memory, or of a GPU's where trials train on one. A
    pack of `auto` counts as one trial.
    """
    pack = 1 if execution.pack == "auto" else execution.pack
    if share.gpus:
        there = gpu_memory()
        if there is None:
            return None
        limit = int(there * min(1.0, share.gpus)) // pack
        return Room(limit, "device", f"a trial's share of a GPU is {gibibytes(limit)}")
    if execution.max_memory is not None:
        limit = execution.max_memory
        return Room(limit, "host", f"a trial may take {gibibytes(limit)} (execution.max_memory)")
    limit = machine_memory() // (share.workers * pack)
    return Room(limit, "host", f"a trial's share of this machine is {gibibytes(limit)}")


def gpu_memory() -> int | None:
    """Bytes of the smallest visible CUDA device, without importing torch.

    None where NVIDIA's driver is missing, or knows no such device.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            devices = map(nvml_device, visible_gpus())
            return min(
                (int(pynvml.nvmlDeviceGetMemoryInfo(device).total) for device in devices), default=None
            )
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None


def nvml_device(name: str) -> Any:
    """NVML's handle of a device that CUDA_VISIBLE_DEVICES names: by its number, or its (MIG) UUID."""
    import pynvml

    if name.isdecimal():
        return pynvml.nvmlDeviceGetHandleByIndex(int(name))
    if name.startswith("GPU-"):  # CUDA takes the beginning of one, too
        every = (pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount()))
        for device in every:
            if str(pynvml.nvmlDeviceGetUUID(device)).startswith(name):
                return device
    return pynvml.nvmlDeviceGetHandleByUUID(name)


def threads_on(cpus: float) -> int:
    """Threads to compute with on so many cores."""
    return max(1, int(cpus))


def memory_for(execution: Execution, pack: int) -> int | None:
    """Bytes that a worker may take for so many trials; None where there is no limit."""
    return None if execution.max_memory is None else execution.max_memory * pack


def this_machine() -> Node:
    """The free resources of this machine, without importing torch."""
    cores = len(usable_cores())
    allowed = max(1, int(min(cores, cgroups.cores())))
    free = int(min(psutil.virtual_memory().available, cgroups.memory_left(), _memory_of_slice()))
    return Node(allowed, len(visible_gpus()), free)


def machine_memory() -> int:
    """Bytes that all trials here may take together: the machine's, or a container's limit."""
    return int(min(psutil.virtual_memory().total, cgroups.memory_limit(), _memory_of_slice()))


def usable_cores() -> list[int]:
    """The numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return cores_in(os.environ) or list(range(os.cpu_count() or 1))


def cores_in(variables: Mapping[str, str]) -> list[int]:
    """The cores of a slice, as variables of a process name them; none where they name none."""
    words = variables.get(CORES_VARIABLE, "").split(",")
    return [int(word) for word in words if word.isdecimal()]


def keep_to_slice() -> None:
    """Keep this process, and all that it starts, to the cores of its slice, if it has one.

    Where the system knows no such thing, the slice counts for the number of workers alone.
    """
    cores = cores_in(os.environ)
    if cores and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):  # the machine has lost one of them, or this process may not use it
            os.sched_setaffinity(0, cores)


def _memory_of_slice() -> float:
    given = os.environ.get(MEMORY_VARIABLE, "")
    return float(given) if given.isdecimal() and int(given) > 0 else math.inf


def machine_price() -> float | None:
    """What an hour of a GPU costs here, or of the machine without GPUs; None where nobody has said it.

    Raises `UsageError` where the variable that says it has no amount.
    """
    from ...spaces.settings import MOST_PRICE

    given = os.environ.get(PRICE_VARIABLE, "").strip()
    if not given:
        return None
    with suppress(ValueError):
        if 0 < (price := float(given)) <= MOST_PRICE:
            return price
    told = f"{PRICE_VARIABLE} needs an amount of money such as 2.5, above 0 and at most {MOST_PRICE:,.0f}"
    raise UsageError(f"{told}; not {given!r:.60}")


def visible_gpus() -> list[str]:
    """The CUDA devices of this machine, as CUDA_VISIBLE_DEVICES names them, without importing torch."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [device for device in chosen.split(",") if device not in ("", "-1")]
    return [str(i) for i in range(len(glob.glob("/dev/nvidia[0-9]*")))]


def share(execution: Execution, nodes: Sequence[Node], where: str) -> WorkerShare:
    """The share of each worker, from the space's `execution` and the resources of `where`.

    What the space leaves open is shared evenly: first GPUs, one for each worker or each process of a trial,
    then cores. A pack of `auto` counts as one trial and later takes what memory there is. Raises `UsageError`
    where a worker, or the requested number of them, does not fit.
    """
    wanted, pack = execution.workers, 1 if execution.pack == "auto" else execution.pack
    memory = memory_for(execution, pack)
    count = None if wanted == "auto" else int(wanted)
    _check_largest(execution, pack, nodes, where)
    gpus, ranks = execution.gpus_per_trial, execution.processes_per_trial
    if gpus is None:
        there = sum(int(node.gpus) for node in nodes)
        if not there:
            gpus = 0.0
        elif count is None or ranks > 1:  # each process of a trial has a device of its own
            gpus = float(ranks)
        else:
            gpus = max(LEAST_CORES, _rounded(1 / math.ceil(count / there)))
    cpus = execution.cpus_per_trial
    least = LEAST_CORES if cpus is None else cpus
    fit = _capacity(nodes, least, gpus, memory)
    if not fit:
        asked = ("cpus_per_trial", "gpus_per_trial", "max_memory")
        usual = "workers" if ranks == 1 else "processes_per_trial"
        field = next((name for name in asked if getattr(execution, name) is not None), usual)
        raise UsageError(
            f"execution.{field}: a trial asks for {_request(least, gpus, memory)}; "
            f"{where} has {_supply(nodes)}, but no node has all that a trial asks for"
        )
    if count is None:
        if cpus is None and not gpus:  # a trial with a GPU takes whatever cores are left
            least = float(ranks)
        count = max(1, _capacity(nodes, least, gpus, memory or (None if gpus else WORKER_MEMORY * ranks)))
    elif fit < count:
        asked_for = f"{count} trials at a time" if pack == 1 else f"{count} workers of {pack} trials"
        raise UsageError(
            f"execution.workers: {asked_for}, each with {_request(least, gpus, memory)}, "
            f"do not fit; {where} has {_supply(nodes)}, enough for {fit}"
        )
    even = _even_share(nodes, count, gpus, memory) if cpus is None else cpus
    return WorkerShare(count, even, gpus, memory, ranks)


def _check_largest(execution: Execution, pack: int, nodes: Sequence[Node], where: str) -> None:
    """Raise `UsageError` for what no node has enough of for one trial, or for one pack."""
    memory, largest = execution.max_memory, max(node.memory for node in nodes)
    each = "" if memory is None else f", each with a max_memory of {gibibytes(memory)},"
    trials = f"{pack} trials in a worker{each} ask"
    for field, asks, asked, there, show in (
        ("cpus_per_trial", "a trial asks", execution.cpus_per_trial, max(n.cpus for n in nodes), _cpus),
        ("gpus_per_trial", "a trial asks", execution.gpus_per_trial, max(n.gpus for n in nodes), _gpus),
        ("max_memory", "a trial asks", memory, largest, gibibytes),
        ("pack", trials, memory_for(execution, pack), largest, gibibytes),
    ):
        if asked is not None and asked > there:
            most = "" if len(nodes) == 1 else " on its largest node"
            raise UsageError(f"execution.{field}: {asks} for {show(asked)}; {where} has {show(there)}{most}")


def _capacity(nodes: Sequence[Node], cpus: float, gpus: float, memory: int | None) -> int:
    """The number of workers of this size that run at the same time."""
    total = 0
    for node in nodes:
        limits = [_times(node.cpus, cpus)]
        if gpus:  # a trial never has parts of two devices
            limits.append(int(node.gpus) * _times(1, gpus) if gpus < 1 else int(node.gpus // gpus))
        if memory is not None:
            limits.append(node.memory // memory)
        total += min(limits)
    return total


def _even_share(nodes: Sequence[Node], workers: int, gpus: float, memory: int | None) -> float:
    """The largest equal share of cores for so many workers; a whole number above one."""
    shares = {node.cpus / k for node in nodes for k in range(1, workers + 1) if node.cpus}
    fitting = [
        cpus for cpus in map(_rounded, shares) if cpus and _capacity(nodes, cpus, gpus, memory) >= workers
    ]
    return max(fitting)


def _rounded(cpus: float) -> float:
    return (
        float(math.floor(cpus)) if cpus >= 1 else math.floor(cpus * 10**SHARE_DECIMALS) / 10**SHARE_DECIMALS
    )


def _times(whole: float, part: float) -> int:
    """How often the part fits into the whole, up to rounding errors."""
    return math.floor(whole / part + 1e-9)


def _request(cpus: float, gpus: float, memory: int | None) -> str:
    parts = [_cpus(cpus)] if cpus > LEAST_CORES or not (gpus or memory) else []
    parts += [_gpus(gpus)] if gpus else []
    parts += [gibibytes(memory)] if memory is not None else []
    return " and ".join(parts)


def _supply(nodes: Sequence[Node]) -> str:
    cpus, gpus, memory = (
        sum(values) for values in zip(*((n.cpus, n.gpus, n.memory) for n in nodes), strict=True)
    )
    return ", ".join([_cpus(cpus), *([_gpus(gpus)] if gpus else []), gibibytes(int(memory))])


def _cpus(amount: float) -> str:
    return f"{amount:g} CPU{'' if amount == 1 else 's'}"


def _gpus(amount: float) -> str:
    return f"{amount:g} GPU{'' if amount == 1 else 's'}"
