"""How many trials run at a time, and which share of the machine each of them has."""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from ..errors import UsageError

if TYPE_CHECKING:
    from ...spaces.settings import Execution

WORKER_MEMORY = 1 << 30  # bytes a worker is counted with where their number is `auto` and no limit is given
FINEST = 4  # decimals of a share of a core that Ray tells apart


@dataclass(frozen=True)
class Node:
    """What one machine has for trials."""

    cpus: float
    gpus: float
    memory: int  # bytes


@dataclass(frozen=True)
class Share:
    """How many trials run at a time, and what each has of its node."""

    workers: int
    cpus: float
    gpus: float
    memory: int | None  # bytes; None: no limit

    @property
    def threads(self) -> int:
        """Threads that a trial computes with."""
        return max(1, int(self.cpus))


def this_machine() -> Node:
    """The machine this runs on, without loading torch."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Node(cores, len(visible_gpus()), psutil.virtual_memory().available)


def visible_gpus() -> list[str]:
    """The CUDA devices of this machine, as CUDA_VISIBLE_DEVICES names them, without loading torch."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [device for device in chosen.split(",") if device not in ("", "-1")]
    return [str(i) for i in range(len(glob.glob("/dev/nvidia[0-9]*")))]


def share(execution: Execution, nodes: Sequence[Node], where: str) -> Share:
    """The share of each trial, from what the space file says and what `where` has.

    What is not said is shared evenly: a GPU per trial where there are some, then cores. Raises `UsageError`
    where a trial, or the number of workers asked for, does not fit.
    """
    wanted, memory = execution.workers, execution.max_memory
    count = None if wanted == "auto" else int(wanted)
    _check_one_trial(execution, nodes, where)
    gpus = execution.gpus_per_trial
    if gpus is None:
        there = sum(int(node.gpus) for node in nodes)
        gpus = 0.0 if not there else 1.0 if count is None else min(1.0, 1 / math.ceil(count / there))
    cpus = execution.cpus_per_trial
    if count is None:
        # A trial with a GPU of its own takes whatever cores there are to it.
        least = (1.0 if not gpus else None) if cpus is None else cpus
        count = max(1, _capacity(nodes, least, gpus, memory or (None if gpus else WORKER_MEMORY)))
    elif (fit := _capacity(nodes, cpus, gpus, memory)) < count:
        raise UsageError(
            f"execution.workers: {count} trials at a time, each with {_says(cpus, gpus, memory)}, "
            f"do not fit; {where} has {_has(nodes)}, enough for {fit}"
        )
    return Share(count, _even_share(nodes, count) if cpus is None else cpus, gpus, memory)


def _check_one_trial(execution: Execution, nodes: Sequence[Node], where: str) -> None:
    """Refuse what no node has for even one trial."""
    for field, asked, there, show in (
        ("cpus_per_trial", execution.cpus_per_trial, max(node.cpus for node in nodes), _cpus),
        ("gpus_per_trial", execution.gpus_per_trial, max(node.gpus for node in nodes), _gpus),
        ("max_memory", execution.max_memory, max(node.memory for node in nodes), gibibytes),
    ):
        if asked is not None and asked > there:
            most = "" if len(nodes) == 1 else " on its largest node"
            raise UsageError(
                f"execution.{field}: a trial asks for {show(asked)}; {where} has {show(there)}{most}"
            )


def _capacity(nodes: Sequence[Node], cpus: float | None, gpus: float, memory: int | None) -> int:
    """How many trials of this size run at a time; None asks for nothing of a kind."""
    total = 0
    for node in nodes:
        limits = [] if cpus is None else [_times(node.cpus, cpus)]
        if gpus:  # a trial has its share of one device, never of two
            limits.append(int(node.gpus) * _times(1, gpus) if gpus < 1 else int(node.gpus // gpus))
        if memory is not None:
            limits.append(node.memory // memory)
        total += min(limits, default=10**6)
    return total


def _even_share(nodes: Sequence[Node], workers: int) -> float:
    """The largest equal share of cores with which so many workers fit; whole above one."""
    shares = {node.cpus / k for node in nodes for k in range(1, workers + 1) if node.cpus}
    fitting = [
        cpus for cpus in map(_rounded, shares) if cpus and _capacity(nodes, cpus, 0.0, None) >= workers
    ]
    return max(fitting, default=10.0**-FINEST)


def _rounded(cpus: float) -> float:
    return float(math.floor(cpus)) if cpus >= 1 else math.floor(cpus * 10**FINEST) / 10**FINEST


def _times(whole: float, part: float) -> int:
    """How often the part goes into the whole, whatever the last bit of a quotient says."""
    return math.floor(whole / part + 1e-9)


def _says(cpus: float | None, gpus: float, memory: int | None) -> str:
    parts = [_cpus(cpus)] if cpus is not None else []
    parts += [_gpus(gpus)] if gpus else []
    parts += [gibibytes(memory)] if memory is not None else []
    return " and ".join(parts)


def _has(nodes: Sequence[Node]) -> str:
    cpus, gpus, memory = (
        sum(values) for values in zip(*((n.cpus, n.gpus, n.memory) for n in nodes), strict=True)
    )
    return ", ".join([_cpus(cpus), *([_gpus(gpus)] if gpus else []), gibibytes(int(memory))])


def _cpus(amount: float) -> str:
    return f"{amount:g} CPU{'' if amount == 1 else 's'}"


def _gpus(amount: float) -> str:
    return f"{amount:g} GPU{'' if amount == 1 else 's'}"


def gibibytes(amount: float) -> str:
    """An amount of memory in words."""
    return f"{amount / 2**30:.3g} GiB" if amount >= 2**30 else f"{amount / 2**20:.3g} MiB"
