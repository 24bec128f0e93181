"""Generates text from the models of the built-in objectives, for the search's commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..trainer.checkpoint import CHECKPOINT
from ..trainer.model.build import pick_device
from ..trainer.output.export import ADAPTER, MODEL, load_kept, load_model
from ..trainer.output.generate import Sampling, generate
from .errors import trainer_errors


def model_file(folder: Path) -> Path | None:
    """The file to load of a run: a whole model, else an adapter, else a checkpoint; None if there is none."""
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
    """Continue `prompt` by `count` bytes with the model in a file; `trainer.output.generate` has the options.

    With `checkpoint`, a place or `best`, `model` is the folder of a run's checkpoints.
    Raises `ObjectiveError` if there is no such model of ours, or no such device.
    """
    with trainer_errors():
        loaded = load_model(model) if checkpoint is None else load_kept(model, checkpoint)
        sampling = Sampling(temperature, top_k, top_p)
        yield from generate(loaded.to(pick_device(device)), prompt, count=count, sampling=sampling, seed=seed)
