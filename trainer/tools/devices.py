"""What torch can train on here: `python -m hpsearch.trainer.tools.devices` prints it as JSON.

A process of its own, because a driver that does not fit its torch may take whoever loads it down.
"""

from __future__ import annotations

import json
from typing import Any

import torch


def devices() -> list[dict[str, Any]]:
    """The accelerators that torch sees, each with its kind, name and bytes of memory; then the CPU."""
    found: list[dict[str, Any]] = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(index)
            found.append({"kind": "cuda", "name": about.name, "memory": about.total_memory})
    if torch.backends.mps.is_available():
        found.append({"kind": "mps", "name": "Apple GPU", "memory": None})
    return [*found, {"kind": "cpu", "name": torch.backends.cpu.get_cpu_capability(), "memory": None}]


if __name__ == "__main__":
    print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "devices": devices()}))
