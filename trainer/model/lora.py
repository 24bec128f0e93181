"""Low-rank adapters for K runs at once: W stays frozen, and each run learns a small change to it.

            x [K, tokens, in]
            |-----------------------.
            |                    dropout
            |                       A  [K, r, in]     uniform at the start
      W [out, in]  frozen           B  [K, r, out]    zero at the start
            |                       * alpha / r
            '---------- + ----------'
                        y [K, tokens, out]

Hu et al. 2021, "LoRA", section 4.1. B is zero, so training starts exactly at the base. Both matrices have one
row for each rank (the paper's B is the transpose): in this layout, B's gradients are ten times faster on a
CPU.

W is the same for all K runs, so one matrix product serves them all; each run has its own A and B. They are
padded to the ranks 8, 16, 32, ... and stacked if their padded ranks are equal. Rows of zeros in A and B have
zero gradients in both, so the padding stays zero without a mask. A run alone is padded to the same rank, and
so computes the same bits.

A run keeps its adapters as two matrices, `lora_A` [r, all in] and `lora_B` [r, all out], whose columns are
those of all adapted linears in the model's order: two tensors to stack, clip and move instead of two per
layer.

DoRA (Liu et al. 2024, equation 5) trains the length of each row of W + scale * B' A apart from its direction,
as `lora_M` [all out]. The product is multiplied by `lora_M` and divided by the row's actual length. Dropout
applies only to the adapters' input, as without DoRA.

The layer keeps the base's `weight` under its original key, so a base loads into an adapted model unchanged.
For validation and export the change is added to a copy of W (`merged`): adding and subtracting it would shift
the base a little each time.
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
Mask = Callable[[Tensor], Tensor]  # x [K, tokens, in] -> a factor of the same shape


@dataclass(slots=True)
class BoundAdapters:
    """The adapters that a linear uses in the current pass."""

    matrices: list[Tensor] = field(default_factory=list)  # A [k, r, in], B [k, r, out] of each stack in turn
    lengths: Tensor | None = None  # DoRA's magnitudes of the rows of W + scale * B' A, [K, 1, out]
    scale: Tensor = field(default_factory=lambda: torch.empty(0))  # [K, 1, 1]
    mask: Mask | None = None  # of the adapters' input, in training with dropout
    merged: Tensor | None = None  # the weight with one run's adapters merged, in evaluation


class LoraLinear(nn.Module):
    """A linear without bias whose `weight` [out, in] is frozen, with the adapters of K runs beside it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = linear.weight.requires_grad_(False)
        self.bound = BoundAdapters()  # a single attribute, because setting one on a module is slow
        self.drawn: Tensor | None = None  # a mask for the next `forward` that was drawn in advance

    def forward(self, x: Tensor) -> Tensor:
        """x [K * tokens, in] -> x W' + scale * (x * mask) A' B [K * tokens, out], by run."""
        bound = self.bound
        if bound.merged is not None:
            return F.linear(x, bound.merged)
        mask = self.drawn
        if mask is None and bound.mask is not None:
            mask = bound.mask(_packed(x.detach(), bound.scale))
        y: Tensor = _LoraProduct.apply(  # type: ignore[no-untyped-call]
            x, self.weight, bound.scale, mask, *bound.matrices
        )
        if bound.lengths is not None:
            lengths = bound.lengths / self._lengths()
            y = (_packed(y, lengths) * lengths).view(y.shape)
        return y

    def draw(self, x: Tensor) -> None:
        """Draw the mask of the next `forward` in advance, for as many tokens as x has."""
        if self.bound.mask is not None:
            runs = self.bound.scale.shape[0]
            self.drawn = self.bound.mask(x.new_empty(runs, len(x) // runs, self.weight.shape[1]))

    @torch.no_grad()
    def _lengths(self) -> Tensor:
        """The lengths of the rows of W + scale * B' A, [K, 1, out], without computing that sum.

        They have no gradient, as DoRA's authors propose (section 4.3): it would cost memory and gain nothing.
        """
        own = self.weight.square().sum(1)
        lengths = []
        for part, A, B in _stacks(self.bound.matrices):
            scale = part(self.bound.scale)
            mixed = 2 * scale * F.linear(A, self.weight) + scale.square() * torch.bmm(torch.bmm(A, A.mT), B)
            lengths.append((own + (B * mixed).sum(1, keepdim=True)).clamp_(min=0).sqrt_())
        return torch.cat(lengths)


class _LoraProduct(torch.autograd.Function):
    """The product with an explicit gradient: with autograd a whole step takes a tenth longer.

    Under autocast both passes compute in its type; autograd converts the gradients to the types of the
    inputs.
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
        of_matrices: list[Tensor] = []
        for (part, A, B), low in zip(_stacks(rest[: len(rest) // 3 * 2]), lows, strict=True):
            dlow = torch.bmm(part(dy), B.mT).mul_(part(scale))
            of_matrices += [torch.bmm(dlow.mT, part(seen)), torch.bmm(low.mT, part(dy))]
            if dx is not None and mask is None:
                part(dx).baddbmm_(dlow, A)
            elif dx is not None:
                part(dx).addcmul_(torch.bmm(dlow, A), part(mask))
        return product, None, None, None, *of_matrices


def _packed(x: Tensor, scale: Tensor) -> Tensor:
    """x [K * tokens, width] as [K, tokens, width], for K scales."""
    return x.view(scale.shape[0], -1, x.shape[1])


TakeRuns = Callable[[Tensor], Tensor]  # takes the runs of one stack from a tensor [K, ...]


def _stacks(matrices: Sequence[Tensor]) -> Iterator[tuple[TakeRuns, Tensor, Tensor]]:
    """For each stack: the function that takes its runs from a tensor, its A and its B."""
    if len(matrices) == 2:
        yield _whole, matrices[0], matrices[1]  # slicing would cost as much as a small product
        return
    first = 0
    for A, B in zip(matrices[::2], matrices[1::2], strict=True):
        yield itemgetter(slice(first, first + A.shape[0])), A, B
        first += A.shape[0]


def _whole(tensor: Tensor) -> Tensor:
    return tensor


class Lora:
    """The adapted linears of a model, and the adapters that they currently use."""

    def __init__(self, model: GPT, targets: tuple[str, ...], *, dora: bool = False) -> None:
        """Freeze `model`, and replace the linears `targets` of every block by adapted ones."""
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

    def init_adapters(self, r: int, generator: torch.Generator) -> Tensors:
        """The initial adapters of a run: A uniform in +-1/sqrt(in), like `nn.Linear`; B zero.

        DoRA's `lora_M` [all out] starts as the lengths of the base's rows.
        """
        drawn = [
            torch.empty(r, width).uniform_(-(width**-0.5), width**-0.5, generator=generator)
            for width in self._widths["lora_A"]
        ]
        adapters = {"lora_A": torch.cat(drawn, 1), "lora_B": torch.zeros(r, sum(self._widths["lora_B"]))}
        if "lora_M" in self._widths:
            rows = [layer.weight.square().sum(1).sqrt().cpu() for layer in self.layers.values()]
            adapters["lora_M"] = torch.cat(rows)
        return adapters

    def bind(self, stacks: Sequence[Mapping[str, Tensor]], scale: Tensor, mask: Mask | None = None) -> None:
        """Make the model use the adapters of K runs; `scale` [K].

        A stack has `lora_A` [k, r, all in], `lora_B` [k, r, all out] and for DoRA `lora_M` [k, 1, all out].
        Each is split for all layers at once, so that its gradient is a single concatenation.
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
            layer.bound = BoundAdapters(matrices, lengths, scale, mask)

    def by_layer(self, adapters: Mapping[str, Tensor]) -> Tensors:
        """A run's adapters by layer: `blocks.0.qkv.lora_A` [r, in], `blocks.0.qkv.lora_B` [r, out], ..."""
        parts = {name: torch.split(adapters[name], widths, -1) for name, widths in self._widths.items()}
        return {f"{layer}.{name}": parts[name][i] for i, layer in enumerate(self.layers) for name in parts}

    def side_by_side(self, named: Mapping[str, Tensor]) -> Tensors:
        """The inverse of `by_layer`. Raises `KeyError` if one is missing."""
        return {
            name: torch.cat([named[f"{layer}.{name}"] for layer in self.layers], -1) for name in self._widths
        }

    def bind_merged(self, adapters: Mapping[str, Tensor], scale: float) -> None:
        """Make the model use one run's adapters, merged into the weights: a tenth faster in evaluation."""
        for name, weight in self.merged(adapters, scale).items():
            self.layers[name].bound = BoundAdapters(merged=weight)

    def merged(self, adapters: Mapping[str, Tensor], scale: float) -> Tensors:
        """By layer, the weight of a plain linear that computes the same as the adapted one, up to rounding.

        That is W + scale * B' A, for DoRA with rows scaled to the trained lengths.
        """
        named, weights = self.by_layer(adapters), {}
        for name, layer in self.layers.items():
            A, B = named[f"{name}.lora_A"], named[f"{name}.lora_B"]
            weight = torch.addmm(layer.weight, B.T, A, alpha=scale)
            if "lora_M" in adapters:
                weight *= (named[f"{name}.lora_M"] / weight.square().sum(1).sqrt())[:, None]
            weights[name] = weight
        return weights
