"""Objectives of several processes; run by workers, which import this file by its path."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

LAST = 9


def ranked(trial: Any) -> float:
    """Nine reports with a checkpoint at each. Rank 1 has its fault after the fourth of the first attempt."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    done = int((trial.resume_from / "step").read_text()) if trial.resume_from else 0
    with (Path(trial.params["folder"]) / f"{trial.number}.jsonl").open("a") as stream:
        stream.write(json.dumps({"rank": rank, "pid": os.getpid(), "begins": done}) + "\n")
    for step in range(done + 1, LAST + 1):
        total = torch.tensor(float(rank))
        dist.all_reduce(total)
        if rank == 0:
            (trial.checkpoint / "step").write_text(str(step))
        dist.barrier()
        value = trial.params["x"] + float(total) / step
        if trial.params["reports"] == "all" or rank == 0:
            trial.report(value if rank == 0 else -1e9, step=step)
        if rank == 1 and step == 4 and not done:
            _meet(trial.params["fault"])
    return float(trial.params["x"])


def _meet(fault: str) -> None:
    match fault:
        case "SIGKILL":
            if os.fork() == 0:  # leaves a child, which has all that it had open
                time.sleep(600)
            os.kill(os.getpid(), signal.SIGKILL)
        case "memory":
            raise MemoryError("no more of it")
        case "exception":
            raise ValueError("bad luck")
        case "hang":
            time.sleep(600)


def script() -> None:
    """The same as a script, which reports by printing."""
    from hpsearch.objectives import report

    x, number = float(sys.argv[1]), os.environ["HPSEARCH_TRIAL"]
    dist.init_process_group()
    resumes = os.environ["HPSEARCH_RESUME_FROM"]
    for step in range(1, LAST + 1):
        total = torch.tensor(1.0)
        dist.all_reduce(total)
        report(x + float(total) / step if dist.get_rank() == 0 else -1e9, step=step)
        if number == "1" and step == 4 and dist.get_rank() == 1 and not resumes:
            Path(os.environ["HPSEARCH_CHECKPOINT"], "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
    dist.destroy_process_group()


if __name__ == "__main__":
    script()
