"""Measures what the trials of a worker use: each the part of the machine that it holds, for as long.

A trial is charged its share of what the worker has, of the time and of the energy, whatever else runs on the
machine. So trials of a pack, of several workers on one GPU and of several searches add up to what there was,
and what nobody holds is charged to nobody.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

from ...trials.usage import Usage
from .. import cgroups
from .energy import Packages, gpu_joules

READ_SECONDS = 1.0  # between two readings of the counters, while the same trials run
WATT_HOUR = 3600.0  # joules
Counter = Callable[[], float | None]


@dataclass(frozen=True)
class Holding:
    """What a worker has of its machine."""

    cpus: float
    gpus: float  # a fraction of one, or whole ones
    devices: tuple[str, ...] = ()  # those GPUs, as CUDA_VISIBLE_DEVICES names them

    @classmethod
    def of(cls, cpus: float, gpus: float, environment: Mapping[str, str]) -> Holding:
        """What a worker has in this environment."""
        visible = environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpus else []
        return cls(cpus, gpus, tuple(name for name in visible if name))


class Meter:
    """What the trials of one worker have used."""

    def __init__(
        self,
        holding: Holding,
        *,
        gpu: Counter | None = None,
        cpu: Counter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`gpu` and `cpu` give joules; by default the counters of this machine."""
        cores = os.cpu_count() or 1
        self._holding = holding
        self._of_machine = min(1.0, holding.cpus / min(cores, cgroups.cores()))
        self._of_packages = min(1.0, holding.cpus / cores)
        self._gpu = gpu or partial(gpu_joules, holding.devices)
        self._cpu = cpu or Packages().joules
        self._clock = clock
        self._at = self._read_at = clock()
        self._shares: dict[int, float] = {}  # seconds since the last reading, by trial
        self._joules: tuple[float | None, float | None] = (None, None)  # at the last reading
        self._used: dict[int, Usage] = {}

    def begin(self, number: int) -> None:
        """The worker gets a trial, besides those for which time was just settled."""
        self._read()
        self._used[number] = Usage()

    def settle(self, numbers: Collection[int]) -> None:
        """These trials have shared the worker since the last call."""
        now = self._clock()
        passed, self._at = now - self._at, now
        for number in numbers:
            self._shares[number] = self._shares.get(number, 0.0) + passed / len(numbers)
        if now - self._read_at >= READ_SECONDS:
            self._read()

    def of(self, number: int, *, ended: bool) -> Usage:
        """What a trial has used since it began here. Until it has `ended`, energy lags by up to a second."""
        if ended:
            self._read()
        seconds = self._shares.get(number, 0.0)
        return self._used.get(number, Usage()) + self._time(seconds)

    def _read(self) -> None:
        """Read the counters, and charge what was used since the last reading to those who have used it."""
        now, holds = self._clock(), self._holding
        before = self._joules
        self._joules = (self._gpu() if holds.gpus and holds.devices else None), self._cpu()
        gpu, cpu = (_rise(*each) for each in zip(before, self._joules, strict=True))
        length = now - self._read_at
        for number, seconds in self._shares.items():
            part = seconds / length if length > 0 else 0.0
            energy = Usage(
                gpu_wh=0.0 if not holds.gpus else _watt_hours(gpu, part * min(1.0, holds.gpus)),
                cpu_wh=_watt_hours(cpu, part * self._of_packages),
            )
            self._used[number] = self._used.get(number, Usage()) + self._time(seconds) + energy
        self._shares.clear()
        self._read_at = now

    def _time(self, seconds: float) -> Usage:
        return Usage(seconds, seconds * self._of_machine, seconds * self._holding.gpus)


def _rise(before: float | None, now: float | None) -> float | None:
    """By how much a counter has risen; None where it was not read twice, or has begun anew."""
    return None if before is None or now is None or now < before else now - before


def _watt_hours(joules: float | None, part: float) -> float | None:
    return None if joules is None else joules * part / WATT_HOUR
