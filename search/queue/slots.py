"""What of a machine a study gets: particular cores and GPUs, and a share of the memory.

A machine is cut into lanes of even size. A study takes one of them, unless it asks for a certain amount: then
it gets that, wherever it is free.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from ...storage.wanted import Wanted
from ..backends.resources import MEMORY_VARIABLE, cores_in, machine_memory, this_machine, usable_cores
from ..backends.resources import visible_gpus as visible
from ..formatting import counted, gibibytes
from ..values import Value

SETTLE_SECONDS = 60.0  # that a study runs at least before it makes room for another
RAY_STUDIES = 8  # at the same time, on clusters that share out their resources themselves


@dataclass(frozen=True)
class Need:
    """What a study asks for."""

    cpus: int = 0
    gpus: int = 0
    memory: int = 0  # bytes
    lane: bool = False  # whether it takes a whole lane, which has at least these
    ray: int = 0  # 1: it runs on a cluster, and takes nothing of this machine

    def __str__(self) -> str:
        if self.ray:
            return "a place on a Ray cluster"
        parts = [counted(self.cpus, "cores")] if self.cpus else []
        parts += [counted(self.gpus, "GPUs")] if self.gpus else []
        parts += [gibibytes(self.memory)] if self.memory else []
        asked = ", ".join(parts)
        return (f"a lane with {asked}" if asked else "a lane") if self.lane else asked or "nothing"


@dataclass(frozen=True)
class Slice(Value):
    """A part of a machine."""

    cpus: tuple[int, ...] = ()  # their numbers
    gpus: tuple[str, ...] = ()  # as CUDA_VISIBLE_DEVICES names them
    memory: int = 0  # bytes
    ray: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether it takes nothing of the machine."""
        return not (self.cpus or self.gpus or self.memory or self.ray)

    @classmethod
    def in_variables(cls, variables: Mapping[str, str]) -> Slice | None:
        """The slice that a process was started in, as its variables say; None where they say none."""
        cpus, memory = cores_in(variables), variables.get(MEMORY_VARIABLE, "")
        if not memory.isdecimal():
            return None
        gpus = [each for each in variables.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
        return cls(tuple(cpus), tuple(gpus), int(memory))


@dataclass(frozen=True)
class Machine:
    """What studies share: the cores, GPUs and memory of a machine."""

    cpus: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    memory: int = 0
    lanes: int = 1
    ray_studies: int = RAY_STUDIES
    settle: float = SETTLE_SECONDS  # that a study runs at least before it makes room for another
    price_per_hour: float | None = None  # of a GPU, or of all of it where it has none

    @classmethod
    def here(cls, lanes: int = 1, settle: float | None = None, ray_studies: int | None = None) -> Machine:
        """This machine, as far as this process may use it."""
        cores = usable_cores()[: int(this_machine().cpus)]  # a container may have fewer than it sees
        return cls(
            tuple(cores),
            tuple(visible()),
            machine_memory(),
            lanes,
            RAY_STUDIES if ray_studies is None else ray_studies,
            SETTLE_SECONDS if settle is None else settle,
        )

    @cached_property
    def even(self) -> tuple[Slice, ...]:
        """The lanes. There are at most as many as cores; the first ones have what does not divide evenly."""
        count = max(1, min(self.lanes, len(self.cpus)))

        def parts(size: int) -> list[tuple[int, int]]:
            return list(pairwise(math.ceil(size * k / count) for k in range(count + 1)))

        shares = zip(parts(len(self.cpus)), parts(len(self.gpus)), strict=True)
        return tuple(Slice(self.cpus[a:b], self.gpus[c:d], self.memory // count) for (a, b), (c, d) in shares)

    def pick(self, need: Need, taken: Iterable[Slice]) -> Slice | None:
        """The slice for a need beside those that are taken; None where there is no room."""
        taken = tuple(taken)
        cpus = {core for each in taken for core in each.cpus}
        gpus = {device for each in taken for device in each.gpus}
        memory = self.memory - sum(each.memory for each in taken)
        if need.ray:
            busy = sum(each.ray for each in taken)
            return Slice(ray=1) if busy < self.ray_studies else None
        if need.lane:
            for lane in self.even:
                is_free = cpus.isdisjoint(lane.cpus) and gpus.isdisjoint(lane.gpus)
                if is_free and lane.memory <= memory and _has(lane, need):
                    return lane
            return None
        free = [core for core in reversed(self.cpus) if core not in cpus]  # the first lanes stay whole
        devices = [device for device in reversed(self.gpus) if device not in gpus]
        if len(free) < need.cpus or len(devices) < need.gpus or need.memory > memory:
            return None
        return Slice(
            tuple(sorted(free[: need.cpus])),
            tuple(each for each in self.gpus if each in devices[: need.gpus]),
            need.memory,
        )

    def free(self, taken: Iterable[Slice]) -> Slice:
        """What nobody has."""
        taken = tuple(taken)
        cpus = {core for each in taken for core in each.cpus}
        gpus = {device for each in taken for device in each.gpus}
        memory = self.memory - sum(each.memory for each in taken)
        return Slice(
            tuple(core for core in self.cpus if core not in cpus),
            tuple(device for device in self.gpus if device not in gpus),
            max(0, memory),
        )

    def has_room(self, place: Slice, others: Iterable[Slice]) -> bool:
        """Whether a slice can be in use at the same time as others."""
        others = tuple(others)
        return (
            all(set(place.cpus).isdisjoint(each.cpus) for each in others)
            and all(set(place.gpus).isdisjoint(each.gpus) for each in others)
            and place.memory + sum(each.memory for each in others) <= self.memory
            and place.ray + sum(each.ray for each in others) <= self.ray_studies
        )

    def __str__(self) -> str:
        parts = [counted(len(self.cpus), "cores")]
        parts += [counted(len(self.gpus), "GPUs")] if self.gpus else []
        lanes = f" in {len(self.even)} lanes" if len(self.even) > 1 else ""
        return f"{', '.join(parts)} and {gibibytes(self.memory)}{lanes}"


def _has(lane: Slice, need: Need) -> bool:
    return len(lane.cpus) >= need.cpus and len(lane.gpus) >= need.gpus and lane.memory >= need.memory


def need_of(
    wanted: Wanted | None, execution: Mapping[str, Any], begun: Mapping[str, Any], machine: Machine
) -> Need:
    """What a study asks for: its slots, what its `execution` adds up to, or else a lane.

    `begun`: the provenance of a study that was begun, each of whose workers needs the cores and GPUs of the
    first ones.
    """
    backend = "optuna" if wanted is None else wanted.backend
    if wanted is not None and wanted.ray_address is not None:
        return Need(ray=1)
    if backend == "remote":  # its workers are elsewhere
        return Need()
    least = _least(execution, begun)
    asked = _asked(wanted, execution, machine)
    if asked is None:
        return replace(least, lane=True)
    return Need(max(asked.cpus, least.cpus), max(asked.gpus, least.gpus), max(asked.memory, least.memory))


def _least(execution: Mapping[str, Any], begun: Mapping[str, Any]) -> Need:
    """What one worker needs at least."""
    ranks = execution.get("processes_per_trial") or 1
    cpus, gpus = execution.get("cpus_per_trial"), execution.get("gpus_per_trial")
    if cpus is None:
        cpus = (begun.get("threads") or 0) * ranks
    if gpus is None:
        gpus = begun.get("gpus") or 0
    memory = execution.get("max_memory") or 0
    return Need(math.ceil(cpus), math.ceil(gpus), int(memory))


def _asked(wanted: Wanted | None, execution: Mapping[str, Any], machine: Machine) -> Need | None:
    """The amount that a study asks for; None: a lane."""
    slots = None if wanted is None else wanted.slots
    if slots is not None and (slots.cpus, slots.gpus, slots.memory) != (None, None, None):
        cpus, gpus = slots.cpus, slots.gpus
        share = _share(cpus, len(machine.cpus)) or _share(gpus, len(machine.gpus))
        if cpus is None:
            even = math.ceil(len(machine.cpus) * share) if share else len(machine.even[0].cpus)
            cpus = max(1, min(even, len(machine.cpus)))
        memory = slots.memory
        if memory is None:
            memory = min(machine.memory, int(machine.memory * (share or _share(cpus, len(machine.cpus)))))
        return Need(cpus, gpus or 0, memory)
    workers, cpus = execution.get("workers"), execution.get("cpus_per_trial")
    if not isinstance(workers, int) or cpus is None:
        return None
    pack = execution.get("pack")
    trials = workers * (pack if isinstance(pack, int) else 1)
    cores = math.ceil(workers * cpus)
    memory = execution.get("max_memory")
    if memory is None:
        share = _share(cores, len(machine.cpus))
        memory, trials = int(machine.memory * min(1.0, share)), 1
    gpus = execution.get("gpus_per_trial") or 0
    return Need(cores, math.ceil(workers * gpus), int(memory * trials))


def _share(part: int | None, whole: int) -> float:
    return part / whole if part and whole else 0.0
