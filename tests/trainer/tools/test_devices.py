"""What torch can train on, as other processes are told."""

from __future__ import annotations

import json
import subprocess
import sys

import torch

from hpsearch.trainer.tools.devices import devices


def test_the_cpu_is_always_there_and_comes_last() -> None:
    assert devices()[-1]["kind"] == "cpu"
    assert sum(device["kind"] == "cuda" for device in devices()) == torch.cuda.device_count()


def test_it_is_printed_as_json() -> None:
    command = [sys.executable, "-P", "-m", "hpsearch.trainer.tools.devices"]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert found == {"torch": torch.__version__, "cuda": torch.version.cuda, "devices": devices()}
