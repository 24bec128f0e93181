"""The memory of GPUs, asked of NVML: here a library of that name, for a machine without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Two GPUs of 80 and 40 GiB, and a MIG device of 10 GiB in the first. A handle is a pointer to its device.
LIBRARY = """
#include <string.h>
typedef struct { const char *uuid; unsigned long long total; } device;
static device devices[] = {{"GPU-1a2b", 80ULL << 30}, {"GPU-3c4d", 40ULL << 30}, {"MIG-5e6f", 10ULL << 30}};
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **found) {
    if (index > 1) return 2;
    *found = &devices[index];
    return 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, device **found) {
    for (int i = 0; i < 3; i++) if (!strcmp(uuid, devices[i].uuid)) { *found = &devices[i]; return 0; }
    return 6;
}
int nvmlDeviceGetUUID(device *asked, char *uuid, unsigned length) {
    strncpy(uuid, asked->uuid, length);
    return 0;
}
int nvmlDeviceGetMemoryInfo(device *asked, unsigned long long *memory) {
    memory[0] = asked->total; memory[1] = memory[2] = 0;
    return 0;
}
"""
ASK = "from hpsearch.search.backends.resources import gpu_memory; print(gpu_memory())"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of NVIDIA's library."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "nvml.c").write_text(LIBRARY)
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, folder / "nvml.c"], check=True)
    return folder


def ask(visible: str, libraries: Path) -> str:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": visible, "LD_LIBRARY_PATH": str(libraries)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", ASK], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("visible", "gibibytes"),
    [("0", 80), ("0,1", 40), ("GPU-1a2b", 80), ("GPU-3c", 40), ("MIG-5e6f", 10), ("MIG-5e6f,1", 10)],
)
def test_the_smallest_visible_device_counts(driver: Path, visible: str, gibibytes: int) -> None:
    assert ask(visible, driver) == str(gibibytes << 30)


@pytest.mark.parametrize("visible", ["7", "GPU-none", ""])
def test_no_such_device_has_no_memory(driver: Path, visible: str) -> None:
    assert ask(visible, driver) == "None"


def test_without_a_driver_nothing_is_known(tmp_path: Path) -> None:
    assert ask("0", tmp_path) == "None"
