"""The pack: how many trials a worker trains at once."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...objectives.info import ObjectiveInfo
from ...spaces import Spec
from ..errors import SearchError, UsageError
from ..trials.seeds import derived_seed
from .resources import WorkerShare, memory_for
from .tools import answer_of, start_tool
from .worker.channel import Message
from .worker.process import environment

if TYPE_CHECKING:
    from ..engine.driver import Driver

PACK_SIZES = (1, 2, 4, 8)  # that `auto` tries
GPU_PACK_SIZES = (*PACK_SIZES, 16, 32)  # on a GPU, which a few trials leave mostly idle
LEAST_SPEEDUP = 1.05  # of a pack over single trials; less is noise


def check_pack(spec: Spec) -> None:
    """Raise `UsageError` where the trials of a study cannot be packed as its space asks."""
    pack = spec.execution.pack
    if pack not in ("auto", 1) and not ObjectiveInfo(spec.objective_words).can_pack:
        raise UsageError(
            f"execution.pack: found {pack}, but only trials of the objective lora are packed: "
            "only these train adapters of one shared base"
        )


def pack_size(spec: Spec, share: WorkerShare, memory: int) -> tuple[int, str | None]:
    """The number of trials that a worker trains at once, and a notice for the user about how it was chosen.

    `auto` takes no more trials than fit into the machine's `memory` and its GPU, both by what was measured
    and by what `max_memory` allows them.
    """
    asked = spec.execution.pack
    if asked != "auto":
        return asked, None
    if not ObjectiveInfo(spec.objective_words).can_pack:
        return 1, None
    rng = random.Random(derived_seed(0, "pack"))
    sizes = GPU_PACK_SIZES if share.gpus else PACK_SIZES
    configs = [spec.space.passed(spec.space.sample(rng)) for _ in range(sizes[-1])]
    measured = _measured(configs, sizes, share)
    if "1" not in measured["seconds"]:
        return 1, "each worker trains one trial at a time: some trials need all the memory of a GPU"
    if not any(measured["seconds"].values()):
        return 1, "each worker trains one trial at a time: their computation cannot be shared"
    room = memory / share.workers
    rates = {
        size: measured["seconds"]["1"] / measured["seconds"][str(size)]
        for size in sizes
        if str(size) in measured["seconds"]
        and max(measured["memory_mb"][str(size)] * 1e6, memory_for(spec.execution, size) or 0) <= room
    }
    best = max(rates, key=lambda size: rates[size], default=1)
    if best == 1 or rates[best] < LEAST_SPEEDUP:
        return 1, "each worker trains one trial at a time: packs were measured to be no faster"
    return (
        best,
        f"each worker trains {best} trials at once, measured {rates[best]:.2g} times as fast",
    )


def pack_after(messages: Sequence[Message], pack: int, driver: Driver) -> int:
    """The pack from now on: half of one that took too much memory."""
    crowded = next((message for message in messages if message["kind"] == "crowded"), None)
    if crowded is None:
        return pack
    fewer: int = min(pack, crowded["together"] // 2)
    driver.say(f"{crowded['message']}; each worker trains {fewer} at a time from now on")
    return fewer


def _measured(
    configs: Sequence[Mapping[str, Any]], sizes: Sequence[int], share: WorkerShare
) -> dict[str, dict[str, float]]:
    """Run `trainer.tools.measure` and return what it prints."""
    tool = start_tool("trainer.tools.measure", environment(share.threads))
    try:
        measured: dict[str, dict[str, float]] = answer_of(
            tool, {"configs": configs, "sizes": sizes, "gpus": share.gpus}
        )
    except SearchError as error:
        raise SearchError(f"execution.pack: packs cannot be measured: {error}; set a number") from None
    return measured
