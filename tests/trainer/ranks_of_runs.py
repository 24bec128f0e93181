"""One of several processes that train runs together, one after another; the first prints what they came to.

python ranks_of_runs.py '[{"strategy": ..., "objective": ..., "params": ..., "folder": ..., "stop": ...}]'
"""

from __future__ import annotations

import faulthandler
import gc
import json
import math
import os
import subprocess
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hpsearch.objectives.info import ObjectiveInfo
from hpsearch.objectives.processes import rendezvous
from hpsearch.trainer.config.training import TrainingConfig
from hpsearch.trainer.ranks import ALONE, ProcessGroup, Ranks, join_ranks
from hpsearch.trainer.runs.base import BaseRun, RunReport, drive, train_to_end
from hpsearch.trainer.runs.run import GptRun

Asked = list[dict[str, Any]]
MODELS: weakref.WeakSet[Any] = (
    weakref.WeakSet()
)  # of the runs of this process, as far as they are still there


def in_processes(count: int, asked: Asked) -> list[list[list[float]]]:
    """The step, loss, training loss and norm of the gradients of each report of each run."""
    with rendezvous(count) as variables:
        words = [sys.executable, __file__, json.dumps(asked)]
        pipes = [subprocess.PIPE, *[subprocess.DEVNULL] * (count - 1)]
        started = [
            subprocess.Popen(words, env=os.environ | its, stdout=pipe)
            for its, pipe in zip(variables, pipes, strict=True)
        ]
        try:
            output, _ = started[0].communicate(timeout=200)
            assert [process.wait(30) for process in started] == [0] * count
        finally:
            for process in started:
                process.kill()
                process.wait()
    found: list[list[list[float]]] = json.loads(output.splitlines()[-1])
    return found


def in_one(config: TrainingConfig, folder: Path | None = None) -> list[list[float]]:
    told: list[list[float]] = []

    def listen(report: RunReport) -> None:
        told.append(told_of(report))

    run = new_run(config)
    train_to_end(run, drive(run, on_report=listen, checkpoint=folder, resume_from=folder))
    return told


def new_run(config: Any, ranks: Ranks = ALONE) -> BaseRun:
    if config.objective == "hf_lora":
        from hpsearch.objectives.hf_lora.run import HfRun

        return HfRun(config, ranks)
    return GptRun(config, ranks=ranks)


def told_of(report: RunReport) -> list[float]:
    return [report.step, report.value, report.metrics["train_loss"], report.metrics["grad_norm"]]


def same(found: list[list[float]], expected: list[list[float]]) -> bool:
    return len(found) == len(expected) and all(
        math.isclose(a, b, abs_tol=1e-5) or (math.isnan(a) and math.isnan(b))
        for mine, its in zip(found, expected, strict=True)
        for a, b in zip(mine, its, strict=True)
    )


class Stopped(BaseException):
    """What a search throws through a run."""


def trained(asked: dict[str, Any]) -> list[list[float]]:
    told: list[list[float]] = []

    def listen(report: RunReport) -> None:
        told.append(told_of(report))
        if report.step == asked.get("stop"):
            raise Stopped

    kind: Any = ObjectiveInfo(asked["objective"]).training
    group = ProcessGroup(
        dist.get_rank(), dist.get_world_size(), asked["strategy"], asked.get("zero_stage", 0)
    )
    folder = Path(asked["folder"]) if "folder" in asked else None
    config = kind.from_params(asked["params"])
    run: Any = new_run(config, group)
    MODELS.add(run.pack.model if isinstance(run, GptRun) else run.model)
    with suppress(Stopped):
        train_to_end(run, drive(run, on_report=listen, checkpoint=folder, resume_from=folder))
    return told


if __name__ == "__main__":
    faulthandler.dump_traceback_later(150, exit=True)  # where it hangs, if it does
    torch.set_num_threads(1)
    join_ranks("ddp")
    found = [trained(asked) for asked in json.loads(sys.argv[1])]
    gc.collect()
    assert not MODELS, "a worker has a run after another for as long as a search takes"
    if dist.get_rank() == 0:
        print(json.dumps(found))
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # as workers do: threads of torch's that Python would wait for may end it by SIGABRT
