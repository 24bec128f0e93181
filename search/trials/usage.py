"""What trials use of machines: the time of a worker, GPUs, and the energy of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

DIGITS = 6  # after the point, as stored


@dataclass(frozen=True)
class Usage:
    """What a training, or several, used, from when a worker had it to its last report or end.

    Trials of a pack share what their worker has. None: it is unknown, and so is every sum with it.
    """

    seconds: float | None = 0.0  # of a worker
    machine_seconds: float | None = 0.0  # those, times the part of the machine's cores that a worker has
    gpu_seconds: float | None = 0.0  # those, times the GPUs that a worker has
    gpu_wh: float | None = 0.0  # watt-hours of these GPUs, by NVML's counter
    cpu_wh: float | None = 0.0  # watt-hours of this part of the processors, by RAPL's counter

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(_sum, self._amounts, other._amounts))

    def __sub__(self, other: Usage) -> Usage:
        return self + other.times(-1.0)

    def times(self, part: float) -> Usage:
        """A multiple of it."""
        return Usage(*(None if amount is None else amount * part for amount in self._amounts))

    @property
    def _amounts(self) -> list[float | None]:
        return [getattr(self, field.name) for field in fields(self)]

    @property
    def watt_hours(self) -> float | None:
        """The energy that was measured; None where nothing was."""
        known = [
            each for each in (self.gpu_wh if self.gpu_seconds else None, self.cpu_wh) if each is not None
        ]
        return sum(known) if known else None

    @property
    def measured(self) -> list[str]:
        """Whose energy was measured: `GPU`, `CPU package`."""
        gpu = ["GPU"] if self.gpu_seconds and self.gpu_wh is not None else []
        return gpu + (["CPU package"] if self.seconds and self.cpu_wh is not None else [])

    def to_list(self) -> list[float | None]:
        """Its amounts in the order of the fields, as they are stored and sent."""
        return [None if amount is None else round(amount, DIGITS) for amount in self._amounts]

    @classmethod
    def from_list(cls, amounts: Sequence[float | None]) -> Self:
        """The usage whose `to_list` this is."""
        return cls(*amounts)


def unknown(seconds: float) -> Usage:
    """Of an attempt that took so many seconds, and of which nothing else is known."""
    return Usage(seconds, None, None, None, None)


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
