"""Reads the energy counters of GPUs and processors: joules since some moment, of which differences tell.

GPUs by NVML (of NVIDIA, since Volta; not of parts of one, MIG). Processors by RAPL, as Linux shows it in
powercap for Intel and AMD: for the whole package, and to root alone unless the machine's owner allows others.
Reading needs no network. What cannot be read is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

POWERCAP = Path("/sys/class/powercap")
MICRO, MILLI = 1e-6, 1e-3


def gpu_joules(devices: Sequence[str]) -> float | None:
    """The counters of some GPUs, as CUDA_VISIBLE_DEVICES names them, summed."""
    import pynvml

    try:
        return sum(MILLI * int(pynvml.nvmlDeviceGetTotalEnergyConsumption(_handle(name))) for name in devices)
    except pynvml.NVMLError:
        return None


@cache
def _handle(device: str) -> Any:
    import pynvml

    from ..resources import nvml_device

    pynvml.nvmlInit()
    return nvml_device(device)


class Packages:
    """The counters of this machine's processors, summed."""

    def __init__(self, root: Path = POWERCAP) -> None:
        self._zones = sorted(
            zone for zone in root.glob("intel-rapl:*") if zone.name.count(":") == 1 and _is_package(zone)
        )
        self._before: dict[Path, int] = {}
        self._turns = 0  # microjoules of counters that began anew

    def joules(self) -> float | None:
        """The sum; to be asked more often than once a minute, as counters begin anew after some."""
        total = self._turns
        if not self._zones:
            return None
        try:
            for zone in self._zones:
                now = int((zone / "energy_uj").read_text())
                if now < self._before.get(zone, now):
                    turn = int((zone / "max_energy_range_uj").read_text())
                    self._turns += turn
                    total += turn
                self._before[zone] = now
                total += now
        except (OSError, ValueError):
            return None
        return MICRO * total

    @property
    def obstacle(self) -> str | None:
        """Why they cannot be read; None where they can."""
        if not self._zones:
            return f"the system shows no counter of the processors in {POWERCAP}"
        if self.joules() is None:
            return f"{self._zones[0] / 'energy_uj'} cannot be read by this user"
        return None


def _is_package(zone: Path) -> bool:
    try:
        return (zone / "name").read_text().startswith("package")
    except OSError:
        return False
