"""Text from a trained model, a byte at a time.

    for byte in generate(model, b"def ", count=200, sampling=Sampling(temperature=0.8), seed=0): ...

| option | what is left to draw from |
|---|---|
| `temperature` | all bytes; logits are divided by it, so less than 1 sharpens, 0 leaves the likeliest alone |
| `top_k` | the k likeliest |
| `top_p` | of those, the fewest that together have at least this share (Holtzman et al. 2020, section 3.1) |

Whatever is left is scaled to sum to 1. The draws are made on the CPU, so a seed gives the same text on every
device that gives the same logits.
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
    """`count` bytes that go on from `prompt`, which has at least one.

    The model sees the last `max_length` bytes. Raises `CheckpointError` where its outputs are no numbers.
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
        raise CheckpointError("the model's outputs are no finite numbers: its training diverged")
    found = torch.zeros(logits.shape, dtype=torch.float64)
    if sampling.temperature == 0:
        found[logits.argmax()] = 1.0
        return found
    likeliest_is_0 = logits.double() - logits.max()  # or a small temperature would make infinities of them
    scaled, order = (likeliest_is_0 / sampling.temperature).sort(descending=True, stable=True)
    if sampling.top_k is not None:
        scaled, order = scaled[: sampling.top_k], order[: sampling.top_k]
    left = torch.softmax(scaled, 0)
    if sampling.top_p is not None:
        before = left.cumsum(0) - left  # the share of all that are likelier
        left = left[before < sampling.top_p]  # the first of them always
        order = order[: len(left)]
    found[order] = left / left.sum()
    return found


def draw(chances: Tensor, generator: torch.Generator) -> int:
    """An index, as likely as `chances` says."""
    return int(torch.multinomial(chances, 1, generator=generator))
