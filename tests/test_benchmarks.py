"""The benchmarks run; what they measure is asserted nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.slow
def test_the_driver_is_measured_beside_its_peer() -> None:
    command = [
        sys.executable,
        str(BENCHMARKS / "driver.py"),
        "--finished",
        "12",
        "--trials",
        "2",
        "--rounds",
        "1",
    ]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()[2:]] == [
        "study.optimize",
        "hpsearch",
        "ratio",
    ]
