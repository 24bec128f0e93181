"""Generates text from a trained model, byte by byte.

    for byte in generate(model, b"def ", count=200, sampling=Sampling(temperature=0.8), seed=0): ...

| option | the bytes to draw from |
|---|---|
| `temperature` | all; it divides the logits, so less than 1 sharpens, and 0 leaves only the likeliest |
| `top_k` | the k likeliest |
| `top_p` | of those, the fewest that together have at least this share (Holtzman et al. 2020, section 3.1) |

Their probabilities are scaled to sum to 1. The draws are made on the CPU, so a seed gives the same text on
all devices that give the same logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import CheckpointError
from ..model.gpt import GPT


@dataclass(frozen=True)
class Sampling:
    """How the next byte is drawn."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None


def generate(model: GPT, prompt: bytes, *, count: int, sampling: Sampling, seed: int) -> Iterator[int]:
    """Continue `prompt`, which has at least one byte, by `count` bytes.

    The model sees the last `max_length` bytes. Raises `CheckpointError` if its outputs are not finite.
    """
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    window = list(prompt[-model.shape.max_length :])
    for _ in range(count):
        with torch.inference_mode():
            logits = model(torch.tensor([window], device=device))[-1]
        chosen = draw(probabilities(logits.cpu(), sampling), generator)
        yield chosen
        window = [*window, chosen][-model.shape.max_length :]


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """`logits` [bytes] -> float64 [bytes], which sum to 1."""
    if not torch.isfinite(logits).all():
        raise CheckpointError("the model's outputs are not finite numbers: its training diverged")
    chances = torch.zeros(logits.shape, dtype=torch.float64)
    if sampling.temperature == 0:
        chances[logits.argmax()] = 1.0
        return chances
    likeliest_is_0 = logits.double() - logits.max()  # else a small temperature would make them infinite
    scaled, order = (likeliest_is_0 / sampling.temperature).sort(descending=True, stable=True)
    if sampling.top_k is not None:
        scaled, order = scaled[: sampling.top_k], order[: sampling.top_k]
    left = torch.softmax(scaled, 0)
    if sampling.top_p is not None:
        before = left.cumsum(0) - left  # the share of all likelier bytes
        left = left[before < sampling.top_p]  # always keeps the first
        order = order[: len(left)]
    chances[order] = left / left.sum()
    return chances


def draw(chances: Tensor, generator: torch.Generator) -> int:
    """Draw an index with the probabilities `chances`."""
    return int(torch.multinomial(chances, 1, generator=generator))
