"""The size of hpsearch's own model, and the tensors of a model of that size. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

VOCABULARY = 256  # a token is a byte


@dataclass(frozen=True)
class Shape:
    """The size of a GPT: all that is needed to build one, before its weights are loaded."""

    width: int
    depth: int
    heads: int
    max_length: int

    @property
    def weights(self) -> int:
        """How many weights a model of this size has."""
        block = 12 * self.width**2 + 2 * self.width  # qkv 3, out 1, up 4, down 4; two norms
        outside = 2 * VOCABULARY + self.max_length + 1  # embedding, head, positions, last norm
        return self.depth * block + outside * self.width

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight, by its name in `model.GPT`."""
        width = self.width
        block = {
            "norm_1": (width,),
            "qkv": (3 * width, width),
            "out": (width, width),
            "norm_2": (width,),
            "up": (4 * width, width),
            "down": (width, 4 * width),
        }
        return {
            "token.weight": (VOCABULARY, width),
            "position.weight": (self.max_length, width),
            **{
                f"blocks.{number}.{name}.weight": shape
                for number in range(self.depth)
                for name, shape in block.items()
            },
            "norm.weight": (width,),
            "head.weight": (VOCABULARY, width),
        }
