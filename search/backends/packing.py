"""How many trials a worker trains at once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...objectives.catalog import can_pack
from ...spaces import Spec
from ..errors import SearchError, UsageError
from ..trials.seeds import derived_seed
from .resources import Share, memory_for
from .worker.channel import Message
from .worker.process import environment

if TYPE_CHECKING:
    from ..engine.driver import Driver

SIZES = (1, 2, 4, 8)  # among which `auto` chooses
GPU_SIZES = (*SIZES, 16, 32)  # where a few trials leave most of it idle
GAIN = 1.05  # that a pack must be faster by: less is the machine's noise


def check_pack(spec: Spec) -> None:
    """Raise `UsageError` where the trials of a study cannot be packed as it asks."""
    pack = spec.execution.pack
    if pack not in ("auto", 1) and not can_pack(spec.objective_words):
        raise UsageError(
            f"execution.pack: found {pack}, but only trials of the objective lora are packed: "
            "they train adapters of the same base"
        )


def pack_size(spec: Spec, share: Share, memory: int) -> tuple[int, str | None]:
    """How many trials a worker trains at once, and what to tell the user of how that was found.

    `auto` takes no more than there is room for in the machine's `memory` and on its GPU: by what was
    measured, and by what `max_memory` would let them take.
    """
    asked = spec.execution.pack
    if asked != "auto":
        return asked, None
    if not can_pack(spec.objective_words):
        return 1, None
    rng = random.Random(derived_seed(0, "pack"))
    sizes = GPU_SIZES if share.gpus else SIZES
    configs = [spec.space.passed(spec.space.sample(rng)) for _ in range(sizes[-1])]
    found = _measured(configs, sizes, share)
    if "1" not in found["seconds"]:
        return 1, "each worker trains one trial at a time: some of them need all the memory of a GPU"
    if not any(found["seconds"].values()):
        return 1, "each worker trains one trial at a time: what they compute cannot be shared"
    room = memory / share.workers
    rates = {
        size: found["seconds"]["1"] / found["seconds"][str(size)]
        for size in sizes
        if str(size) in found["seconds"]
        and max(found["memory_mb"][str(size)] * 1e6, memory_for(spec.execution, size) or 0) <= room
    }
    best = max(rates, key=lambda size: rates[size], default=1)
    if best == 1 or rates[best] < GAIN:
        return 1, "each worker trains one trial at a time: several at once were measured no faster"
    return (
        best,
        f"each worker trains {best} trials at once, measured {rates[best]:.2g} times as fast",
    )


def pack_after(messages: Sequence[Message], pack: int, driver: Driver) -> int:
    """How many trials a worker trains at once from now on: half of those that took too much memory."""
    crowded = next((message for message in messages if message["kind"] == "crowded"), None)
    if crowded is None:
        return pack
    fewer: int = min(pack, crowded["together"] // 2)
    driver.say(f"{crowded['message']}; each worker trains {fewer} at a time from now on")
    return fewer


def _measured(
    configs: Sequence[Mapping[str, Any]], sizes: Sequence[int], share: Share
) -> dict[str, dict[str, float]]:
    """What `trainer.tools.measure` prints."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "hpsearch.trainer.tools.measure"],
        input=json.dumps({"configs": configs, "sizes": sizes, "gpus": share.gpus}),
        env=environment(share.threads),
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise SearchError(f"execution.pack: packs cannot be measured: {last}; give a number")
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    return found
