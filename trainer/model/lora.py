"""Low-rank adapters: W stays as it is, and a run learns a small change beside it. Here for K runs at once.

            x [K, tokens, in]
            |-----------------------.
            |                    dropout
            |                       A  [K, r, in]     uniform at the start
      W [out, in]  frozen           B  [K, r, out]    zero at the start
            |                       * alpha / r
            '---------- + ----------'
                        y [K, tokens, out]

Hu et al. 2021, "LoRA", section 4.1. B is zero, so training starts exactly at the base. Both matrices have a
row for each rank (the paper's B is the transpose): so laid out, B's gradients are ten times faster on a CPU.

W is the same for all K runs, and one matrix product serves them all; A and B are each run's own. They are
stacked where their ranks, filled up to 8, 16, 32, ..., are equal: a row of zeros in A and B has a gradient of
zeros in both, so what a rank is filled up with stays zero, and no mask is needed. Alone or not, a run is
filled up to the same, and so computes the same bits.

A run keeps its adapters as two matrices, `lora_A` [r, all in] and `lora_B` [r, all out], whose columns are
those of all adapted linears in the model's order: two tensors to stack, clip and move, and not one per layer.

DoRA (Liu et al. 2024, equation 5) trains the length of each row of W + scale * B' A apart from its direction:
`lora_M` [all out]. The product is multiplied by it, over the length that the row has. Dropout is on what the
adapters see alone, as without DoRA.

The layer owns the base's `weight` under the key that it had, so a base loads into an adapted model unchanged.
For a validation and on export the change is added to a copy of W (`merged`): adding and subtracting it would
move the base a little each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .gpt import GPT

Tensors = dict[str, Tensor]
Mask = Callable[[Tensor], Tensor]  # x [K, tokens, in] -> what to multiply it with, of the same shape


@dataclass(slots=True)
class Placed:
    """What a linear computes with in this pass."""

    matrices: list[Tensor] = field(default_factory=list)  # A [k, r, in], B [k, r, out] of each stack in turn
    lengths: Tensor | None = None  # DoRA's magnitudes of the rows of W + scale * B' A, [K, 1, out]
    scale: Tensor = field(default_factory=lambda: torch.empty(0))  # [K, 1, 1]
    mask: Mask | None = None  # of the adapters' input, while they train with dropout
    merged: Tensor | None = None  # the weight with one run's adapters in it, where nothing trains


class LoraLinear(nn.Module):
    """A linear without bias whose `weight` [out, in] is frozen, with the adapters of K runs beside it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = linear.weight.requires_grad_(False)
        self.placed = Placed()  # one attribute: a module's own take long to set
        self.drawn: Tensor | None = None  # the mask of the next `forward`, where it was drawn before

    def forward(self, x: Tensor) -> Tensor:
        """x [K * tokens, in] -> x W' + scale * (x * mask) A' B [K * tokens, out], for each run its own."""
        placed = self.placed
        if placed.merged is not None:
            return F.linear(x, placed.merged)
        mask = self.drawn
        if mask is None and placed.mask is not None:
            mask = placed.mask(_packed(x.detach(), placed.scale))
        found: Tensor = _LoraProduct.apply(  # type: ignore[no-untyped-call]
            x, self.weight, placed.scale, mask, *placed.matrices
        )
        if placed.lengths is not None:
            lengths = placed.lengths / self._lengths()
            found = (_packed(found, lengths) * lengths).view(found.shape)
        return found

    def draw(self, x: Tensor) -> None:
        """Draw already the mask of the next `forward`, with as many tokens as x has."""
        if self.placed.mask is not None:
            runs = self.placed.scale.shape[0]
            self.drawn = self.placed.mask(x.new_empty(runs, len(x) // runs, self.weight.shape[1]))

    @torch.no_grad()
    def _lengths(self) -> Tensor:
        """The lengths of the rows of W + scale * B' A, [K, 1, out], without making that sum.

        Its gradient is left out, as DoRA's authors propose (section 4.3): it costs memory, and gains nothing.
        """
        own = self.weight.square().sum(1)
        found = []
        for part, A, B in _stacks(self.placed.matrices):
            scale = part(self.placed.scale)
            mixed = 2 * scale * F.linear(A, self.weight) + scale.square() * torch.bmm(torch.bmm(A, A.mT), B)
            found.append((own + (B * mixed).sum(1, keepdim=True)).clamp_(min=0).sqrt_())
        return torch.cat(found)


class _LoraProduct(torch.autograd.Function):
    """The product with its gradient written out: autograd's own takes a tenth longer for a whole step.

    Under autocast both passes compute in its type; autograd brings the gradients into that of the inputs.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, scale: Tensor, mask: Tensor | None, *matrices: Tensor
    ) -> Tensor:
        kind = x.device.type
        if torch.is_autocast_enabled(kind):
            dtype = torch.get_autocast_dtype(kind)
            with torch.autocast(kind, enabled=False):
                cast = None if mask is None else mask.to(dtype)
                lower = [matrix.to(dtype) for matrix in matrices]
                return _LoraProduct.forward(ctx, x.to(dtype), weight.to(dtype), scale, cast, *lower)
        seen = _packed(x, scale)
        seen = seen if mask is None else seen * mask
        product = torch.mm(x, weight.T)
        y = _packed(product, scale)
        lows = []  # [k, tokens, r]
        for part, A, B in _stacks(matrices):
            low = torch.bmm(part(seen), A.mT).mul_(part(scale))
            part(y).baddbmm_(low, B)
            lows.append(low)
        ctx.save_for_backward(seen, weight, scale, mask, *matrices, *lows)
        return product

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        seen, weight, scale, mask, *rest = ctx.saved_tensors
        lows = rest[len(rest) // 3 * 2 :]
        product = torch.mm(gradient, weight) if ctx.needs_input_grad[0] else None
        dx = None if product is None else _packed(product, scale)
        dy = _packed(gradient.contiguous(), scale)
        found: list[Tensor] = []
        for (part, A, B), low in zip(_stacks(rest[: len(rest) // 3 * 2]), lows, strict=True):
            dlow = torch.bmm(part(dy), B.mT).mul_(part(scale))
            found += [torch.bmm(dlow.mT, part(seen)), torch.bmm(low.mT, part(dy))]
            if dx is not None and mask is None:
                part(dx).baddbmm_(dlow, A)
            elif dx is not None:
                part(dx).addcmul_(torch.bmm(dlow, A), part(mask))
        return product, None, None, None, *found


def _packed(x: Tensor, scale: Tensor) -> Tensor:
    """x [K * tokens, width] as [K, tokens, width], where `scale` is that of K runs."""
    return x.view(scale.shape[0], -1, x.shape[1])


Part = Callable[[Tensor], Tensor]  # of a tensor [K, ...], that of some of the runs


def _stacks(matrices: Sequence[Tensor]) -> Iterator[tuple[Part, Tensor, Tensor]]:
    """For each stack: what takes its runs' part of a tensor, its A and its B."""
    if len(matrices) == 2:
        yield _whole, matrices[0], matrices[1]  # a view of all would cost as much as a small product
        return
    first = 0
    for A, B in zip(matrices[::2], matrices[1::2], strict=True):
        yield itemgetter(slice(first, first + A.shape[0])), A, B
        first += A.shape[0]


def _whole(tensor: Tensor) -> Tensor:
    return tensor


class Lora:
    """The adapters of a model: on which linears they are, and whose they are now."""

    def __init__(self, model: GPT, targets: tuple[str, ...], *, dora: bool = False) -> None:
        """Freeze `model` and make its linears `targets`, of every block, carry adapters."""
        model.requires_grad_(False)
        self.layers: dict[str, LoraLinear] = {}
        for number, block in enumerate(model.blocks):
            for target in targets:
                layer = LoraLinear(getattr(block, target))
                setattr(block, target, layer)
                self.layers[f"blocks.{number}.{target}"] = layer
        shapes = [layer.weight.shape for layer in self.layers.values()]
        inputs, outputs = [width for _, width in shapes], [width for width, _ in shapes]
        self._widths = {"lora_A": inputs, "lora_B": outputs}
        if dora:
            self._widths["lora_M"] = outputs

    def start(self, r: int, generator: torch.Generator) -> Tensors:
        """The adapters of a new run: A uniform in +-1/sqrt(in), as `nn.Linear` starts its weight; B zero.

        DoRA's `lora_M` [all out] begins as the lengths of the base's rows.
        """
        drawn = [
            torch.empty(r, width).uniform_(-(width**-0.5), width**-0.5, generator=generator)
            for width in self._widths["lora_A"]
        ]
        found = {"lora_A": torch.cat(drawn, 1), "lora_B": torch.zeros(r, sum(self._widths["lora_B"]))}
        if "lora_M" in self._widths:
            rows = [layer.weight.square().sum(1).sqrt().cpu() for layer in self.layers.values()]
            found["lora_M"] = torch.cat(rows)
        return found

    def place(self, stacks: Sequence[Mapping[str, Tensor]], scale: Tensor, mask: Mask | None = None) -> None:
        """Let the model compute with the adapters of K runs; `scale` [K].

        A stack is `lora_A` [k, r, all in], `lora_B` [k, r, all out] and for DoRA `lora_M` [k, 1, all out].
        Each is split for all layers at once: the gradient of that is one concatenation.
        """
        split = [
            {name: torch.split(stack[name], widths, -1) for name, widths in self._widths.items()}
            for stack in stacks
        ]
        scale = scale.view(-1, 1, 1)
        for number, layer in enumerate(self.layers.values()):
            matrices = [parts[name][number] for parts in split for name in ("lora_A", "lora_B")]
            dora = "lora_M" in self._widths
            lengths = torch.cat([parts["lora_M"][number] for parts in split]) if dora else None
            layer.placed = Placed(matrices, lengths, scale, mask)

    def named(self, adapters: Mapping[str, Tensor]) -> Tensors:
        """One run's by layer: `blocks.0.qkv.lora_A` [r, in], `blocks.0.qkv.lora_B` [r, out], ..."""
        parts = {name: torch.split(adapters[name], widths, -1) for name, widths in self._widths.items()}
        return {f"{layer}.{name}": parts[name][i] for i, layer in enumerate(self.layers) for name in parts}

    def gathered(self, named: Mapping[str, Tensor]) -> Tensors:
        """The inverse of `named`. Raises `KeyError` where one is missing."""
        return {
            name: torch.cat([named[f"{layer}.{name}"] for layer in self.layers], -1) for name in self._widths
        }

    def hold(self, adapters: Mapping[str, Tensor], scale: float) -> None:
        """Let the model compute with one run's adapters, merged: a tenth faster, where nothing trains."""
        for name, weight in self.merged(adapters, scale).items():
            self.layers[name].placed = Placed(merged=weight)

    def merged(self, adapters: Mapping[str, Tensor], scale: float) -> Tensors:
        """By layer, the weight of a plain linear that computes what one run's does, up to rounding.

        That is W + scale * B' A, for DoRA with its rows brought to the lengths that were trained.
        """
        named, found = self.named(adapters), {}
        for name, layer in self.layers.items():
            A, B = named[f"{name}.lora_A"], named[f"{name}.lora_B"]
            weight = torch.addmm(layer.weight, B.T, A, alpha=scale)
            if "lora_M" in adapters:
                weight *= (named[f"{name}.lora_M"] / weight.square().sum(1).sqrt())[:, None]
            found[name] = weight
        return found
