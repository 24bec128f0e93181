"""Text from what the built-in objectives train, for the search's commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..trainer.checkpoint import CHECKPOINT
from ..trainer.model.build import pick_device
from ..trainer.output.export import ADAPTER, MODEL, load_kept, load_model
from ..trainer.output.generate import Sampling, generate
from .errors import trainer_errors


def model_file(folder: Path) -> Path | None:
    """What there is to load of a run: a whole model, else an adapter, else a checkpoint; None without any."""
    return next((folder / name for name in (MODEL, ADAPTER, CHECKPOINT) if (folder / name).is_file()), None)


def text_from(
    model: Path,
    prompt: bytes,
    *,
    count: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
    device: str,
    checkpoint: str | None = None,
) -> Iterator[int]:
    """`count` bytes that the model in a file goes on with; `trainer.output.generate` tells how they are
    drawn.

    With `checkpoint`, the place of one or `best`, `model` is the folder of a run's checkpoints.
    Raises `ObjectiveError` where there is no such model of ours, or no such device.
    """
    with trainer_errors():
        found = load_model(model) if checkpoint is None else load_kept(model, checkpoint)
        ready = found.to(pick_device(device))
        yield from generate(
            ready, prompt, count=count, sampling=Sampling(temperature, top_k, top_p), seed=seed
        )
