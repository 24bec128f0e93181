"""What each of several processes that train a trial together is told: the variables of torchrun.

| variable | what it is |
|---|---|
| `RANK`, `LOCAL_RANK` | the number of this process among those of the trial, from 0; rank 0 reports |
| `WORLD_SIZE`, `LOCAL_WORLD_SIZE` | how many there are |
| `MASTER_ADDR`, `MASTER_PORT` | where they meet: rank 0 listens there |

So `torch.distributed.init_process_group()`, Accelerate, Lightning and DeepSpeed need to be told nothing. All
processes of a trial are on one machine.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

HERE = "127.0.0.1"
# How an objective of hpsearch's own shares a trial.
STRATEGY = "HPSEARCH_STRATEGY"  # ddp, fsdp or deepspeed
ZERO_STAGE = "HPSEARCH_ZERO_STAGE"  # of deepspeed


def sharing(strategy: str = "ddp", zero_stage: int = 0) -> dict[str, str]:
    """The variables by which a process of an objective of hpsearch's own knows how it shares a trial."""
    return {STRATEGY: strategy, ZERO_STAGE: str(zero_stage)}


@contextmanager
def meeting(count: int) -> Iterator[list[dict[str, str]]]:
    """The variables of each of so many processes; none for one alone. Their port is theirs meanwhile."""
    if count == 1:
        yield [{}]
        return
    with _port() as port:
        common = {
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
            "GROUP_RANK": "0",
            "MASTER_ADDR": HERE,
            "MASTER_PORT": str(port),
            "TORCHELASTIC_USE_AGENT_STORE": "False",  # as a torchrun around the search would have it
        }
        if sys.platform == "linux" and "GLOO_SOCKET_IFNAME" not in os.environ:
            common["GLOO_SOCKET_IFNAME"] = "lo"  # gloo would look for what the machine's name stands for
        yield [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


@contextmanager
def _port() -> Iterator[int]:
    """A free port; on Linux nobody else is given it while it is bound here, and rank 0 may listen there."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as whoever listens there has it
        bound.bind((HERE, 0))
        port: int = bound.getsockname()[1]
        if sys.platform != "linux":
            bound.close()  # elsewhere nobody may bind it twice
        yield port
