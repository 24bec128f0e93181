"""The benchmarks run; what they measure is asserted nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def lines_of(name: str, *options: str) -> list[str]:
    """What a benchmark prints."""
    command = [sys.executable, str(BENCHMARKS / name), *options]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.slow
def test_the_driver_is_measured_beside_its_peer() -> None:
    lines = lines_of("driver.py", "--finished", "12", "--trials", "2", "--rounds", "1")
    assert [line.split()[0] for line in lines[2:]] == ["study.optimize", "hpsearch", "ratio"]


@pytest.mark.slow
@pytest.mark.ray
def test_whole_searches_are_measured_beside_their_peers() -> None:
    names = ["study.optimize", "hpsearch optuna", "Tuner.fit, reuse_actors", "hpsearch ray"]
    sizes = ["--trials", "2", "--reports", "2", "--rounds", "1"]
    lines = lines_of("overhead.py", *sizes, "--only", *names)
    assert [line[:26].strip() for line in lines[3:7]] == names
    assert [len(line[26:].split()) for line in lines[3:7]] == [4] * 4
    assert lines[7::2] == ["hpsearch optuna / study.optimize", "hpsearch ray / Tuner.fit, reuse_actors"]


@pytest.mark.slow
@pytest.mark.ray
def test_early_stopping_is_compared_on_both_backends() -> None:
    lines = lines_of("early_stopping.py", "--trials", "4", "--seeds", "2")
    assert [line.split()[0] for line in lines[2:]] == ["seed", "0", "1", "median"]
    assert {len(line.split()) for line in lines[3:]} == {10}


@pytest.mark.slow
def test_checkpoints_are_measured(tmp_path: Path) -> None:
    sizes = ["--only", "lora", "--rounds", "1", "--samples", "32"]
    lines = lines_of("checkpoint.py", *sizes, "--folder", str(tmp_path))
    assert [line.split(",")[0] for line in lines[3:]] == ["lora", "lora"]
    assert [len(line[32:].split()) for line in lines[3:]] == [8, 8]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_going_on_after_a_kill_is_measured() -> None:
    lines = lines_of("resume.py", "--finished", "3", "--rounds", "1", "--only", "optuna")
    assert lines[2].split()[:2] == ["optuna", "3"]
    assert len(lines) == 3 and len(lines[2].split()) == 5
