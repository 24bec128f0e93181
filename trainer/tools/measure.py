"""How much faster some runs train together than one after another, on this machine: measured in seconds.

    echo '{"configs": [{...}, ...], "sizes": [1, 2, 4], "gpus": 0.5}' | python -m
    hpsearch.trainer.tools.measure

Prints JSON: by size of pack, the seconds that all configurations take for a tick, and the megabytes of memory
that were held up to that size. A process of its own, with the threads of a worker: its driver loads no torch.
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
from ..runs.run import GptRun

SECONDS = 60.0  # that a measurement takes at most, before the round that it is in
ROUNDS = 3
TICKS = 2  # of each pack in a round, after those that are slow


def measure(configs: Sequence[LoraConfig], sizes: Sequence[int]) -> dict[str, Any]:
    """Median `seconds` of a tick of all runs and the peak `memory_mb`, by size of pack from the least.

    Sizes for which a GPU has too little memory are left out, and runs that train alone: they take the same
    beside packs of any size.
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
    found: dict[int, list[float]] = {size: [] for size in sorted(sizes)}
    peaks: dict[str, float] = {}
    for _ in range(ROUNDS):
        for size in list(found):
            try:
                found[size].append(sum(_seconds(group) for group in _groups(runs, size)))
            except torch.OutOfMemoryError:  # so there is no room for more either
                found = {less: times for less, times in found.items() if less < size}
                break
            peaks.setdefault(str(size), host_peak())
        if time.monotonic() - began > SECONDS:
            break
    seconds = {str(size): statistics.median(times) for size, times in found.items()}
    return {"seconds": seconds, "memory_mb": peaks}


def _groups(runs: Sequence[GptRun], size: int) -> list[list[GptRun]]:
    """The packs that a worker with so many trials would make of them, if they came in this order."""
    groups = []
    for first in range(0, len(runs), size):
        there = sorted(runs[first : first + size], key=lambda run: str(pack_key(run.config)))
        groups += [list(alike) for _, alike in itertools.groupby(there, key=lambda run: pack_key(run.config))]
    return groups


def _seconds(runs: list[GptRun]) -> float:
    pack = runs[0].pack
    pack.set_runs(runs)
    for _ in range(pack.slow_ticks):
        pack.tick()
    pack.wait()
    began = time.perf_counter()
    for _ in range(TICKS):
        pack.tick()
        pack.wait()
    return (time.perf_counter() - began) / TICKS


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    if 0 < asked["gpus"] < 1:  # it will have so much of one for itself
        torch.cuda.set_per_process_memory_fraction(asked["gpus"])
    made = [LoraConfig.from_params(params) for params in asked["configs"]]
    print(json.dumps(measure(made, asked["sizes"])))
