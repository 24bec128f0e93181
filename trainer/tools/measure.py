"""Measures how much faster runs train together than one after another on this machine.

    echo '{"configs": [{...}, ...], "sizes": [1, 2, 4], "gpus": 0.5}' | python -m
    hpsearch.trainer.tools.measure

Prints JSON: for each size of pack, the seconds of a tick of all configurations, and the peak of memory in
megabytes up to that size. It runs in its own process, with the threads of a worker: the driver loads no
torch.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch

from ..config.models import LoraConfig
from ..memory import host_peak
from ..model.build import on_device
from ..packs.factory import new_pack, pack_key
from ..packs.pack import Pack
from ..runs.run import GptRun, tick

MAX_SECONDS = 60.0  # no round starts later than this
ROUNDS = 3
TICKS_PER_ROUND = 2  # measured of each pack in a round, after the slow first ones


def measure(configs: Sequence[LoraConfig], sizes: Sequence[int]) -> dict[str, Any]:
    """Median `seconds` of a tick of all runs and the peak `memory_mb`, by size of pack, smallest first.

    Sizes that do not fit in a GPU's memory are left out. So are runs that cannot be packed: the size of packs
    does not affect them.
    """
    packs: dict[object, Pack] = {}
    runs = []
    for config in map(on_device, configs):
        if (key := pack_key(config)) is None:
            continue
        if key not in packs:
            packs[key] = new_pack(config)
        runs.append(GptRun(config, packs[key]))
    began = time.monotonic()
    measured: dict[int, list[float]] = {size: [] for size in sorted(sizes)}
    peaks: dict[str, float] = {}
    for _ in range(ROUNDS):
        for size in list(measured):
            try:
                measured[size].append(sum(_seconds(group) for group in _groups(runs, size)))
            except torch.OutOfMemoryError:  # larger packs do not fit either
                measured = {less: times for less, times in measured.items() if less < size}
                break
            peaks.setdefault(str(size), host_peak())
        if time.monotonic() - began > MAX_SECONDS:
            break
    seconds = {str(size): statistics.median(times) for size, times in measured.items()}
    return {"seconds": seconds, "memory_mb": peaks}


def _groups(runs: Sequence[GptRun], size: int) -> list[list[GptRun]]:
    """The packs of a worker with `size` trials at a time, if they came in this order."""
    groups = []
    for first in range(0, len(runs), size):
        some = sorted(runs[first : first + size], key=lambda run: str(pack_key(run.config)))
        groups += [list(alike) for _, alike in itertools.groupby(some, key=lambda run: pack_key(run.config))]
    return groups


def _seconds(runs: list[GptRun]) -> float:
    pack = runs[0].pack
    runs = sorted(runs, key=lambda run: pack.order(run.config))
    pack.set_members([run.member for run in runs])
    for _ in range(pack.slow_ticks):
        tick(runs)
    pack.wait()
    began = time.perf_counter()
    for _ in range(TICKS_PER_ROUND):
        tick(runs)
        pack.wait()
    return (time.perf_counter() - began) / TICKS_PER_ROUND


if __name__ == "__main__":
    request = json.load(sys.stdin)
    if 0 < request["gpus"] < 1:  # a worker will have this share of a GPU
        torch.cuda.set_per_process_memory_fraction(request["gpus"])
    configs = [LoraConfig.from_params(params) for params in request["configs"]]
    print(json.dumps(measure(configs, request["sizes"])))
