"""The environment of the processes that train a trial together: the variables of torchrun.

| variable | meaning |
|---|---|
| `RANK`, `LOCAL_RANK` | the number of this process in the trial, from 0; rank 0 reports |
| `WORLD_SIZE`, `LOCAL_WORLD_SIZE` | the number of processes |
| `MASTER_ADDR`, `MASTER_PORT` | where rank 0 listens |

So `torch.distributed.init_process_group()`, Accelerate, Lightning and DeepSpeed need no configuration. All
processes of a trial are on one machine.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LOCALHOST = "127.0.0.1"
# How a built-in objective shares a trial among processes.
STRATEGY = "HPSEARCH_STRATEGY"  # ddp, fsdp or deepspeed
ZERO_STAGE = "HPSEARCH_ZERO_STAGE"  # of deepspeed


def strategy_variables(strategy: str = "ddp", zero_stage: int = 0) -> dict[str, str]:
    """The variables that tell a process of a built-in objective how it shares a trial."""
    return {STRATEGY: strategy, ZERO_STAGE: str(zero_stage)}


@contextmanager
def rendezvous(count: int) -> Iterator[list[dict[str, str]]]:
    """The variables of each of `count` processes; none for a single one. Reserves their port meanwhile."""
    if count == 1:
        yield [{}]
        return
    with _port() as port:
        common = {
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
            "GROUP_RANK": "0",
            "MASTER_ADDR": LOCALHOST,
            "MASTER_PORT": str(port),
            "TORCHELASTIC_USE_AGENT_STORE": "False",  # overrides that of a torchrun around the search
        }
        if sys.platform == "linux" and "GLOO_SOCKET_IFNAME" not in os.environ:
            common["GLOO_SOCKET_IFNAME"] = "lo"  # else gloo would resolve the machine's name
        yield [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


@contextmanager
def _port() -> Iterator[int]:
    """A free port. On Linux it stays bound here, so no other process gets it, but rank 0 can listen on it."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # rank 0 sets it too
        bound.bind((LOCALHOST, 0))
        port: int = bound.getsockname()[1]
        if sys.platform != "linux":
            bound.close()  # other systems do not allow two sockets to bind it
        yield port
