"""One of several processes that train runs together, one after another; the first prints what they came to.

python ranks_of_runs.py '[{"strategy": ..., "objective": ..., "params": ..., "folder": ..., "stop": ...}]'
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hpsearch.trainer.config import LoraConfig, PretrainConfig
from hpsearch.trainer.loop import fit
from hpsearch.trainer.ranks import Group, joined
from hpsearch.trainer.run import Report


class Stopped(BaseException):
    """What a search throws through a run."""


def trained(asked: dict[str, Any]) -> list[list[float]]:
    told: list[list[float]] = []

    def listen(report: Report) -> None:
        told.append([report.step, report.value, report.metrics["train_loss"], report.metrics["grad_norm"]])
        if report.step == asked.get("stop"):
            raise Stopped

    kind = LoraConfig if asked["objective"] == "lora" else PretrainConfig
    group = Group(dist.get_rank(), dist.get_world_size(), sharded=asked["strategy"] == "fsdp")
    folder = Path(asked["folder"]) if "folder" in asked else None
    config = kind.from_params(asked["params"])
    with suppress(Stopped):
        fit(config, on_report=listen, checkpoint=folder, resume_from=folder, ranks=group)
    return told


if __name__ == "__main__":
    torch.set_num_threads(1)
    joined("ddp")
    found = [trained(asked) for asked in json.loads(sys.argv[1])]
    if dist.get_rank() == 0:
        print(json.dumps(found))
    dist.destroy_process_group()
