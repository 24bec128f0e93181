"""What trials use: each the part of the machine that it holds, for as long, and never twice."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pynvml
import pytest

from hpsearch.search.backends import cgroups
from hpsearch.search.backends.worker import energy, meter
from hpsearch.search.backends.worker.energy import Packages, gpu_joules
from hpsearch.search.backends.worker.meter import Holding, Meter
from hpsearch.search.trials.usage import Usage

ROOT = Path(__file__).parents[3]


class Machine:
    """A clock, and counters that rise with it by so many watts."""

    def __init__(self, gpu: float | None = None, cpu: float | None = None) -> None:
        self.now = 100.0
        self.watts = {"gpu": gpu, "cpu": cpu}

    def joules(self, what: str) -> float | None:
        watts = self.watts[what]
        return None if watts is None else watts * self.now

    def meter(self, holding: Holding) -> Meter:
        return Meter(
            holding, gpu=lambda: self.joules("gpu"), cpu=lambda: self.joules("cpu"), clock=lambda: self.now
        )


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(cgroups, "cores", lambda: 2.0)


def close(used: Usage, *amounts: float | None) -> bool:
    return used.to_list() == pytest.approx(list(amounts))


def test_trials_of_a_pack_add_up_to_their_worker() -> None:
    machine = Machine(gpu=360.0, cpu=36.0)
    meter = machine.meter(Holding(1, 1, ("0",)))
    meter.settle([])
    meter.begin(1)
    machine.now += 10
    meter.settle([1])
    meter.begin(2)
    for _ in range(20):  # reports
        machine.now += 0.5
        meter.settle([1, 2])
    assert close(meter.of(1, ended=True), 15, 15 / 2, 15, 1.5, 15 * 36 / 3600 / 4)
    machine.now += 5
    meter.settle([2])
    second = meter.of(2, ended=True)
    assert close(second, 10, 5, 10, 1.0, 10 * 36 / 3600 / 4)
    total = meter.of(1, ended=True) + second
    assert close(total, 25, 12.5, 25, 2.5, 25 * 36 / 3600 / 4)
    machine.now += 100  # nobody holds it
    meter.settle([])
    meter.begin(1)  # it resumes
    machine.now += 1
    meter.settle([1])
    assert close(meter.of(1, ended=True), 1, 0.5, 1, 0.1, 36 / 3600 / 4)


@pytest.mark.parametrize(
    ("holding", "gpu_seconds", "gpu_wh"),
    [
        (Holding(1, 0.25, ("0",)), 2.5, 0.25),
        (Holding(1, 2, ("0", "1")), 20, 1.0),
        (Holding(1, 0), 0, 0.0),
        (Holding(1, 1), 10, None),
    ],
)
def test_a_trial_is_charged_the_gpus_that_it_holds(
    holding: Holding, gpu_seconds: float, gpu_wh: float | None
) -> None:
    machine = Machine(gpu=360.0)
    meter = machine.meter(holding)
    meter.begin(1)
    machine.now += 10
    meter.settle([1])
    used = meter.of(1, ended=True)
    assert close(used, 10, 5, gpu_seconds, gpu_wh, None)
    assert used.measured == (["GPU"] if gpu_wh else []) and used.watt_hours == (gpu_wh or None)


def test_what_is_unknown_stays_so() -> None:
    machine = Machine(cpu=36.0)
    meter = machine.meter(Holding(4, 0))
    meter.begin(1)
    machine.now += 10
    machine.watts["cpu"] = None  # its file is gone for a while
    meter.settle([1])
    machine.watts["cpu"] = 36.0
    machine.now += 10
    meter.settle([1])
    used = meter.of(1, ended=True)
    assert (used.seconds, used.cpu_wh, used.watt_hours, used.measured) == (20, None, None, [])


def test_the_time_of_a_report_is_exact_between_two_readings() -> None:
    machine = Machine(cpu=36.0)
    meter = machine.meter(Holding(4, 0))
    meter.begin(1)
    machine.now += 0.5
    meter.settle([1])
    assert close(meter.of(1, ended=False), 0.5, 0.5, 0, 0, 0)
    assert close(meter.of(1, ended=True), 0.5, 0.5, 0, 0, 0.5 * 36 / 3600)


def test_rapl_is_read_by_packages_and_begins_anew(tmp_path: Path) -> None:
    """As Linux shows two packages: links to zones within zones, and a second way to the same counter."""
    shown, devices = tmp_path / "class" / "powercap", tmp_path / "devices" / "virtual" / "powercap"
    shown.mkdir(parents=True)
    for zone, name, joules in (
        ("intel-rapl/intel-rapl:0", "package-0", 5),
        ("intel-rapl/intel-rapl:0/intel-rapl:0:0", "core", 4),
        ("intel-rapl/intel-rapl:0/intel-rapl:0:1", "dram", 2),
        ("intel-rapl/intel-rapl:1", "package-1-die-0", 7),
        ("intel-rapl/intel-rapl:2", "psys", 99),
        ("intel-rapl-mmio/intel-rapl-mmio:0", "package-0", 5),
    ):
        there = devices / zone
        there.mkdir(parents=True)
        (there / "name").write_text(f"{name}\n")
        (there / "energy_uj").write_text(f"{joules * 1_000_000}\n")
        (there / "max_energy_range_uj").write_text("10000000\n")
        (shown / there.name).symlink_to(there)
    for control in ("intel-rapl", "intel-rapl-mmio"):
        (devices / control / "enabled").write_text("1\n")
        (shown / control).symlink_to(devices / control)
    packages = Packages(shown)
    assert packages.joules() == 12 and packages.obstacle is None
    (shown / "intel-rapl:1" / "energy_uj").write_text("1000000\n")
    assert packages.joules() == 16
    assert packages.joules() == 16
    (shown / "intel-rapl:0" / "energy_uj").unlink()
    assert packages.joules() is None and "cannot be read" in str(packages.obstacle)
    assert Packages(shown / "nothing").joules() is None
    assert "shows no counter" in str(Packages(shown / "nothing").obstacle)


def test_nvml_is_read_by_the_names_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    energy._handle.cache_clear()
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    counters = {0: 4000, 1: 6000}
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", counters.__getitem__)
    assert gpu_joules(["0", "1"]) == 10

    def refused(device: int) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", refused)
    assert gpu_joules(["0"]) is None
    energy._handle.cache_clear()


def test_the_library_has_all_that_is_called_of_it() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "search").rglob("*.py"))
    names = set(re.findall(r"pynvml\.(nvml\w+|NVML\w+)", sources))
    assert "nvmlDeviceGetTotalEnergyConsumption" in names
    assert [name for name in names if not hasattr(pynvml, name)] == []


def test_a_worker_holds_the_devices_that_it_sees() -> None:
    visible = {"CUDA_VISIBLE_DEVICES": "2,GPU-5"}
    assert Holding.of(2, 2, visible) == Holding(2, 2, ("2", "GPU-5"))
    assert Holding.of(2, 0, visible) == Holding(2, 0)
    assert Holding.of(2, 1, {}) == Holding(2, 1)
    assert meter.READ_SECONDS < 60  # a counter of a processor begins anew after a minute or more
