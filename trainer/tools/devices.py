"""The devices that torch can train on here: `python -m hpsearch.trainer.tools.devices` prints them as JSON.

It runs in its own process, because a GPU driver that does not fit this torch may crash the process.
"""

from __future__ import annotations

import json
from typing import Any

import torch


def devices() -> list[dict[str, Any]]:
    """The accelerators that torch sees, each with its kind, name and bytes of memory; then the CPU."""
    accelerators: list[dict[str, Any]] = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(index)
            accelerators.append({"kind": "cuda", "name": about.name, "memory": about.total_memory})
    if torch.backends.mps.is_available():
        accelerators.append({"kind": "mps", "name": "Apple GPU", "memory": None})
    return [*accelerators, {"kind": "cpu", "name": torch.backends.cpu.get_cpu_capability(), "memory": None}]


if __name__ == "__main__":
    print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "devices": devices()}))
